"""In-place methods that are no in-place form of an operation: element by element, and along the diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.cpu import broadcasts_to
from undertow.ops.inplace.forms import check_in_place, fill_, in_place, write_array
from undertow.ops.pointwise.special.gamma import polygamma
from undertow.ops.views.as_strided import as_strided
from undertow.ops.views.slices import diagonal
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it. For tensors of which no gradient is asked.

    >>> import undertow as ut
    >>> ut.tensor([1.0, 2.0]).apply_(lambda x: x + 1)
    tensor([2., 3.])
    """
    return _write_each(self, "apply_", [self], callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its counterpart in another tensor.

    >>> import undertow as ut
    >>> ut.tensor([1.0]).map_(ut.tensor([2.0]), lambda x, y: x + y)
    tensor([3.])
    """
    return _write_each(self, "map_", [self, tensor], callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its counterparts in two other tensors.

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
    "fill_diagonal_": fill_diagonal_,
    "map2_": map2_,
    "map_": map_,
    "polygamma_": polygamma_,
}
