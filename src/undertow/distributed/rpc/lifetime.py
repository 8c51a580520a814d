"""How processes that call each other begin and end."""

from __future__ import annotations

import atexit
import enum
import functools
import os
import time
from array import array
from typing import Any

from undertow.distributed.autograd.nodes import TensorHistory
from undertow.distributed.joining import errors_stop_all, join
from undertow.distributed.rpc import rref
from undertow.distributed.rpc.calls import DEFAULT_RPC_TIMEOUT_SEC
from undertow.distributed.work import Work, abandoned, seconds_of
from undertow.distributed.workers.agent import Agent, WorkerInfo, current_agent, has_agent, set_agent

#: how many requests a process serves at the same time, if it does not say
DEFAULT_NUM_WORKER_THREADS = 16
#: how long `init_rpc` and `shutdown` wait for the others: seconds
MEETING = 300.0


class BackendType(enum.Enum):
    """What carries calls. PyTorch's name is taken, too; all is MPI.

    Example: `rpc.BackendType.TENSORPIPE.name`
    """

    MPI = "mpi"
    TENSORPIPE = "tensorpipe"


class RpcBackendOptions:
    """What a program can choose of its calls.

    rpc_timeout         seconds that a call may take; 0: no limit
    num_worker_threads  how many requests are served at the same time
    allow_pickle        send and take objects of any class. Whoever can send a message can then run anything: only for
                        programs that trust all their processes
    init_method         where processes meet, as `init_process_group` takes it
    **_others           accepted, without effect

    Example: `rpc.RpcBackendOptions(rpc_timeout=30)`
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = "env://",
        allow_pickle: bool = False,
        **_others: Any,
    ) -> None:
        self.num_worker_threads, self.rpc_timeout = num_worker_threads, seconds_of(rpc_timeout)
        self.init_method, self.allow_pickle = init_method, allow_pickle


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Let this process call others and be called. All processes of the program call it; it waits for them.

    name                 what others call it by
    rank, world_size     only compared with what MPI says
    rpc_backend_options  limits of time, threads
    backend              a BackendType, or None; all is MPI

    Example: `rpc.init_rpc(f"worker{os.environ['RANK']}")`
    """
    if has_agent():
        raise RuntimeError("RPC is already initialized")
    if not (backend is None or isinstance(backend, BackendType)):
        raise TypeError(f"Argument backend must be a member of BackendType, not {backend!r}; it may be left out")
    if not (rpc_backend_options is None or isinstance(rpc_backend_options, RpcBackendOptions)):
        raise TypeError(
            "Argument rpc_backend_options must be an instance of RpcBackendOptions, not "
            f"{type(rpc_backend_options).__name__}"
        )
    if not isinstance(name, str) or not name:
        raise ValueError(f"init_rpc: the name of a process is a text, not {name!r}")
    options = rpc_backend_options or RpcBackendOptions()
    mpi, _ = join()
    comm = mpi.COMM_WORLD
    for what, given, found in (("rank", rank, comm.rank), ("world_size", world_size, comm.size)):
        if given not in (None, -1, found):
            raise ValueError(
                f"init_rpc: {what} is {given}, but MPI started {comm.size} process(es); this is {comm.rank}"
            )
    comm = comm.Dup()
    names = _gathered(comm, name)
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise RuntimeError(f"RPC worker name {twice} is not unique: the processes call themselves {', '.join(names)}")
    allow_pickle = options.allow_pickle or os.environ.get("UNDERTOW_RPC_PICKLE") == "1"
    agent = Agent(mpi, comm, name, options.rpc_timeout, options.num_worker_threads, allow_pickle, TensorHistory())
    agent.workers = [WorkerInfo(n, k) for k, n in enumerate(names)]
    agent.bell.know(comm.allgather(agent.bell.place))
    set_agent(agent)
    errors_stop_all.hold()
    atexit.register(_stop, agent)
    agent.start()
    Work.gives_way = True


def _gathered(comm: Any, value: Any) -> list[Any]:
    _wait(comm.Ibarrier(), "init_rpc: the others have not come", MEETING)
    return list(comm.allgather(value))


def _wait(request: Any, what: str, limit: float) -> None:
    until = time.monotonic() + limit
    while not request.Test():
        if time.monotonic() > until:
            abandoned.append(request)
            raise RuntimeError(f"{what} within {limit:g} s")
        time.sleep(2e-4)


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """End calls in this process.

    graceful  wait until all processes want to end and no call is under way anywhere; False: end at once
    timeout   seconds to wait for that; 0: five minutes

    Example: `rpc.shutdown()`
    """
    agent = current_agent()
    if graceful:
        _wait_until_all_is_quiet(agent, timeout or MEETING)
    _stop(agent)
    rref.forget_all()


def _wait_until_all_is_quiet(agent: Agent, limit: float) -> None:
    """Wait until every message that was posted anywhere has been heard and served, and none followed.

    Two rounds with the same sums of messages posted and heard, equal to each other, say so: what is counted at
    different times in different processes cannot hide a message in both.
    """
    comm, mpi, until = agent.comm, agent.mpi, time.monotonic() + limit
    before: list[int] = []
    while True:
        while agent.calls or agent.serving or agent.backlog or agent.dropped:
            if time.monotonic() > until:
                raise RuntimeError(f"shutdown: {len(agent.calls)} calls were not answered within {limit:g} s")
            time.sleep(2e-4)
        total = _summed(comm, mpi, (agent.posted, agent.heard), max(until - time.monotonic(), 1.0))
        if total[0] == total[1] and total == before:
            return
        before = total


def _summed(comm: Any, mpi: Any, counts: tuple[int, int], limit: float) -> list[int]:
    mine, total = array("q", counts), array("q", [0, 0])
    request = comm.Iallreduce([mine, mpi.INT64_T], [total, mpi.INT64_T], mpi.SUM)
    _wait(request, "shutdown: the others have not come", limit)
    return list(total)


def _stop(agent: Agent) -> None:
    atexit.unregister(_stop)
    if has_agent() and current_agent() is agent:
        set_agent(None)
        Work.gives_way = False
        errors_stop_all.release()
    agent.stop()


#: a child that the program forks serves nobody, and ends nothing
os.register_at_fork(after_in_child=functools.partial(atexit.unregister, _stop))
