"""What PyTorch has under private names and undertow under public ones, so that one test can ask either library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any


def _names(L: ModuleType) -> dict[str, Callable[..., Any]]:
    if L.__name__ == "torch":
        private = L._C
        return {
            "current_node": private._current_autograd_node,
            "current_graph_task_id": private._current_graph_task_id,
            "current_graph_task_execution_order": private._current_graph_task_execution_order,
            "will_execute_node": private._will_engine_execute_node,
            "is_graph_kept": private._autograd._get_current_graph_task_keep_graph,
            "queue_callback": L.autograd.Variable._execution_engine.queue_callback,
        }
    return vars(L.autograd.graph)


def current_node(L: ModuleType) -> Any:
    return _names(L)["current_node"]()


def current_graph_task_id(L: ModuleType) -> int:
    return _names(L)["current_graph_task_id"]()


def execution_order(L: ModuleType) -> list[Any]:
    return _names(L)["current_graph_task_execution_order"]()


def will_execute_node(L: ModuleType, node: Any) -> bool:
    return _names(L)["will_execute_node"](node)


def is_graph_kept(L: ModuleType) -> bool:
    return _names(L)["is_graph_kept"]()


def queue_callback(L: ModuleType, callback: Callable[[], None]) -> None:
    _names(L)["queue_callback"](callback)


def single_threaded(L: ModuleType) -> AbstractContextManager[None]:
    return L.autograd.set_multithreading_enabled(False)
