"""Mapping a function over nested lists, tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return type(tree)({key: tree_map(function, value) for key, value in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(function, value) for value in tree))
    if type(tree) in (list, tuple):
        return type(tree)(tree_map(function, value) for value in tree)
    return function(tree)


def tree_map_only(kind: Any, function: Callable[[Any], Any], tree: Any) -> Any:
    return tree_map(lambda leaf: function(leaf) if isinstance(leaf, kind) else leaf, tree)
