"""Saved values: reading them back, checking that they are what they were, and showing them to users.

The node of a declared operation keeps them in slots (the tensor and its version per saved input, the array per saved
output), which is all an ordinary backward pass needs. A SavedTensor object per slot exists only when somebody asks for
one: `_raw_saved_*`, custom Functions, saved-tensor hooks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.errors import GraphFreedError, ModifiedInplaceError
from undertow.graph.accumulate import AccumulateGrad, gradient_edge, resolve_leaves
from undertow.graph.history import operation_name
from undertow.graph.node import InputMetadata, Node, freed_error, node_extra, site_of
from undertow.graph.user_lines import Site
from undertow.modes import current, in_state
from undertow.tensor import LEAF, Extra, Tensor, VersionCounter, counter_of, extra_of, version_of


def describe(tensor: Tensor) -> str:
    """The tensor's type as PyTorch's messages spell it: torch.FloatTensor, undertow.FloatTensor here."""
    return "undertow." + dtypes.TENSOR_TYPE_NAMES.get(tensor._array.dtype, str(tensor._array.dtype))


def raise_mutated(node: Node, argument: str, tensor: Tensor, expected: int) -> None:
    """Raise the error for a saved tensor that is no longer at the version it was saved at."""
    edge = tensor._edge
    producer = "" if edge is None or edge is LEAF else operation_name(edge[0])
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
        created_at=site_of(node),
    )


def _unusual() -> Extra:
    """An `_extra` that makes a node's `pull` call unpack_input."""
    extra = Extra()
    extra.counter = VersionCounter()
    return extra


class Freed(tuple[()]):
    """What a node's saved slots hold once a backward pass has released them, and which pass that was.

    It is falsy (an empty tuple is so without a Python call): a pass hands its nodes `keep`, which is True or this.
    See Note [When saved values die].
    """

    _extra = _unusual()
    site: Site | None = None  # the line that ran the pass

    def __repr__(self) -> str:
        return "<freed>"


class OperationNode(Node):
    """Base of the nodes of declared operations: leaves may stand for their nodes, and saved values have names."""

    __slots__ = ()

    @property
    def next_edges(self) -> tuple[Any, ...]:
        """See Note [Edges to leaves]."""
        edges = self.recorded_edges
        if type(edges) is list:
            resolve_leaves(self, edges)
        return tuple(edges)

    @next_edges.setter
    def next_edges(self, edges: tuple[Any, ...]) -> None:
        self.recorded_edges = edges

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            return saved_attribute(self, name)
        return super().__getattr__(name)


class DeclaredNode(OperationNode):
    """Base of the nodes of primitives and views: saved values live in slots of their own, named `saved_slots`."""

    __slots__ = ()

    saved_slots: tuple[str, ...] = ()
    _packable: tuple[tuple[str, str, Any, str], ...] = ()  # see packable
    #: names beyond `saved_names` -> another name, or a function that reads the value off the node; see
    #: ops/declare/saved_attributes.py
    further_names: dict[str, str | Callable[[Any], Any]] = {}  # noqa: RUF012  (filled per class, at declaration)
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
            setattr(self, slot, freed)

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


def unpack_input(node: Node, argument: str, value: Array, expected: int) -> Any:
    """A saved input, if it is still there and still what it was."""
    if type(value) is Freed:
        raise freed_error(node, value)
    if type(value) is SavedTensor:
        return value.unpack(node)
    if version_of(value) != expected:
        raise_mutated(node, argument, value, expected)
    check_identity(node, argument, value)
    return value


def check_identity(node: Node, argument: str, value: Tensor) -> None:
    """Raise if a saved tensor was made into another one since."""
    rare = None if value._extra is None else value._extra.rare
    if rare is None:
        return
    if rare.detached_at > node.sequence_nr:
        raise RuntimeError(
            f"Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(), after {node.name()} "
            "saved it. This is not supported, please use out-of-place `.detach()` instead"
        )
    if rare.resized_at > node.sequence_nr:
        raise RuntimeError(
            f"The size of tensor {argument!r} must match the one that {node.name()} saved: its .data was replaced by "
            f"data of another shape, {list(value._array.shape)}, since. Run backward before the assignment, or compute "
            "the result again after it."
        )


def unpack_output(node: Node, nr: int, argument: str, array: Any) -> Any:
    """A saved output's array, if it is still there and still what it was. See Note [Saved outputs]."""
    if type(array) is Freed:
        raise freed_error(node, array)
    if type(array) is SavedTensor:
        return array.unpack(node)._array  # type: ignore[union-attr]
    counters = None if node.extra is None else node.extra.counters
    if array is not None and counters is not None and nr in counters:
        counter, expected = counters[nr]
        if counter.value != expected:
            twin = node.output_tensor(nr, array, cpu)
            raise_mutated(node, "result" if argument == "out" else argument, twin, expected)
    return array


class SavedTensor:
    """One saved tensor of a node: `grad_fn._raw_saved_self`.

    The tensor itself for an input; for an output its array and the node, because keeping the tensor would be a cycle.
    With hooks, what the pack hook made of it, and enough to give the unpacked tensor its place in the graph. A hook
    that returns an alias of the tensor (`detach()`) is served as well as none: changes in place are noticed.
    """

    __slots__ = ("_argument", "_array", "_counter", "_edge", "_expected", "_hook", "_is_output", "_nr", "_packed",
                 "_state", "_tangents", "_tensor", "_xp")  # fmt: skip

    _extra = _unusual()

    def __init__(self, tensor: Any = ..., argument: str = "tensor") -> None:
        if tensor is ...:
            raise RuntimeError(
                "Trying to create a SavedTensor object from Python is forbidden. Use graph.make_saved_tensor(tensor)."
            )
        self._argument = argument
        self._tensor = tensor
        self._tangents: Any = None
        self._expected = 0 if tensor is None else version_of(tensor)
        self._array: Any = None
        self._xp: Any = None
        self._nr = 0
        self._counter: VersionCounter | None = None
        self._is_output = False
        self._state = "plain"  # "plain", "hooked" or "freed"
        self._packed: Any = None
        self._hook: Any = None
        self._edge: Any = None

    @classmethod
    def of_output(cls, output: Tensor, argument: str = "result", edge: Any = None) -> SavedTensor:
        """Save an output of the node that is saving it.

        edge  the output's place at that node, where it has another history already (a view that was changed in place)
        """
        edge = output._edge if edge is None else edge
        node, nr = edge[0], edge[1]
        saved = cls(None, argument)
        saved._is_output = True
        saved._array, saved._xp, saved._nr = output._array, output._xp, nr
        saved._counter = counter_of(output)
        saved._expected = saved._counter.value
        node.watch_output(nr, saved._counter)
        return saved

    @property
    def data(self) -> Tensor | None:
        """What is kept: the packed object if there are hooks, the tensor otherwise."""
        return self._packed if self._state == "hooked" else self._plain_data()

    @property
    def kind(self) -> str:
        """One of "packed", "output" and "input"."""
        return "packed" if self._state == "hooked" else "output" if self._is_output else "input"

    @property
    def unpack_hook(self) -> Any:
        return self._hook

    def _plain_data(self) -> Tensor | None:
        if not self._is_output:
            return self._tensor  # type: ignore[no-any-return]
        twin = Tensor(self._array, self._xp)
        extra_of(twin).counter = self._counter  # so that changes to the output are seen as changes to the twin
        return twin

    def register_hooks(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Any = None) -> None:
        """Keep `pack_hook(tensor)` instead of the tensor; `unpack_hook` of that gives it back when it is needed."""
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                "register_hooks(): incompatible function arguments: it takes two functions, pack and unpack"
            )
        if self._state == "freed":
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
                "to backward through the graph a second time or if you need to access saved variables after calling "
                "backward."
            )
        if self._state == "hooked":
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        data = self._plain_data()
        if data is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        self._keep_packed(pack(pack_hook, data), data, unpack_hook)

    def pack_for(self, node: Node, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[..., Any]) -> None:
        """The same, for the hooks that are on while the node is recorded: they see an output with its history."""
        data = self._plain_data()
        assert data is not None
        seen = node.output_tensor(self._nr, self._array, self._xp) if self._is_output else data
        packed = pack(pack_hook, seen)
        # an output that is kept with its history is a cycle; unpacking gives it back
        self._keep_packed(data if packed is seen else packed, data, unpack_hook)

    def _keep_packed(self, packed: Any, data: Tensor, unpack_hook: Callable[..., Any]) -> None:
        self._packed = packed
        if not self._is_output:
            self._edge = gradient_edge(data)
            self._tangents = None if data._extra is None else data._extra.tangents
        self._counter = counter_shared_by(self._packed, data)
        self._hook, self._state, self._xp = unpack_hook, "hooked", data._xp
        self._tensor = self._array = None

    def unpack(self, node: Node | None = None) -> Tensor | None:
        """The tensor, if it is still the one that was saved."""
        if self._state == "freed":
            raise GraphFreedError("a node") if node is None else freed_error(node, node._kept)
        if self._state == "hooked":
            return self._unpack_hooked(node)
        if self._is_output:
            assert node is not None
            twin = node.output_tensor(self._nr, self._array, self._xp)
            if version_of(twin) != self._expected:
                raise_mutated(node, self._argument, twin, self._expected)
            return twin
        if self._tensor is not None and version_of(self._tensor) != self._expected:
            raise_mutated(node if node is not None else _Anonymous(), self._argument, self._tensor, self._expected)
        if node is not None and self._tensor is not None:
            check_identity(node, self._argument, self._tensor)
        return self._tensor  # type: ignore[no-any-return]

    def _unpack_hooked(self, node: Node | None) -> Tensor:
        found = self._hook(self._packed)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(found).__name__}"
            )
        if self._counter is not None and self._counter.value != self._expected:
            raise_mutated(node if node is not None else _Anonymous(), self._argument, found, self._expected)
        if not self._is_output and self._edge is None and found._edge is None and self._tangents is None:
            return found
        twin = Tensor(found._array, found._xp)
        if self._is_output and node is not None:
            twin._edge = node.output_edge(self._nr)
        elif type(self._edge) is AccumulateGrad:
            twin._edge = LEAF  # a second handle of the same leaf: its gradient goes where the leaf's goes
            extra_of(twin).accumulate = weakref.ref(self._edge)
        else:
            twin._edge = self._edge
        tangents = self._tangents
        if self._is_output and node is not None and node.extra is not None and node.extra.tangents is not None:
            tangents = node.extra.tangents.get(self._nr)
        if tangents is not None:
            extra_of(twin).tangents = tangents
        return twin

    def release(self) -> None:
        self._tensor = self._array = self._packed = self._hook = self._edge = self._tangents = None
        self._state = "freed"


def counter_shared_by(packed: Any, data: Tensor) -> VersionCounter | None:
    """The version counter of the data, if the pack hook returned the data itself or an alias of it."""
    if isinstance(packed, Tensor) and (packed is data or counter_of(packed) is counter_of(data)):
        return counter_of(data)
    return None


def pack(pack_hook: Callable[[Tensor], Any], data: Tensor) -> Any:
    """Call a pack hook on the data, without recording; it must not change what it is given."""
    before = version_of(data)
    packed = in_state(current().with_grad(False), pack_hook, data)
    if version_of(data) != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not "
            "be modified by in-place operations as this can lead to unexpected side-effects. Change a clone() instead."
        )
    return packed


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


class _Anonymous(Node):
    """Stands in messages for the node of a SavedTensor that a user made by hand."""

    __slots__ = ()

    def name(self) -> str:
        return "A saved tensor"


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
