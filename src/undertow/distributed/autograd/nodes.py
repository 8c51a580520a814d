"""The ends of a process's graph in a context: where tensors left for another process, and where they came from.

A message with tensors that require grad has a number. In the process that sends it a SendRpcBackward has that number,
above what computed the tensors; in the one that receives it a RecvRpcBackward, which computed the tensors there. In the
backward pass the second hands its gradients to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend.interface import Namespace
from undertow.distributed.autograd.context import find_or_make, new_number, retrieve
from undertow.distributed.workers.agent import current_agent
from undertow.graph.accumulate import gradient_edge
from undertow.graph.edges import Edge
from undertow.graph.node import Node, OutputEdge
from undertow.graph.user_lines import caller_site, is_site_recording_enabled
from undertow.scopes import held
from undertow.tensor import Tensor


class RpcNode(Node):
    """A node with an output for each tensor of a message that requires grad."""

    __slots__ = ("_dtypes", "_shapes")

    multiple_outputs = True
    wants_undefined = True

    def __init__(self, edges: Sequence[Edge | None], tensors: Sequence[Tensor]) -> None:
        super().__init__(edges, site=caller_site() if is_site_recording_enabled() else None)
        self._shapes = [t._array.shape for t in tensors]
        self._dtypes = [t._array.dtype for t in tensors]

    def name(self) -> str:
        return f"undertow::distributed::autograd::{type(self).__name__}"


class SendRpcBackward(RpcNode):
    """Above tensors that went to another process: their gradients come from there."""

    __slots__ = ()

    def pull(self, xp: Namespace, grad: list[Any], edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        return [None if edge is None else g for g, edge in zip(grad, edges, strict=True)]


class RecvRpcBackward(RpcNode):
    """Below tensors that came from another process: their gradients go there.

    context_id, message_id, source   what came, and from where
    """

    __slots__ = ("context_id", "message_id", "source")

    def __init__(self, tensors: Sequence[Tensor], context_id: int, message_id: int, source: int) -> None:
        super().__init__((), tensors)
        self.context_id, self.message_id, self.source = context_id, message_id, source

    def pull(self, xp: Namespace, grad: list[Any], edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        context = retrieve(self.context_id)
        assert context.task is not None
        grads = [None if g is None else Tensor(g, xp) for g in grad]
        value = self.context_id, context.pass_id, context.task.keep_graph, self.message_id, grads
        context.outstanding.append(current_agent().call(self.source, "propagate gradients", value))
        return []


class TensorHistory:
    """What a context notes of tensors that travel: an agent's History."""

    def sent(self, context: int, tensors: list[Tensor], to: int) -> int:
        found, number = find_or_make(context), new_number()
        concerned = [t for t in tensors if t.requires_grad]
        with held(found.notes):
            found.workers.add(to)
            if concerned:
                found.sends[number] = SendRpcBackward([gradient_edge(t) for t in concerned], concerned)
        return number

    def received(self, context: int, message: int, tensors: list[Tensor], source: int) -> None:
        found = find_or_make(context)
        concerned = [t for t in tensors if t.requires_grad]
        with held(found.notes):
            found.workers.add(source)
            if concerned:
                node = found.recvs[message] = RecvRpcBackward(concerned, context, message, source)
                for nr, tensor in enumerate(concerned):
                    tensor._edge = OutputEdge((node, nr))
