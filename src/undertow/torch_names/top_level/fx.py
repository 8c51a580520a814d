"""PyTorch's tracer, as far as programs need it to be imported. undertow.OpMode shows operations while they run."""

from __future__ import annotations

from typing import Any, TypeVar

from undertow.torch_names.absent import absent

T = TypeVar("T")


def wrap(fn_or_name: T) -> T:
    """Say that a function is not to be looked into when a model is traced; it is returned as it is."""
    return fn_or_name


def has_side_effect(fn: T) -> T:
    return fn


def __getattr__(name: str) -> Any:
    if name.startswith(("__", "pytest")):
        raise AttributeError(name)
    return absent(f"torch.fx.{name}")
