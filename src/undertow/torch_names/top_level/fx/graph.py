"""A traced program: its nodes, and ways to change them."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from undertow.pytree import flatten

from .node import Node, map_arg

#: what code that PyTorch writes has names for, beyond Python's own
NO_NAMES = frozenset("inf nan NoneType torch device fx_pytree pytree".split())


def _shown(target: Any) -> str:
    """What a node is called after: `add` of `__add__`, `conv_block` of `convBlock`."""
    name = getattr(target, "__name__", "value") if callable(target) else str(target)
    name = name[2:-2] if isinstance(target, str) and re.fullmatch("__.+__", name) else name
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Graph:
    """Nodes in the order in which they run; new ones come where `inserting_before` or `inserting_after` says."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._place: Callable[[], int] = lambda: len(self._nodes)
        self.owning_module, self._tracer_cls = owning_module, tracer_cls
        #: None, or the structures of what the program takes and returns, of which the graph has the leaves
        self.pytree: tuple[Any, Any] | None = None

    @property
    def nodes(self) -> list[Node]:
        """A list of the nodes as they are now, so that a loop over it may change the graph."""
        return list(self._nodes)

    def _new_name(self, wanted: str) -> str:
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted) or "_unnamed"
        name = f"_{name}" if name[0].isdigit() else name
        stem, number = re.fullmatch(r"(.*?)(?:_(\d+))?", name).groups()  # type: ignore[union-attr]
        taken = name in self._names or keyword.iskeyword(name) or name in NO_NAMES or hasattr(builtins, name)
        n = self._numbers.get(stem, 0) if number is None or taken else int(number)
        while taken:
            n += 1
            name = f"{stem}_{n}"
            taken = name in self._names
        self._names.add(name)
        self._numbers[stem] = n
        return name

    def create_node(
        self, op: str, target: Any, args: Any = (), kwargs: Any = None, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """A new node, at the place where new ones come."""
        node = Node(self, self._new_name(name or _shown(target)), op, target, args or (), kwargs or {})
        node.type = type_expr
        self._nodes.insert(self._place(), node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,))

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        return self.create_node("get_attr", qualified_name)

    def call_module(self, module_name: str, args: Any = (), kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_module", module_name, args, kwargs)

    def call_method(self, method_name: str, args: Any = (), kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_method", method_name, args, kwargs)

    def call_function(self, the_function: Any, args: Any = (), kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_function", the_function, args, kwargs)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,))

    def output_node(self) -> Node:
        return next(node for node in reversed(self._nodes) if node.op == "output")

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        return [node for node in self._nodes if node.op == op and (target is None or node.target == target)]

    # ---- changing it

    def inserting_before(self, n: Node | None = None) -> Any:
        """New nodes come in front of this one, inside the block."""
        return self._inserting(lambda: 0 if n is None else self._nodes.index(n))

    def inserting_after(self, n: Node | None = None) -> Any:
        """New nodes come behind this one, inside the block."""
        return self._inserting(lambda: len(self._nodes) if n is None else self._nodes.index(n) + 1)

    @contextmanager
    def _inserting(self, place: Callable[[], int]) -> Iterator[None]:
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{dict(to_erase.users)}! Call replace_all_uses_with first."
            )
        self._nodes.remove(to_erase)
        to_erase._update((), {})

    def eliminate_dead_code(self, is_impure_node: Any = None) -> bool:
        """Remove what nobody uses; whether there was something."""
        impure = is_impure_node or Node.is_impure
        dead = [node for node in reversed(self._nodes) if not impure(node)]
        before = len(self._nodes)
        for node in dead:
            if not node.users:
                self.erase_node(node)
        return len(self._nodes) < before

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False) -> Any:
        """Copy all nodes of another graph but its output; what that gives."""
        for node in g._nodes:
            if node in val_map:
                continue
            if node.op == "output":
                return map_arg(node.args[0], lambda n: val_map[n])
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        copies: dict[Node, Any] = {}
        for node in self._nodes:
            copies[node] = made.node_copy(node, lambda n: copies[n])
        made.pytree = self.pytree
        return made

    # ---- running it

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments, one for each placeholder."""
        if self.pytree is None:
            return args
        leaves, structure = flatten(args)
        if structure != self.pytree[0]:
            raise TypeError(
                f"this graph was traced with arguments of the structure {self.pytree[0]} and is given {structure}: "
                "give it containers of the same kinds, lengths and keys, in the same order"
            )
        return leaves

    def process_outputs(self, out: Any) -> Any:
        """What the program returns, of what the output node gives."""
        return out if self.pytree is None else self.pytree[1].unflatten(out)

    def lint(self) -> None:
        """Raise if a node uses one that does not come before it."""
        seen: set[Node] = set()
        for node in self._nodes:
            for given in node.all_input_nodes:
                if given not in seen:
                    raise RuntimeError(f"Argument '{given}' of Node '{node}' was used before it has been defined!")
            seen.add(node)

    # ---- showing it

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *[node.format_node() for node in self._nodes]])

    def print_tabular(self) -> None:
        for node in self._nodes:
            target = getattr(node.target, "__name__", node.target)
            print(f"{node.op:<15}{node.name:<20}{target!s:<30}{node.args!s:<30}{node.kwargs}")

    def code(self) -> str:
        """The program as a person would read it."""
        inputs = [str(node.target) for node in self._nodes if node.op == "placeholder"]
        lines = [f"def forward({', '.join(['self', *inputs])}):"]
        for node in self._nodes:
            args = [*map(repr, node.args), *[f"{name} = {value!r}" for name, value in node.kwargs.items()]]
            if node.op == "output":
                lines.append(f"    return {node.args[0]!r}")
            elif node.op == "get_attr":
                lines.append(f"    {node.name} = self.{node.target}")
            elif node.op == "call_module":
                lines.append(f"    {node.name} = self.{node.target}({', '.join(args)})")
            elif node.op == "call_method":
                lines.append(f"    {node.name} = {args[0]}.{node.target}({', '.join(args[1:])})")
            elif node.op == "call_function":
                called = getattr(node.target, "__name__", node.target)
                lines.append(f"    {node.name} = {called}({', '.join(args)})")
        return "\n".join(lines) + "\n"
