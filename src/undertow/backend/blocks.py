"""Formulas over large arrays, as programs that the compiled core evaluates in blocks (csrc/formula/blocks.c).

A forward or rule of an elementwise operation is called once with `Traced` values in the place of arrays, and with a
namespace whose functions note what they are asked for: the list of array functions that comes of it is the program. It
is kept for the dtypes and numbers that it was made for. A function that does something else (looks at elements or at
shapes, sums up, ...) has no program, and is called as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu
from undertow.backend.interface import Array, ArrayNamespace, DType
from undertow.compiled import core

#: how many programs a function may have, for different dtypes and numbers
MOST_PROGRAMS = 64

#: elements from which on a single quick function is worth a program
MANY = 1 << 17

#: functions of two numbers, the second of which may be left out if it is 1
ONE_CHANGES_NOTHING = frozenset({np.multiply, np.divide})

QUICK = frozenset({"add", "subtract", "multiply", "divide", "negative", "maximum", "minimum"})


class UntraceableError(Exception):
    """A function does what programs cannot do."""


# ---- what a function is called with


class Trace:
    """The array functions that were asked for so far. Values are numbers: inputs, then constants, then results."""

    def __init__(self, inputs: Sequence[DType]) -> None:
        self.inputs = list(inputs)
        self.constants: list[Array] = []
        self.steps: list[tuple[Any, ...]] = []

    def input(self, number: int, array: Array) -> Traced:
        made = Traced(self, ("input", number), array.dtype, array.ndim)
        made.is_contiguous = array.flags.c_contiguous
        return made

    def constant(self, value: Any, dtype: DType) -> tuple[str, int]:
        self.constants.append(np.asarray(value, dtype))
        return "constant", len(self.constants) - 1

    def step(self, function: Any, loop: int, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
        step = (function, loop, *operands)
        if step in self.steps:
            return "step", self.steps.index(step)
        self.steps.append(step)
        return "step", len(self.steps) - 1

    def program(self, result: Traced) -> Any:
        """The steps up to the result."""
        needed = self.steps[: result.place[1] + 1]
        first = {"input": 0, "constant": len(self.inputs), "step": len(self.inputs) + len(self.constants)}
        steps = [(f, loop, *[first[kind] + k for kind, k in operands]) for f, loop, *operands in needed]
        return core.Program(tuple([d.num for d in self.inputs]), tuple(self.constants), tuple(steps))


class Traced:
    """An array that is not there: a place in a trace."""

    __slots__ = ("dtype", "is_contiguous", "ndim", "place", "trace")

    def __init__(self, trace: Trace, place: tuple[str, int], dtype: DType, ndim: int) -> None:
        self.trace, self.place, self.dtype, self.ndim = trace, place, dtype, ndim
        self.is_contiguous = True

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise UntraceableError(f"{ufunc.__name__}.{method}, or one with options")
        return apply(ufunc, *inputs)

    def __bool__(self) -> bool:
        raise UntraceableError("what is computed depends on an element")

    def astype(self, dtype: DType, copy: bool = True) -> Any:
        return astype(self, dtype)

    def __pow__(self, exponent: Any) -> Any:
        return power(self, exponent)

    def __rpow__(self, base: Any) -> Any:
        return apply(cpu.power, base, self)

    def __neg__(self) -> Any:
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


# ---- array functions of traced values


def _kind(operand: Any) -> Any:
    """What promotion asks of an operand: its dtype, or the class of a Python number, which has less to say."""
    if isinstance(operand, Traced | np.generic) or (isinstance(operand, np.ndarray) and operand.ndim == 0):
        return operand.dtype
    if type(operand) in (int, float, complex):
        return type(operand)
    if type(operand) is bool:
        return np.dtype(bool)
    raise UntraceableError(f"an operand is {type(operand).__name__}")


@cache
def _resolved(ufunc: Any, kinds: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    """The loop of a ufunc for operands of these kinds, and the dtypes of its operands and its result."""
    dtypes = ufunc.resolve_dtypes((*kinds, None))
    *inputs, output = [d.char for d in dtypes]
    return ufunc.types.index(f"{''.join(inputs)}->{output}"), dtypes


def _trace_of(operands: Sequence[Any]) -> tuple[Trace, int]:
    traced = [v for v in operands if isinstance(v, Traced)]
    if not traced:
        raise UntraceableError("no operand is an array")
    return traced[0].trace, max([v.ndim for v in traced])


def _place(trace: Trace, operand: Any, dtype: DType) -> tuple[str, int]:
    if not isinstance(operand, Traced):
        return trace.constant(operand, dtype)
    return operand.place if operand.dtype == dtype else trace.step("cast", dtype.num, [operand.place])


def apply(ufunc: Any, *operands: Any) -> Any:
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


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent` as NumPy's arrays have it, and a cube without a logarithm."""
    if isinstance(base, Traced) and base.dtype.kind == "f" and type(exponent) in (int, float):
        if exponent == 1:
            return apply(np.positive, base)
        if exponent in (2, 3):
            square = apply(np.multiply, base, base)
            return square if exponent == 2 else apply(np.multiply, square, base)
        if exponent in (0.5, -1):
            return apply(np.sqrt, base) if exponent == 0.5 else apply(np.divide, 1, base)
    return apply(cpu.power, base, exponent)


def where(condition: Any, x: Any, y: Any) -> Any:
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
    return x if x.dtype == dtype else Traced(x.trace, _place(x.trace, x, dtype), dtype, x.ndim)


def conj(x: Any) -> Any:
    return x if not isinstance(x, Traced) or x.dtype.kind != "c" else apply(np.conjugate, x)


def asarray(x: Any, dtype: DType = None) -> Any:
    if isinstance(x, Traced):
        return x if dtype is None else astype(x, dtype)
    return np.asarray(x, dtype)


def ones_like(x: Any) -> Any:
    return where(x == x, x.dtype.type(1), x.dtype.type(1))


def zeros_like(x: Any) -> Any:
    return where(x == x, x.dtype.type(0), x.dtype.type(0))


class TracingNamespace(ArrayNamespace):
    """Array functions that note what they are asked for. It has no others: whoever asks for them has no program."""

    #: kernels that would do for the arrays are better than programs (backend/kernels.py)
    traces = True

    def __init__(self) -> None:
        self.device, self.module = cpu.device, cpu.module
        for name, function in vars(cpu).items():
            if isinstance(function, np.ufunc):
                setattr(self, name, lambda *operands, ufunc=function: apply(ufunc, *operands))
        own = (power, where, conj, astype, asarray, ones_like, zeros_like)
        self.__dict__.update({function.__name__: function for function in own}, finfo=cpu.finfo)


@cache
def tracing() -> TracingNamespace:
    return TracingNamespace()


# ---- functions


class InBlocks:
    """A forward or rule on large arrays: calling it with its arguments gives the result, or NotImplemented.

    named  of the arguments, the last that must be given by name
    """

    def __init__(self, function: Callable[..., Any], named: Sequence[str]) -> None:
        self.function, self.named = function, tuple(named)
        #: by what is known of the arguments: the program and the places of its inputs, or None
        self.programs: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        key: Any = tuple(
            [(a.dtype, a.ndim, a.flags.c_contiguous) if type(a) is np.ndarray else (type(a), a) for a in arguments]
        )
        try:
            found = self.programs[key]
        except KeyError:
            found = self._prepare(key, arguments)
        except TypeError:
            return NotImplemented  # an argument that cannot be a key
        if found is None:
            return NotImplemented
        program, places, least = found
        inputs = [arguments[k] for k in places]
        if least and max([a.size for a in inputs]) < least:
            return NotImplemented
        return inputs[0] if program is None else program(*inputs)

    def _prepare(self, key: Any, arguments: Sequence[Any]) -> Any:
        if len(self.programs) >= MOST_PROGRAMS:
            self.programs.clear()
        try:
            self.programs[key] = self._trace(arguments)
        except Exception:  # whatever is wrong, the function itself says it
            self.programs[key] = None
        return self.programs[key]

    def _trace(self, arguments: Sequence[Any]) -> Any:
        places = [k for k, a in enumerate(arguments) if type(a) is np.ndarray]
        trace = Trace([arguments[k].dtype for k in places])
        values = list(arguments)
        for number, k in enumerate(places):
            values[k] = trace.input(number, arguments[k])
        by_name = dict(zip(self.named, values[len(values) - len(self.named) :], strict=True))
        result = self.function(tracing(), *values[: len(values) - len(self.named)], **by_name)
        if not isinstance(result, Traced) or result.place[0] == "constant":
            return None
        if result.place[0] == "input":  # the array that was given, or one that is equal to it
            place = places[result.place[1]]
            return (None, [place], 0) if result is values[place] else None
        quick = len(trace.steps) == 1 and getattr(trace.steps[0][0], "__name__", "") in QUICK
        return trace.program(result), places, MANY if quick else 0
