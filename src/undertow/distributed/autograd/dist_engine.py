"""DistEngine: a backward pass that goes through several processes.

Each process has its part of the pass as one GraphTask, whose dependencies are counted from the roots and from all send
functions of the context, as if every message had been used: this is what PyTorch calls the FAST mode. A part runs until
nothing is ready, and goes on when gradients for one of its send functions come. They are answered when all that they
have set off has ended, everywhere, so the process that called `backward` knows when the pass is over.

Note [Messages that nobody used]: a message whose tensors did not contribute to the roots gets no gradients, and nodes
that wait for them would keep what they have got for ever. (PyTorch waits for ever, too.) Answers say whether some node
waits, so at the end the caller knows; it then finds out which messages can still get gradients, by asking every
process what its waiting nodes lead to. The pass then goes on as if the other messages had never been counted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.autograd.backward import _root_edges, _seeds
from undertow.distributed.autograd.context import DistAutogradContext, current_id, retrieve
from undertow.distributed.autograd.nodes import RecvRpcBackward
from undertow.distributed.workers.agent import Agent, Arrived, current_agent, handles
from undertow.distributed.workers.future import Future, collect_all
from undertow.engine import resumable
from undertow.engine.tasks import GraphTask
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.hooks import run_post_hooks, run_pre_hooks
from undertow.graph.node import Node
from undertow.ops.declare.recorded_namespace import recorded
from undertow.scopes import call_with, held
from undertow.tensor import Tensor

_passes = itertools.count(1)

#: rank -> how many parts of the pass it has run, and the numbers of messages that its waiting nodes wait for
States = dict[int, tuple[int, list[int]]]


def backward(context_id: int, roots: Sequence[Tensor], retain_graph: bool = False) -> None:
    """Compute the gradients of the sum of the roots, through all processes that the context's tensors have been in.

    They are added up in the context, in each process for the leaves that it has: see `get_gradients`.

    roots         scalars of this process
    retain_graph  keep what a pass frees, everywhere, so that another one may follow
    context_id    what `with context() as context_id` gives

    Example: `autograd.backward(context_id, [loss])`
    """
    if not isinstance(context_id, int):
        raise TypeError(f"backward(): incompatible function arguments: context_id is a number, not {context_id!r}")
    context = retrieve(context_id)
    _check_roots(roots)
    seeds: Any = _seeds(roots, [None] * len(roots))
    edges, grads = _root_edges(roots), [seed._array for seed in seeds]
    agent = current_agent()
    pass_id = agent.rank, next(_passes)
    with held(context.passes):
        with held(context.running):
            _prepare(context, pass_id, edges, retain_graph)
            part = _run_part(agent, context, lambda task: resumable.start_at_edges(task, edges, grads))
        _settle(agent, context_id, pass_id, part.wait())


def _settle(agent: Any, context_id: int, pass_id: Any, states: Any) -> None:
    while any([waits_for for _, waits_for in states.values()]):
        _merge(states, _tell_what_will_not_come(agent, context_id, pass_id, states))


def _check_roots(roots: Sequence[Tensor]) -> None:
    if isinstance(roots, Tensor) or not isinstance(roots, list | tuple):
        raise TypeError(
            f"backward(): incompatible function arguments: roots must be a list of tensors, not {type(roots).__name__}"
        )
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root: it was not computed from a tensor that requires grad")
        if root.numel() == 1 and root.is_leaf:
            raise RuntimeError("a root does not have a valid gradient function: it is a leaf, and was not computed")
        if root.numel() != 1:
            raise RuntimeError(
                f"a root of shape {list(root.shape)} is not a scalar, all roots need to be scalar: reduce it first"
            )


# ---- the part of one process


def _prepare(context: DistAutogradContext, pass_id: Any, edges: Sequence[Any], keep_graph: bool) -> None:
    """Count the dependencies of all that this process can be asked to run in the pass."""
    context.pass_id, context.runs, context.fired = pass_id, 0, set()
    context.outstanding = []
    with held(context.notes):
        sends = list(context.sends.values())

    def choose(nodes: Iterable[Node]) -> Any:
        leaves = [node for node in nodes if type(node) is AccumulateGrad]
        hooks = {k: (DistAccumulateGradCaptureHook(leaf, context),) for k, leaf in enumerate(leaves)}
        return leaves, hooks, [node for node in nodes if type(node) is RecvRpcBackward]

    context.task = resumable.prepare(edges, sends, keep_graph=keep_graph, xp=recorded.arrays, choose=choose)


class DistAccumulateGradCaptureHook:
    """Adds the gradient that arrives at a leaf to its context; hooks of the leaf's node run as always."""

    def __init__(self, node: AccumulateGrad, context: DistAutogradContext) -> None:
        self.node, self.context = node, context

    def __call__(self, grad: Any) -> Any:
        node, xp = self.node, recorded.arrays
        if _has_hooks(node):
            (grad,) = run_pre_hooks(node, [grad], xp)
        if grad is not None:
            self.context.accumulate(node.variable, grad)
        if _has_hooks(node):
            run_post_hooks(node, [], [grad], xp)
        return grad


def _has_hooks(node: Node) -> bool:
    return node.extra is not None and node.extra.hooks is not None


def _run_part(agent: Agent, context: DistAutogradContext, run: Callable[[GraphTask], None]) -> Future:
    """Run what is ready; the future of the States of all processes that this has reached, this one among them.

    The context's `running` is held.
    """
    task = context.task
    assert task is not None
    error: BaseException | None = None
    try:
        call_with(current_id, context.number, run, task)
        if len(context.fired) == len(context.sends):
            resumable.finish(task)
    except BaseException as raised:
        error = raised
    context.runs += 1
    state = {agent.rank: (context.runs, _waits_for(context))}
    sent, context.outstanding = context.outstanding, []
    return _when_answered(agent, sent, state, error)


def _waits_for(context: DistAutogradContext) -> list[int]:
    """If a node has got some of its gradients and not all: the messages for which none have come."""
    assert context.task is not None
    if not resumable.unfinished(context.task):
        return []
    return [number for number in context.sends if number not in context.fired]


def _when_answered(agent: Agent, sent: list[Future], state: States, error: BaseException | None) -> Future:
    whole = Future()

    def finish(_: Future) -> None:
        first = error
        for future in sent:
            if future.exception() is None:
                _merge(state, future.value())
            elif first is None:
                first = future.exception()
        if first is None:
            whole.set_result(state)
        else:
            whole.set_exception(first)

    collect_all(sent).when_done(finish)
    return whole


def _merge(states: States, more: States) -> None:
    for rank, (runs, waits_for) in more.items():
        if rank not in states or states[rank][0] <= runs:
            states[rank] = runs, waits_for


@handles("propagate gradients")
def propagate(agent: Agent, arrived: Arrived) -> Future:
    """Gradients have come for a send function."""
    context_id, pass_id, keep_graph, message_id, grads = arrived.value
    arrays = [None if g is None else g._array for g in grads]
    nothing = all([array is None for array in arrays])
    context = retrieve(context_id)
    with held(context.running):
        if context.pass_id != pass_id:
            _prepare(context, pass_id, (), keep_graph)
        send = context.sends[message_id]
        context.fired.add(message_id)

        def run(task: GraphTask) -> None:
            resumable.execute_graph_task_until_ready_queue_empty(task, send, None if nothing else arrays)

        return _failing_with_rank(agent, _run_part(agent, context, run))


def _failing_with_rank(agent: Agent, future: Future) -> Future:
    """The same, but its error says where it happened, unless it does so already."""
    whole = Future()

    def finish(_: Future) -> None:
        error = future.exception()
        if error is None:
            whole.set_result(future.value())
        else:
            whole.set_exception(error if isinstance(error, NodeError) else NodeError.of(agent, error))

    future.when_done(finish)
    return whole


class NodeError(RuntimeError):
    """A backward pass failed in another process; the text says in which, why, and at which line."""

    says_where = True

    @classmethod
    def of(cls, agent: Agent, error: BaseException) -> NodeError:
        notes = "".join([f"\n{note}" for note in getattr(error, "__notes__", ())])
        return cls(f"Error on Node {agent.rank}: {error}{notes}")


# ---- See Note [Messages that nobody used]


def _tell_what_will_not_come(agent: Agent, context_id: int, pass_id: Any, states: States) -> States:
    """Let nodes go on that wait for what cannot come; the new States of their processes."""
    waiting = {rank: numbers for rank, (_, numbers) in states.items() if numbers}
    coming: set[tuple[int, int]] = set()
    frontier = [found for rank in waiting for found in _reach(agent, rank, (context_id, pass_id, None))]
    while frontier:
        rank, number = frontier.pop()
        if (rank, number) not in coming:
            coming.add((rank, number))
            frontier += _reach(agent, rank, (context_id, pass_id, number))
    found: States = {}
    for rank, numbers in waiting.items():
        never = [number for number in numbers if (rank, number) not in coming]
        if never:
            _merge(found, agent.call(rank, "nothing will come", (context_id, pass_id, never)).wait())
    if not found:
        raise RuntimeError(
            "the backward pass has stopped before its end: nodes wait for gradients in processes "
            f"{', '.join(map(str, waiting))}, and none are on their way"
        )
    return found


def _reach(agent: Agent, rank: int, value: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = agent.call(rank, "what is reached", value).wait()
    return found


@handles("what is reached")
def reached(agent: Agent, arrived: Arrived) -> list[tuple[int, int]]:
    """The messages that get gradients if a send function of this process does, or (None) its waiting nodes do."""
    context_id, pass_id, number = arrived.value
    context = retrieve(context_id)
    with held(context.running):
        if number is not None:
            start: list[Any] = [context.sends[number]]
        else:
            assert context.task is not None and context.pass_id == pass_id
            start = resumable.unfinished(context.task)
        nodes = resumable.reached_from(start)
    return [(node.source, node.message_id) for node in nodes if isinstance(node, RecvRpcBackward)]


@handles("nothing will come")
def go_on_without(agent: Agent, arrived: Arrived) -> Future:
    context_id, pass_id, numbers = arrived.value
    context = retrieve(context_id)
    with held(context.running):
        assert context.pass_id == pass_id
        context.fired.update(numbers)
        never = [context.sends[number] for number in numbers]
        coming = [send for number, send in context.sends.items() if number not in context.fired]
        run = functools.partial(resumable.go_on_without, never=never, coming=coming)
        return _failing_with_rank(agent, _run_part(agent, context, run))
