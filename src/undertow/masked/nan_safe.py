"""nan_safe: backward passes in which a branch that was not taken contributes no gradient, instead of 0 * inf.

A pass inside runs its rules as under create_graph, by operations on tensors, and stands between them as an interceptor:
each operation runs as always, then the support of its result is found (see supports.py), and whatever arithmetic put
where nothing is - nan, from 0 * inf - is replaced by 0 before it can spread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from undertow.autograd.backward import around_pass
from undertow.autograd.function.input_tracking import InputTracking
from undertow.autograd.interceptors.stack import beneath, plainly, run_function, under, with_beneath
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.engine.watch import Watch, install_watcher
from undertow.graph.copy_slices import CopySlices
from undertow.graph.node import Node
from undertow.graph.operation_node import DeclaredNode
from undertow.masked.supports import is_bilinear, is_linear, reached_by_infinities, support_of_result
from undertow.modes import Interceptor, _Switch, current
from undertow.ops import REGISTRY
from undertow.scopes import call_with
from undertow.tensor import Tensor, current_edge

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

#: operations that choose: what their rules put elsewhere is nothing. (Those that read or write places do so, too, but
#: there it follows from their being linear.)
CHOOSING = {
    "_where", "_masked_fill_number", "_masked_fill_tensor",
    "_clamp", "_clamp_above", "_clamp_below", "_clamp_tensors", "clamp_max", "clamp_min", "nan_to_num",
    "maximum", "minimum", "fmax", "fmin", "_amax_dims", "_amin_dims", "_max_all", "_min_all",
    "relu", "_threshold", "hardtanh", "hardshrink", "softshrink",
}  # fmt: skip
#: operations that overwrite their first input: the zeros that their rules give it are nothing
OVERWRITING = {"copy", "fill", "zero"}


class nan_safe(_Switch):
    """Backward passes inside: a branch that was not taken contributes no gradient.

    As a context manager or a decorator, around `backward()` or `grad()`; what is recorded before or inside makes no
    difference. See docs/masked.md for what counts as not taken.

    >>> import undertow as ut
    >>> x = ut.tensor([0.0, 4.0], requires_grad=True)
    >>> y = ut.where(x > 0, x.sqrt(), x)
    >>> ut.autograd.grad(y.sum(), x, retain_graph=True)  # 0 * inf
    (tensor([   nan, 0.2500]),)
    >>> with ut.masked.nan_safe():
    ...     ut.autograd.grad(y.sum(), x)
    (tensor([1.0000, 0.2500]),)
    """

    variable = around_pass

    def inside(self, outer: Any) -> Any:
        return run_safely


def run_safely(
    run: Callable[..., Any], edges: list[Any], grads: list[Any], keep: bool, create_graph: bool, **chosen: Any
) -> list[Tensor]:
    """Run a backward pass with a SafePass between its operations."""
    outer = beneath(current().intercept)
    lowest = outer.below if isinstance(outer, InputTracking) else outer  # which looks on only
    if lowest is not None and type(lowest) is not SafePass:
        raise RuntimeError(
            "nan_safe() cannot be used for a backward pass on tensors that vmap or forward mode transforms: the pass "
            "has to look at their numbers. Differentiate outside of vmap (one pass for the whole batch), or leave "
            "nan_safe() out."
        )
    safe = SafePass(create_graph)
    if isinstance(outer, SafePass):  # a pass inside a pass goes on where that one is
        safe.adopt(outer, grads)
    inside = with_beneath(current().intercept, safe)
    return call_with(_running, safe, under, inside, run, edges, grads, keep, create_graph, **chosen)


_running: ContextVar[SafePass | None] = ContextVar("undertow.nan_safe", default=None)


class SafePass(Interceptor, Watch):
    """One pass: the supports of its values, and the node that runs.

    known      id of a tensor -> (weak reference to it, its support); all of any other tensor may be anything
    constants  the saved tensors of the running node that no gradient is asked of: their zeros are zeros for good
    declared   whether the running node is that of a declared operation
    choosing   whether that operation is one of CHOOSING; overwriting, of OVERWRITING
    """

    def __init__(self, create_graph: bool) -> None:
        self.create_graph = create_graph
        self.known: dict[int, tuple[Any, Any]] = {}
        self.at_rest()

    def at_rest(self) -> None:
        self.constants: list[Tensor] = []
        self.declared = self.choosing = self.overwriting = False

    # ---- supports

    def note(self, tensor: Tensor, support: Array) -> None:
        key, known = id(tensor), self.known
        known[key] = weakref.ref(tensor, lambda _: known.pop(key, None)), support

    def adopt(self, outer: SafePass, tensors: list[Tensor]) -> None:
        """Take over what another pass knows of some tensors."""
        for tensor in tensors:
            support = outer.support_of(tensor)
            if support is not None:
                self.note(tensor, support)

    def support_of(self, value: Array) -> Array | None:
        """The support of a value, a bool array; None for all of it."""
        if not isinstance(value, Tensor) or value._xp is not cpu:
            return None
        entry = self.known.get(id(value))
        if entry is None or entry[0]() is not value:
            return value._array != 0 if any(c is value for c in self.constants) else None
        support = entry[1]
        # somebody may have written into the tensor since
        return None if support.shape != value._array.shape or value._array[~support].any() else support

    # ---- nodes

    def before(self, node: Node, grads: list[Any]) -> None:
        inner = node.node if type(node) is CopySlices else node
        self.choosing, self.overwriting = inner.op_name in CHOOSING, inner.op_name in OVERWRITING
        self.declared = isinstance(inner, DeclaredNode)
        self.constants = constants_of(inner) if isinstance(inner, DeclaredNode) else []

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        if self.overwriting and type(node) is not CopySlices and isinstance(results[0], Tensor):
            self.note(results[0], cpu.zeros(results[0]._array.shape, bool))
        op = getattr(node, "op", None)
        if isinstance(node, DeclaredNode) and op is not None and op.elementwise and len(grads) == 1:
            self.confine(results, self.support_of(grads[0]))
        self.at_rest()

    def confine(self, results: list[Any], support: Array | None) -> None:
        """Whatever the rule of an elementwise operation computes, no element is there whose gradient is not."""
        for k, result in enumerate(results):
            if support is not None and isinstance(result, Tensor) and result._array.shape == support.shape:
                own = self.support_of(result)
                results[k] = self.zero_outside(result, support if own is None else own & support)

    def failed(self, node: Node, error: BaseException) -> None:
        self.at_rest()

    # ---- operations

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        op = function.op
        result = plainly(function, args)
        if op.kind == "nondifferentiable" and op.name != "_zeros_for":
            return result
        if current().grad_enabled and not self.create_graph:
            return result  # no rule: a forward pass inside, as a checkpoint runs it
        first = result[0] if isinstance(result, tuple) else result
        if first._xp is not cpu:
            return result
        support = support_of_result(op, args, first, self.support_of, self.declared, self.choosing)
        if support is None:
            return result
        if isinstance(result, tuple):
            return tuple([self.settled(op, args, r, s) for r, s in zip(result, support, strict=True)])
        return self.settled(op, args, result, support)

    def settled(self, op: Op, args: tuple[Any, ...], result: Tensor, support: Array) -> Tensor:
        """The result with 0 outside of its support."""
        values = op.by_name(args)
        if is_bilinear(op, values) and op.name not in ("mul", "multiply"):
            result = self.without_absent_terms(op, args, result)
        if support.all():
            return result
        if is_linear(op, values) and not result._array[~support].any():
            self.note(result, support)
            return result
        return self.zero_outside(result, support)

    def zero_outside(self, result: Tensor, support: Array) -> Tensor:
        if self.create_graph or result._array[~support].any():
            result = under(None, REGISTRY["_where"].function, Tensor(cpu.asarray(support), cpu), result, 0)
        self.note(result, support)
        return result

    def without_absent_terms(self, op: Op, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """Sums of products: leave out the products of nothing with inf and nan."""
        if cpu.isfinite(result._array).all():
            return result
        reached = reached_by_infinities(op, args, self.support_of)
        clean = under(None, op.function, *[finite_part(a) for a in args])
        return under(None, REGISTRY["_where"].function, Tensor(cpu.asarray(reached), cpu), result, clean)

    # ---- what is more than one operation

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Array,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Array:
        support = self.writable_support(tensor)
        written = self.support_of(args[0]) if name == "copy_" else None
        result = under(None, change, tensor, *args, **kwargs)
        if support is not None:
            nothing = name == "zero_" or (name == "copy_" and self.overwriting)
            support[...] = not nothing if written is None else written
        return result

    def writable_support(self, tensor: Tensor) -> Array | None:
        """The support of a tensor whose memory is about to change: part of its base's, if it is a view."""
        if tensor._xp is not cpu:
            return None
        view = None if tensor._extra is None else tensor._extra.view
        base = tensor if view is None else view.base
        old = self.support_of(base)
        whole = cpu.ones(base._array.shape, bool) if old is None else cpu.array(old)
        self.note(base, whole)
        if view is None:
            return whole
        part = view.replay.of_array(cpu, whole)
        if part.dtype != whole.dtype or part.shape != tensor._array.shape:  # of another kind of number
            whole[...] = True
            return None
        self.note(tensor, part)
        return part

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Array, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Array:
        self.known.pop(id(tensor), None)  # its support was that of another shape
        return under(None, change, tensor, *args, **kwargs)

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(None, run_function, cls, args, kwargs)

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(None, function, *args, **kwargs)


def constants_of(node: DeclaredNode) -> list[Tensor]:
    saved = [getattr(node, slot) for slot in node.saved_slots]
    return [t for t in saved if type(t) is Tensor and current_edge(t) is None]


def finite_part(value: Array) -> Array:
    if not isinstance(value, Tensor) or not dtypes.is_differentiable(value._array.dtype):
        return value
    return REGISTRY["_where"].function(Tensor(cpu.isfinite(value._array), cpu), value, 0)


install_watcher(_running.get)
