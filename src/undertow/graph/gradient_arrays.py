"""The arrays of gradients: which may be kept or added to as they are, and how a leaf's is laid out in memory."""

from __future__ import annotations

from sys import getrefcount

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.coo import AnySparse
from undertow.modes import current
from undertow.refcounts import IN_ATTRIBUTE_OF_ARGUMENT
from undertow.tensor import Tensor


def fits_in_place(grad: Array, array: Array) -> bool:
    """Whether `grad` can be added to `array` in place: real and complex do not mix, precisions do."""
    if grad.dtype is array.dtype or array.dtype.kind == "c":
        return True
    return dtypes.kind_of(array.dtype) == dtypes.kind_of(grad.dtype)


def own_array(grad: Array, variable: Tensor, unshared: bool) -> Array | None:
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
    return grad if unshared and plain and is_sole(grad.values) else grad.copy()


def is_sole(array: Array | None) -> bool:
    """Whether the array belongs to one object only, and so does the memory that it shows."""
    if array is None or type(array) is not cpu.ndarray:
        return array is None
    return getrefcount(array) <= IN_ATTRIBUTE_OF_ARGUMENT and is_sole(array.base)


def copy_in_layout(grad: Array, array: Array, xp: Namespace) -> Array:
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
