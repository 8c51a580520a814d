"""The same elements in the same order under other sizes (view, reshape, flatten)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.large_arrays import is_viewable
from undertow.compiled import shortcut, twin
from undertow.errors import IncompatibleViewError
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import infer_sizes, ints
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive
from undertow.ops.declare import view as declare_view
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.views.clone import clone, contiguous
from undertow.ops.views.dimensions import unsqueeze
from undertow.tensor import Tensor
from undertow.tensor.facts import element_strides
from undertow.tensor.memory import bytes_into_base
from undertow.tensor.memory_formats import contiguous_format
from undertow.tensor.tensor import share_memory

# ---- views


@twin
def view_array(xp: Namespace, input: Array, size: tuple[int, ...]) -> Array:
    try:
        out = input.reshape(size)
    except ValueError:
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {input.size}") from None
    if out.base is None or not (input.flags.c_contiguous or is_viewable(input.shape, input.strides, size)):
        raise IncompatibleViewError(input.shape, size)
    return out


_view = declare_view(
    "_view",
    forward=view_array,
    vjp={"input": lambda xp, g, input_shape: xp.reshape(g, input_shape)},
    batch=shifted(sizes=(1,)),
)

_unsafe_view = primitive(
    "_unsafe_view",
    forward=lambda xp, input, size: input.reshape(size),
    vjp={"input": lambda xp, g, input_shape: xp.reshape(g, input_shape)},
    jvp=LINEAR,
    batch=shifted(sizes=(1,)),
    order="as_computed",
)


def _view_as_dtype(xp: Namespace, input: Array, dtype: DType) -> Array:
    size, wanted = input.dtype.itemsize, dtype.itemsize
    if size == wanted:
        return input.view(dtype)
    names = dtypes.SCALAR_NAMES
    change = f"to view {names[input.dtype]} as {names[dtype]} (different element sizes)"
    if not input.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {change}")
    stride = element_strides(input)[-1]
    if stride != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {change}, but got {stride}")
    if input.shape[-1] * size % wanted:
        raise RuntimeError(f"self.size(-1) must be divisible by {wanted // size} {change}, but got {input.shape[-1]}")
    return (input if input.size else xp.empty(input.shape, input.dtype)).view(dtype)


_view_dtype = nondifferentiable(
    "_view_dtype",
    forward=_view_as_dtype,
    inputs=("input",),
    batch=shifted(),
    half_precision="as_is",
    order="as_computed",
)


def _read_as(input: Array, dtype: DType) -> Array:
    """The same memory read as another dtype: like `detach()`, an alias without a history that shares the version."""
    alias = _view_dtype(input, dtypes.as_dtype(dtype, "view"))
    if type(input) is Tensor:
        _check_places(input, alias.dtype)
        share_memory(input, alias)
    return alias


def _check_places(tensor: Tensor, dtype: DType) -> None:
    """Refuse to read elements as wider ones, unless each of those has a place that is a multiple of its size."""
    array, size = tensor._array, tensor._array.itemsize
    steps = [s // size if n > 1 else 0 for n, s in zip(array.shape, array.strides, strict=True)][:-1]
    found = {"storage_offset()": bytes_into_base(tensor) // size}
    found.update({f"stride({dim})": step for dim, step in enumerate(steps)})
    for name, value in found.items():
        if value * size % dtype.itemsize and dtype.itemsize > size:
            raise RuntimeError(
                f"self.{name} must be divisible by {dtype.itemsize // size} to view {dtypes.SCALAR_NAMES[array.dtype]} "
                f"as {dtypes.SCALAR_NAMES[dtype]} (different element sizes), but got {value}"
            )


def _are_sizes(values: tuple[Any, ...]) -> bool:
    """Whether all are plain sizes, none of them left open: the common case, told quickly."""
    for n in values:
        if type(n) is not int or n < 0:
            return False
    return bool(values)


@composite(variants="method")
@shortcut(_view)
def view(input: Array, *shape: Any, size: Sequence[int] | None = None, dtype: DType | None = None) -> Array:
    """The same memory under other sizes (one may be -1), or, given a dtype, read as another type.

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.arange(6).view(2, -1).shape
    undertow.Size([2, 3])
    """
    if size is None and dtype is None and _are_sizes(shape):
        return _view(input, shape)
    if dtype is None and len(shape) == 1 and isinstance(shape[0], (dtypes.AnyDtype, type)):
        dtype = shape[0]
    if dtype is not None:
        return _read_as(input, dtype)
    return _view(input, infer_sizes(ints(shape, size), math.prod(input.shape)))


@composite(variants="method")
def view_as(input: Array, other: Array) -> Array:
    """As `view`, to the shape of another tensor.

    other  the tensor that has the shape

    >>> import undertow as ut
    >>> ut.arange(4).view_as(ut.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return view(input, tuple(other.shape))


@composite(variants="function method")
@shortcut(_view)
def reshape(input: Array, *sizes: Any, shape: Any = None) -> Array:
    """The tensor under other sizes: a view where its strides allow one, else of a copy.

    shape  the sizes, as one list; or one by one. One may be -1, which is what is left

    >>> import undertow as ut
    >>> ut.reshape(ut.arange(6), (3, 2)).shape
    undertow.Size([3, 2])
    """
    if shape is None and _are_sizes(sizes):
        size = sizes
    else:
        size = infer_sizes(ints(sizes, shape), math.prod(input.shape))
    try:
        array = input._array
    except AttributeError:  # an array; asking first would cost every call 40 ns
        return reshape(as_operand("reshape", "input", input), size)
    if array.flags.c_contiguous or array.ndim != input.ndim or is_viewable(array.shape, array.strides, size):
        try:
            return _view(input, size)
        except IncompatibleViewError:
            pass  # a batch of examples: its array has a dimension more, and only its rule knows which
    return _unsafe_view(clone(input, memory_format=contiguous_format), size)


@composite(variants="method")
def reshape_as(input: Array, other: Array) -> Array:
    """As `reshape`, to the shape of another tensor.

    other  the tensor that has the shape

    >>> import undertow as ut
    >>> ut.arange(4).reshape_as(ut.ones(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return reshape(input, tuple(other.shape))


@composite(variants="function method")
@shortcut(_view)
def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """The tensor with dimensions `start_dim` to `end_dim` merged into one.

    >>> import undertow as ut
    >>> ut.flatten(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    """
    input = as_operand("flatten", "input", input)
    ndim = input.ndim
    start, end = wrap_dim(start_dim, ndim), wrap_dim(end_dim, ndim)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if ndim and start == end:
        return input
    sizes = tuple(input.shape)
    return reshape(input, (*sizes[:start], math.prod(sizes[start : end + 1]), *sizes[end + 1 :]))


@composite(variants="function method")
def unflatten(input: Array, dim: int, sizes: Sequence[int]) -> Array:
    """The tensor with dimension `dim` split into several; one size may be -1.

    sizes  what the dimension becomes; their product is its size

    >>> import undertow as ut
    >>> ut.unflatten(ut.ones(3, 4), 1, (2, 2)).shape
    undertow.Size([3, 2, 2])
    """
    if not hasattr(dim, "__index__"):
        raise TypeError(f"unflatten(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
    dim = wrap_dim(dim, input.ndim)
    sizes = ints(tuple(sizes))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not input.ndim:
        raise RuntimeError(
            f"unflatten: Dimension specified as {dim} but tensor has no dimensions. Take it as one, by unsqueeze(0)."
        )
    shape = tuple(input.shape)
    try:
        split = infer_sizes(sizes, shape[dim])
    except RuntimeError as error:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        ) from error
    return view(input, (*shape[:dim], *split, *shape[dim + 1 :]))


@composite(variants="function method")
def ravel(input: Array) -> Array:
    """All elements in one dimension.

    >>> import undertow as ut
    >>> ut.ravel(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    """
    return view(contiguous(input), -1)


adapter("reshape")(lambda x, shape: reshape(x, shape))
adapter("ravel")(ravel)


# ---- at least so many dimensions


def _on_each(one: Callable[..., Any]) -> Any:
    """A function of one tensor that also takes several, or a sequence of them."""

    def several(*tensors: Array) -> Any:
        listed = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
        given = [as_operand(one.__name__, "tensors", t) for t in (tensors[0] if listed else tensors)]
        return tuple([one(t) for t in given]) if listed or len(tensors) != 1 else one(given[0])

    several.__name__ = several.__qualname__ = one.__name__
    several.__doc__ = one.__doc__
    return composite(several)


@_on_each
def atleast_1d(tensor: Array) -> Array:
    """The tensor (or each of several), with one dimension if it had none.

    *tensors  tensors or numbers; also one list of them

    Example: `ut.atleast_1d(ut.tensor(3))`
    """
    return tensor if tensor.ndim else view(tensor, 1)


@_on_each
def atleast_2d(tensor: Array) -> Array:
    """The tensor (or each of several), with dimensions of size 1 put in front until there are two.

    *tensors  tensors or numbers; also one list of them

    Example: `ut.atleast_2d(ut.tensor([3, 4]))`
    """
    if tensor.ndim == 0:
        return view(tensor, 1, 1)
    return unsqueeze(tensor, 0) if tensor.ndim == 1 else tensor


@_on_each
def atleast_3d(tensor: Array) -> Array:
    """The tensor (or each of several), with dimensions of size 1 put around until there are three.

    *tensors  tensors or numbers; also one list of them

    Example: `ut.atleast_3d(ut.tensor([3, 4]))`
    """
    if tensor.ndim == 0:
        return view(tensor, 1, 1, 1)
    if tensor.ndim == 1:
        return unsqueeze(unsqueeze(tensor, 0), 2)
    return unsqueeze(tensor, 2) if tensor.ndim == 2 else tensor
