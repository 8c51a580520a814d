"""The devices themselves: the extension undertow._cuda, whether it can be used, what is known of GPUs.

UNDERTOW_CUDA_DEVICES says how many emulated ones there are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any

from undertow.scopes import Scope, set_value


def is_emulated() -> bool:
    """Whether UNDERTOW_CUDA=emulate asks for a device whose kernels run on the CPU."""
    return os.environ.get("UNDERTOW_CUDA") == "emulate"


@functools.cache
def extension() -> Any:
    """undertow._cuda; RuntimeError where it was not built."""
    try:
        return import_module("undertow._cuda")
    except ImportError as error:
        raise RuntimeError(
            f"device 'cuda' needs the extension undertow._cuda, which is not there ({error}). It is built with "
            "undertow, by a C compiler; CUDA is not needed for that. Or use device='cpu'."
        ) from None


@functools.cache
def array_type() -> Any:
    """The class that those of all arrays on GPUs are made of."""
    return extension().Array


#: whether the emulated GPUs were used, or those of the machine -> how many there are
_started: dict[bool, int] = {}

#: the GPU that "cuda" stands for
_current: ContextVar[int] = ContextVar("undertow.cuda.device", default=0)
current = _current.get
choose: Callable[[int], None] = partial(set_value, _current)


def count() -> int:
    """How many GPUs there are, the first of which is made ready; RuntimeError if there is none."""
    wanted = is_emulated()
    if wanted not in _started:
        if _started:
            raise RuntimeError(
                "this process has used the emulated GPU, or a real one, and cannot use the other as well"
            )
        _started[wanted] = extension().start(wanted, int(os.environ.get("UNDERTOW_CUDA_DEVICES", "1")))
    return _started[wanted]


def is_started() -> bool:
    """Whether this process has used a GPU."""
    return bool(_started)


@functools.cache
def properties(index: int = 0) -> dict[str, Any]:
    """What is known of a GPU; RuntimeError if there is none."""
    count()
    found: dict[str, Any] = extension().describe(index)
    return found


class chosen(Scope):
    """A context in which a GPU is the one that "cuda" stands for; None and negative numbers change nothing."""

    variable = _current

    def __init__(self, index: int | None) -> None:
        self.index = index

    def inside(self, outer: int) -> int:
        if self.index is None or self.index < 0:
            return outer
        check(self.index)
        return self.index


def check(index: int) -> None:
    """RuntimeError if there is no GPU of that number."""
    if not 0 <= index < count():
        raise RuntimeError(
            f"invalid device ordinal: cuda:{index} is none of the {count()} there are, which are counted from cuda:0"
        )


def emulates() -> bool:
    """Whether the GPUs that this process has used are emulated."""
    return True in _started


def is_ready() -> bool:
    """Whether a GPU has been used."""
    return bool(_started)


def reason() -> str | None:
    """Why there is no GPU to use; None if there is one."""
    if os.environ.get("UNDERTOW_CUDA") == "0":
        return "UNDERTOW_CUDA=0 turns it off."
    try:
        count()
    except RuntimeError as error:
        return str(error)
    return None
