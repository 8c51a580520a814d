"""In-place methods that are more than the in-place form of an operation: `copy_`, `zero_`, `fill_`, `apply_`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array
from undertow.backend.silence import quietly
from undertow.compiled import shortcut
from undertow.modes import State, current
from undertow.ops.arguments.operands import as_operand
from undertow.ops.create.convert import convert
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.checks import check_in_place, unlock
from undertow.ops.inplace.forms import in_place, write_array
from undertow.ops.inplace.overlap import refuse_overlap
from undertow.ops.inplace.overwriting import copy, fill, zero
from undertow.ops.pointwise.special.gamma import polygamma
from undertow.ops.views.as_strided import as_strided
from undertow.ops.views.slices import diagonal
from undertow.tensor import Tensor, counter_of
from undertow.tensor.tensor import requires_grad
from undertow.tensor.version_counter import NO_COUNTER

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
    """Copy the values of `src`, broadcast and cast, into the tensor.

    non_blocking  whether the program may go on before the copy is done, between pinned memory and a GPU
    """
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
    free = (self._edge is None or not state.grad_enabled) and is_free(self, state)
    if free and not self._array.flags.writeable:
        return overwrite_expanded(self, _record_zero)
    if state.unusual or not free:
        return _record_zero(self)
    self._array.fill(0)
    counter_of(self).bump("zero_")
    return self


@shortcut()
def fill_(self: Tensor, value: Array) -> Tensor:
    """Set every element to `value`, a number or a tensor of no dimensions."""
    if type(value) is complex and value.imag and self._array.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {self._array.dtype} without overflow: it is complex")
    state = current()
    free = (self._edge is None or not state.grad_enabled) and is_free(self, state)
    if free and not self._array.flags.writeable:
        return overwrite_expanded(self, _record_fill, value)
    simple = (type(value) is float and self._array.dtype.kind in "fcV") or (type(value) is int and 0 <= value < 128)
    if not simple or state.unusual or not free:
        return _record_fill(self, value)
    quietly(self._array.fill, value)
    counter_of(self).bump("fill_")
    return self


# ---- element by element, and others


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it. For tensors of which no gradient is asked.

    callable  a function of a Python number that returns one

    >>> import undertow as ut
    >>> ut.tensor([1.0, 2.0]).apply_(lambda x: x + 1)
    tensor([2., 3.])
    """
    return _write_each(self, "apply_", [self], callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its counterpart in another tensor.

    callable  a function of two Python numbers that returns one

    >>> import undertow as ut
    >>> ut.tensor([1.0]).map_(ut.tensor([2.0]), lambda x, y: x + y)
    tensor([3.])
    """
    return _write_each(self, "map_", [self, tensor], callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its counterparts in two other tensors.

    x, y      the other tensors
    callable  a function of three Python numbers that returns one

    >>> import undertow as ut
    >>> ut.ones(2).map2_(ut.tensor([2.0, 3.0]), ut.tensor([5.0, 7.0]), lambda a, b, c: a + b * c)
    tensor([11., 22.])
    """
    return _write_each(self, "map2_", [self, x, y], callable)


def _write_each(self: Tensor, name: str, tensors: list[Tensor], callable: Callable[..., Any]) -> Tensor:
    _check_each(self, name, tensors)
    check_in_place(self, name)
    xp, array = self._xp, self._array
    operands = [xp.broadcast_to(t._array, array.shape).ravel().tolist() for t in tensors]
    values = [callable(*each) for each in zip(*operands, strict=True)]
    for value in values:
        if not hasattr(value, "__float__") and not hasattr(value, "__complex__"):
            raise TypeError(
                f"{name}: the function must return numbers: must be real number, not {type(value).__name__}"
            )
    write_array(self, xp.asarray(values, array.dtype).reshape(array.shape), name)
    return self


def _check_each(self: Tensor, name: str, tensors: list[Tensor]) -> None:
    if any([requires_grad(t) for t in tensors]):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad: no derivative is known of a Python function. Use "
            f"var.detach().{name}() instead, or write the function with tensor operations."
        )
    for other in tensors:
        if other._array.dtype != self._array.dtype:
            raise TypeError(
                f"{name}: expected the dtype of the tensor that is changed, {self._array.dtype} (got "
                f"{other._array.dtype}). Convert the other tensor first."
            )
        if not broadcasts_to(other._array.shape, self._array.shape):
            raise RuntimeError(
                f"{name}: the other tensor, of shape {list(other._array.shape)}, must match the existing size of the "
                f"one that is changed, {list(self._array.shape)}, or broadcast to it"
            )


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Set the elements whose indices are all equal; with `wrap`, those of a tall matrix once more below each square.

    >>> import undertow as ut
    >>> ut.zeros(2, 2).fill_diagonal_(1.0)
    tensor([[1., 0.],
            [0., 1.]])
    """
    shape = self._array.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1: fill_diagonal_ needs a matrix")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError(f"all dimensions of input must be of equal length: fill_diagonal_ got {list(shape)}")
    if len(shape) == 2:
        for top in range(0, max(shape[0], 1), shape[1] + 1) if wrap and shape[1] else (0,):
            fill_(diagonal(self, -top), fill_value)
        return self
    strides = [s // self._array.itemsize for s in self._array.strides]
    fill_(as_strided(self, (shape[0],), (sum(strides),)), fill_value)
    return self


def polygamma_(self: Tensor, n: int) -> Tensor:
    """`polygamma(n, self)`, written into the tensor itself."""
    return _polygamma(self, n)


_polygamma = in_place("polygamma", lambda self, n: polygamma(n, self))

#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "apply_": apply_,
    "copy_": copy_,
    "fill_": fill_,
    "zero_": zero_,
    "fill_diagonal_": fill_diagonal_,
    "map2_": map2_,
    "map_": map_,
    "polygamma_": polygamma_,
}
