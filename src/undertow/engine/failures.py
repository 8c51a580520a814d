"""What an exception that ends a backward pass is told on its way out: which node was running, and the forward line.

It is told as a note (`BaseException.add_note`), so type, message and traceback stay what they were.
"""

from __future__ import annotations

from undertow.engine.tasks import GraphTask
from undertow.errors import GraphFreedError
from undertow.graph.node import Node, site_of

_PREFIX = "undertow: "


def describe_failure(task: GraphTask, node: Node, error: BaseException) -> None:
    """Note on `error` where it happened: once, for the innermost node, although it may end several nested passes."""
    if task.failed:
        return
    task.failed = True
    for watch in task.watches:
        watch.failed(node, error)
    if any(note.startswith(_PREFIX) for note in getattr(error, "__notes__", ())):
        return
    error.add_note(f"{_PREFIX}while running {_described(node)}")
    if isinstance(error, GraphFreedError):
        error.add_note(_PREFIX + _sharing(task, node))


def _described(node: Node) -> str:
    site = site_of(node)
    variable = getattr(node, "variable", None)
    if variable is not None:
        return f"{node.name()} of a leaf of shape {list(variable._array.shape)}"
    return node.name() + (f", recorded at {site}" if site else "")


def _sharing(task: GraphTask, freed: Node) -> str:
    """Which part of this pass's graph an earlier pass has already used up."""
    users = [n for n in task.dependencies if any(e is not None and e[0] is freed for e in n.next_edges)]
    if not users:
        return f"{freed.name()} is where this pass started: the same output was differentiated before"
    listed = "; ".join(_described(user) for user in users[:3]) + ("; ..." if len(users) > 3 else "")
    return f"the sub-expression that ends in {freed.name()} is shared with that pass; in this one it feeds {listed}"
