"""Exchanges that gradients go through, each way any number of times.

What one process receives depends on what others sent, so the gradient of what was sent comes back from them: the
backward pass is an exchange, too, and all processes of the group must run it.

    forward          backward
    all_reduce       all_reduce of the gradients
    all_gather       each process gets the sum of the gradients of what it gave
    reduce_scatter   all_gather
    all_to_all       all_to_all, the other way round
    broadcast        the sum of the gradients, at the source; reduce the other way round
    gather, scatter  scatter, gather
    send             waits for the gradient, which recv's backward sends
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow import ops
from undertow.autograd.function import Function
from undertow.backend.interface import DType
from undertow.distributed import collectives, point_to_point
from undertow.distributed.process_group import ProcessGroup, world
from undertow.distributed.reduce_op import ReduceOp
from undertow.tensor import Tensor
from undertow.tensor.memory_formats import contiguous_format

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "recv", "reduce",
    "reduce_scatter", "scatter", "send",
]  # fmt: skip


def members_of(group: Any) -> ProcessGroup:
    return world() if group is None else group


def fresh(tensor: Tensor) -> Tensor:
    """A copy without history that an exchange may work on."""
    return tensor.detach().clone(memory_format=contiguous_format)


def ready(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


class AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.op, ctx.group = op, group
        result = fresh(tensor)
        collectives.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return AllReduce.apply(grad, ctx.op, ctx.group), None, None


class AllGather(Function):
    """Stacked along a new first dimension."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        result = tensor.new_empty((group.size(), *tensor.shape))
        collectives.all_gather_into_tensor(result, ready(tensor), group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ReduceScatter.apply(grad, ReduceOp.SUM, ctx.group), None


class ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, stacked: Tensor, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.op, ctx.group = op, group
        result = stacked.new_empty(stacked.shape[1:])
        collectives.reduce_scatter_tensor(result, ready(stacked), op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        share = 1.0 / ctx.group.size() if ctx.op is ReduceOp.AVG else 1.0
        return AllGather.apply(grad * share, ctx.group), None, None


class AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, sent: Sequence[int] | None, received: Sequence[int] | None, group: ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        rows = tensor.shape[0] if received is None else sum(received)
        result = tensor.new_empty((rows, *tensor.shape[1:]))
        collectives.all_to_all_single(result, ready(tensor), received, sent, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return AllToAll.apply(grad, ctx.received, ctx.sent, ctx.group), None, None, None


class Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.group = root, group
        result = fresh(tensor)
        collectives.broadcast(result, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Reduce.apply(grad, ctx.root, ReduceOp.SUM, ctx.group), None, None


class Reduce(Function):
    """The sum at the root, and zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.group = root, group
        result = fresh(tensor)
        collectives.reduce(result, op=op, group=group, group_dst=root)
        return result if group.rank() == root else ops.zeros_like(result)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Broadcast.apply(grad, ctx.root, ctx.group), None, None, None


class Gather(Function):
    """Stacked at the root, and zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.group = root, group
        parts = [tensor.new_zeros(tensor.shape) for _ in range(group.size())]
        collectives.gather(ready(tensor), parts if group.rank() == root else None, group=group, group_dst=root)
        return ops.stack(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Scatter.apply(grad, ctx.root, ctx.group), None, None


class Scatter(Function):
    @staticmethod
    def forward(ctx: Any, stacked: Tensor, root: int, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.group = root, group
        result = stacked.new_empty(stacked.shape[1:])
        parts = [ready(part) for part in stacked] if group.rank() == root else None
        collectives.scatter(result, parts, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Gather.apply(grad, ctx.root, ctx.group), None, None


class Send(Function):
    """A number without value, from which the backward pass starts: it waits for the gradient.

    A message has a place, and its gradient, which goes the other way, the next one. A gradient that is received depends
    on the number of what was sent before, and the number of a gradient that is sent is the gradient of an anchor: so
    derivatives of gradients go through a Send and a Recv, too. A node runs once in a pass, with the sum of what has
    come, on both sides; so there is one message for each pass and place.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, to: int, place: int, group: ProcessGroup) -> Tensor:
        ctx.to, ctx.place, ctx.group, ctx.like = to, place, group, (tensor.shape, tensor.dtype)
        point_to_point.send(ready(tensor), group=group, tag=place, group_dst=to)
        number = tensor.new_zeros(())
        ctx.save_for_backward(number)
        return number

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (number,) = ctx.saved_tensors
        anchor = number + grad  # which may be the number of a message, too
        return Recv.apply(anchor, ctx.like, ctx.to, following(ctx.place), ctx.group), None, None, None


class Recv(Function):
    """anchor  what ties it into the graph: a number that requires grad"""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, like: Any, source: int, place: int, group: ProcessGroup) -> Tensor:
        ctx.source, ctx.place, ctx.group = source, place, group
        shape, dtype = like
        result = anchor.new_empty(shape, dtype=dtype)
        point_to_point.recv(result, group=group, tag=place, group_src=source)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Send.apply(grad, ctx.source, following(ctx.place), ctx.group), None, None, None, None


#: places of the messages of one tag: it, its gradient, the gradient's, ...
ORDERS = 16


def following(place: int) -> int:
    """The place of the gradient of what is sent at this place."""
    if place % ORDERS == ORDERS - 1:
        raise RuntimeError(f"gradients go through send and recv {ORDERS - 1} times, and not more often")
    return place + 1


# ---- what programs call


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors of all processes (or their mean)."""
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise RuntimeError(f"the derivative of all_reduce with {op} is not implemented: use SUM or AVG")
    return AllReduce.apply(tensor, op, members_of(group))


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    return tuple(AllGather.apply(tensor, members_of(group)).unbind())


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The sum of what all processes have for this one. `output` only says the shape."""
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise RuntimeError(f"the derivative of reduce_scatter with {op} is not implemented: use SUM or AVG")
    return ReduceScatter.apply(ops.stack(list(input_list)), op, members_of(group))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The parts that all processes have for this one, behind each other. `output` only says the shape."""
    return AllToAll.apply(input, input_split_sizes, output_split_sizes, members_of(group))


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """The tensors that all processes have for this one; `output_tensor_list` only says their shapes."""
    sent, received = [t.numel() for t in input_tensor_list], [t.numel() for t in output_tensor_list]
    flat = ops.cat([t.reshape(-1) for t in input_tensor_list])
    parts = AllToAll.apply(flat, sent, received, members_of(group)).split(received)
    return tuple([part.reshape(t.shape) for part, t in zip(parts, output_tensor_list, strict=True)])


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """What the tensor of the process `src` holds."""
    members = members_of(group)
    return Broadcast.apply(tensor, members.member(src, "broadcast"), members)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors of all processes, at `dst`; zeros elsewhere."""
    if op is not ReduceOp.SUM:
        raise RuntimeError(f"the derivative of reduce with {op} is not implemented: use SUM")
    members = members_of(group)
    return Reduce.apply(tensor, members.member(dst, "reduce"), op, members)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes, at `dst`; zeros elsewhere."""
    members = members_of(group)
    return tuple(Gather.apply(tensor, members.member(dst, "gather"), members).unbind())


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The tensor of the list of `src` that is for this process; elsewhere the list only says shape and dtype."""
    members = members_of(group)
    return Scatter.apply(ops.stack(list(tensors)), members.member(src, "scatter"), members)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Tensor:
    """Send a tensor to a process that calls `recv`; call backward() of the result, which waits for the gradient."""
    members = members_of(group)
    return Send.apply(tensor, members.member(dst, "send"), ORDERS * tag, members)


def recv(
    shape: Sequence[int],
    src: int,
    group: Any = None,
    tag: int = 0,
    *,
    dtype: DType = None,
    anchor: Tensor | None = None,
) -> Tensor:
    """Receive a tensor of this shape; the backward pass sends its gradient to `src`.

    anchor  a number that requires grad, of any value. Its gradient, under create_graph, is what `send` returned for the
            gradient that was sent: where `src` differentiates once more, call backward() of it
    """
    members = members_of(group)
    anchor = ops.zeros((), requires_grad=True) if anchor is None else anchor
    if anchor.shape != () or not anchor.requires_grad:
        raise ValueError(
            f"recv: the anchor is a number that requires grad, as zeros((), requires_grad=True) is, not a tensor of "
            f"shape {list(anchor.shape)} with requires_grad={anchor.requires_grad}"
        )
    like = tuple(shape), anchor.dtype if dtype is None else dtype
    return Recv.apply(anchor, like, members.member(src, "recv"), ORDERS * tag, members)
