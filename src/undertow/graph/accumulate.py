"""AccumulateGrad: where a gradient ends, in a leaf's `.grad`.

The leaf knows its node weakly and the node its leaf strongly: the graph owns the node, and dropping the graph drops it.
"""

from __future__ import annotations

import weakref
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.coo import SparseConversionError
from undertow.backend.streams import stream
from undertow.compiled import core
from undertow.graph import exact_sums
from undertow.graph.edges import Edge
from undertow.graph.gradient_arrays import fits_in_place, own_array
from undertow.graph.node import LAST, Node, NodeExtra, extra_on, next_sequence_nr
from undertow.modes import current
from undertow.scopes import common_lock, held
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of
from undertow.tensor.lent_operations import lent

# Guards the making of AccumulateGrad nodes (one per leaf, whoever asks first) and each `.grad` update: backward passes
# of several threads may end in the same leaf.
_lock: Any = common_lock


def is_accumulating() -> bool:
    """Whether this thread holds the lock: a destructor runs while a gradient is being stored."""
    return bool(_lock._is_owned())


class AccumulateGrad(Node):
    __slots__ = ("variable",)

    variable: Tensor

    is_internal = True

    # the same for all, so that making one is short
    is_of_leaf = True
    recorded_edges = ()
    saved = ()
    params = ()

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.sequence_nr = LAST
        self.shape = variable._array.shape
        self.dtype = grad_dtype_of(variable)
        self.extra = None if variable._xp is cpu else extra_on(variable._xp)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        if grad is not None:
            self.accumulate(grad, False)
        return []

    def accumulate(self, grad: Array, unshared: bool) -> None:
        """Add an array (or, under create_graph, a Tensor) to the leaf's `.grad`.

        unshared: nobody else holds the array, so the leaf may keep it as its gradient.
        """
        variable = self.variable
        if variable._edge is not LEAF:
            if variable._edge is None:
                return  # it has stopped requiring grad since the graph was recorded
            refuse_inner(variable)
        extra = extra_of(variable)
        if extra.rare is not None and extra.rare.former:
            refuse_former(self, extra.rare.former)
        with held(_lock):
            old = extra.grad
            if old is not None and old._array.shape != grad.shape:
                refuse_other_shape(old, grad)
            if type(grad) is Tensor or isinstance(grad, Tensor):
                total = lent().clone(grad) if old is None else lent().add(old, grad)
                if type(old) is not Tensor or current().grad_enabled or not fits_in_place(total._array, old._array):
                    extra.grad = total
                else:
                    lent().copy_in_place(old, total)
            elif old is None:
                first = Tensor(own_array(grad, variable, unshared), variable._xp)
                if extra.grad is not None:  # the compiled core stores a first gradient without taking the lock
                    self.accumulate(grad, False)
                else:
                    extra.grad = first
            elif exact_sums.enabled() and exact_sums.add_exactly(variable, old, grad):
                pass
            elif old._array.flags.writeable and fits_in_place(grad, old._array):
                try:
                    variable._xp.add(old._array, grad, out=old._array)
                except SparseConversionError:  # a sparse gradient and a dense one: the sum is dense
                    extra.grad = Tensor(old._array + grad, old._xp)
                else:
                    counter_of(old).value += 1  # a graph may have saved this gradient
            else:
                extra.grad = Tensor(old._xp.asarray(old._array + grad), old._xp)

    def run_post_accumulate_hooks(self) -> None:
        extra = extra_of(self.variable)
        hooks = extra.post_accumulate_hooks
        for hook in (*(hooks.values() if hooks else ()), *extra.last_hooks):
            result = hook(self.variable)
            if result is not None and result is not self.variable:  # `lambda p: p.zero_()` returns the leaf
                refuse_result(result)


def refuse_inner(variable: Tensor) -> None:
    raise RuntimeError(
        f"leaf variable has been moved into the graph interior: a tensor of shape {list(variable._array.shape)} was "
        "used as a leaf, stopped requiring grad, and was changed in place by what requires grad. The gradient of its "
        "former value has no place. Change a clone() of it."
    )


def refuse_result(result: Tensor) -> None:
    raise RuntimeError(
        "Tensor post accumulate grad hooks should return None. Change tensor.grad in the hook instead of returning a "
        f"{type(result).__name__}."
    )


def grad_dtype_of(leaf: Tensor) -> DType | None:
    """The dtype a gradient of the leaf is cast to; None: it is kept as it comes."""
    chosen = ... if leaf._extra is None else leaf._extra.grad_dtype
    return leaf._array.dtype if chosen is ... else chosen


def refresh_accumulate_node(leaf: Tensor) -> None:
    """Let the node that a graph may already hold know that the dtype of the leaf's gradient has changed."""
    node = None if leaf._extra is None or leaf._extra.accumulate is None else leaf._extra.accumulate()
    if node is not None:
        node.dtype = grad_dtype_of(leaf)


def leaf_edge(leaf: Tensor) -> AccumulateGrad:
    """The edge to a leaf's AccumulateGrad node, which is made if no graph holds one."""
    extra = leaf._extra
    reference = None if extra is None else extra.accumulate
    node = None if reference is None else reference()
    if node is None and core is not None:
        extra_of(leaf)
        node = core.plain_leaf_edge(leaf)
    if node is None:
        with held(_lock):
            extra = extra_of(leaf)
            reference = extra.accumulate
            node = None if reference is None else reference()  # another thread may have been faster
            if node is None:
                node = AccumulateGrad(leaf)
                if leaf._xp is not cpu:
                    node.extra = extra_of_user(leaf, extra.used_by)
                extra.accumulate = weakref.ref(node)
                if extra.rare is None or not extra.rare.former:
                    replace_leaf(leaf, node, extra.used_by)
    return node


def replace_leaf(leaf: Tensor, node: AccumulateGrad, used_by: Any) -> None:
    """Put the node where the leaf stands for it: it lives as long as any graph that leads to the leaf."""
    user = None if used_by is None else used_by()
    edges = getattr(user, "recorded_edges", None)  # a node that is being made has none
    if type(edges) is list:
        for k, edge in enumerate(edges):  # each by itself: another thread may be resolving the others
            if edge is leaf:
                edges[k] = node


def extra_of_user(leaf: Tensor, used_by: Any) -> NodeExtra:
    """What the AccumulateGrad node of a leaf on a device has: the stream it was first used on, if somebody knows it."""
    user = None if used_by is None else used_by()
    extra = getattr(user, "extra", None)  # a node that is being made has none: its stream is the current one
    used_on = None if extra is None else extra.stream
    shared: NodeExtra | None = getattr(used_on, "extra_of_nodes", None)
    if used_on is not None and shared is not None and used_on.namespace is leaf._xp:
        return shared  # what `extra_on` finds on that stream
    if used_on is None or used_on.namespace is not leaf._xp or used_on is leaf._xp.current_stream():
        return extra_on(leaf._xp)
    with stream(used_on):
        return extra_on(leaf._xp)


class Former:
    """What a leaf was until its shape or memory changed: graphs recorded before lead there, by a node of their own.

    change  what changed its shape; None where it only got other memory of the same shape
    """

    def __init__(self, leaf: Tensor, change: str | None) -> None:
        extra = extra_of(leaf)
        self.change = change
        self.until = next_sequence_nr()
        self.shape, self.dtype = leaf._array.shape, grad_dtype_of(leaf)
        self.accumulate = extra.accumulate
        extra.accumulate = None
        extra.former = (*extra.former, self)

    def edge(self, leaf: Tensor) -> AccumulateGrad:
        with held(_lock):
            node: AccumulateGrad | None = None if self.accumulate is None else self.accumulate()
            if node is None:
                node = AccumulateGrad(leaf)
                node.shape, node.dtype = self.shape, self.dtype
                self.accumulate = weakref.ref(node)
        return node


def keep_former(leaf: Tensor, change: str | None) -> None:
    """Note what a leaf has been, before it is changed, if an operation has ever used it."""
    extra = leaf._extra
    if extra is not None and (extra.accumulate is not None or extra.used_by is not None):
        Former(leaf, change)


def formers_of(leaf: Tensor) -> tuple[Former, ...]:
    rare = None if leaf._extra is None else leaf._extra.rare
    return () if rare is None else rare.former


def refuse_former(node: AccumulateGrad, formers: tuple[Former, ...]) -> None:
    """Raise if the gradient at this node is for elements that the leaf does not have (in this order) any more."""
    for former in formers:
        if former.change is not None and former.accumulate is not None and former.accumulate() is node:
            raise RuntimeError(
                f"The shape of a leaf must match the one that the graph was recorded with, {list(node.shape)}: it was "
                f"changed by {former.change} since, to {list(node.variable._array.shape)}. Run backward before that, "
                "or compute the result again after it."
            )


def refuse_other_shape(old: Tensor, grad: Array) -> None:
    raise RuntimeError(
        f"The shape of a leaf's .grad, {list(old._array.shape)}, must match that of the gradient to be added, "
        f"{list(grad.shape)}: the leaf has changed its shape since it got the former. Set .grad to None first."
    )


def leaf_edge_at(leaf: Tensor, sequence_nr: int) -> AccumulateGrad:
    """The edge to a leaf's AccumulateGrad node for an operation with that number. See Note [Edges to leaves]."""
    if leaf._extra is not None and leaf._extra.rare is not None:
        for former in leaf._extra.rare.former:
            if sequence_nr < former.until:
                return former.edge(leaf)  # type: ignore[no-any-return]
    return leaf_edge(leaf)


def resolve_leaves(node: Node, edges: list[Any]) -> None:
    """Put AccumulateGrad nodes where leaves stand for them. See Note [Edges to leaves]."""
    for k, edge in enumerate(edges):
        if isinstance(edge, Tensor):
            extra = edge._extra
            if extra is not None and extra.rare is not None and extra.rare.former:
                edges[k] = leaf_edge_at(edge, node.sequence_nr)
                continue
            made = None if extra is None or extra.accumulate is None else extra.accumulate()
            edges[k] = leaf_edge(edge) if made is None else made


def try_get_grad_accumulator(leaf: Tensor) -> AccumulateGrad | None:
    """The leaf's AccumulateGrad node; None if no operation has ever used the leaf."""
    extra = leaf._extra
    if extra is None or (extra.accumulate is None and extra.used_by is None):
        return None
    return leaf_edge(leaf)


def gradient_edge(tensor: Tensor) -> Edge | None:
    """Where the tensor's gradient goes: None, or an edge."""
    edge = current_edge(tensor)
    return leaf_edge(tensor) if edge is LEAF else edge
