"""In-place forms: `add_`, `mul_`, `copy_`, ... made from the out-of-place operations.

An in-place operation records what the out-of-place one would, writes the result into the tensor's memory, counts one
more version, and moves the tensor (or, through CopySlices, the base it is a view of) to the new history. Everything
that can be refused is refused before the first byte changes.

Where there is nothing to record, an operation that is one NumPy ufunc writes its result straight into the memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.backend.silence import quietly
from undertow.graph.history import rebase_history
from undertow.modes import Interceptor, current
from undertow.ops.arguments.operands import as_operand, explain, result_type_of, type_name
from undertow.ops.declare import REGISTRY
from undertow.ops.declare.core_plan import compile_in_place
from undertow.ops.inplace.checks import check_fit, check_history, check_in_place, unlock
from undertow.ops.inplace.overlap import refuse_overlap
from undertow.ops.inplace.overwriting import copy
from undertow.ops.pointwise.arithmetic import times_alpha
from undertow.refcounts import IN_VARIABLE
from undertow.tensor import Tensor, counter_of, current_edge
from undertow.tensor.tensor import extra_of, requires_grad
from undertow.tensor.torch_function import FUNCTIONS_ASK, NOBODY, answer, asks_itself
from undertow.tensor.version_counter import VersionCounter

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.graph.node import Node
    from undertow.ops.declare.op import Op

getrefcount = sys.getrefcount


# ---- writing


def write_array(tensor: Tensor, array: Array, name: str) -> None:
    """Write `array` into the tensor's memory and count a version."""
    unlock(tensor)
    check_fit(tensor._array, array.shape, array.dtype, name)
    tensor._xp.copyto(tensor._array, array, casting="unsafe")
    counter_of(tensor).bump(name)


#: dtypes in which a ufunc's result is rounded once, and is what the operation gives
COMPUTED_IN = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def write_ufunc(tensor: Tensor, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> bool:
    """Let the operation's ufunc write into the tensor's memory; whether all operands are alike, so that it did."""
    array, xp = tensor._array, tensor._xp
    values = dict(zip(op.ordered, op.bind((tensor, *args), kwargs), strict=True))
    if type(array) is not xp.ndarray or array.dtype not in COMPUTED_IN or not array.flags.writeable:
        return False
    if op.ufunc == "negative" and not array.flags.forc:
        return False  # NumPy 2.4 negates some arrays with gaps wrongly, where they lie: see csrc/call/in_place.c
    operands = []
    for value in [values[i] for i in op.inputs]:
        if isinstance(value, Tensor):
            if value._xp is not xp or value._array.dtype is not array.dtype or value._array.shape != array.shape:
                return False
            value = value._array
        elif type(value) is not float and type(value) is not int:
            return False
        operands.append(value)
    if values.get("alpha", 1) != 1:
        operands[1] = quietly(times_alpha, array, operands[1], values["alpha"])
        if getattr(operands[1], "dtype", array.dtype) is not array.dtype:
            return False
    try:
        quietly(getattr(xp, op.ufunc), *operands, array)  # type: ignore[arg-type]
    except TypeError as error:
        explain(error, name, (array,))
        raise
    counter_of(tensor).bump(name)
    return True


# ---- from an operation to its in-place form


def in_place(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of an out-of-place operation."""
    shown = name + "_"
    op: Any = getattr(function, "op", None)
    declared = op is not None and op.kind in ("primitive", "nondifferentiable") and op.function is function
    direct = declared and is_simple(op) and op.params in ([], ["alpha"])
    overlap = None if op is None else op.overlap

    @asks_itself
    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if FUNCTIONS_ASK and (found := answer(public, (self, *args), kwargs)) is not NOBODY:
            return found
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_place(shown, change, function, self, args, kwargs)
        differentiable = dtypes.is_differentiable(self._array.dtype)
        recorded = (
            differentiable
            and current().grad_enabled
            and (
                requires_grad(self)
                or any([isinstance(a, Tensor) and requires_grad(a) for a in (*args, *kwargs.values())])
            )
        )
        check_in_place(self, shown, recorded)
        refuse_overlap(self, (args, kwargs), overlap, shown)
        if recorded:
            return record_change(self, shown, function, declared, args, kwargs)
        if not (direct and op.ufunc is not None and write_ufunc(self, op, args, kwargs, shown)):
            write_array(self, function(self, *args, **kwargs)._array, shown)
        return self

    public = described(change, name, shown)
    if declared and is_simple(op):
        public = described(compile_in_place(op, shown, change, check_history, times_alpha), name, shown)
    return public


def is_simple(op: Op) -> bool:
    """Whether the operation computes one result from its first argument, the tensor, and others that must be given."""
    if op.outputs is not None or op.optional or op.inputs[0] != "input":
        return False
    return not op.edges or op.edges[0] == "input"


def division(name: str) -> Callable[..., Tensor]:
    """`div_`: the in-place form of `true_divide`, but with a rounding mode that of `div`."""
    exact, rounded = in_place(name, REGISTRY["true_divide"].function), in_place(name, REGISTRY["div"].function)

    def change(self: Tensor, other: Array, *, rounding_mode: str | None = None) -> Tensor:
        return exact(self, other) if rounding_mode is None else rounded(self, other, rounding_mode=rounding_mode)

    return described(change, name, name + "_")


def absolute(name: str) -> Callable[..., Tensor]:
    """`abs_`, whose result is real, and so not for complex tensors."""
    real = in_place(name, REGISTRY[name].function)

    def change(self: Tensor) -> Tensor:
        if self._array.dtype.kind == "c":
            raise RuntimeError("In-place abs is not supported for complex tensors. Use abs().")
        return real(self)

    return described(change, name, name + "_")


def in_double(name: str) -> Callable[..., Tensor]:
    """`float_power_`, whose result is in double precision, and so is only for tensors that are."""
    double = in_place(name, REGISTRY[name].function)

    def change(self: Tensor, exponent: Array) -> Tensor:
        complex_ = result_type_of((self, as_operand("float_power_", "exponent", exponent))).kind == "c"
        needed = dtypes.complex128 if complex_ else dtypes.float64
        if self._array.dtype != needed:
            raise RuntimeError(
                f"the base given to float_power_ has dtype {type_name(self._array)} but the operation's "
                f"result requires dtype {dtypes.SCALAR_NAMES[needed]}. Use float_power(), or convert the base."
            )
        return double(self, exponent)

    return described(change, name, name + "_")


def clamping(name: str) -> Callable[..., Tensor]:
    """`clamp_`, which has a short way for bounds that are numbers."""
    general, by_numbers = in_place(name, REGISTRY["clamp"].function), in_place(name, REGISTRY["_clamp"].function)

    def change(self: Tensor, min: Array | None = None, max: Any = None) -> Tensor:
        if min is max or type(min) not in BOUNDS or type(max) not in BOUNDS:
            return general(self, min, max)
        return by_numbers(self, min, max)

    return described(change, name, name + "_")


#: the types of bounds for which clamp is one operation
BOUNDS = (float, int, type(None))


def masked_filling(name: str) -> Callable[..., Tensor]:
    """`masked_fill_`, which has a short way for numbers."""
    general = in_place(name, REGISTRY[name].function)
    by_number = in_place(name, REGISTRY["_masked_fill_number"].function)

    def change(self: Tensor, mask: Array, value: Array) -> Tensor:
        return (by_number if type(value) in (float, int) else general)(self, mask, value)

    return described(change, name, name + "_")


def described(change: Callable[..., Any], name: str, shown: str) -> Any:
    change.__name__ = change.__qualname__ = shown
    change.__doc__ = f"`{name}`, written into the tensor itself."
    change.__module__ = "undertow"
    return change


def record_change(
    self: Tensor, name: str, function: Callable[..., Any], declared: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """Change a tensor in place and record it.

    declared  whether the function is one operation, whose node says what it saved
    """
    edge = current_edge(self)
    # The operation sees a double of the tensor. Rules that need its former value save that, which then gets memory of
    # its own. Saved-tensor hooks see it at once, so there it must have that memory from the start; and so must it
    # when functions of several operations save it, because they may have saved parts of it, too.
    own_memory = bool(current().saved_hooks) or any([a is self for a in args])
    before = former_value(self, edge) if own_memory else Tensor(self._array, self._xp, edge)
    args = tuple([before if a is self else a for a in args])
    result = function(before, *args, **kwargs)
    if not declared and not own_memory and (getrefcount(before) > IN_VARIABLE or before._extra is not None):
        before = former_value(self, edge)
        result = function(before, *args, **kwargs)
    unlock(self)
    check_fit(self._array, result._array.shape, result._array.dtype, name)
    node = None if result._edge is None else result._edge[0]
    if declared and not own_memory and node is not None and is_saved(node, before):
        before._array = self._array.copy()
        extra_of(before).counter = VersionCounter()
    is_view = self._extra is not None and self._extra.view is not None
    if node is None or (is_view and node.next_edges[0] is not edge):
        # A result without history overwrites what was there; and CopySlices applies one node to the slice, so several
        # are wrapped as a copy of their result.
        result = copy(before, result)
    elif declared and result._array.dtype is not self._array.dtype:
        node.dtype = self._array.dtype  # the tensor keeps its own, and so does its gradient
    self._xp.copyto(self._array, result._array, casting="unsafe")
    counter = counter_of(self)
    counter.bump(name)
    if declared and node is not None and result._array.dtype is self._array.dtype:
        save_memory_itself(node, result._array, self, counter)
    rebase_history(self, result._edge)
    return self


def former_value(tensor: Tensor, edge: Edge) -> Tensor:
    """A copy with the tensor's history. Its memory is its own, so it must not count versions with the tensor's."""
    copied = Tensor(tensor._array.copy(), tensor._xp, edge)
    extra_of(copied).counter = VersionCounter()
    return copied


def is_saved(node: Node, tensor: Tensor) -> bool:
    return any([getattr(node, slot) is tensor for slot in node.saved_slots])


def save_memory_itself(node: Node, array: Array, tensor: Tensor, counter: VersionCounter) -> None:
    """Where a node saved its output, let it keep the tensor's memory, which holds the same values, and watch it."""
    for kind, place in node.saved_names.values():
        if kind == "output" and getattr(node, f"saved_{place[0]}") is array:
            setattr(node, f"saved_{place[0]}", tensor._array)
            node.watch_output(place[1], counter)
