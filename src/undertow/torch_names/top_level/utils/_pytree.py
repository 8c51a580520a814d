"""Nested containers, by PyTorch's names: taken apart into leaves, and put together again.

>>> import undertow as ut
>>> leaves, spec = ut.utils._pytree.tree_flatten({"a": (1, 2), "b": [3]})
>>> leaves, ut.utils._pytree.tree_unflatten([10, 20, 30], spec)
([1, 2, 3], {'a': (10, 20), 'b': [30]})

Classes that a program registers are containers, too (`register_pytree_node`).
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from undertow.ops.declare.return_types import ReturnType
from undertow.pytree import REGISTERED
from undertow.tensor import Size

PyTree = Context = Any
FlattenFunc = FlattenFn = UnflattenFunc = UnflattenFn = Callable[..., Any]
ToDumpableContextFn = FromDumpableContextFn = Callable[..., Any]
DumpableContext = Any


class NodeDef(NamedTuple):
    """How a container is taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None


class MappingKey(NamedTuple):
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


class SequenceKey(NamedTuple):
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


class GetAttrKey(NamedTuple):
    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
    **kwargs: Any,
) -> None:
    """Let `cls` be a container: `flatten_fn(tree)` gives its parts and a context, `unflatten_fn(parts, context)` it.

    It is one for `vmap`, `func.grad` and the other functions that take nested arguments, too.
    """
    _register(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    REGISTERED[cls] = flatten_fn, unflatten_fn


def _register(cls: Any, flatten_fn: Any, unflatten_fn: Any, flatten_with_keys_fn: Any = None) -> None:
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def _pairs(keys: Iterable[Any], kind: Any, values: Iterable[Any]) -> list[Any]:
    return [(kind(key), value) for key, value in zip(keys, values, strict=True)]


_register(list, lambda t: (t, None), lambda parts, _: list(parts))
_register(tuple, lambda t: (list(t), None), lambda parts, _: tuple(parts))
_register(deque, lambda t: (list(t), t.maxlen), lambda parts, length: deque(parts, maxlen=length))
_register(dict, lambda t: (list(t.values()), list(t)), lambda parts, keys: dict(zip(keys, parts, strict=True)))
_register(
    OrderedDict, lambda t: (list(t.values()), list(t)), lambda parts, keys: OrderedDict(zip(keys, parts, strict=True))
)
_register(
    defaultdict,
    lambda t: (list(t.values()), [t.default_factory, list(t)]),
    lambda parts, context: defaultdict(context[0], zip(context[1], parts, strict=True)),
)
_register(namedtuple, lambda t: (list(t), type(t)), lambda parts, kind: kind(*parts))
_register(Size, lambda t: (list(t), None), lambda parts, _: Size(parts))
_register(
    types.MappingProxyType,
    lambda t: (list(t.values()), list(t)),
    lambda parts, keys: types.MappingProxyType(dict(zip(keys, parts, strict=True))),
)
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)


def is_namedtuple_class(cls: type) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple_instance(obj: object) -> bool:
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    return isinstance(cls, type) and cls.__bases__ in ((tuple,), (ReturnType,)) and hasattr(cls, "n_fields")


def is_structseq_instance(obj: object) -> bool:
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    return namedtuple if is_namedtuple_class(kind) and kind not in SUPPORTED_NODES else kind


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return (is_leaf is not None and bool(is_leaf(tree))) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


class TreeSpec:
    """The structure of a tree. type: of the container, or None for a leaf."""

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self._context, self._children = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_leaves: int = 1 if type is None else sum([child.num_leaves for child in children_specs])
        self.num_nodes: int = 1 + sum([child.num_nodes for child in children_specs])

    @property
    def context(self) -> Any:
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        return self._children

    def children(self) -> list[TreeSpec]:
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._take(iter(leaves))

    def _take(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([child._take(leaves) for child in self._children], self._context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a tree that begins with this structure, one for each leaf."""
        if self.type is None:
            return [tree]
        if _get_node_type(tree) != self.type:
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        parts, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        parts = list(parts)
        if isinstance(context, list) and isinstance(tree, dict) and isinstance(self._context, list):
            if set(context) != set(self._context):
                raise ValueError(f"Node keys mismatch; expected {self._context}, but got {context}.")
            parts = [tree[key] for key in self._context]
        if len(parts) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(parts)}.")
        return [leaf for child, part in zip(self._children, parts, strict=True) for leaf in child.flatten_up_to(part)]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and (self.type, self._context) == (other.type, other._context)
            and self._children == other._children
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_children))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self._context}, [{', '.join(map(repr, self._children))}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


def treespec_leaf() -> TreeSpec:
    return LeafSpec()


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return LeafSpec()
    kind = _get_node_type(tree)
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(part, leaves, is_leaf) for part in parts])


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    yield from tree_leaves(tree, is_leaf)


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *[spec.flatten_up_to(rest) for rest in rests]]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kinds: Any, func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    chosen = kinds if callable(kinds) and not isinstance(kinds, type) else lambda leaf: isinstance(leaf, kinds)
    return lambda leaf: func(leaf) if chosen(leaf) else leaf


def map_only(kinds: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    return lambda func: _only(kinds, func)


def tree_map_only(kinds: Any, /, func: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    return tree_map(_only(kinds, func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds: Any, /, func: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    return tree_map_(_only(kinds, func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return all([pred(leaf) for leaf in tree_leaves(tree, is_leaf)])


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return any([pred(leaf) for leaf in tree_leaves(tree, is_leaf)])


def tree_all_only(kinds: Any, /, pred: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return all([pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kinds)])


def tree_any_only(kinds: Any, /, pred: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return any([pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kinds)])


# ---- with the way to each leaf


def _children_with_keys(tree: Any) -> list[tuple[Any, Any]]:
    kind = _get_node_type(tree)
    definition = SUPPORTED_NODES[kind]
    if definition.flatten_with_keys_fn is not None:
        return list(definition.flatten_with_keys_fn(tree)[0])
    if isinstance(tree, (dict, types.MappingProxyType)):
        return _pairs(tree, MappingKey, tree.values())
    if kind is namedtuple:
        return _pairs(tree._fields, GetAttrKey, tree)
    parts = list(definition.flatten_fn(tree)[0])
    return _pairs(range(len(parts)), SequenceKey, parts)


def _with_path(tree: Any, path: tuple[Any, ...], is_leaf: Callable[[Any], bool] | None) -> Iterable[Any]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    for key, part in _children_with_keys(tree):
        yield from _with_path(part, (*path, key), is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[Any, Any]]:
    return list(_with_path(tree, (), is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[Any, Any]], TreeSpec]:
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[path for path, _ in pairs], [leaf for _, leaf in pairs], *[spec.flatten_up_to(rest) for rest in rests]]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def keystr(kp: Iterable[Any]) -> str:
    """The way to a leaf, as it would be written behind the tree's name."""
    return "".join([str(key) for key in kp])


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What is at the end of a way."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any] | None:
    """A leaf for each leaf of the structure, where a leaf of the tree stands for all below it; None if they differ."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) != treespec.type:
        return None
    parts, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    parts = list(parts)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for part, child in zip(parts, treespec.children_specs, strict=True):
        below = _broadcast_to_and_flatten(part, child, is_leaf)
        if below is None:
            return None
        found += below
    return found


def treespec_pprint(treespec: TreeSpec) -> str:
    return repr(treespec)


# ---- by the names of the functions that PyTorch registers for Python's containers


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return _pairs(d.keys(), MappingKey, d.values()), list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return d, None


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[Any], Any]:
    return _pairs(range(len(d)), SequenceKey, d), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Any]:
    return list(d), None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return _pairs(d._fields, GetAttrKey, d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


_ordereddict_flatten = _odict_flatten = _dict_flatten
_ordereddict_flatten_with_keys = _dict_flatten_with_keys


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


_odict_unflatten = _ordereddict_unflatten


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_flatten_with_keys(d: Any) -> tuple[list[Any], Any]:
    return _pairs(d, MappingKey, d.values()), [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _deque_flatten(d: deque[Any]) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_flatten_with_keys(d: deque[Any]) -> tuple[list[Any], Any]:
    return _pairs(range(len(d)), SequenceKey, d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> deque[Any]:
    return deque(values, maxlen=context)
