"""The part of PyTorch's compiler that programs talk to: nothing is compiled, and what it is told changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

from undertow.nn.module import Module
from undertow.torch_names.missing import refusal

from ..compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    run,
    substitute_in_graph,
)

disallow_in_graph = forbid_in_graph = nonstrict_trace = allow_in_graph


class Switches(SimpleNamespace):
    """Switches that can be set; those that nobody has set are off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False

    def patch(self, *args: Any, **kwargs: Any) -> Any:
        return contextlib.nullcontext()


config = Switches(cache_size_limit=8, recompile_limit=8)


class OptimizedModule(Module):
    """The class of modules that PyTorch has compiled: nothing is one of it."""


def optimize(*args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing."""
    return lambda function: function


def explain(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """What PyTorch's compiler makes of a function."""
    refusal("torch._dynamo.explain", "nothing is compiled here: functions run as they are called.")


def export(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """A function as a graph."""
    refusal("torch._dynamo.export", "undertow.fx.experimental.proxy_tensor.make_fx writes one (docs/libraries.md).")


def graph_break(msg: str = "") -> None:
    """There is no graph to break."""


def is_dynamo_supported() -> bool:
    return False


def mark_dynamic(t: Any, index: Any, **kwargs: Any) -> None:
    """Every size is dynamic."""


maybe_mark_dynamic = mark_static = mark_unbacked = mark_dynamic


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing depends on addresses."""


@contextlib.contextmanager
def set_stance(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "explain",
    "export", "forbid_in_graph", "graph_break", "is_compiling", "is_dynamo_supported", "list_backends", "mark_dynamic",
    "mark_static", "mark_static_address", "maybe_mark_dynamic", "nonstrict_trace", "optimize", "reset", "run",
    "substitute_in_graph",
]  # fmt: skip
