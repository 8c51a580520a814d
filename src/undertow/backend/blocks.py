"""Formulas over large arrays, as programs that the compiled core evaluates in blocks (csrc/formula/blocks.c).

A forward or rule of an elementwise operation is called once with `Traced` values in the place of arrays, and
with a namespace whose functions note what they are asked for: the list of array functions that comes of it is
the program (traces.py). It is kept for the kind of arguments that it was made for (csrc/formula/programs.c). A
function that does something else (looks at elements, ...) has no program, and is called as before.

A function that is declared to map and reduce, such as a loss, may also ask for the shape of its arguments, and may add
all elements up in the end: `xp.add.reduce(values, axis=None)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import traces
from undertow.backend.cpu import cpu
from undertow.backend.dtypes import is_narrow
from undertow.backend.interface import ArrayNamespace
from undertow.backend.traces import Total, Trace, Traced, TracedUfunc
from undertow.compiled import core

if TYPE_CHECKING:
    from undertow.backend.interface import Array

#: elements from which on a single quick function is worth a program
MANY = 1 << 17

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


def in_blocks(function: Callable[..., Any], reduces: bool = False, is_rule: bool = False, widens: bool = False) -> Any:
    """A forward or rule on large arrays: calling it with its arguments gives the result, or NotImplemented.

    reduces  it maps and reduces: its arrays are of one shape, but for the gradient, the first argument of a rule
    is_rule  whether it is a rule
    widens   it is never given half precision: that is read in float32, and the result rounded to it
    """
    return core.Programs(partial(_prepared, function, reduces, is_rule, widens), reduces)


def elementwise(function: Callable[..., Any]) -> Callable[[Any, Array], Array]:
    """An elementwise function of one array, for a forward that goes on with the result: of a large one, in blocks."""
    if core is None:
        return function
    programs = in_blocks(function)

    def compute(xp: Any, array: Array) -> Array:
        is_large = xp is cpu and type(array) is np.ndarray and array.size >= MANY
        found: Array = programs(array) if is_large else NotImplemented
        return function(xp, array) if found is NotImplemented else found

    return compute


def _prepared(function: Callable[..., Any], reduces: bool, is_rule: bool, widens: bool, *arguments: Any) -> Any:
    """For arguments of a new kind: the program, the places of its inputs, and from how many elements on it pays.

    None is for a kind without a program; a program that is None stands for its only input.
    """
    places = tuple([k for k, a in enumerate(arguments) if type(a) is np.ndarray])
    arrays = [arguments[k] for k in places]
    try:
        half = next((a.dtype for a in arrays if is_narrow(a.dtype)), None) if widens else None
        trace = Trace([a.dtype for a in arrays], _shape_of(arrays, is_rule) if reduces else None, half)
        values = list(arguments)
        for number, k in enumerate(places):
            values[k] = trace.input(number, arguments[k])
        result = function(tracing(), *values)
        if not isinstance(result, Traced | Total) or result.place[0] == "constant":
            return None
        given = [place for place in places if result is values[place]]
        if given or result.place[0] == "input":  # the array that was given, or one that is equal to it
            return (None, (given[0],), 0) if given and (half is None or is_rule) else None
        result = trace.output(result)
        is_one = len(trace.steps) == 1 and isinstance(result, Traced)
        quick = is_one and getattr(trace.steps[0][0], "__name__", "") in QUICK
        return trace.program(result), places, MANY if quick else 0
    except Exception:  # whatever is wrong, the function itself says it
        return None


def _shape_of(arrays: Sequence[Array], is_rule: bool) -> tuple[int, ...]:
    """The one shape of the arguments. The gradient of a sum is a single number."""
    shape: tuple[int, ...]
    leading, (shape, *others) = arrays[:is_rule], [a.shape for a in arrays[is_rule:]]
    if any([s != shape for s in others]) or any([a.ndim and a.shape != shape for a in leading]):
        raise traces.UntraceableError("the arguments are broadcast")
    return shape
