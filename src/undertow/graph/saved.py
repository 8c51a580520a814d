"""Saved values: reading them back, checking that they are what they were, and showing them to users.

A compiled node keeps them in slots (the tensor and its version per saved input, the array per saved output), which is
all an ordinary backward pass needs. A SavedTensor object per slot exists only when somebody asks for one: `_raw_saved_*`,
custom Functions, saved-tensor hooks.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu, dtypes
from undertow.errors import GraphFreedError, ModifiedInplaceError
from undertow.graph.node import Node, install_saved_attribute
from undertow.tensor import LEAF, Extra, Tensor, VersionCounter, counter_of, version_of


def describe(tensor: Tensor) -> str:
    """The tensor's type as PyTorch's messages spell it: torch.FloatTensor, undertow.FloatTensor here."""
    return "undertow." + dtypes.TENSOR_TYPE_NAMES.get(tensor._array.dtype, str(tensor._array.dtype))


def raise_mutated(node: Node, argument: str, tensor: Tensor, expected: int) -> None:
    """Raise the error for a saved tensor that is no longer at the version it was saved at."""
    edge = tensor._edge
    producer = "" if edge is None or edge is LEAF else edge[0].name().removesuffix("0").removesuffix("Backward")
    raise ModifiedInplaceError(
        saved_by=node.name(),
        argument=argument,
        type_name=describe(tensor),
        shape=tensor._array.shape,
        produced_by=producer,
        output_nr=0 if edge is None else edge[1],
        version=version_of(tensor),
        expected=expected,
        mutated_by=counter_of(tensor).last_change(),
    )


def _unusual() -> Extra:
    """An `_extra` that makes the generated code of a node call unpack_input."""
    extra = Extra()
    extra.counter = VersionCounter()
    return extra


class _Freed:
    """What a compiled node's saved slots hold once they are released. See Note [When saved values die]."""

    __slots__ = ()
    _extra = _unusual()

    def __repr__(self) -> str:
        return "<freed>"


FREED = _Freed()


class CompiledNode(Node):
    """Base of the nodes compiled from declarations: saved values live in slots of their own, named `saved_slots`."""

    __slots__ = ()

    saved_slots: tuple[str, ...] = ()

    @property
    def saved(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        values = tuple([getattr(self, slot) for slot in self.saved_slots])
        return None if any(v is FREED for v in values) else values

    def release(self) -> None:
        for slot in self.saved_slots:
            setattr(self, slot, FREED)


def unpack_input(node: Node, argument: str, value: Any, expected: int) -> Any:
    """A saved input, if it is still there and still what it was."""
    if value is FREED:
        raise GraphFreedError(node.name())
    if type(value) is SavedTensor:
        return value.unpack(node)
    if version_of(value) != expected:
        raise_mutated(node, argument, value, expected)
    return value


def unpack_output(node: Node, nr: int, argument: str, array: Any) -> Any:
    """A saved output's array, if it is still there and still what it was. See Note [Saved outputs]."""
    if array is FREED:
        raise GraphFreedError(node.name())
    if type(array) is SavedTensor:
        return array.unpack(node)._array  # type: ignore[union-attr]
    counters = None if node.extra is None else node.extra.counters
    if array is not None and counters is not None and nr in counters:
        counter, expected = counters[nr]
        if counter.value != expected:
            twin = node.output_tensor(nr, array, cpu)
            raise_mutated(node, "result" if argument == "out" else argument, twin, expected)
    return array


def unpack(node: Node) -> Any:
    """The saved values of a node that keeps them in one tuple."""
    if node.saved is None:
        raise GraphFreedError(node.name())
    return node.saved


class SavedTensor:
    """One saved tensor of a node: `grad_fn._raw_saved_self`.

    The tensor itself for an input; for an output its array and the node, because keeping the tensor would be a cycle.
    """

    __slots__ = ("_argument", "_array", "_expected", "_node", "_nr", "_released", "_tensor", "_xp")

    _extra = _unusual()

    def __init__(self, tensor: Tensor | None, argument: str = "tensor") -> None:
        self._argument = argument
        self._tensor = tensor
        self._expected = 0 if tensor is None else version_of(tensor)
        self._array: Any = None
        self._xp: Any = None
        self._node: Any = None
        self._nr = 0
        self._released = False

    @classmethod
    def of_output(cls, output: Tensor, argument: str = "result") -> SavedTensor:
        """Save an output of the node that is saving it."""
        saved = cls(None, argument)
        saved._array, saved._xp = output._array, output._xp
        saved._nr = output._edge[1]
        counter = counter_of(output)
        saved._expected = counter.value
        output._edge[0].watch_output(saved._nr, counter)
        return saved

    def unpack(self, node: Node | None = None) -> Tensor | None:
        """The tensor, if it is still the one that was saved."""
        if self._released:
            raise GraphFreedError("a node" if node is None else node.name())
        if self._array is not None:
            assert node is not None
            twin = node.output_tensor(self._nr, self._array, self._xp)
            if version_of(twin) != self._expected:
                raise_mutated(node, self._argument, twin, self._expected)
            return twin
        if self._tensor is not None and version_of(self._tensor) != self._expected:
            raise_mutated(node if node is not None else _Anonymous(), self._argument, self._tensor, self._expected)
        return self._tensor

    def release(self) -> None:
        self._tensor = self._array = None
        self._released = True


class _Anonymous(Node):
    """Stands in messages for the node of a SavedTensor that a user made by hand."""

    __slots__ = ()

    def name(self) -> str:
        return "A saved tensor"


def saved_attribute(node: Node, name: str) -> Any:
    """`node._saved_self`, `node._raw_saved_self`, ... for a node compiled from a declaration."""
    raw = name.startswith("_raw_saved_")
    key = name.removeprefix("_raw_saved_" if raw else "_saved_")
    if key not in node.saved_names:
        raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}: it saves {list_of(node)}")
    kind, place = node.saved_names[key]
    if kind == "value":
        return node.params[place]
    if node.saved is None:
        raise GraphFreedError(node.name())
    if raw:
        return raw_saved(node, key, kind, place)
    if kind == "input":
        value = getattr(node, f"saved_{place}")
        return None if value is None else unpack_input(node, key, value, getattr(node, f"version_{place}"))
    name, nr = place
    array = unpack_output(node, nr, key, getattr(node, f"saved_{name}"))
    return None if array is None else node.output_tensor(nr, array, cpu)


def raw_saved(node: Node, key: str, kind: str, place: Any) -> SavedTensor:
    """The SavedTensor of one slot; it takes the slot's place, so it is the same object every time it is asked for."""
    slot = f"saved_{place if kind == 'input' else place[0]}"
    value = getattr(node, slot)
    if type(value) is not SavedTensor:
        if kind == "input":
            value = SavedTensor(value, key)
        else:
            value = SavedTensor.of_output(node.output_tensor(place[1], value, cpu), key)
        setattr(node, slot, value)
    return value


def list_of(node: Node) -> str:
    return ", ".join("_saved_" + n for n in node.saved_names) or "nothing"


install_saved_attribute(saved_attribute)
