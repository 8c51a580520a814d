"""Saved values: reading them back, and checking that they are what they were.

The node of a declared operation keeps them in slots (operation_node.py); custom Functions, saved-tensor hooks and
`_raw_saved_*` have a SavedTensor object for each.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.errors import GraphFreedError, ModifiedInplaceError
from undertow.graph.accumulate import AccumulateGrad, gradient_edge
from undertow.graph.history import operation_name
from undertow.graph.node import Node, freed_error, site_of
from undertow.graph.user_lines import Site
from undertow.modes import current, in_state
from undertow.tensor import LEAF, Extra, Tensor, VersionCounter, counter_of, extra_of, version_of


def describe(tensor: Tensor) -> str:
    """The tensor's type as PyTorch's messages spell it: torch.FloatTensor, undertow.FloatTensor here."""
    return "undertow." + dtypes.TENSOR_TYPE_NAMES.get(tensor._array.dtype, str(tensor._array.dtype))


def raise_mutated(
    node: Node, argument: str, tensor: Tensor, expected: int, counter: VersionCounter | None = None
) -> None:
    """Raise the error for a saved tensor that is no longer at the version it was saved at.

    counter  the one that counted the change, if the tensor's own did not
    """
    edge = tensor._edge
    counter = counter_of(tensor) if counter is None else counter
    producer = "" if edge is None or edge is LEAF else operation_name(edge[0])
    raise ModifiedInplaceError(
        saved_by=node.name(),
        argument=argument,
        type_name=describe(tensor),
        shape=tensor._array.shape,
        produced_by=producer,
        output_nr=0 if edge is None else edge[1],
        version=counter.value,
        expected=expected,
        mutated_by=counter.last_change(),
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


def unpack_output(node: Node, nr: int, argument: str, array: Array) -> Array:
    """A saved output's array, if it is still there and still what it was. See Note [Saved outputs]."""
    if type(array) is Freed:
        raise freed_error(node, array)
    if type(array) is SavedTensor:
        return array.unpack(node)._array  # type: ignore[union-attr]
    counters = None if node.extra is None else node.extra.counters
    if array is not None and counters is not None and nr in counters:
        counter, expected = counters[nr]
        if counter.value != expected:
            rebuilt = node.output_tensor(nr, array, cpu)
            raise_mutated(node, "result" if argument == "out" else argument, rebuilt, expected)
    return array


class SavedTensor:
    """One saved tensor of a node: `grad_fn._raw_saved_self`.

    The tensor itself for an input; for an output its array and the node, because keeping the tensor would be a cycle.
    With hooks, what the pack hook made of it, and enough to give the unpacked tensor its place in the graph. A hook
    that returns an alias of the tensor (`detach()`) is served as well as none: changes in place are noticed.

    tensor    what is saved
    argument  the name the node calls it by

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> type(x.exp().grad_fn._raw_saved_result).__name__
    'SavedTensor'
    """

    __slots__ = ("_argument", "_array", "_counter", "_counter_of_tangents", "_edge", "_expected", "_hook", "_is_output",
                 "_nr", "_packed", "_state", "_tangents", "_tensor", "_xp")  # fmt: skip

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
        self._counter_of_tangents: VersionCounter | None = None
        self._is_output = False
        self._state = "plain"  # "plain", "hooked" or "freed"
        self._packed: Any = None
        self._hook: Any = None
        self._edge: Any = None

    @classmethod
    def of_output(cls, output: Tensor, argument: str = "result", edge: Any = None) -> SavedTensor:
        """Save an output of the node that is saving it.

        edge      the output's place at that node, where it has another history already (a view that was changed in
                  place)
        argument  the name the node calls it by
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
        rebuilt = Tensor(self._array, self._xp)
        extra_of(rebuilt).counter = self._counter  # so that changes to the output are seen as changes to this one
        return rebuilt

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
        """The same, for the hooks that are on while the node is recorded: they see an output with its history.

        node         the one that saves
        pack_hook    called with the tensor; what it returns is kept
        unpack_hook  called with that, when the tensor is needed
        """
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
        self._counter_of_tangents = counter_of(data)  # a copy may be kept, but the tangents are the tensor's
        self._counter = counter_shared_by(self._packed, data)
        self._hook, self._state, self._xp = unpack_hook, "hooked", data._xp
        self._tensor = self._array = None

    def unpack(self, node: Node | None = None) -> Tensor | None:
        """The tensor, if it is still the one that was saved.

        node  the one that saved it: an output gets its place in the graph by that
        """
        if self._state == "freed":
            raise GraphFreedError("a node") if node is None else freed_error(node, node._kept)
        if self._state == "hooked":
            return self._unpack_hooked(node)
        if self._is_output:
            assert node is not None
            rebuilt = node.output_tensor(self._nr, self._array, self._xp)
            if version_of(rebuilt) != self._expected:
                raise_mutated(node, self._argument, rebuilt, self._expected)
            return rebuilt
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
            raise_mutated(node or _Anonymous(), self._argument, found, self._expected, self._counter)
        if not self._is_output and self._edge is None and found._edge is None and self._tangents is None:
            return found
        rebuilt = Tensor(found._array, found._xp)
        if self._is_output and node is not None:
            rebuilt._edge = node.output_edge(self._nr)
        elif type(self._edge) is AccumulateGrad:
            rebuilt._edge = LEAF  # a second handle of the same leaf: its gradient goes where the leaf's goes
            extra_of(rebuilt).accumulate = weakref.ref(self._edge)
        else:
            rebuilt._edge = self._edge
        tangents = self._tangents
        if self._is_output and node is not None and node.extra is not None and node.extra.tangents is not None:
            tangents = node.extra.tangents.get(self._nr)
        if tangents is not None:
            counter = self._counter_of_tangents
            changed = counter is not None and counter.value != self._expected
            if changed and any([t is not None for t in tangents.values()]):
                raise_mutated(node or _Anonymous(), self._argument, rebuilt, self._expected, counter)
            extra_of(rebuilt).tangents = tangents
        return rebuilt

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


class _Anonymous(Node):
    """Stands in messages for the node of a SavedTensor that a user made by hand."""

    __slots__ = ()

    def name(self) -> str:
        return "A saved tensor"
