"""RRef: a value that stays in the process that made it, and can be named in all.

The owner counts who has one: each RRef in another process is a *fork* with a number. Whoever passes one on tells the
owner of the new fork before, and whoever drops one tells it afterwards; the owner hears both in that order, because
messages between two processes keep theirs. Only a receiver that drops a fork at once can be faster than the news of it,
so a fork may be dropped before it is known.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from types import GenericAlias
from typing import Any

from undertow.distributed.autograd.context import current_id
from undertow.distributed.autograd.dist_engine import backward
from undertow.distributed.rpc.calls import (
    UNSET_RPC_TIMEOUT,
    awaited,
    checked,
    rpc_async,
    rpc_sync,
    run_function,
    worker,
)
from undertow.distributed.workers.agent import (
    Agent,
    Arrived,
    CallTimeoutError,
    WorkerInfo,
    current_agent,
    handles,
    has_agent,
)
from undertow.distributed.workers.future import Future
from undertow.distributed.workers.values import travels
from undertow.graph.end_nodes import copy_of
from undertow.scopes import held
from undertow.tensor import Tensor

#: of a value or a fork: the rank of who gave the number, and the number
Number = tuple[int, int]


class Owned:
    """A value that this process owns, and the forks of it in others."""

    def __init__(self) -> None:
        self.value = Future()
        self.forks: set[Number] = set()
        self.dropped_early: set[Number] = set()
        self.local = 0


_owned: dict[Number, Owned] = {}
_lock = threading.RLock()  # guards _owned and what is in it; re-entrant, because a destructor may need it anywhere
_numbers = itertools.count()


def new_number() -> Number:
    return current_agent().rank, next(_numbers)


def find_or_make(number: Number) -> Owned:
    with held(_lock):
        if number not in _owned:
            _owned[number] = Owned()
        return _owned[number]


def forget_if_unused(number: Number) -> None:
    owned = _owned.get(number)
    if owned is not None and not owned.forks and not owned.local and not owned.dropped_early:
        del _owned[number]


class RRef:
    """A value of this process that others can be given, or one of another process.

    value      kept here; `remote` makes RRefs of values that another process will compute
    type_hint  taken for PyTorch's sake

    Example: `rpc.RRef(ut.ones(2)).to_here()`
    """

    def __class_getitem__(cls, kind: Any) -> GenericAlias:
        """`RRef[Tensor]`, in annotations."""
        return GenericAlias(cls, kind)

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        self._become(current_agent().me, new_number(), None)
        find_or_make(self._number).value.set_result(value)

    def _become(self, owner: WorkerInfo, number: Number, fork: Number | None) -> None:
        self._owner, self._number, self._fork = owner, number, fork
        self._created: Future | None = None
        self._agent = current_agent()
        if fork is None:
            with held(_lock):
                find_or_make(number).local += 1

    def __del__(self) -> None:
        agent = self.__dict__.get("_agent")
        if agent is not None and not agent.stopped:
            agent.drop(functools.partial(drop, agent, self._owner.id, self._number, self._fork))

    # ---- who

    def owner(self) -> WorkerInfo:
        """The process that has the value."""
        return self._owner

    def owner_name(self) -> str:
        return self._owner.name

    def is_owner(self) -> bool:
        return self._fork is None

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of it, which is so once the call that made it has arrived."""
        return self._created is None or self._created.done()

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._shown(self._number)})"
        return f"UserRRef(RRefId = {self._shown(self._number)}, ForkId = {self._shown(self._fork)})"

    @staticmethod
    def _shown(number: Any) -> str:
        return f"GloballyUniqueId(created_on={number[0]}, local_id={number[1]})"

    def __getstate__(self) -> Any:
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    # ---- what

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value, which is sent if another process has it. An error of what computes it is raised.

        timeout  seconds; -1: that of `init_rpc`
        """
        if self._agent.stopped:
            raise RuntimeError(f"{self!r}: RPC has been shut down. Cannot call to_here() on it after deletion.")
        if self.is_owner():
            return self.local_value()
        if self._created is not None:
            self._wait_for_creation()
        call = self._agent.call(self._owner.id, "value of RRef", self._number, timeout, current_id.get(), "to_here")
        return call.wait()

    def _wait_for_creation(self) -> None:
        """Raise what has kept the owner from computing the value at all."""
        assert self._created is not None
        try:
            self._created.wait()
        except CallTimeoutError as error:
            raise CallTimeoutError(
                "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does not "
                f"exist: {error}"
            ) from error

    def local_value(self) -> Any:
        """The value, in the process that has it."""
        if not self.is_owner():
            raise RuntimeError(
                f"For UserRRef(rref_id={self._shown(self._number)}, fork_id={self._shown(self._fork)}), can't call "
                f"localValue() on user {self._agent.me}. Call it on owner {self._owner}; to_here() sends the value."
            )
        future = find_or_make(self._number).value
        future.until_done(self._agent.timeout or None)
        error = future.exception()
        if error is not None:
            # a copy: the error stays with the value, and its traceback would keep this RRef, and so the value, alive
            raise copy_of(error) if isinstance(error, Exception) else error
        return future.value()

    def _get_future(self) -> Future:
        """Done when the call that makes the value has been."""
        if self._created is not None:
            return self._created
        if self.is_owner():
            return find_or_make(self._number).value
        done = Future()
        done.set_result(None)
        return done

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        call = rpc_async(self._owner, type_of_value, (self,), None, timeout)
        return call.wait() if blocking else call

    # ---- methods of the value, in its process

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """`rref.rpc_sync().method(...)` calls a method of the value, and waits.

        timeout  seconds; -1: that of `init_rpc`
        """
        return RRefProxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """`rref.rpc_async().method(...)`: the Future of its result.

        timeout  seconds; -1: that of `init_rpc`
        """
        return RRefProxy(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> RRefProxy:
        """`rref.remote().method(...)`: the RRef of its result.

        timeout  seconds; -1: that of `init_rpc`
        """
        return RRefProxy(self, remote, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Start a backward pass from the value: in its process, through all that the context has reached.

        dist_autograd_ctx_id  -1: the value is here, and so is its whole graph
        retain_graph          keep what the pass frees, for another one
        """
        if self.is_owner():
            backward_from(self, dist_autograd_ctx_id, retain_graph)
        elif dist_autograd_ctx_id == -1:
            raise RuntimeError(
                f"User RRefs require 'dist_autograd_ctx_id' to be specified: the value of {self!r} is elsewhere"
            )
        else:
            rpc_sync(self._owner, backward_from, (self, dist_autograd_ctx_id, retain_graph))


class RRefProxy:
    """The methods of an RRef's value, each as a call to its process."""

    def __init__(self, rref: RRef, call: Callable[..., Any], timeout: float) -> None:
        self._rref, self._call, self._timeout = rref, call, timeout

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(self._rref.owner(), call_method, (self._rref, name, args, kwargs), timeout=self._timeout)

        return call


def type_of_value(rref: RRef) -> Any:
    return type(rref.local_value())


def call_method(rref: RRef, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of the value; it may be one that returns a Future."""
    method = getattr(rref.local_value(), name)
    return awaited(method, method(*args, **kwargs))


call_method.passes_futures_on = True  # type: ignore[attr-defined]


def backward_from(rref: RRef, context_id: int, retain_graph: bool) -> None:
    value = rref.local_value()
    if not isinstance(value, Tensor):
        raise RuntimeError(f"RRef should contain a tensor for .backward(), not {type(value).__name__}")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        backward(context_id, [value], retain_graph)


# ---- values that are computed where they stay


def remote(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef:
    """Call a function in another process, whose result stays there: its RRef, at once.

    Errors of the function are raised by `to_here`.

    func          travels by its name, so both programs must import it from the same module
    args, kwargs  what it is called with

    Example: `rpc.remote("worker1", ut.add, (ut.ones(2), 1)).to_here()`
    """
    agent = current_agent()
    owner, number = worker(agent, to), new_number()
    fork = None if owner.id == agent.rank else new_number()
    rref = object.__new__(RRef)
    rref._become(owner, number, fork)
    value = number, fork, checked(func), tuple(args or ()), dict(kwargs or {})
    what = getattr(func, "__qualname__", repr(func))
    rref._created = agent.call(owner.id, "compute RRef", value, timeout, current_id.get(), what)
    return rref


def note_fork(arrived: Arrived) -> None:
    """The caller's fork is known before anything that it says of it comes."""
    number, fork, *_ = arrived.value
    if fork is not None:
        add_fork(number, fork)


@handles("compute RRef", first=note_fork)
def computed(agent: Agent, arrived: Arrived) -> None:
    """Compute a value. An error is kept in its place; whoever asks for the value gets it."""
    number, _, func, args, kwargs = arrived.value
    owned = find_or_make(number)
    try:
        result = run_function(arrived.context, func, args, kwargs)
    except BaseException as error:
        owned.value.set_exception(error)
        return
    if not isinstance(result, Future):
        owned.value.set_result(result)
        return

    def finish(future: Future) -> None:
        if future.exception() is None:
            owned.value.set_result(future.value())
        else:
            owned.value.set_exception(future.exception())  # type: ignore[arg-type]

    result.when_done(finish)


@handles("value of RRef", quick=True)
def value_of(agent: Agent, arrived: Arrived) -> Future:
    return find_or_make(arrived.value).value


# ---- forks


def add_fork(number: Number, fork: Number) -> None:
    with held(_lock):
        owned = find_or_make(number)
        if fork in owned.dropped_early:
            owned.dropped_early.discard(fork)
            forget_if_unused(number)
        else:
            owned.forks.add(fork)


def drop(agent: Agent, owner: int, number: Number, fork: Number | None) -> None:
    """An RRef of this process is gone."""
    if fork is not None:
        if not agent.stopped:
            agent.post(owner, "drop fork", (number, fork))
        return
    with held(_lock):
        if number in _owned:
            _owned[number].local -= 1
            forget_if_unused(number)


@handles("add fork", quick=True)
def fork_added(agent: Agent, arrived: Arrived) -> None:
    add_fork(*arrived.value)


@handles("drop fork", quick=True)
def fork_dropped(agent: Agent, arrived: Arrived) -> None:
    number, fork = arrived.value
    with held(_lock):
        owned = find_or_make(number)
        if fork in owned.forks:
            owned.forks.discard(fork)
            forget_if_unused(number)
        else:
            owned.dropped_early.add(fork)


def write_rref(rref: RRef) -> tuple[Any, ...]:
    """An RRef on its way to another process: a fork of it, of which the owner is told first."""
    fork, agent = new_number(), current_agent()
    if rref.is_owner():
        add_fork(rref._number, fork)
    else:
        agent.post(rref._owner.id, "add fork", (rref._number, fork))
    return rref._owner, rref._number, fork


def read_rref(owner: WorkerInfo, number: Number, fork: Number) -> RRef:
    rref = object.__new__(RRef)
    if owner.id == current_agent().rank:
        rref._become(owner, number, None)
        with held(_lock):  # the fork was made for the journey
            owned = find_or_make(number)
            if fork in owned.forks:
                owned.forks.discard(fork)
            else:
                owned.dropped_early.add(fork)
    else:
        rref._become(owner, number, fork)
    return rref


travels(RRef, write_rref, read_rref)


# ---- looking, and the end


def debug_info() -> dict[str, str]:
    with held(_lock):
        return {
            "num_owner_rrefs": str(len(_owned)),
            "num_pending_users": "0",
            "num_pending_futures": "0",
            "num_forks": str(sum([len(o.forks) for o in _owned.values()])),
        }


def forget_all() -> None:
    """RPC ends in this process."""
    global _numbers
    assert not has_agent()
    with held(_lock):
        _owned.clear()
        _numbers = itertools.count()
