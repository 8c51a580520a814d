"""Buckets: gradients that are sent together, as one flat array; a sparse one is sent by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow import ops
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.backend.sparse.protocol import AnySparse
from undertow.distributed.collectives import all_reduce, start_all_reduce
from undertow.distributed.data_parallel.arrivals import give
from undertow.distributed.errors import DistError
from undertow.distributed.process_group import ProcessGroup
from undertow.distributed.reduce_op import ReduceOp
from undertow.distributed.work import Work
from undertow.tensor import Tensor

MEGABYTE = 2**20


class Bucket:
    """Some parameters, and memory for their gradients.

    parameters  their numbers in the module's order
    views       parts of `flat`, each of the shape of a parameter
    counts      behind the gradients of the last bucket: which parameters of all were used, so that every process learns
                of those that were not
    sent        what is waited for: the exchange of the sums, or the future that a communication hook returned
    """

    def __init__(self, index: int, parameters: list[int], tensors: list[Tensor], counted: int) -> None:
        self.index, self.parameters, self.tensors = index, parameters, tensors
        sizes = [t.numel() for t in tensors]
        total = sum(sizes)
        self.flat = cpu.zeros(total + counted, dtype=tensors[0]._array.dtype)
        self.gradients, self.counts = self.flat[:total], self.flat[total:]
        self.whole = Tensor(self.flat, cpu)
        self.views: list[Array] = []
        at = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            self.views.append(self.flat[at : at + size].reshape(tensor._array.shape))
            at += size
        self.start_pass()

    def start_pass(self) -> None:
        self.sent: Any = None

    def take(self, name: str, tensor: Tensor, view: Array | None, as_view: bool) -> None:
        """Copy a parameter's gradient into the memory that is sent; where it has none, nothing is added to the sum.

        What earlier passes have left counts where this one does not use the parameter: the others add to theirs, too.
        """
        assert view is not None
        if tensor.grad is None:
            view[...] = 0
        elif isinstance(tensor.grad._array, AnySparse):
            raise DistError(
                f"the gradient of {name!r} is sparse, which only those of nn.Embedding(sparse=True) and "
                "nn.EmbeddingBag(sparse=True) may be: the processes must know it beforehand"
            )
        elif tensor.grad._array is not view:
            cpu.copyto(view, tensor.grad._array)
            if as_view:
                tensor.grad = Tensor(view, cpu)

    def take_nothing(self) -> None:
        """Zeros, of a process that has no batch."""
        self.flat[...] = 0

    def start_exchange(self, group: ProcessGroup) -> Work | None:
        return start_all_reduce(group, self.whole, ReduceOp.SUM, True)

    def buffer(self) -> Tensor:
        return Tensor(self.gradients, cpu)

    def set_buffer(self, buffer: Tensor) -> None:
        self.gradients[...] = buffer._array

    def each(self) -> list[Tensor]:
        return [Tensor(view, cpu) for view in self.views]

    def receive(self, found: Any, divisor: int | None) -> None:
        """Make means of the sums that have come; without divisor, take what a communication hook has made of them."""
        if divisor is not None:
            cpu.divide(self.gradients, self.gradients.dtype.type(divisor), self.gradients)
            return
        found = found[0] if isinstance(found, list | tuple) else found
        if found is not None and found._array is not self.gradients:
            self.gradients[...] = found._array.reshape(-1)

    def write_back(self, unused: set[int] | None, as_view: bool) -> None:
        """Give the parameters their means; what was used nowhere keeps the gradient it had."""
        tensors, views = self.tensors, self.views
        if unused:
            used = [k for k, number in enumerate(self.parameters) if number not in unused]
            tensors, views = [tensors[k] for k in used], [views[k] for k in used]
        for place in give(tensors, views):
            tensor, view = tensors[place], views[place]
            if tensor.grad is None:
                tensor.grad = Tensor(view if as_view else view.copy(), cpu)
            else:
                cpu.copyto(tensor.grad._array, view)

    def move_gradients(self) -> None:
        """Let gradients lie in this bucket that lay in another."""
        for tensor, view in zip(self.tensors, self.views, strict=True):
            if tensor.grad is not None:
                cpu.copyto(view, tensor.grad._array)
                tensor.grad = Tensor(view, cpu)


class SparseBucket:
    """One parameter whose gradients are sparse: the places and values of all processes are gathered and added up."""

    views = (None,)

    def __init__(self, index: int, parameters: list[int], tensors: list[Tensor]) -> None:
        self.index, self.parameters, self.tensors = index, parameters, tensors
        self.start_pass()

    def start_pass(self) -> None:
        self.sent: Any = None
        self.gradient: Tensor | None = None

    def take(self, name: str, tensor: Tensor, view: Array | None, as_view: bool) -> None:
        if tensor.grad is None:
            self.gradient = nothing_like(tensor)
        elif isinstance(tensor.grad._array, AnySparse):
            self.gradient = tensor.grad.detach().clone()
        else:
            raise DistError(f"the gradient of {name!r} is dense, and its module was made with sparse=True")

    def take_nothing(self) -> None:
        self.gradient = nothing_like(self.tensors[0])

    def start_exchange(self, group: ProcessGroup) -> Work | None:
        return all_reduce(self.buffer(), group=group, async_op=True)

    def buffer(self) -> Tensor:
        assert self.gradient is not None
        return self.gradient

    def set_buffer(self, buffer: Tensor) -> None:
        self.gradient = buffer

    def each(self) -> list[Tensor]:
        return [self.buffer()]

    def receive(self, found: Any, divisor: int | None) -> None:
        found = found[0] if isinstance(found, list | tuple) else found
        found = self.gradient if found is None else found
        self.gradient = found if divisor is None else found / divisor

    def write_back(self, unused: set[int] | None, as_view: bool) -> None:
        if unused is None or self.parameters[0] not in unused:
            self.tensors[0].grad = self.gradient
        self.gradient = None

    def move_gradients(self) -> None: ...


AnyBucket = Bucket | SparseBucket


def nothing_like(tensor: Tensor) -> Tensor:
    """A sparse tensor of this shape, without any element."""
    indices = Tensor(cpu.zeros((1, 0), dtype=cpu.int64), cpu)
    values = Tensor(cpu.zeros((0, *tensor.shape[1:]), dtype=tensor._array.dtype), cpu)
    return ops.sparse_coo_tensor(indices, values, tensor.shape)


def divided(
    order: Sequence[int], tensors: Sequence[Tensor], caps: Sequence[float], sparse: set[int]
) -> list[AnyBucket]:
    """Buckets of parameters in this order.

    caps    how large the buckets are, in megabytes; the last for all that follow
    sparse  the parameters that have a bucket of their own
    """
    groups: list[list[int]] = []
    room = 0.0
    for number in order:
        tensor = tensors[number]
        last = groups[-1][0] if groups else None
        if (
            last is None
            or tensor._array.nbytes > room
            or tensor._array.dtype != tensors[last]._array.dtype
            or number in sparse
            or last in sparse
        ):
            room = caps[min(len(groups), len(caps) - 1)] * MEGABYTE
            groups.append([])
        groups[-1].append(number)
        room -= tensor._array.nbytes
    final = len(groups) - 1
    return [
        SparseBucket(k, numbers, [tensors[n] for n in numbers])
        if numbers[0] in sparse
        else Bucket(k, numbers, [tensors[n] for n in numbers], len(tensors) if k == final else 0)
        for k, numbers in enumerate(groups)
    ]


class GradBucket:
    """What a communication hook is shown: the gradients that are ready to be sent.

    bucket   the gradients
    is_last  whether it is the last of the pass

    >>> import undertow as ut
    >>> import undertow.distributed as dist
    >>> dist.init_process_group()
    >>> model = ut.nn.parallel.DistributedDataParallel(ut.nn.Linear(2, 1))
    >>> def halve(state, bucket):
    ...     print(bucket.index(), [tuple(part.shape) for part in bucket.gradients()], bucket.is_last())
    ...     future = ut.futures.Future()
    ...     future.set_result(bucket.buffer() / 2)
    ...     return future
    >>> model.register_comm_hook(None, halve)
    >>> model(ut.ones(3, 2)).sum().backward()
    0 [(1,), (1, 2)] True
    >>> model.module.weight.grad
    tensor([[1.5000, 1.5000]])
    >>> dist.destroy_process_group()
    """

    def __init__(self, bucket: AnyBucket, is_last: bool) -> None:
        self._bucket, self._is_last = bucket, is_last

    def index(self) -> int:
        """The number of the bucket; they are sent in this order."""
        return self._bucket.index

    def is_last(self) -> bool:
        return self._is_last

    def buffer(self) -> Tensor:
        """All gradients of the bucket, flat, or a sparse one. They have not been divided by the number of processes."""
        return self._bucket.buffer()

    def set_buffer(self, buffer: Tensor) -> None:
        self._bucket.set_buffer(buffer)

    def parameters(self) -> list[Tensor]:
        return list(self._bucket.tensors)

    def gradients(self) -> list[Tensor]:
        """The parts of the buffer, in the parameters' shapes."""
        return self._bucket.each()


CommHook = Any  # (GradBucket) -> Future of the averaged buffer
