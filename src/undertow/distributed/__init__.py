"""What programs ask before they train in several processes. There is one process, and the answers say so.

>>> import undertow as ut
>>> ut.distributed.is_available() and ut.distributed.is_initialized()
False
"""

from __future__ import annotations

from typing import Any, NoReturn

#: what the errors advise
INSTEAD = "undertow trains in one process: leave the launcher out. nn.DataParallel shares a batch among devices."


def is_available() -> bool:
    """Whether processes can be joined to a group: no."""
    return False


def is_initialized() -> bool:
    """Whether this process belongs to a group: no."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process: no."""
    return False


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(f"init_process_group: {INSTEAD}")


def _needs_a_group(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Default process group has not been initialized ({name}): {INSTEAD}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs a group of processes, and there is none."
    return function


all_gather = _needs_a_group("all_gather")
all_reduce = _needs_a_group("all_reduce")
barrier = _needs_a_group("barrier")
broadcast = _needs_a_group("broadcast")
destroy_process_group = _needs_a_group("destroy_process_group")
gather = _needs_a_group("gather")
get_rank = _needs_a_group("get_rank")
get_world_size = _needs_a_group("get_world_size")
reduce = _needs_a_group("reduce")


class _Group:
    """The default group of processes, which has not been made."""

    WORLD: Any = None


group = _Group


class GroupMember(_Group):
    NON_GROUP_MEMBER = -100


class ReduceOp:
    """How values of several processes become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)
    RedOpType = int


class ProcessGroup:
    """The class of groups of processes: nothing is one of it."""


class Work:
    """The class of operations that are under way: nothing is one of it."""


class Backend(str):
    """The name of what processes talk through."""

    UNDEFINED, GLOO, NCCL, MPI, UCC = "undefined", "gloo", "nccl", "mpi", "ucc"
    default_device_backend_map: dict[str, str] = {"cpu": "gloo"}  # noqa: RUF012


class DistError(RuntimeError):
    """Something failed between processes."""


class DistBackendError(DistError): ...


class DistNetworkError(DistError): ...


class DistStoreError(DistError): ...


def is_gloo_available() -> bool:
    return False


is_nccl_available = is_mpi_available = is_ucc_available = is_xccl_available = is_gloo_available


def is_backend_available(backend: str) -> bool:
    return False


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number that the launcher has given to this process."""
    import os

    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank.")
    return fallback_rank


all_gather_coalesced = _needs_a_group("all_gather_coalesced")
all_gather_into_tensor = _needs_a_group("all_gather_into_tensor")
all_gather_object = _needs_a_group("all_gather_object")
all_reduce_coalesced = _needs_a_group("all_reduce_coalesced")
all_to_all = _needs_a_group("all_to_all")
all_to_all_single = _needs_a_group("all_to_all_single")
batch_isend_irecv = _needs_a_group("batch_isend_irecv")
broadcast_object_list = _needs_a_group("broadcast_object_list")
gather_object = _needs_a_group("gather_object")
get_backend = _needs_a_group("get_backend")
get_global_rank = _needs_a_group("get_global_rank")
get_group_rank = _needs_a_group("get_group_rank")
get_process_group_ranks = _needs_a_group("get_process_group_ranks")
irecv = _needs_a_group("irecv")
isend = _needs_a_group("isend")
monitored_barrier = _needs_a_group("monitored_barrier")
new_group = _needs_a_group("new_group")
new_subgroups = _needs_a_group("new_subgroups")
recv = _needs_a_group("recv")
recv_object_list = _needs_a_group("recv_object_list")
reduce_scatter = _needs_a_group("reduce_scatter")
reduce_scatter_tensor = _needs_a_group("reduce_scatter_tensor")
scatter = _needs_a_group("scatter")
scatter_object_list = _needs_a_group("scatter_object_list")
send = _needs_a_group("send")
send_object_list = _needs_a_group("send_object_list")
