"""Exchanges as methods of a group, in PyTorch's spelling: `group.allreduce([tensor]).wait()`. Each returns a Work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.distributed import collectives
from undertow.distributed.process_group import ProcessGroup
from undertow.distributed.reduce_op import ReduceOp
from undertow.distributed.work import Work
from undertow.tensor import Tensor


def allreduce(self: ProcessGroup, tensors: Sequence[Tensor] | Tensor, op: ReduceOp = ReduceOp.SUM) -> Work | None:
    """Let every process have the sums (or what `op` says) of the tensors of all."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return collectives.all_reduce_coalesced(given, op, self, async_op=True)


def broadcast(self: ProcessGroup, tensor: Tensor, root: int) -> Work | None:
    """Let every process have what the tensor of the process at the place `root` of the group holds."""
    return collectives.broadcast(tensor, group=self, group_src=root, async_op=True)


def allgather(self: ProcessGroup, output_tensors: Sequence[Tensor], input_tensor: Tensor) -> Work | None:
    """The tensors of all processes, each in one of the list.

    output_tensors  a list with a tensor for each process
    input_tensor    this process's
    """
    return collectives.all_gather(output_tensors, input_tensor, self, async_op=True)


def barrier(self: ProcessGroup) -> Work | None:
    """Wait until all processes of the group have come here."""
    return collectives.barrier(self, async_op=True)


def monitored_barrier(self: ProcessGroup, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier that says which processes have not come within the limit of time.

    timeout         how long at most; None: the group's limit
    wait_all_ranks  name all that have not come, not only the first
    """
    collectives.monitored_barrier(self, timeout, wait_all_ranks)


def install() -> None:
    for method in (allreduce, broadcast, allgather, barrier, monitored_barrier):
        setattr(ProcessGroup, method.__name__, method)
