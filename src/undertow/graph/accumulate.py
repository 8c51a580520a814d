"""AccumulateGrad: where a gradient ends, in a leaf's `.grad`.

The leaf knows its node weakly and the node its leaf strongly: the graph owns the node, and dropping the graph drops it.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.sparse.coo import AnySparse, SparseConversionError
from undertow.graph.node import LAST, Node, extra_on, install_leaf_edge, next_sequence_nr
from undertow.modes import current
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of

getrefcount = sys.getrefcount

# Guards the making of AccumulateGrad nodes (one per leaf, whoever asks first) and each `.grad` update: backward passes
# of several threads may end in the same leaf. A short critical section, so one lock serves all leaves.
_lock = threading.RLock()


def _renew_lock() -> None:
    """In the child of a fork nobody holds the lock, whatever it says."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def is_accumulating() -> bool:
    """Whether this thread holds the lock: a destructor runs while a gradient is being stored."""
    return bool(_lock._is_owned())  # type: ignore[attr-defined]


class AccumulateGrad(Node):
    __slots__ = ("variable",)

    variable: Tensor

    # the same for all, so that making one is short
    recorded_edges = ()
    saved = ()
    params = ()

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.sequence_nr = LAST
        self.shape = variable._array.shape
        self.dtype = grad_dtype_of(variable)
        self.extra = None if variable._xp is cpu else extra_on(variable._xp)

    def name(self) -> str:
        return "undertow::autograd::AccumulateGrad"

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        if grad is not None:
            self.accumulate(grad, False)
        return []

    def accumulate(self, grad: Any, unshared: bool) -> None:
        """Add an array (or, under create_graph, a Tensor) to the leaf's `.grad`.

        unshared: nobody else holds the array, so the leaf may keep it as its gradient.
        """
        variable = self.variable
        if variable._edge is None:
            return  # it has stopped requiring grad since the graph was recorded
        extra = extra_of(variable)
        with _lock:
            old = extra.grad
            if type(grad) is Tensor or isinstance(grad, Tensor):
                extra.grad = clone_gradient(grad) if old is None else add_gradients(old, grad)
            elif old is None:
                first = Tensor(own_array(grad, variable, unshared), variable._xp)
                if extra.grad is not None:  # the compiled core stores a first gradient without taking the lock
                    self.accumulate(grad, False)
                else:
                    extra.grad = first
            elif _add_exactly is not None and _add_exactly(variable, old, grad):
                pass  # see engine/deterministic_sums.py
            elif old._edge is None and old._array.flags.writeable and fits_in_place(grad, old._array):
                try:
                    variable._xp.add(old._array, grad, out=old._array)
                except SparseConversionError:  # a sparse gradient and a dense one: the sum is dense
                    extra.grad = Tensor(old._array + grad, old._xp)
                else:
                    counter_of(old).value += 1  # a graph may have saved this gradient
            else:
                extra.grad = Tensor(old._xp.asarray(old._array + grad), old._xp)

    def run_post_accumulate_hooks(self) -> None:
        hooks = extra_of(self.variable).post_accumulate_hooks
        for hook in list(hooks.values()) if hooks else ():
            result = hook(self.variable)
            if result is not None and result is not self.variable:  # `lambda p: p.zero_()` returns the leaf
                raise RuntimeError(
                    "Tensor post accumulate grad hooks should return None. Change tensor.grad in the hook instead of "
                    f"returning a {type(result).__name__}."
                )


def fits_in_place(grad: Any, array: Any) -> bool:
    """Whether `grad` can be added to `array` in place: real and complex do not mix, precisions do."""
    if grad.dtype is array.dtype or array.dtype.kind == "c":
        return True
    return dtypes.kind_of(array.dtype) == dtypes.kind_of(grad.dtype)


def grad_dtype_of(leaf: Tensor) -> Any:
    """The dtype a gradient of the leaf is cast to; None: it is kept as it comes."""
    chosen = ... if leaf._extra is None else leaf._extra.grad_dtype
    return leaf._array.dtype if chosen is ... else chosen


def refresh_accumulate_node(leaf: Tensor) -> None:
    """Let the node that a graph may already hold know that the leaf's shape or gradient's dtype has changed."""
    node = None if leaf._extra is None or leaf._extra.accumulate is None else leaf._extra.accumulate()
    if node is not None:
        node.shape, node.dtype = leaf._array.shape, grad_dtype_of(leaf)


def own_array(grad: Any, variable: Tensor, unshared: bool) -> Any:
    """`grad` itself when nobody else can see it and it is laid out as the leaf is; a copy otherwise."""
    array = variable._array
    if unshared and grad.base is None and grad.strides == array.strides:
        return grad
    if isinstance(grad, AnySparse):
        return own_sparse(grad, unshared)
    if current().grad_layout:
        return copy_in_layout(grad, array, variable._xp)
    return grad if unshared and grad.base is None else grad.copy(order="K")


def own_sparse(grad: AnySparse, unshared: bool) -> AnySparse:
    """A sparse gradient that is the leaf's alone: `grad` itself, if nobody else holds it or its values."""
    plain = grad.values.flags.c_contiguous and grad.values.flags.writeable
    return grad if unshared and plain and is_sole(grad.values, _ONCE) else grad.copy()


def is_sole(array: Any, once: int) -> bool:
    """Whether the array belongs to one object only, and so does the memory that it shows."""
    if array is None or type(array) is not cpu.ndarray:
        return array is None
    return getrefcount(array) <= once and is_sole(array.base, once)


def _references(array: Any, once: int) -> int:
    return getrefcount(array)


def _once() -> int:
    """What `getrefcount` says, in `is_sole`, of an array that belongs to one object."""
    holder = Tensor(cpu.zeros(1), cpu)
    return _references(holder._array, 0)


_ONCE = _once()


def copy_in_layout(grad: Any, array: Any, xp: Any) -> Any:
    """A copy of `grad` with the strides of `array` if that is dense, row-major otherwise."""
    order = sorted(range(array.ndim), key=lambda i: -array.strides[i])
    dense, expected = True, array.itemsize
    for i in reversed(order):
        if array.shape[i] != 1:
            dense = dense and array.strides[i] == expected
            expected *= array.shape[i]
    if not dense:
        return xp.array(grad, order="C")
    inverse = [0] * array.ndim
    for position, axis in enumerate(order):
        inverse[axis] = position
    return xp.array(grad.transpose(order), order="C").transpose(inverse) if array.ndim > 1 else grad.copy()


#: adds an array to a leaf's gradient without a rounding error, if it can; None: every addition is rounded
_add_exactly: Callable[[Tensor, Tensor, Any], bool] | None = None


def set_exact_addition(add_exactly: Callable[[Tensor, Tensor, Any], bool] | None) -> None:
    global _add_exactly
    _add_exactly = add_exactly


def clone_gradient(grad: Tensor) -> Tensor:
    """Set by ops: a recorded copy."""
    raise NotImplementedError("the operations are not loaded")


def add_gradients(old: Tensor, new: Tensor) -> Tensor:
    """Set by ops: a recorded sum."""
    raise NotImplementedError("the operations are not loaded")


def install_recorded(clone: Any, add: Any) -> None:
    global clone_gradient, add_gradients
    clone_gradient, add_gradients = clone, add


def leaf_edge(leaf: Tensor) -> AccumulateGrad:
    """The edge to a leaf's AccumulateGrad node, which is made if no graph holds one."""
    extra = leaf._extra
    reference = None if extra is None else extra.accumulate
    node = None if reference is None else reference()
    if node is None:
        with _lock:
            extra = extra_of(leaf)
            reference = extra.accumulate
            node = None if reference is None else reference()  # another thread may have been faster
            if node is None:
                node = new(AccumulateGrad)  # what __init__ does, in half the time
                node.variable = leaf
                node.sequence_nr = LAST
                array = leaf._array
                node.shape = array.shape
                node.dtype = array.dtype if extra.rare is None else grad_dtype_of(leaf)
                node.extra = None if leaf._xp is cpu else extra_on(leaf._xp)
                extra.accumulate = weakref.ref(node)
    return node


new = object.__new__


class FormerMemory:
    """What a leaf was until `set_` gave it other memory: graphs recorded before lead there, by a node of their own."""

    def __init__(self, leaf: Tensor) -> None:
        extra = extra_of(leaf)
        self.until = next_sequence_nr()
        self.shape, self.dtype = leaf._array.shape, grad_dtype_of(leaf)
        self.accumulate = extra.accumulate
        extra.accumulate = None
        extra.former = (*extra.former, self)

    def edge(self, leaf: Tensor) -> AccumulateGrad:
        with _lock:
            node: AccumulateGrad | None = None if self.accumulate is None else self.accumulate()
            if node is None:
                node = AccumulateGrad(leaf)
                node.shape, node.dtype = self.shape, self.dtype
                self.accumulate = weakref.ref(node)
        return node


def leaf_edge_at(leaf: Tensor, sequence_nr: int) -> AccumulateGrad:
    """The edge to a leaf's AccumulateGrad node for an operation with that number. See Note [Edges to leaves]."""
    if leaf._extra is not None and leaf._extra.rare is not None:
        for former in leaf._extra.rare.former:
            if sequence_nr < former.until:
                return former.edge(leaf)  # type: ignore[no-any-return]
    return leaf_edge(leaf)


install_leaf_edge(leaf_edge_at)


def gradient_edge(tensor: Tensor) -> Any:
    """Where the tensor's gradient goes: None, or an edge."""
    edge = current_edge(tensor)
    return leaf_edge(tensor) if edge is LEAF else edge
