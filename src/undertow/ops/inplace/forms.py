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
from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.silence import quietly
from undertow.compiled import shortcut
from undertow.graph.history import LOST, STALE, rebase_history, refusal, shows_base
from undertow.modes import Interceptor, State, current
from undertow.ops.arguments.operands import as_operand, explain
from undertow.ops.create.convert import convert
from undertow.ops.declare import REGISTRY, primitive
from undertow.ops.declare.core_plan import compile_in_place
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded, in_front, padded
from undertow.ops.inplace.overlap import refuse_overlap
from undertow.ops.pointwise.arithmetic import times_alpha
from undertow.refcounts import IN_VARIABLE
from undertow.tensor import LEAF, Tensor, counter_of, current_edge
from undertow.tensor.extra import DEFAULT
from undertow.tensor.memory import unlocked
from undertow.tensor.tensor import extra_of, requires_grad
from undertow.tensor.torch_function import FUNCTIONS_ASK, NOBODY, answer, asks_itself
from undertow.tensor.version_counter import NO_COUNTER, VersionCounter

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.ops.declare.op import Op

getrefcount = sys.getrefcount

# ---- overwriting, as operations of their own


def batch_overwrite(call: Callable[..., Any], args: Any, in_dims: Any) -> tuple[Any, int]:
    """The result has the input's shape, so the input must have the batch, whichever argument brought it."""
    (input, other), size = args, batch_size(args, in_dims)
    input = expanded(input, in_dims[0], size)
    if in_dims[1] is not None:
        other = padded(in_front(other, in_dims[1]), input.ndim - 1)
    return call(input, other), 0


def overwritten(xp: Namespace, input: Array, src: Array) -> Any:
    if not broadcasts_to(src.shape, input.shape):
        raise RuntimeError(
            f"output with shape {list(input.shape)} doesn't match the broadcast shape of the values, "
            f"{list(src.shape)}: the sizes, counted from the last one, must match or be 1"
        )
    return xp.broadcast_to(src, input.shape).astype(input.dtype)


def filled(xp: Namespace, input: Array, value: Array) -> Array:
    value = xp.asarray(value)
    if value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions. Use copy_."
        )
    return xp.broadcast_to(value, input.shape).astype(input.dtype)


copy = primitive(
    "copy",
    forward=overwritten,
    vjp={"input": lambda xp, g: xp.zeros_like(g), "src": lambda xp, g: g},
    jvp={"src": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_overwrite,
    node="CopyBackwards",
    variants="",
    overlap="part",
    order="first",
)

zero = primitive(
    "zero",
    forward=lambda xp, input: xp.zeros_like(input),
    vjp={"input": lambda xp, g: xp.zeros_like(g)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    variants="in_place_function",
)


def batch_fill(call: Callable[..., Any], args: Any, in_dims: Any) -> tuple[Any, int]:
    """A number for each example is an array to copy from."""
    return batch_overwrite(call if in_dims[1] is None else copy, args, in_dims)


fill = primitive(
    "fill",
    forward=filled,
    vjp={"input": lambda xp, g: xp.zeros_like(g), "value": lambda xp, g: g},
    jvp={"value": lambda xp, t, input_shape: xp.broadcast_to(t, input_shape)},
    batch=batch_fill,
    node="FillBackward1",
    number="value",
    number_node="FillBackward0",
    number_edge=False,
    variants="function in_place_function",
    order="first",
)


# ---- what is refused


def check_in_place(tensor: Tensor, name: str, recorded: bool = False) -> None:
    """Refuse an in-place change that autograd could not follow.

    recorded  whether a gradient is asked of one of the operation's other arguments
    """
    state = current()
    if state.grad_enabled and (recorded or requires_grad(tensor)):
        check_history(tensor, name)
    if tensor._extra is not None and tensor._extra.counter is NO_COUNTER and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
            f"normal tensor before doing inplace update. ({name} would change memory that has no version counter.)"
        )
    if state.before_change is not None:
        state.before_change(tensor)


def check_history(tensor: Tensor, name: str) -> None:
    view = None if tensor._extra is None else tensor._extra.view
    if view is not None and view.creation is not DEFAULT:
        raise RuntimeError(refusal(tensor, "is being"))
    if view is not None and not shows_base(tensor, view.base):
        raise RuntimeError(LOST)
    is_asked = requires_grad(tensor)
    if view is not None and (view.base._edge is LEAF or (is_asked and view.base._edge is None)):
        raise RuntimeError(
            f"a view of a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a "
            "clone() of it, or do the change under no_grad.)"
        )
    if view is not None and tensor._edge is None and view.base._edge is not None:
        view.version = STALE  # its version was preserved, though its base has a history by now
    if current_edge(tensor) is LEAF:
        raise RuntimeError(
            f"a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a clone() of "
            "it, or do the change under no_grad.)"
        )


def unlock(tensor: Tensor) -> None:
    """Let a part of an expanded tensor be written to, if no two elements of that part share memory.

    NumPy hands expanded arrays out read-only, and every part of them. What is read-only for another reason stays so.
    """
    array, view = tensor._array, None if tensor._extra is None else tensor._extra.view
    if array.flags.writeable or view is None or not view.base._array.flags.writeable:
        return
    reach = 0  # how far, in bytes, the dimensions of smaller stride extend
    for stride, n in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if n > 1 and stride < reach + array.itemsize:
            return
        reach += stride * (n - 1)
    if tensor._xp.may_share_memory(array, view.base._array):
        tensor._array = unlocked(tensor._xp, array, view.base._array)


def check_fit(target: Array, shape: tuple[int, ...], dtype: DType, name: str) -> None:
    """Refuse to write a result of this shape and dtype into the array `target`."""
    if shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}: {name} "
            "cannot enlarge the tensor it changes"
        )
    if dtype is not target.dtype and dtypes.CATEGORY[dtype.kind] > dtypes.CATEGORY[target.dtype.kind]:
        raise RuntimeError(
            f"result type {dtypes.SCALAR_NAMES[dtype]} can't be cast to the desired output type "
            f"{dtypes.SCALAR_NAMES[target.dtype]}: {name} keeps the dtype of the tensor it changes"
        )
    if not target.flags.writeable:
        raise RuntimeError(
            f"unsupported operation: more than one element of the written-to tensor refers to a single memory location "
            f"(it is expanded), or its memory is read-only: {name} cannot change it. Please clone() the tensor before "
            "performing the operation."
        )


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
        recorded = current().grad_enabled and (
            requires_grad(self) or any([isinstance(a, Tensor) and requires_grad(a) for a in (*args, *kwargs.values())])
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


def clamping(name: str) -> Callable[..., Tensor]:
    """`clamp_`, which has a short way for bounds that are numbers."""
    general, by_numbers = in_place(name, REGISTRY["clamp"].function), in_place(name, REGISTRY["_clamp"].function)

    def change(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
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
    # The operation sees a twin of the tensor. Rules that need its former value save the twin, which then gets memory of
    # its own. Saved-tensor hooks see the twin at once, so there it must have that memory from the start; and so must it
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
    self._xp.copyto(self._array, result._array, casting="unsafe")
    counter = counter_of(self)
    counter.bump(name)
    if declared and node is not None and result._array.dtype is self._array.dtype:
        save_memory_itself(node, result._array, self, counter)
    rebase_history(self, result._edge)
    return self


def former_value(tensor: Tensor, edge: Any) -> Tensor:
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


# ---- overwriting


def is_free(tensor: Tensor, state: State) -> bool:
    """Whether a tensor may be changed without asking anybody."""
    extra = tensor._extra
    if extra is None:
        return True
    if extra.counter is NO_COUNTER and not state.inference:
        return False
    return extra.view is None or not state.grad_enabled or extra.view.base._edge is None


_record_copy = in_place("copy", copy)
_record_zero = in_place("zero", zero)
_record_fill = in_place("fill", fill)


@shortcut(_record_copy)
def copy_(self: Tensor, src: Array, non_blocking: bool = False) -> Tensor:
    """Copy the values of `src`, broadcast and cast, into the tensor."""
    src = as_operand("copy_", "src", src)
    if src._xp is not self._xp:
        src = convert(src, None, self._xp)
    state = current()
    recorded = state.grad_enabled and (requires_grad(self) or requires_grad(src))
    if recorded or state.unusual or not is_free(self, state):
        return _record_copy(self, src)
    target, array = self._array, src._array
    if array.shape != target.shape and array.ndim:
        array = self._xp.broadcast_to(array, target.shape) if broadcasts_to(array.shape, target.shape) else None
    if array is None or not target.flags.writeable:
        return _record_copy(self, src)
    if self._xp.may_share_memory(target, array):
        refuse_overlap(self, src, "part", "copy_")
        array = array.copy()  # NumPy would read elements of vectors that it has overwritten
    self._xp.copyto(target, array, casting="unsafe")
    counter_of(self).bump("copy_")
    return self


def copy_into_new(source: Tensor) -> Tensor:
    """A recorded copy into a fresh tensor, which is how a gradient that has a graph becomes a `.grad`."""
    return copy(Tensor(source._xp.empty_like(source._array), source._xp), source)


def shown_once(tensor: Tensor) -> Tensor:
    """A view of what an expanded tensor shows, each element once."""
    array = tensor._array
    for dim in range(array.ndim - 1, -1, -1):
        if array.shape[dim] > 1 and not array.strides[dim]:
            tensor = REGISTRY["select"].function(tensor, dim, 0)
    return tensor


def overwrite_expanded(self: Tensor, record: Callable[..., Any], *value: Any) -> Tensor:
    """Overwrite a tensor that cannot be written to; if only because it is expanded, each element once."""
    once = shown_once(self)
    unlock(once)
    record(once if once._array.flags.writeable else self, *value)
    return self


@shortcut()
def zero_(self: Tensor) -> Tensor:
    """Set every element to zero."""
    state = current()
    if state.unusual or (self._edge is not None and state.grad_enabled) or not is_free(self, state):
        return _record_zero(self)
    if not self._array.flags.writeable:
        return overwrite_expanded(self, _record_zero)
    self._array.fill(0)
    counter_of(self).bump("zero_")
    return self


@shortcut()
def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or a tensor of no dimensions."""
    if type(value) is complex and value.imag and self._array.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {self._array.dtype} without overflow: it is complex")
    state = current()
    simple = (type(value) is float and self._array.dtype.kind in "fcV") or (type(value) is int and 0 <= value < 128)
    if state.unusual or (self._edge is not None and state.grad_enabled) or not is_free(self, state):
        return _record_fill(self, value)
    if not self._array.flags.writeable:
        return overwrite_expanded(self, _record_fill, value)
    if not simple:
        return _record_fill(self, value)
    quietly(self._array.fill, value)
    counter_of(self).bump("fill_")
    return self
