"""Gradients come one by one: what is done for each parameter in each pass, and so is in the compiled core, too.

An Arrival is called when a parameter has its gradient; `give` hands the gradients of a bucket out. In C they serve the
usual case, and leave the others to Python (csrc/backward/arrivals.c).
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

    is_open   whether a gradient that comes has only to be taken
    as_view   whether gradients lie, from then on, in the memory that is sent
    awaited   how often each parameter's gradient comes in a pass; -1: not at all
    left      how often it has still to come; 0: it lies in the memory that is sent
    buckets   the number of the bucket of each
    views     where its gradient lies there; None: its bucket has no such memory
    missing   for each bucket: how many gradients have not been taken
    sizes     for each bucket: how many there are
    unusual   called with the number of a parameter, and the parameter, where there is more to do
    complete  called when a bucket has all its gradients
    lock      held while gradients are taken; C needs none, because no other Python runs meanwhile
    """

    __slots__ = (
        "as_view", "awaited", "buckets", "complete", "is_open", "left", "lock", "missing", "sizes", "unusual",
        "views",
    )  # fmt: skip

    def __init__(
        self,
        count: int,
        as_view: bool,
        unusual: Callable[[int, Tensor], object],
        complete: Callable[[], object],
        lock: Any,
    ) -> None:
        self.unusual, self.complete, self.lock = unusual, complete, lock
        self.is_open, self.as_view = False, as_view
        self.awaited: Array = cpu.ones(count, dtype=dtypes.int64)
        self.left: Array = cpu.ones(count, dtype=dtypes.int64)
        self.buckets: Array = cpu.zeros(count, dtype=dtypes.int64)
        self.views: list[Array | None] = [None] * count
        self.missing: Array = cpu.zeros(0, dtype=dtypes.int64)
        self.sizes = self.missing

    def lay_out(self, buckets: Sequence[tuple[Sequence[int], Sequence[Array | None]]]) -> None:
        """Let the parameters be divided so: the numbers of each bucket, and where their gradients lie in its memory."""
        for bucket, (numbers, views) in enumerate(buckets):
            for number, view in zip(numbers, views, strict=True):
                self.buckets[number], self.views[number] = bucket, view
        self.sizes = cpu.array([len(numbers) for numbers, _ in buckets], dtype=dtypes.int64)
        self.missing = self.sizes.copy()
        self.start_pass()

    def start_pass(self) -> None:
        self.left[...] = self.awaited
        self.missing[...] = self.sizes

    def expect(self, uses: Array) -> None:
        """Let the gradient of each come so often, from this pass on."""
        self.awaited[...] = cpu.where(uses > 0, uses, -1)
        self.left[...] = self.awaited

    def is_due(self, number: int) -> bool:
        """A gradient has come: whether it is not to come again, and so to be taken."""
        if self.left[number] > 1:
            self.left[number] -= 1
            return False
        return bool(self.left[number] == 1)

    def note(self, number: int) -> None:
        """The gradient lies in the memory that is sent."""
        self.left[number] = 0
        bucket = self.buckets[number]
        self.missing[bucket] -= 1
        if not self.missing[bucket]:
            self.complete()


class PythonArrival:
    """What a parameter calls when it has its gradient.

    arrivals, number  who is told of it, and the parameter's number there
    """

    __slots__ = ("arrivals", "number")

    def __init__(self, arrivals: Arrivals, number: int) -> None:
        self.arrivals, self.number = arrivals, number

    def __call__(self, tensor: Tensor) -> None:
        arrivals, number = self.arrivals, self.number
        with arrivals.lock:
            if not arrivals.is_open or arrivals.left[number] < 1:
                arrivals.unusual(number, tensor)
            elif arrivals.is_due(number):
                if take(tensor, arrivals.views[number], arrivals.as_view):
                    arrivals.note(number)
                else:
                    arrivals.unusual(number, tensor)


def are_alike(array: Array, view: Array | None) -> bool:
    return view is not None and type(array) is cpu.ndarray and array.dtype == view.dtype and array.shape == view.shape


def take(tensor: Tensor, view: Array | None, as_view: bool) -> bool:
    """Copy a gradient into the memory that is sent, if it has the shape and dtype that belong there; whether it does.

    as_view  let the tensor's gradient lie there from now on
    """
    array: Any = None if tensor.grad is None else tensor.grad._array
    if not are_alike(array, view):
        return False
    if array is not view:
        cpu.copyto(view, array)
        if as_view:
            tensor.grad = Tensor(view, cpu)
    return True


def give(tensors: list[Tensor], views: list[Array]) -> list[int]:
    """Copy what was sent into gradients of the same shape and dtype, where they lie elsewhere; the others' places."""
    left = []
    for place, (tensor, view) in enumerate(zip(tensors, views, strict=True)):
        array: Any = None if tensor.grad is None else tensor.grad._array
        if not are_alike(array, view):
            left.append(place)
        elif array is not view:
            cpu.copyto(array, view)
    return left


Arrival: Any = PythonArrival
if core is not None:
    core.bind(Arrivals=Arrivals)
    Arrival, give = core.Arrival, core.give_gradients
