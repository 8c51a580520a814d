"""Calls: functions that run in another process, with the autograd context of the caller."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from undertow.distributed.autograd.context import current_id
from undertow.distributed.workers.agent import Agent, Arrived, WorkerInfo, current_agent, handles
from undertow.distributed.workers.future import Future
from undertow.scopes import call_with

#: how long a call may take, if neither it nor init_rpc says: seconds
DEFAULT_RPC_TIMEOUT_SEC = 60.0
#: stands for the limit of time of init_rpc
UNSET_RPC_TIMEOUT = -1.0


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Name and number of a process; of this one if none is named.

    worker_name  the name, or the rank

    Example: `rpc.get_worker_info("worker1").id`
    """
    agent = current_agent()
    return agent.me if worker_name is None else worker(agent, worker_name)


def worker(agent: Agent, to: str | int | WorkerInfo) -> WorkerInfo:
    """The process that is meant by a name, a rank or a WorkerInfo."""
    if isinstance(to, WorkerInfo):
        return to
    if isinstance(to, int) and not isinstance(to, bool):
        if 0 <= to < len(agent.workers):
            return agent.workers[to]
        raise RuntimeError(f"Cannot get WorkerInfo for rank {to}: there are {len(agent.workers)} processes, from 0 on")
    if not isinstance(to, str):
        raise ValueError(f"Cannot get WorkerInfo from name {to!r}: a process is a name, a rank or a WorkerInfo")
    for found in agent.workers:
        if found.name == to:
            return found
    names = ", ".join([found.name for found in agent.workers])
    raise RuntimeError(f"Unknown destination worker {to}: could not find destination. There are: {names}")


def rpc_sync(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Any:
    """Call a function in another process, and wait for its result.

    to            the process: its name, its rank or its WorkerInfo
    func          travels by its name, so both programs must import it from the same module
    timeout       seconds; 0: no limit; otherwise that of init_rpc
    args, kwargs  what it is called with

    An error of the function is raised here, with its type, and the traceback of there in its text.

    Example: `rpc.rpc_sync("worker1", ut.add, (ut.ones(2), 1))`
    """
    return rpc_async(to, func, args, kwargs, timeout).wait()


def rpc_async(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future:
    """Call a function in another process: the Future of its result.

    Tensors must not be changed before the result is there: large ones are sent from their own memory.

    func          travels by its name, so both programs must import it from the same module
    args, kwargs  what it is called with

    Example: `rpc.rpc_async("worker1", ut.add, (ut.ones(2), 1)).wait()`
    """
    agent = current_agent()
    value = checked(func), tuple(args or ()), dict(kwargs or {})
    what = getattr(func, "__qualname__", repr(func))
    return agent.call(worker(agent, to).id, "call", value, timeout, current_id.get(), what)


def checked(func: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(func):
        raise TypeError("function should be callable.")
    return func


@handles("call")
def called(agent: Agent, arrived: Arrived) -> Any:
    return run_function(arrived.context, *arrived.value)


def run_function(context: int, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that another process has named: its result, or the Future of that."""
    return awaited(func, call_with(current_id, context, functools.partial(func, *args, **kwargs)))


def awaited(func: Callable[..., Any], result: Any) -> Any:
    """The result of a function, which must be a Future if the function says so."""
    is_asynchronous = hasattr(func, "_wrapped_async_rpc_function")
    if is_asynchronous and not isinstance(result, Future):
        raise RuntimeError(
            "Functions decorated with @rpc.functions.async_execution must return a Future object, but got "
            f"{type(result).__name__}"
        )
    if isinstance(result, Future) and not is_asynchronous and not getattr(func, "passes_futures_on", False):
        raise RuntimeError(
            "Can not pickle a Future: a function that others call returns its result, or a Future if it is decorated "
            "with @rpc.functions.async_execution"
        )
    return result
