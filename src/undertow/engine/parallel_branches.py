"""CPU branches in parallel: the switch, and what it applies to.

Independent branches of a CPU graph may run on several threads, because NumPy lets go of Python's lock while it works on
large arrays. It pays when arrays are large and branches many; otherwise handing nodes from thread to thread costs more
than it brings, so it is off until asked for. docs/engine.md has measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from undertow.backend import Device
from undertow.engine.tasks import GraphTask
from undertow.graph.node import Node


class _Setting:
    """What `set_parallel_branches` has set.

    helpers      the devices that stand for the helping threads: so these are made, found and ended as devices' are
    turns        the helpers, over and over
    least_bytes  gradients below this size stay where they are
    """

    helpers: tuple[Device, ...] = ()
    turns: Iterator[Device] = iter(())
    least_bytes = 1 << 20


setting = _Setting()


def set_parallel_branches(threads: int, least_bytes: int = 1 << 20) -> None:
    """Let backward passes run independent branches of CPU graphs on `threads` threads beside the caller's (0: none).

    least_bytes  only nodes whose gradient has at least this size go to another thread

    >>> import undertow as ut
    >>> ut.autograd.graph.set_parallel_branches(0)
    """
    if threads < 0:
        raise ValueError(f"threads must not be negative, got {threads}; 0 leaves all work to the caller's thread")
    setting.least_bytes = int(least_bytes)
    setting.helpers = tuple([Device("cpu", k) for k in range(threads)])
    setting.turns = cycle(setting.helpers)


def is_large(node: Node) -> bool:
    """Whether the gradient that the node receives is worth another thread."""
    if node.multiple_outputs or node.shape is None:
        return False
    size = node.dtype.itemsize
    for n in node.shape:
        size *= n
    return bool(size >= setting.least_bytes)


def has_branches(task: GraphTask) -> bool:
    """Whether a pass has large nodes in more than one branch: a large node with two large ones below it."""
    return any(
        sum(edge is not None and is_large(edge[0]) for edge in node.next_edges) > 1 for node in task.dependencies
    )
