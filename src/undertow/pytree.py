"""Nested tuples, lists, dicts and named tuples: taken apart into leaves, and put together again.

>>> leaves, spec = flatten({"a": (1, 2), "b": [3]})
>>> leaves, spec.unflatten([10, 20, 30])
([1, 2, 3], {'a': (10, 20), 'b': [30]})
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any


class Spec:
    """The structure of a tree. kind: the container's type, or None for a leaf; keys: of a dict.

    Of a class that a program has registered, the keys are what its function has given beside the parts.
    """

    __slots__ = ("children", "count", "keys", "kind")

    def __init__(self, kind: Any, keys: Any, children: list[Spec]) -> None:
        self.kind, self.keys, self.children = kind, keys, children
        self.count: int = 1 if kind is None else sum([c.count for c in children])

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return self._take(iter(leaves))

    def _take(self, leaves: Any) -> Any:
        if self.kind is None:
            return next(leaves)
        parts = [c._take(leaves) for c in self.children]
        if self.kind in REGISTERED:
            return REGISTERED[self.kind][1](parts, self.keys)
        if self.keys is not None:
            return self.kind(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and (self.kind, self.keys) == (other.kind, other.keys)
            and self.children == other.children
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "*" if self.kind is None else f"{self.kind.__name__}{self.children}"


LEAF = Spec(None, None, [])

#: classes that a program has registered as containers: how each is taken apart and put together
REGISTERED: dict[Any, tuple[Callable[[Any], tuple[Any, Any]], Callable[[list[Any], Any], Any]]] = {}


def children_of(tree: Any) -> tuple[Any, Any] | None:
    """The parts of a container, with a dict's keys; None for a leaf."""
    if type(tree) in REGISTERED:
        parts, context = REGISTERED[type(tree)][0](tree)
        return list(parts), context
    if isinstance(tree, tuple | list):
        return list(tree), None
    if type(tree) in (dict, OrderedDict):
        return list(tree.values()), list(tree)
    return None


def flatten(tree: Any) -> tuple[list[Any], Spec]:
    """The leaves, from left to right, and the structure they were in."""
    found = children_of(tree)
    if found is None:
        return [tree], LEAF
    leaves: list[Any] = []
    specs = []
    for part in found[0]:
        below, spec = flatten(part)
        leaves += below
        specs.append(spec)
    return leaves, Spec(type(tree), found[1], specs)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    leaves, spec = flatten(tree)
    return spec.unflatten([function(leaf) for leaf in leaves])


def broadcast(prefix: Any, spec: Spec) -> list[Any] | None:
    """A leaf for each leaf of `spec`: those of a prefix of the same structure, each standing for all below it."""
    found = children_of(prefix)
    if found is None:
        return [prefix] * spec.count
    if spec.kind is None or len(found[0]) != len(spec.children) or found[1] != spec.keys:
        return None
    if isinstance(prefix, tuple) != issubclass(spec.kind, tuple):
        return None
    leaves: list[Any] = []
    for part, child in zip(found[0], spec.children, strict=True):
        below = broadcast(part, child)
        if below is None:
            return None
        leaves += below
    return leaves
