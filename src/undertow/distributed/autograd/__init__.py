"""Backward passes over several processes, which call each other by `distributed.rpc`.

    with distributed.autograd.context() as context_id:
        h = rpc.rpc_sync("worker1", first_layers, args=(x,))
        loss = last_layers(h).sum()
        distributed.autograd.backward(context_id, [loss])
        gradients = distributed.autograd.get_gradients(context_id)

context      what a process notes of tensors that cross      nodes    where they leave and come in
dist_engine  the pass
"""

from __future__ import annotations

from typing import Any

from undertow.distributed.autograd.context import (
    COUNTER_BITS,
    all_contexts,
    current_id,
    is_valid,
    new_context,
    release,
    retrieve,
)
from undertow.distributed.autograd.context import DistAutogradContext as DistAutogradContext
from undertow.distributed.autograd.context import context as context
from undertow.distributed.autograd.context import get_gradients as get_gradients
from undertow.distributed.autograd.dist_engine import backward as backward
from undertow.distributed.process_group import is_available as is_available
from undertow.distributed.workers.agent import current_agent

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


def _current_context() -> DistAutogradContext:
    if not current_id.get():
        raise RuntimeError("Current thread doesn't have a valid autograd context: enter distributed.autograd.context()")
    return retrieve(current_id.get())


def _new_context() -> DistAutogradContext:
    return new_context()


def _release_context(context_id: int) -> None:
    current_id.set(0)
    release(context_id)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    return retrieve(context_id)


def _is_valid_context(context_id: int) -> bool:
    return is_valid(context_id)


def _get_max_id() -> int:
    """The last number that a context of this process can have."""
    return (current_agent().rank << COUNTER_BITS) + (1 << COUNTER_BITS) - 1


def _get_debug_info() -> dict[str, Any]:
    """How many contexts there are, and how many have a pass under way."""
    return {
        "num_autograd_contexts": str(len(all_contexts())),
        "num_current_backward_passes": str(sum([c.task is not None for c in all_contexts()])),
    }
