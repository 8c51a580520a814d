"""What a traced program is made of: nodes, in the order in which they run, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graph import Graph

Argument = Any
Target = Any


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """The arguments with `fn(node)` in the place of each node, also in tuples, lists, dicts and slices."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """The arguments with `fn(value)` in the place of each value."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(item, fn) for item in a]
    if isinstance(a, dict):
        return {key: map_aggregate(item, fn) for key, item in a.items()}
    if isinstance(a, slice):
        return slice(*[map_aggregate(item, fn) for item in (a.start, a.stop, a.step)])
    return fn(a)


class Node:
    """One step of a traced program.

    op      "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output"
    target  what it calls or reads: a function, or a name
    users   the nodes whose arguments it is among
    """

    def __init__(self, graph: Graph, name: str, op: str, target: Target, args: Any, kwargs: Any) -> None:
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.type: Any = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._update(args, kwargs)

    def _update(self, args: Any, kwargs: Any) -> None:
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, wanted: Any) -> None:
        self._update(wanted, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, wanted: Any) -> None:
        self._update(self._args, wanted)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    @property
    def next(self) -> Node:
        nodes = self.graph._nodes
        return nodes[(nodes.index(self) + 1) % len(nodes)]

    @property
    def prev(self) -> Node:
        nodes = self.graph._nodes
        return nodes[nodes.index(self) - 1]

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True
    ) -> list[Node]:
        """Let another node stand wherever this one is an argument; those whose arguments were changed."""
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        args, kwargs = map_arg((self._args, self._kwargs), lambda n: new_input if n is old_input else n)
        self._update(args, kwargs)

    def prepend(self, x: Node) -> None:
        """Move a node in front of this one."""
        self.graph._nodes.remove(x)
        self.graph._nodes.insert(self.graph._nodes.index(self), x)

    def append(self, x: Node) -> None:
        """Move a node behind this one."""
        self.graph._nodes.remove(x)
        self.graph._nodes.insert(self.graph._nodes.index(self) + 1, x)

    def update_arg(self, idx: int, arg: Any) -> None:
        self.args = (*self._args[:idx], arg, *self._args[idx + 1 :])

    def update_kwarg(self, key: str, arg: Any) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def is_impure(self) -> bool:
        """Whether it must stay although nobody uses what it gives."""
        return self.op in ("placeholder", "output") or str(getattr(self.target, "__name__", self.target)).endswith("_")

    def format_node(self) -> str:
        shown = getattr(self.target, "__name__", self.target)
        call = f"{self.op}[target={shown}](args = {self._args}, kwargs = {self._kwargs})"
        return f"%{self.name} : [num_users={len(self.users)}] = {call}"

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return memo.get(id(self), self)  # graphs copy their nodes
