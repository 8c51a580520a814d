"""Passes whose every node ran on one stream, which is the caller's current one: they need no other thread.

A device's thread is there so that its work and the caller's go on side by side, and its streams wait for each other. On
one stream, whose operations are started and not waited for, a pass does neither: the thread that called backward starts
them itself, and saves two changes of threads. A node with hooks, or one of a custom Function, might ask
which thread it runs on; it has an extra of its own (graph/node.py), and its pass goes to the device's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import namespace_of_array
from undertow.backend.interface import Namespace
from undertow.engine.tasks import GraphRoot, GraphTask
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.node import Node, NodeExtra
from undertow.graph.operation_node import DeclaredNode


def only_space(task: GraphTask, grads: Sequence[Any]) -> Namespace | None:
    """The namespace of the device that a pass on one stream is all on, if the caller's thread can run it."""
    root: Any = task.root
    if not grads:
        return None
    first = root.next_edges[0][0] if type(root) is GraphRoot else root
    stream = None if first.extra is None else first.extra.stream
    extra = getattr(stream, "extra_of_nodes", None)
    if extra is None or task.watches or not task.in_place or task.outer is not None:
        return None
    space: Namespace = extra.stream.namespace
    if space.current_stream() is not extra.stream or any([namespace_of_array(g) is not space for g in grads]):
        return None
    for node in task.dependencies:
        if node.extra is not extra and type(node) is not GraphRoot and not has_only_counters(node, stream):
            return None
        if type(node) is AccumulateGrad and has_hooks(node):
            return None
    return space


def has_only_counters(node: Node, stream: Any) -> bool:
    """Whether an operation's node has an extra of its own for nothing but the versions of outputs that it has saved."""
    extra = node.extra
    return (
        type(extra) is NodeExtra and isinstance(node, DeclaredNode) and extra.stream is stream and extra.spaces is None
        and extra.hooks is None and extra.wrapper is None and extra.tangents is None
    )  # fmt: skip


def has_hooks(node: AccumulateGrad) -> bool:
    """Whether something rare hangs on the leaf, such as a hook."""
    extra = node.variable._extra
    return extra is not None and extra.rare is not None and not extra.rare.is_quiet
