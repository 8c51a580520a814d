"""Gradients come one by one: what is done for each parameter in each pass, and so is in the compiled core, too.

`arrived` is the hook of a parameter; `take` and `give` move the gradients of a bucket. In C they serve the usual case,
and leave the others to Python (csrc/backward/arrivals.c).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.compiled import core
from undertow.tensor import Tensor


class Arrivals:
    """Which gradients have come in a backward pass, of parameters that are divided into buckets.

    is_open   whether a gradient that comes for the first time has only to be noted
    came      how often each has come
    buckets   the number of the bucket of each, and
    places    its place there
    arrays    for each bucket: the gradients that have come, as they were then: hooks may take them away again
    missing   for each bucket: how many have not
    unusual   called with the number of a parameter, and the parameter, where there is more to do
    complete  called when a bucket has all its gradients
    lock      held while gradients are noted; C needs none, because no other Python runs meanwhile
    """

    __slots__ = ("arrays", "buckets", "came", "complete", "is_open", "lock", "missing", "places", "unusual")

    def __init__(
        self, count: int, unusual: Callable[[int, Tensor], object], complete: Callable[[], object], lock: Any
    ) -> None:
        self.unusual, self.complete, self.lock, self.is_open = unusual, complete, lock, False
        self.came: Array = cpu.zeros(count, dtype=dtypes.int64)
        self.buckets: Array = cpu.zeros(count, dtype=dtypes.int64)
        self.places: Array = cpu.zeros(count, dtype=dtypes.int64)
        self.arrays: list[list[Any]] = []
        self.missing: Array = cpu.zeros(0, dtype=dtypes.int64)

    def lay_out(self, buckets: Sequence[Sequence[int]]) -> None:
        """Let the parameters be divided so."""
        for number, parameters in enumerate(buckets):
            for place, parameter in enumerate(parameters):
                self.buckets[parameter], self.places[parameter] = number, place
        self.arrays = [[None] * len(parameters) for parameters in buckets]
        self.missing = cpu.zeros(len(buckets), dtype=dtypes.int64)
        self.start_pass()

    def start_pass(self) -> None:
        self.came[...] = 0
        for number, arrays in enumerate(self.arrays):
            arrays[:] = [None] * len(arrays)
            self.missing[number] = len(arrays)

    def note(self, number: int, array: Array) -> None:
        """A gradient has come, to be sent with its bucket."""
        bucket = self.buckets[number]
        self.arrays[bucket][self.places[number]] = array
        self.missing[bucket] -= 1
        if not self.missing[bucket]:
            self.complete()


def arrived(arrivals: Arrivals, number: int, tensor: Tensor) -> None:
    """A parameter has its gradient."""
    with arrivals.lock:
        if not arrivals.is_open or arrivals.came[number]:
            arrivals.unusual(number, tensor)
        else:
            arrivals.came[number] = 1
            arrivals.note(number, tensor._extra.grad._array)  # type: ignore[union-attr]


def take(tensors: list[Tensor], views: list[Array], arrays: list[Any], as_view: bool) -> list[int]:
    """Copy gradients into the memory that is sent, where they have the same shape and dtype; the places of the others.

    as_view  let the tensors' gradients lie there from now on
    """
    left = []
    for place, (tensor, view, array) in enumerate(zip(tensors, views, arrays, strict=True)):
        if type(array) is not cpu.ndarray or array.dtype != view.dtype or array.shape != view.shape:
            left.append(place)
        elif array is not view:
            cpu.copyto(view, array)
            if as_view:
                tensor.grad = Tensor(view, cpu)
    return left


def give(tensors: list[Tensor], views: list[Array]) -> list[int]:
    """Copy what was sent into gradients of the same shape and dtype, where they lie elsewhere; the others' places."""
    left = []
    for place, (tensor, view) in enumerate(zip(tensors, views, strict=True)):
        array: Any = None if tensor.grad is None else tensor.grad._array
        if type(array) is not cpu.ndarray or array.dtype != view.dtype or array.shape != view.shape:
            left.append(place)
        elif array is not view:
            cpu.copyto(array, view)
    return left


if core is not None:
    core.bind(Arrivals=Arrivals)
    arrived, take, give = core.arrived, core.take_gradients, core.give_gradients
