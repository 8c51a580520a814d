"""Several processes: exchanges of tensors between them, under PyTorch's names, over MPI.

`init_process_group` joins the processes that `python -m undertow.distributed.run`, `mpiexec` or `srun` started. MPI is
imported then and not before: `pip install 'undertow[mpi]'`.

>>> import undertow as ut
>>> ut.distributed.is_initialized()
False

process_group   who takes part             status_board  who is where, when somebody waits too long
work            what is under way          run           the launcher
collectives, point_to_point, objects       what is exchanged
nn.functional   exchanges that gradients go through
rpc             calls from process to process      autograd      backward passes through several
sharding        parameters in pieces               checkpoint    files of which each process writes its part
pipelining      a model in stages
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from undertow.distributed import group_methods
from undertow.distributed import nn as nn
from undertow.distributed.collectives import all_gather as all_gather
from undertow.distributed.collectives import all_gather_coalesced as all_gather_coalesced
from undertow.distributed.collectives import all_gather_into_tensor as all_gather_into_tensor
from undertow.distributed.collectives import all_reduce as all_reduce
from undertow.distributed.collectives import all_reduce_coalesced as all_reduce_coalesced
from undertow.distributed.collectives import all_to_all as all_to_all
from undertow.distributed.collectives import all_to_all_single as all_to_all_single
from undertow.distributed.collectives import barrier as barrier
from undertow.distributed.collectives import broadcast as broadcast
from undertow.distributed.collectives import gather as gather
from undertow.distributed.collectives import monitored_barrier as monitored_barrier
from undertow.distributed.collectives import reduce as reduce
from undertow.distributed.collectives import reduce_scatter as reduce_scatter
from undertow.distributed.collectives import reduce_scatter_tensor as reduce_scatter_tensor
from undertow.distributed.collectives import scatter as scatter
from undertow.distributed.debug_level import DebugLevel as DebugLevel
from undertow.distributed.debug_level import get_debug_level as get_debug_level
from undertow.distributed.debug_level import set_debug_level as set_debug_level
from undertow.distributed.debug_level import set_debug_level_from_env as set_debug_level_from_env
from undertow.distributed.errors import DistBackendError as DistBackendError
from undertow.distributed.errors import DistError as DistError
from undertow.distributed.errors import DistMismatchError as DistMismatchError
from undertow.distributed.errors import DistNetworkError as DistNetworkError
from undertow.distributed.errors import DistStoreError as DistStoreError
from undertow.distributed.errors import DistTimeoutError as DistTimeoutError
from undertow.distributed.launched import told
from undertow.distributed.objects import all_gather_object as all_gather_object
from undertow.distributed.objects import broadcast_object_list as broadcast_object_list
from undertow.distributed.objects import gather_object as gather_object
from undertow.distributed.objects import recv_object_list as recv_object_list
from undertow.distributed.objects import scatter_object_list as scatter_object_list
from undertow.distributed.objects import send_object_list as send_object_list
from undertow.distributed.point_to_point import P2POp as P2POp
from undertow.distributed.point_to_point import batch_isend_irecv as batch_isend_irecv
from undertow.distributed.point_to_point import irecv as irecv
from undertow.distributed.point_to_point import isend as isend
from undertow.distributed.point_to_point import recv as recv
from undertow.distributed.point_to_point import send as send
from undertow.distributed.process_group import GroupMember as GroupMember
from undertow.distributed.process_group import ProcessGroup as ProcessGroup
from undertow.distributed.process_group import destroy_process_group as destroy_process_group
from undertow.distributed.process_group import get_backend as get_backend
from undertow.distributed.process_group import get_global_rank as get_global_rank
from undertow.distributed.process_group import get_group_rank as get_group_rank
from undertow.distributed.process_group import get_process_group_ranks as get_process_group_ranks
from undertow.distributed.process_group import get_rank as get_rank
from undertow.distributed.process_group import get_world_size as get_world_size
from undertow.distributed.process_group import group as group
from undertow.distributed.process_group import init_process_group as init_process_group
from undertow.distributed.process_group import is_available as is_available
from undertow.distributed.process_group import is_initialized as is_initialized
from undertow.distributed.process_group import new_group as new_group
from undertow.distributed.process_group import new_subgroups as new_subgroups
from undertow.distributed.process_group import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from undertow.distributed.reduce_op import ReduceOp as ReduceOp
from undertow.distributed.work import Future as Future
from undertow.distributed.work import Work as Work
from undertow.lazy_names import loaded_when_used

if TYPE_CHECKING:
    from undertow.distributed import autograd as autograd
    from undertow.distributed import checkpoint as checkpoint
    from undertow.distributed import fsdp as fsdp
    from undertow.distributed import optim as optim
    from undertow.distributed import pipelining as pipelining
    from undertow.distributed import rpc as rpc
    from undertow.distributed import sharding as sharding
    from undertow.distributed.data_parallel.buckets import GradBucket as GradBucket
else:
    __getattr__, __dir__ = loaded_when_used(
        __name__,
        modules="autograd checkpoint fsdp optim pipelining rpc sharding",
        names={"undertow.distributed.data_parallel.buckets": "GradBucket"},
    )


group_methods.install()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed.

    Example: `dist.is_mpi_available()`
    """
    return is_available()


def is_gloo_available() -> bool:
    """Whether PyTorch's library for CPUs is there: no, MPI does its work.

    Example: `dist.is_gloo_available()`
    """
    return False


def is_nccl_available() -> bool:
    """Whether NVIDIA's library for GPUs is there: no.

    Example: `dist.is_nccl_available()`
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher that can restart the processes started this one.

    Example: `dist.is_torchelastic_launched()`
    """
    return "TORCHELASTIC_RESTART_COUNT" in os.environ


def is_backend_available(backend: str) -> bool:
    """Whether exchanges can go by it.

    backend  a name, such as "mpi"

    Example: `dist.is_backend_available('mpi')`
    """
    return backend == "mpi" and is_available()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number that the launcher has given to this process on its machine.

    fallback_rank  what to return if none has

    Example: `dist.get_node_local_rank(fallback_rank=0)`
    """
    rank = told("LOCAL_RANK")
    if rank is not None:
        return int(rank)
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank.")
    return fallback_rank


class Backend(str):
    """The name of what processes talk through, in small letters.

    >>> from undertow.distributed import Backend
    >>> Backend("MPI") == Backend.MPI
    True
    """

    __slots__ = ()
    UNDEFINED, GLOO, NCCL, MPI, UCC = "undefined", "gloo", "nccl", "mpi", "ucc"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, not {name!r}")
        return str.__new__(cls, name.lower())
