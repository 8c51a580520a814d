"""What a function of arrays does, written down: it is called with values that are not there (see blocks.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu
from undertow.backend.dtypes import float32
from undertow.backend.interface import Array, DType
from undertow.compiled import core

#: functions of two numbers, the second of which may be left out if it is 1
ONE_CHANGES_NOTHING = frozenset({np.multiply, np.divide})


class UntraceableError(Exception):
    """A function does what programs cannot do."""


class Trace:
    """The array functions that were asked for so far. Values are numbers: inputs, then constants, then results.

    shape  that of all results, if the program is for one shape only: the function may then ask for it
    half   the dtype of half precision of those inputs that are read in float32, and of the result; None: there is none
    """

    def __init__(self, inputs: Sequence[DType], shape: tuple[int, ...] | None = None, half: DType = None) -> None:
        self.inputs = list(inputs)
        self.half = half
        self.shape = shape
        self.constants: list[Array] = []
        self.steps: list[tuple[Any, ...]] = []
        #: steps whose results were taken for true, everywhere
        self.assumed: list[int] = []

    def input(self, number: int, array: Array) -> Traced:
        made = Traced(self, ("input", number), array.dtype, array.ndim)
        if self.half is not None and array.dtype == self.half:
            made.place, made.dtype = self.step("cast", float32.num, [made.place]), float32
        made.is_contiguous = array.flags.c_contiguous or made.dtype != array.dtype  # which is a copy
        return made

    def output(self, result: Traced | Total) -> Traced | Total:
        """What was computed, rounded to half precision if inputs have it."""
        if self.half is None or result.dtype.kind in "biu":
            return result
        if isinstance(result, Total) or result.dtype != float32:
            raise UntraceableError("only single numbers in float32 are rounded")
        return Traced(self, self.step("cast", self.half.num, [result.place]), self.half, result.ndim)

    def constant(self, value: Array, dtype: DType) -> tuple[str, int]:
        self.constants.append(np.asarray(value, dtype))
        return "constant", len(self.constants) - 1

    def step(self, function: Any, loop: int, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
        step = (function, loop, *operands)
        if step in self.steps:
            return "step", self.steps.index(step)
        self.steps.append(step)
        return "step", len(self.steps) - 1

    def program(self, result: Traced | Total) -> Any:
        """The steps up to the result."""
        needed = self.steps[: result.place[1] + 1]
        first = {"input": 0, "constant": len(self.inputs), "step": len(self.inputs) + len(self.constants)}
        steps = [(f, loop, *[first[kind] + k for kind, k in operands]) for f, loop, *operands in needed]
        assumed = tuple([k for k in self.assumed if k < len(needed)])
        divisor = result.divisor if isinstance(result, Total) else None
        types = tuple([d.num for d in self.inputs])
        return core.Program(types, tuple(self.constants), tuple(steps), assumed, divisor)


class Traced:
    """An array that is not there: a place in a trace."""

    __slots__ = ("dtype", "is_contiguous", "ndim", "place", "trace")

    def __init__(self, trace: Trace, place: tuple[str, int], dtype: DType, ndim: int) -> None:
        self.trace, self.place, self.dtype, self.ndim = trace, place, dtype, ndim
        self.is_contiguous = True

    @property
    def shape(self) -> tuple[int, ...]:
        if self.trace.shape is None:
            raise UntraceableError("what is computed depends on a shape")
        return self.trace.shape if self.ndim else ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise UntraceableError(f"{ufunc.__name__}.{method}, or one with options")
        return apply(ufunc, *inputs)

    def __bool__(self) -> bool:
        raise UntraceableError("what is computed depends on an element")

    def astype(self, dtype: DType, copy: bool = True) -> Any:
        return astype(self, dtype)

    def __pow__(self, exponent: Array) -> Array:
        return power(self, exponent)

    def __rpow__(self, base: Any) -> Any:
        return apply(cpu.power, base, self)

    def __neg__(self) -> Array:
        return apply(np.negative, self)

    def __abs__(self) -> Any:
        return apply(np.absolute, self)

    def __invert__(self) -> Any:
        return apply(np.invert, self)

    __hash__ = None  # type: ignore[assignment]


def _give_operators() -> None:
    binary = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "and": np.bitwise_and,
              "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
               "ne": np.not_equal}  # fmt: skip
    for name, ufunc in {**binary, **compare}.items():
        setattr(Traced, f"__{name}__", lambda a, b, ufunc=ufunc: apply(ufunc, a, b))
    for name, ufunc in binary.items():
        setattr(Traced, f"__r{name}__", lambda a, b, ufunc=ufunc: apply(ufunc, b, a))


_give_operators()


class Total:
    """The sum of all elements of a traced value, divided by a number."""

    def __init__(self, place: tuple[str, int], dtype: DType, divisor: float = 1.0) -> None:
        self.place, self.dtype, self.divisor = place, dtype, divisor

    def __truediv__(self, divisor: Any) -> Total:
        if type(divisor) is not int or self.divisor != 1 or not divisor:
            raise UntraceableError("a sum is divided by a number of elements, once")
        return Total(self.place, self.dtype, float(divisor))


class Assumed:
    """Whether all of a traced value is true. The program assumes that it is, and gives up if it is not."""

    def __init__(self, trace: Trace, step: int) -> None:
        self.trace, self.step = trace, step

    def __bool__(self) -> bool:
        self.trace.assumed.append(self.step)
        return True


# ---- array functions of traced values


def _kind(operand: Array) -> Any:
    """What promotion asks of an operand: its dtype, or the class of a Python number, which has less to say."""
    if isinstance(operand, Traced | np.generic) or (isinstance(operand, np.ndarray) and operand.ndim == 0):
        return operand.dtype
    if type(operand) in (int, float, complex):
        return type(operand)
    if type(operand) is bool:
        return np.dtype(bool)
    raise UntraceableError(f"an operand is {type(operand).__name__}")


@cache
def _resolved(ufunc: Array, kinds: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    """The loop of a ufunc for operands of these kinds, and the dtypes of its operands and its result."""
    dtypes = ufunc.resolve_dtypes((*kinds, None))
    *inputs, output = [d.char for d in dtypes]
    return ufunc.types.index(f"{''.join(inputs)}->{output}"), dtypes


def _trace_of(operands: Sequence[Any]) -> tuple[Trace, int]:
    traced = [v for v in operands if isinstance(v, Traced)]
    if not traced:
        raise UntraceableError("no operand is an array")
    return traced[0].trace, max([v.ndim for v in traced])


def _place(trace: Trace, operand: Array, dtype: DType) -> tuple[str, int]:
    if not isinstance(operand, Traced):
        return trace.constant(operand, dtype)
    return operand.place if operand.dtype == dtype else trace.step("cast", dtype.num, [operand.place])


def apply(ufunc: Array, *operands: Any) -> Array:
    if len(operands) != ufunc.nin or ufunc.nout != 1:
        raise UntraceableError("a ufunc with `out`, or with several results")
    trace, ndim = _trace_of(operands)
    if ufunc in ONE_CHANGES_NOTHING and type(operands[1]) in (int, float) and operands[1] == 1:
        first = operands[0]
        if first.dtype.kind == "f":
            return Traced(trace, first.place, first.dtype, ndim)
    loop, dtypes = _resolved(ufunc, tuple([_kind(operand) for operand in operands]))
    places = [_place(trace, operand, dtype) for operand, dtype in zip(operands, dtypes, strict=False)]
    return Traced(trace, trace.step(ufunc, loop, places), dtypes[-1], ndim)


class TracedUfunc:
    """A ufunc of traced values."""

    def __init__(self, ufunc: Array) -> None:
        self.ufunc = ufunc

    def __call__(self, *operands: Any) -> Any:
        return apply(self.ufunc, *operands)

    def reduce(self, x: Any, axis: None) -> Total:
        """The sum of all elements."""
        if self.ufunc is not np.add or axis is not None or x.trace.shape != x.shape:
            raise UntraceableError("only sums of everything are part of a program")
        if x.place[0] != "step" or x.dtype.char not in "fd":
            raise UntraceableError("a sum without terms that are computed, or of other numbers")
        return Total(x.place, x.dtype)


def power(base: Array, exponent: Array) -> Array:
    """`base ** exponent` as NumPy's arrays have it, and a cube without a logarithm."""
    if isinstance(base, Traced) and base.dtype.kind == "c" and type(exponent) in (int, float) and exponent in (2, 3):
        square = apply(np.multiply, base, base)
        return square if exponent == 2 else apply(np.multiply, square, base)
    if isinstance(base, Traced) and base.dtype.kind == "f" and type(exponent) in (int, float):
        if exponent == 1:
            return apply(np.positive, base)
        if exponent in (2, 3):
            square = apply(np.multiply, base, base)
            return square if exponent == 2 else apply(np.multiply, square, base)
        if exponent in (0.5, -1):
            return apply(np.sqrt, base) if exponent == 0.5 else apply(np.divide, 1, base)
    return apply(cpu.power, base, exponent)


def where(condition: Array, x: Array, y: Array) -> Array:
    trace, ndim = _trace_of((condition, x, y))
    kinds = [_kind(x), _kind(y)]
    dtypes = [k for k in kinds if isinstance(k, np.dtype)]
    if not dtypes or _kind(condition) != np.dtype(bool):
        raise UntraceableError("a choice between numbers, or by what is no bool")
    numbers = [v for v, k in zip((x, y), kinds, strict=True) if not isinstance(k, np.dtype)]
    dtype = np.result_type(*dtypes, *numbers)
    places = [_place(trace, v, d) for v, d in ((condition, np.dtype(bool)), (x, dtype), (y, dtype))]
    return Traced(trace, trace.step("where", 0, places), dtype, ndim)


def astype(x: Any, dtype: DType, /, *, copy: bool = True) -> Any:
    dtype = np.dtype(dtype)
    if not isinstance(x, Traced):
        return np.asarray(x, dtype)
    return x if x.dtype == dtype else Traced(x.trace, _place(x.trace, x, dtype), dtype, x.ndim)


def conj(x: Array) -> Array:
    return x if not isinstance(x, Traced) or x.dtype.kind != "c" else apply(np.conjugate, x)


def asarray(x: Any, dtype: DType = None) -> Any:
    if isinstance(x, Traced):
        return x if dtype is None else astype(x, dtype)
    return np.asarray(x, dtype)


def ones_like(x: Array) -> Array:
    return where(x == x, x.dtype.type(1), x.dtype.type(1))


def zeros_like(x: Any) -> Any:
    return where(x == x, x.dtype.type(0), x.dtype.type(0))


def size(x: Any) -> int:
    count: int = x.size
    return count


def all(x: Any) -> Assumed:
    if x.dtype != np.dtype(bool) or x.place[0] != "step":
        raise UntraceableError("what is computed depends on an element")
    return Assumed(x.trace, x.place[1])


#: what the namespace of traced values has besides ufuncs
FUNCTIONS = (power, where, conj, astype, asarray, ones_like, zeros_like, size, all)
