"""One row per way of calling an operation. A row buys every check in tests/ops/ (see test_systems.py there).

    Sample("sin", normal(3, 4), complex=True)
    Sample("gather", normal(3, 4), 1, integers(3, 2, high=4))
    Sample("sum", normal(3, 4), kwargs={"dim": 1, "keepdim": True})

An argument is an `Array` (made afresh from a seeded generator for every check) or any plain value.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Array:
    """How to make an input array; `make(rng, complex_)` gives float64, complex128, int64 or bool data."""

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray[Any, Any]]
    differentiable: bool = True

    def make(self, rng: np.random.Generator, complex_: bool = False) -> np.ndarray[Any, Any]:
        values = np.asarray(self.draw(rng, self.shape))
        if complex_ and self.differentiable:
            values = values + 1j * np.asarray(self.draw(rng, self.shape))
        return values

    def without_gradient(self) -> Array:
        return replace(self, differentiable=False)


def normal(*shape: int) -> Array:
    return Array(shape, lambda rng, s: rng.standard_normal(s))


def positive(*shape: int) -> Array:
    """Values in [0.5, 2.5)."""
    return Array(shape, lambda rng, s: rng.uniform(0.5, 2.5, s))


def unit(*shape: int) -> Array:
    """Values in (-0.9, 0.9)."""
    return Array(shape, lambda rng, s: rng.uniform(-0.9, 0.9, s))


def fraction(*shape: int) -> Array:
    """Values in (0.05, 0.95)."""
    return Array(shape, lambda rng, s: rng.uniform(0.05, 0.95, s))


def distinct(*shape: int) -> Array:
    """Values at least 0.1 apart and from zero, shuffled: safe for max, sort, median, abs, relu."""

    def draw(rng: np.random.Generator, s: tuple[int, ...]) -> np.ndarray[Any, Any]:
        n = int(np.prod(s))
        values = (np.arange(n) - n // 2 + 0.5) * 0.2 + rng.uniform(-0.04, 0.04, n)
        return rng.permutation(values).reshape(s)

    return Array(shape, draw)


def integers(*shape: int, low: int = 0, high: int = 3) -> Array:
    return Array(shape, lambda rng, s: rng.integers(low, high, s), differentiable=False)


def booleans(*shape: int) -> Array:
    return Array(shape, lambda rng, s: rng.random(s) < 0.5, differentiable=False)


def constant(values: Any) -> Array:
    """Given values: floats are differentiable, integers and bools are not."""
    array = np.asarray(values)
    return Array(array.shape, lambda rng, s: array.copy(), differentiable=array.dtype.kind in "fc")


@dataclass(frozen=True, init=False)
class Sample:
    """One way of calling one operation.

    op            its registered name
    args, kwargs  Array or plain values; a list or tuple of Arrays is a sequence of tensors (cat, stack, einsum)
    complex       also check it with complex inputs
    complex_only  check it with complex inputs only
    reference     how torch computes the same: None means torch.<op>(*args, **kwargs); a function
                  (torch, *args, **kwargs) -> result; or False where torch has no counterpart
    call          how undertow is called, if not undertow.ops.<op>(*args, **kwargs): (ut, *args, **kwargs) -> result
    gradgrad      whether second derivatives are checked (False only where the function has none)
    kink          the point is a kink: compare with torch, but not with finite differences
    note          tells rows of one op apart in test names
    """

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    complex: bool = False
    complex_only: bool = False
    reference: Any = None
    call: Any = None
    gradgrad: bool = True
    kink: bool = False
    note: str = ""

    def __init__(self, op: str, *args: Any, **options: Any) -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "kwargs", options.pop("kwargs", {}))
        defaults = {"complex": False, "complex_only": False, "reference": None, "call": None, "gradgrad": True,
                    "kink": False, "note": ""}  # fmt: skip
        unknown = set(options) - set(defaults)
        if unknown:
            raise TypeError(f"Sample({op!r}): unknown options {sorted(unknown)}")
        for name, value in {**defaults, **options}.items():
            object.__setattr__(self, name, value)

    @property
    def id(self) -> str:
        return self.op + (f"-{self.note}" if self.note else "")


#: set by `pytest --quick` and `--first-rows`, before any test is collected
first_rows_only = False


@functools.cache
def all_samples() -> list[Sample]:
    """The rows of every module in this folder, in order."""
    rows: list[Sample] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        rows += importlib.import_module(f"{__name__}.{module}").SAMPLES
    return rows
