"""Watches: what looks on while a backward pass runs, node by node. Debug logging is one, anomaly mode another.

A pass asks once, when it starts, who wants to watch it. A watched pass runs every node by the general path, unless
the watcher is content with rows (see Watch); so one that nobody watches pays nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from undertow.graph.node import Node, site_of
from undertow.scopes import common_lock, held

DEBUG = 10  # logging.DEBUG


class Watch:
    """What one watcher sees of one pass. Gradients are arrays or, in a recorded pass, Tensors; None is none.

    rows  None, or a list: the compiled loop may run the pass, and append to the list when which node ran (see rows.h)
          instead of calling these methods for nodes with nothing out of the ordinary
    """

    rows: list[Any] | None = None

    def before(self, node: Node, grads: list[Any]) -> None:
        """The node is about to run on `grads`, one per output of the operation it stands for."""

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        """It has run, with its post-hooks; `results` has one gradient per edge. Its saved values are still there."""

    def failed(self, node: Node, error: BaseException) -> None:
        """The pass ends here: the node, or a hook on it, raised."""


class NodeLog(Watch):
    """One DEBUG record per node, on the logger `undertow.autograd`."""

    def before(self, node: Node, grads: list[Any]) -> None:
        # text, not objects: a handler that keeps its records must not keep the graph
        site = site_of(node)
        recorded = f" recorded at {site}" if site else ""
        shown = ", ".join("None" if g is None else f"{g.dtype}{list(g.shape)}" for g in grads)
        _logger().debug("Executing: %s%s with grad_outputs: [%s]", repr(node), recorded, shown)


@cache
def _logger() -> Any:
    import logging

    return logging.getLogger("undertow.autograd")


def _log_if_enabled() -> Watch | None:
    if "logging" not in sys.modules:  # whoever wants records has loaded it; the others need not wait for that
        return None
    return NodeLog() if _logger().isEnabledFor(DEBUG) else None


Watcher = Callable[[], Watch | None]

#: functions that return a Watch for a pass that is starting, or None. A list that is replaced, never changed: another
#: thread may be reading it. Guarded, for those who replace it, by the common lock
_watchers: list[Watcher] = [_log_if_enabled]


def install_watcher(watcher: Watcher) -> None:
    global _watchers
    with held(common_lock):
        _watchers = [*_watchers, watcher]


def remove_watcher(watcher: Watcher) -> None:
    """Ask it no more, if it is asked; one that was installed several times is still asked by the others."""
    global _watchers
    with held(common_lock):
        if watcher in _watchers:
            place = _watchers.index(watcher)
            _watchers = [*_watchers[:place], *_watchers[place + 1 :]]


def watches_of_pass() -> tuple[Watch, ...]:
    found = [watcher() for watcher in _watchers]
    return tuple([watch for watch in found if watch is not None])
