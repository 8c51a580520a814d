"""Formulas over large arrays, as programs that the compiled core evaluates in blocks (csrc/formula/blocks.c).

A forward or rule of an elementwise operation is called once with `Traced` values in the place of arrays, and with a
namespace whose functions note what they are asked for: the list of array functions that comes of it is the program
(traces.py). It is kept for the dtypes and numbers that it was made for. A function that does something else (looks at
elements, ...) has no program, and is called as before.

A function that is declared to map and reduce, such as a loss, may also ask for the shape of its arguments, and may add
all elements up in the end: `xp.add.reduce(values, axis=None)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import traces
from undertow.backend.cpu import cpu
from undertow.backend.interface import ArrayNamespace
from undertow.backend.traces import Total, Trace, Traced, TracedUfunc

if TYPE_CHECKING:
    from undertow.backend.interface import Array

#: how many programs a function may have, for different dtypes and numbers
MOST_PROGRAMS = 64

#: elements from which on a single quick function is worth a program
MANY = 1 << 17

#: rows that are shorter cost ufuncs more than their elements do, if an operand is broadcast to them
SHORT_ROW = 64

QUICK = frozenset({"add", "subtract", "multiply", "divide", "negative", "maximum", "minimum"})


class TracingNamespace(ArrayNamespace):
    """Array functions that note what they are asked for. It has no others: whoever asks for them has no program."""

    #: kernels that would do for the arrays are better than programs (backend/kernels.py)
    traces = True

    def __init__(self) -> None:
        self.device, self.module = cpu.device, cpu.module
        for name, function in vars(cpu).items():
            if isinstance(function, np.ufunc):
                setattr(self, name, TracedUfunc(function))
        self.__dict__.update({function.__name__: function for function in traces.FUNCTIONS}, finfo=cpu.finfo)


@cache
def tracing() -> TracingNamespace:
    return TracingNamespace()


def _is_worth_it(inputs: Sequence[Any], least: int) -> bool:
    """Whether quick functions of small arrays that are broadcast to a large one should have a program."""
    shape = np.broadcast(*inputs).shape
    return math.prod(shape) >= least or (0 < shape[-1] < SHORT_ROW and any([a.shape != shape for a in inputs]))


class InBlocks:
    """A forward or rule on large arrays: calling it with its arguments gives the result, or NotImplemented.

    reduces  it maps and reduces: its arrays are of one shape, but for the gradient, the first argument of a rule
    is_rule  whether it is a rule
    """

    def __init__(self, function: Callable[..., Any], reduces: bool = False, is_rule: bool = False) -> None:
        self.function, self.reduces, self.is_rule = function, reduces, is_rule
        #: by what is known of the arguments: the program and the places of its inputs, or None
        self.programs: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        found = self.find(*arguments)
        if found is NotImplemented:
            return found
        program, *inputs = found
        return inputs[0] if program is None else program(*inputs)

    def find(self, *arguments: Any) -> Any:
        """The program for such arguments (None: the result is its input) and its inputs, or NotImplemented."""
        key: Any = tuple(
            [(a.dtype, a.ndim, a.flags.c_contiguous) if type(a) is np.ndarray else (type(a), a) for a in arguments]
        )
        if self.reduces:
            key += tuple([a.shape for a in arguments if type(a) is np.ndarray])
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
        if least and max([a.size for a in inputs]) < least and not _is_worth_it(inputs, least):
            return NotImplemented
        return program, *inputs

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
        arrays = [arguments[k] for k in places]
        trace = Trace([a.dtype for a in arrays], self._shape_of(arrays) if self.reduces else None)
        values = list(arguments)
        for number, k in enumerate(places):
            values[k] = trace.input(number, arguments[k])
        result = self.function(tracing(), *values)
        if not isinstance(result, Traced | Total) or result.place[0] == "constant":
            return None
        if result.place[0] == "input":  # the array that was given, or one that is equal to it
            place = places[result.place[1]]
            return (None, [place], 0) if result is values[place] else None
        is_one = len(trace.steps) == 1 and isinstance(result, Traced)
        quick = is_one and getattr(trace.steps[0][0], "__name__", "") in QUICK
        return trace.program(result), places, MANY if quick else 0

    def _shape_of(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        """The one shape of the arguments. The gradient of a sum is a single number."""
        shape: tuple[int, ...]
        leading, (shape, *others) = arrays[: self.is_rule], [a.shape for a in arrays[self.is_rule :]]
        if any([s != shape for s in others]) or any([a.ndim and a.shape != shape for a in leading]):
            raise traces.UntraceableError("the arguments are broadcast")
        return shape
