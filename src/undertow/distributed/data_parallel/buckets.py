"""Buckets: gradients that are sent together, as one flat array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.distributed.work import Future
from undertow.tensor import Tensor

MEGABYTE = 2**20


class Bucket:
    """Some parameters, and memory for their gradients.

    parameters  their numbers in the module's order
    views       parts of `flat`, each of the shape of a parameter
    counts      behind the gradients of the last bucket: which parameters of all were used, so that every process learns
                of those that were not
    """

    def __init__(self, index: int, parameters: list[int], tensors: list[Tensor], counted: int) -> None:
        self.index, self.parameters, self.tensors = index, parameters, tensors
        sizes = [t.numel() for t in tensors]
        total = sum(sizes)
        self.flat = cpu.zeros(total + counted, dtype=tensors[0]._array.dtype)
        self.gradients, self.counts = self.flat[:total], self.flat[total:]
        self.views: list[Array] = []
        at = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            self.views.append(self.flat[at : at + size].reshape(tensor._array.shape))
            at += size
        self.start_pass()

    def start_pass(self) -> None:
        self.missing = len(self.parameters)
        self.sent: Future | None = None


def divided(order: Sequence[int], tensors: Sequence[Tensor], first: float, others: float) -> list[Bucket]:
    """Buckets of parameters in this order; the first is small, so that sending starts early.

    first, others  how large buckets are, in megabytes
    """
    groups: list[list[int]] = []
    room = 0.0
    for number in order:
        tensor = tensors[number]
        if not groups or tensor._array.nbytes > room or tensor._array.dtype != tensors[groups[-1][0]]._array.dtype:
            room = (others if groups else first) * MEGABYTE
            groups.append([])
        groups[-1].append(number)
        room -= tensor._array.nbytes
    last = len(groups) - 1
    return [
        Bucket(k, numbers, [tensors[n] for n in numbers], len(tensors) if k == last else 0)
        for k, numbers in enumerate(groups)
    ]


class GradBucket:
    """What a communication hook is shown: the gradients that are ready to be sent."""

    def __init__(self, bucket: Bucket, is_last: bool) -> None:
        self._bucket, self._is_last = bucket, is_last

    def index(self) -> int:
        """The number of the bucket; they are sent in this order."""
        return self._bucket.index

    def is_last(self) -> bool:
        return self._is_last

    def buffer(self) -> Tensor:
        """All gradients of the bucket, flat. They have not been divided by the number of processes."""
        return Tensor(self._bucket.gradients, cpu)

    def set_buffer(self, buffer: Tensor) -> None:
        self._bucket.gradients[...] = buffer._array

    def parameters(self) -> list[Tensor]:
        return list(self._bucket.tensors)

    def gradients(self) -> list[Tensor]:
        """The parts of the buffer, in the parameters' shapes."""
        return [Tensor(view, cpu) for view in self._bucket.views]


CommHook = Any  # (state, GradBucket) -> Future of the averaged buffer
