"""Calls from one process to another: by name, with tensors, and with gradients that find their way back.

    rpc.init_rpc("worker0")                                   in each process, with its own name
    rpc.rpc_sync("worker1", ut.add, args=(x, y))              run there, wait here
    rpc.rpc_async("worker1", ut.add, args=(x, y)).wait()      run there, go on here
    rpc.remote("worker1", Model, args=(3,))                   keep the result there, name it here: an RRef
    rpc.shutdown()

calls      rpc_sync, rpc_async, and what runs in the other process     rref      values that stay where they are
lifetime   the beginning and the end                                   functions what functions say of themselves
"""

from __future__ import annotations

from undertow.distributed.process_group import is_available as is_available
from undertow.distributed.rpc import functions as functions
from undertow.distributed.rpc.calls import get_worker_info as get_worker_info
from undertow.distributed.rpc.calls import rpc_async as rpc_async
from undertow.distributed.rpc.calls import rpc_sync as rpc_sync
from undertow.distributed.rpc.lifetime import BackendType as BackendType
from undertow.distributed.rpc.lifetime import RpcBackendOptions as RpcBackendOptions
from undertow.distributed.rpc.lifetime import init_rpc as init_rpc
from undertow.distributed.rpc.lifetime import shutdown as shutdown
from undertow.distributed.rpc.rref import RRef as RRef
from undertow.distributed.rpc.rref import debug_info
from undertow.distributed.rpc.rref import remote as remote
from undertow.distributed.workers.agent import RemoteError as RemoteError
from undertow.distributed.workers.agent import WorkerInfo as WorkerInfo
from undertow.distributed.workers.agent import current_agent, has_agent
from undertow.distributed.workers.future import Future as Future
from undertow.distributed.workers.future import collect_all as collect_all
from undertow.distributed.workers.future import wait_all as wait_all

__all__ = [
    "BackendType", "Future", "RRef", "RemoteError", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo",
    "collect_all", "functions", "get_rpc_timeout", "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async",
    "rpc_sync", "shutdown", "wait_all",
]  # fmt: skip

#: PyTorch's name of the options
TensorPipeRpcBackendOptions = RpcBackendOptions


def get_rpc_timeout() -> float:
    """Seconds that a call may take, if it does not say.

    Example: `rpc.get_rpc_timeout()`
    """
    return current_agent().timeout


def _set_rpc_timeout(seconds: float) -> None:
    current_agent().timeout = float(seconds)


_get_current_rpc_agent, _is_current_rpc_agent_set = current_agent, has_agent
_rref_context_get_debug_info = debug_info
