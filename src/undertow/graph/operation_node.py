"""The nodes of declared operations: where they keep what they saved, and how they show it.

An ordinary backward pass reads the slots of a node (the tensor and its version per saved input, the array per saved
output). A SavedTensor takes the place of a slot's value when somebody asks for one: `_raw_saved_*`, saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.graph.accumulate import resolve_leaves
from undertow.graph.node import InputMetadata, Node, freed_error, node_extra
from undertow.graph.saved import Freed, SavedTensor, unpack_input, unpack_output
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.edges import Edge


class OperationNode(Node):
    """Base of the nodes of operations: leaves may stand for their nodes, and saved values have names.

    Its own subclasses are VariadicNode (operations on lists of tensors) and DeclaredNode.
    """

    __slots__ = ()

    @property
    def next_edges(self) -> tuple[Any, ...]:
        """See Note [Edges to leaves]."""
        edges = self.recorded_edges
        if type(edges) is list:
            resolve_leaves(self, edges)
        return (*edges,)  # never the node's own: see Note [What the collector sees of a node] in csrc/call/nodes.c

    @next_edges.setter
    def next_edges(self, edges: tuple[Edge | None, ...]) -> None:
        self.recorded_edges = edges

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            return saved_attribute(self, name)
        return super().__getattr__(name)


class DeclaredNode(OperationNode):
    """Base of the nodes of primitives and views: saved values live in slots of their own, named `saved_slots`.

    Its subclass PrimitiveNode (ops/declare/node.py) runs the rules; each operation has a class of its own below that.
    """

    __slots__ = ()

    saved_slots: tuple[str, ...] = ()
    _packable: tuple[tuple[str, str, Any, str], ...] = ()  # see packable
    #: how many outputs a user sees gradients of, if the last ones (indices) have none
    shown_outputs: int | None = None

    @property
    def saved(self) -> tuple[Any, ...]:  # type: ignore[override,unused-ignore]
        values = tuple([getattr(self, slot) for slot in self.saved_slots])
        return next((v for v in values if type(v) is Freed), values)

    def release(self, freed: Freed) -> None:
        for slot in self.saved_slots:
            value = getattr(self, slot)
            if type(value) is SavedTensor:
                value.release()
            if value is not None:
                setattr(self, slot, freed)

    @property
    def further_names(self) -> Mapping[str, str | Callable[[Any], Any]]:
        """Names beyond `saved_names` -> another name, or a function that reads the value off the node."""
        return {}

    @property
    def _input_metadata(self) -> list[InputMetadata]:
        return super()._input_metadata[: self.shown_outputs]

    def __dir__(self) -> list[str]:
        unneeded = superfluous(self)
        aliases = [name for name, known in self.further_names.items() if isinstance(known, str)]
        further = [f"_saved_{name}" for name in [*noted(self), *self.further_names, *unneeded]]
        numbers = [name for name in self.saved_names if stands_for_tensor(self, name)]
        raw = [f"_raw_saved_{name}" for name in [*aliases, *unneeded, *numbers]]
        return list(dict.fromkeys([*super().__dir__(), *further, *raw]))


def noted(node: Node) -> dict[str, Any]:
    """Values that a function of several operations left with the node of one, to be shown as `_saved_<name>`."""
    return {} if node.extra is None or node.extra.saved is None else node.extra.saved


def note(node: Node, name: str, value: list[Any]) -> None:
    node_extra(node).saved = {**noted(node), name: value}


def superfluous(node: Node) -> list[str]:
    """Tensors that the operation saves when it is given tensors only; this node's was given a number.

    Not where that is another node in PyTorch, of another name.
    """
    op = getattr(node, "op", None)
    if op is None or op.node_class.__name__ != type(node).__name__:
        return []
    names = op.node_class.saved_names
    return [name for name, (kind, _) in names.items() if kind != "value" and name not in node.saved_names]


# ---- saved-tensor hooks


def packable(cls: type[DeclaredNode]) -> tuple[tuple[str, str, Any, str], ...]:
    """What the nodes of a class save of tensors: name, whether input or output, place and slot. Found once."""
    found: tuple[tuple[str, str, Any, str], ...] | None = cls.__dict__.get("_packable")
    if found is None:
        tensors = [(key, kind, place) for key, (kind, place) in cls.saved_names.items() if kind != "value"]
        found = tuple([(*rest, f"saved_{rest[2] if rest[1] == 'input' else rest[2][0]}") for rest in tensors])
        cls._packable = found
    return found


def pack_node(node: Node, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
    """Put every saved tensor of a node that was just recorded through a pair of hooks."""
    if isinstance(node, DeclaredNode):
        for key, kind, place, slot in packable(type(node)):
            value = getattr(node, slot)
            if value is not None and not _is_number(value):
                raw_saved(node, key, kind, place).pack_for(node, pack_hook, unpack_hook)
        return
    for saved in node._kept or ():
        if isinstance(saved, SavedTensor) and saved.data is not None:
            saved.pack_for(node, pack_hook, unpack_hook)


class SavedHooks(NamedTuple):
    """A pair of saved-tensor hooks, as `State.saved_hooks` holds it."""

    pack: Callable[[Tensor], Any]
    unpack: Callable[[Any], Tensor]

    def record(self, node: Node) -> None:
        """What happens to every node that is recorded while they are on."""
        pack_node(node, self.pack, self.unpack)


def _is_number(value: Array) -> bool:
    extra = value._extra if isinstance(value, Tensor) else None
    return extra is not None and extra.is_number


# ---- what a user sees


def saved_attribute(node: Node, name: str) -> Any:
    """`node._saved_self`, `node._raw_saved_self`, ... for a node of a declared operation."""
    raw = name.startswith("_raw_saved_")
    key = name.removeprefix("_raw_saved_" if raw else "_saved_")
    if key in noted(node) and not raw:
        return noted(node)[key]
    further = node.further_names.get(key, key) if isinstance(node, DeclaredNode) else key
    if not isinstance(further, str) and not raw:
        return further(node)
    key = further if further in node.saved_names else key
    if key in node.saved_names and not (raw and is_plain_value(node, key)):
        return raw_value(node, key) if raw else saved_value(node, key)
    if key in superfluous(node):
        return SavedTensor(None, key) if raw else None
    raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}: it saves {list_of(node)}")


def is_plain_value(node: Node, key: str) -> bool:
    return node.saved_names[key][0] == "value" and not stands_for_tensor(node, key)


def stands_for_tensor(node: Node, key: str) -> bool:
    """Whether a value is the number of an operation that takes tensors: then it is shown as a tensor."""
    op = getattr(node, "op", None)
    return op is not None and key == op.number and op.number_node_name == op.node_name


def saved_value(node: Node, key: str) -> Any:
    kind, place = node.saved_names[key]
    if kind == "value":
        value = node.params[place]
        return Tensor(cpu.asarray(value), cpu) if stands_for_tensor(node, key) else value
    if type(node.saved) is Freed:
        raise freed_error(node, node._kept)
    if kind == "input":
        value = getattr(node, f"saved_{place}")
        return None if value is None else unpack_input(node, key, value, getattr(node, f"version_{place}"))
    name, nr = place
    array = unpack_output(node, nr, key, getattr(node, f"saved_{name}"))
    return None if array is None else node.output_tensor(nr, array, cpu)


def raw_value(node: Node, key: str) -> SavedTensor:
    kind, place = node.saved_names[key]
    return SavedTensor(saved_value(node, key), key) if kind == "value" else raw_saved(node, key, kind, place)


def raw_saved(node: Node, key: str, kind: str, place: Any) -> SavedTensor:
    """The SavedTensor of one slot; it takes the slot's place, so it is the same object every time it is asked for."""
    slot = f"saved_{place if kind == 'input' else place[0]}"
    value = getattr(node, slot)
    if type(value) is Freed:
        value = SavedTensor(None, key)
        value.release()
    elif value is None:  # not saved; the slot stays empty
        value = SavedTensor(None, key)
    elif type(value) is not SavedTensor:
        node_extra(node)  # the general path of the engine releases it with its node
        if kind == "input":
            value = SavedTensor(value, key)
        else:
            value = SavedTensor.of_output(node.output_tensor(place[1], value, cpu), key)
        setattr(node, slot, value)
    return value


def list_of(node: Node) -> str:
    return ", ".join("_saved_" + n for n in node.saved_names) or "nothing"
