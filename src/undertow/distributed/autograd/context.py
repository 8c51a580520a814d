"""Contexts: what a backward pass over several processes has to know of the forward pass, in each of them."""

from __future__ import annotations

import itertools
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from undertow.backend.sparse.protocol import AnySparse
from undertow.distributed.workers.agent import Agent, Arrived, current_agent, handles, has_agent
from undertow.scopes import held
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.distributed.autograd.nodes import RecvRpcBackward, SendRpcBackward
    from undertow.distributed.workers.future import Future
    from undertow.engine.tasks import GraphTask

#: a number of a context, or of a message in one: the rank of who made it, and so many bits of a counter
COUNTER_BITS = 48


class DistAutogradContext:
    """One context in one process.

    sends, recvs  by the numbers of messages: where gradients will come in, and where they will go out
    workers       the processes that tensors of the context came from or went to
    grads         id of a leaf -> the leaf, and the sum of its gradients
    pass_id, task the backward pass that is under way, or was the last one
    fired         the numbers of the messages for which gradients have come in this pass
    outstanding   gradients that the part of the pass that is running has sent, until they are answered

    number  by which all processes know it

    Example: `autograd._retrieve_context(context_id).grads`
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sends: dict[int, SendRpcBackward] = {}
        self.recvs: dict[int, RecvRpcBackward] = {}
        self.workers: set[int] = set()
        self.grads: dict[int, tuple[Tensor, Tensor]] = {}
        self.pass_id: Any = None
        self.task: GraphTask | None = None
        self.runs = 0
        self.fired: set[int] = set()
        self.outstanding: list[Future] = []
        self.notes = threading.RLock()  # guards sends, recvs, workers and grads
        self.passes = threading.RLock()  # held during a pass that this process has started
        self.running = threading.RLock()  # held while a part of the pass runs; guards the other fields

    def accumulate(self, leaf: Tensor, grad: Any) -> None:
        """Add to the gradient of a leaf; `.grad` is left alone."""
        with held(self.notes):
            found = self.grads.get(id(leaf))
            if found is None:
                self.grads[id(leaf)] = leaf, Tensor(grad.copy(), leaf._xp)
            elif isinstance(grad, AnySparse) or isinstance(found[1]._array, AnySparse):
                self.grads[id(leaf)] = leaf, Tensor(found[1]._array + grad, leaf._xp)
            else:
                leaf._xp.add(found[1]._array, grad, out=found[1]._array)

    # ---- under PyTorch's names

    def _context_id(self) -> int:
        return self.number

    def _send_functions(self) -> dict[int, Any]:
        return dict(self.sends)

    def _recv_functions(self) -> dict[int, Any]:
        return dict(self.recvs)

    def _known_worker_ids(self) -> set[int]:
        return set(self.workers)


_contexts: dict[int, DistAutogradContext] = {}
_lock = threading.RLock()  # guards _contexts
_counter = itertools.count(1)  # 0 stands for no context
current_id: ContextVar[int] = ContextVar("undertow.distributed.autograd.context", default=0)


def new_number() -> int:
    """A number that no other process gives."""
    return (current_agent().rank << COUNTER_BITS) | next(_counter)


def find_or_make(number: int) -> DistAutogradContext:
    with held(_lock):
        if number not in _contexts:
            _contexts[number] = DistAutogradContext(number)
        return _contexts[number]


def retrieve(number: int) -> DistAutogradContext:
    found = _contexts.get(number)
    if found is None:
        raise RuntimeError(
            f"Could not find autograd context with id: {number}. It is there inside of "
            "`with distributed.autograd.context() as id`, in all processes that its tensors have reached."
        )
    return found


def is_valid(number: int) -> bool:
    return number in _contexts


def all_contexts() -> list[DistAutogradContext]:
    return list(_contexts.values())


class context:
    """Note what crosses processes inside of the block, so that `backward` can send gradients the same way back.

    >>> from undertow.distributed import autograd
    >>> with autograd.context() as context_id:  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    RuntimeError: RPC has not been initialized. Call undertow.distributed.rpc.init_rpc first. ...
    """

    def __enter__(self) -> int:
        self.number = new_context().number
        return self.number

    def __exit__(self, *_: Any) -> None:
        current_id.set(0)
        release(self.number)


def new_context() -> DistAutogradContext:
    if current_id.get():
        raise RuntimeError(
            f"Already have an autograd context id for this thread: {current_id.get()}. Contexts do not nest: leave the "
            "one before entering another."
        )
    made = find_or_make(new_number())
    current_id.set(made.number)
    return made


def release(number: int, but: int = -1) -> None:
    """Forget a context, here and in all processes that it has reached.

    but  the process that has told this one to, and knows
    """
    with held(_lock):
        found = _contexts.pop(number, None)
    if found is None or not has_agent():
        return
    agent = current_agent()
    for rank in sorted(found.workers - {but, agent.rank}):
        agent.post(rank, "release context", number)


@handles("release context", quick=True)
def released(agent: Agent, arrived: Arrived) -> None:
    release(arrived.value, arrived.source)


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients of this process's leaves that the backward passes of a context have added up.

    They are there until the context ends; `.grad` is not touched.

    context_id  what `with context() as context_id` gives

    Example: `autograd.get_gradients(context_id)[x]`
    """
    return {leaf: grad for leaf, grad in retrieve(context_id).grads.values()}
