"""Parts of a tensor: views of them, kernels that put a part's gradient in its place, copies with a part replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import ArrayNamespace
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import copy_with_gaps
from undertow.compiled import twin
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive, view
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import Batch, batch_size, example_rank, expanded, in_front, loop
from undertow.ops.declare.rules.shifted_dims import shift, shifted
from undertow.ops.views.dimensions import EVERYTHING, at
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


@twin
def select_array(xp: Namespace, input: Array, dim: int, index: int) -> Array:
    shape = input.shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    if dim != 0:
        dim = wrap_dim(dim, len(shape))
    if not -shape[dim] <= index < shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {dim}")
    return input[index, ...] if dim == 0 else input[at(dim, index)]


@twin
def select_gradient(xp: Namespace, grad: Array, input_sizes: Sequence[int], dim: int, index: int) -> Array:
    out = xp.zeros(input_sizes, grad.dtype)
    out[at(wrap_dim(dim, out.ndim), index)] = grad
    return out


select = view(
    "select",
    forward=select_array,
    vjp={"input": lambda xp, g, input_shape, dim, index: xp.select_backward(g, input_shape, dim, index)},
    batch=shifted(dims=(1,)),
    variants="function method",
)

# NumPy has a `select` that is something else, so rules call this one by another name
ArrayNamespace.define("select_at", select_array)
adapter("select_at")(select)


def _batch_into(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """For kernels called with (grad, sizes, dim, ...), where `dim` counts in `sizes`."""
    sizes = tuple(args[1])
    if not sizes:
        return loop(call, args, in_dims)
    grad = in_front(args[0], in_dims[0])
    return call(grad, (grad.shape[0], *sizes), wrap_dim(args[2], len(sizes)) + 1, *args[3:]), 0


select_backward = primitive(
    "select_backward",
    forward=select_gradient,
    vjp={"grad": lambda xp, g, dim, index: xp.select_at(g, dim, index)},
    jvp=LINEAR,
    batch=_batch_into,
    variants="",
)


@twin
def slice_array(
    xp: Namespace, input: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    if not input.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError(f"slice step must be positive, got {step}")
    if dim == 0:
        return input[start:end:step]
    return input[(EVERYTHING,) * wrap_dim(dim, input.ndim) + (slice(start, end, step),)]


@twin
def slice_gradient(
    xp: Namespace, grad: Array, input_sizes: Sequence[int], dim: int, start: int | None, end: int | None, step: int
) -> Array:
    out = xp.zeros(input_sizes, grad.dtype)
    out[at(wrap_dim(dim, out.ndim), slice(start, end, step))] = grad
    return out


slice_ = view(
    "slice",
    forward=slice_array,
    vjp={
        "input": lambda xp, g, input_shape, dim, start, end, step: xp.slice_backward(
            g, input_shape, dim, start, end, step
        )
    },
    batch=shifted(dims=(1,)),
    variants="",
)

# What x[::-1] shows, which PyTorch refuses: the same memory, read backwards
reversed_ = view(
    "_reversed",
    forward=lambda xp, input, dim: input[at(wrap_dim(dim, input.ndim), slice(None, None, -1))],
    vjp={"input": lambda xp, g, dim: xp._reversed(g, dim)},
    batch=shifted(dims=(1,)),
)

slice_backward = primitive(
    "slice_backward",
    forward=slice_gradient,
    vjp={"grad": lambda xp, g, dim, start, end, step: xp.slice(g, dim, start, end, step)},
    jvp=LINEAR,
    batch=_batch_into,
    variants="",
)


@composite(variants="function method")
def narrow(input: Array, dim: int, start: Array, length: int) -> Array:
    """`length` entries of dimension `dim`, from `start` on.

    >>> import undertow as ut
    >>> ut.narrow(ut.tensor([1.0, 2.0, 3.0]), 0, 1, 2)
    tensor([2., 3.])
    """
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if isinstance(start, Tensor) and (start.ndim or start.dtype.kind not in "iu"):
        raise RuntimeError(
            f"narrow(): start must be an 0-dim integral Tensor. It is {start.dtype} of shape {list(start.shape)}: give "
            "an int."
        )
    dim = wrap_dim(dim, input.ndim)
    size, start = input.shape[dim], int(start)
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return slice_(input, dim, start, start + length, 1)


def diagonal_array(xp: Namespace, input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    first, second = wrap_dim(dim1, input.ndim), wrap_dim(dim2, input.ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    out = input.diagonal(offset, first, second)
    if input.flags.writeable:
        out.flags.writeable = True  # NumPy hands it out read-only
    return out


def _diagonal_gradient(
    xp: Namespace, grad: Array, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> Array:
    out = xp.zeros(input_sizes, grad.dtype)
    diagonal_array(xp, out, offset, dim1, dim2)[...] = grad
    return out


def _batch_diagonal_gradient(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    grad = in_front(args[0], in_dims[0])
    sizes = tuple(args[1])
    dims = [wrap_dim(d, len(sizes)) + 1 for d in args[3:]]
    return call(grad, (grad.shape[0], *sizes), args[2], *dims), 0


diagonal = view(
    "diagonal",
    forward=diagonal_array,
    vjp={
        "input": lambda xp, g, input_shape, offset, dim1, dim2: xp.diagonal_backward(g, input_shape, offset, dim1, dim2)
    },
    batch=shifted(dims=(2, 3)),
    variants="function method",
    same_in_numpy=True,
)

diagonal_backward = primitive(
    "diagonal_backward",
    forward=_diagonal_gradient,
    vjp={"grad": lambda xp, g, offset, dim1, dim2: xp.diagonal(g, offset, dim1, dim2)},
    jvp=LINEAR,
    batch=_batch_diagonal_gradient,
    variants="",
)


def windows(xp: Namespace, input: Array, dimension: int, size: int, step: int) -> Array:
    dim = wrap_dim(dimension, input.ndim)
    length = input.shape[dim] if input.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not input.ndim:
        return input.reshape(1)[:size]
    count = (length - size) // step + 1
    shape, strides = list(input.shape), list(input.strides)
    shape[dim], strides[dim] = count, strides[dim] * step
    out = xp.lib.stride_tricks.as_strided(input, (*shape, size), (*strides, input.strides[dim]))
    if step < size and count > 1:
        out.flags.writeable = False  # an element appears in several windows
    return out


def _windows_gradient(xp: Namespace, grad: Array, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Array:
    if not input_sizes:
        return xp.add.reduce(grad)
    out = xp.zeros(input_sizes, grad.dtype)
    place = wrap_dim(dim, out.ndim)
    for k in range(0, size, step):  # parts of the windows that are neighbours, and no two at the same place
        width = min(step, size - k)
        part = windows(xp, out[at(place, slice(k, k + (grad.shape[place] - 1) * step + width))], dim, width, step)
        part += grad[..., k : k + width]
    return out


unfold = view(
    "unfold",
    forward=windows,
    vjp={
        "input": lambda xp, g, input_shape, dimension, size, step: xp.unfold_backward(
            g, input_shape, dimension, size, step
        )
    },
    batch=shifted(dims=(1,)),
    variants="function method",
)

unfold_backward = primitive(
    "unfold_backward",
    forward=_windows_gradient,
    vjp={"grad": lambda xp, g, dim, size, step: xp.unfold(g, dim, size, step)},
    jvp=LINEAR,
    batch=_batch_into,
    variants="",
)

# ---- a copy with one part replaced


def overwritten(xp: Namespace, part: Callable[..., Any], input: Array, src: Array, *where: Any) -> Array:
    """A copy of `input` whose part `part(xp, copy, *where)` is `src`."""
    out = copy_with_gaps(xp, input)
    target = part(xp, out, *where)
    if target.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(target.shape)}"
        )
    target[...] = src
    return out


def _batch_part(*dims: int) -> Batch:
    """Batching for (input, src, ...), the batch in front of both; `dims` counts the arguments to shift."""

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
        size, rank = batch_size(args, in_dims), example_rank(args[0], in_dims[0])
        others = [shift(a, rank) if k in dims else a for k, a in enumerate(args)]
        return call(expanded(args[0], in_dims[0], size), expanded(args[1], in_dims[1], size), *others[2:]), 0

    return batch


select_scatter = primitive(
    "select_scatter",
    forward=lambda xp, input, src, dim, index: overwritten(xp, select_array, input, src, dim, index),
    vjp={
        "input": lambda xp, g, src_shape, dim, index: xp.select_scatter(g, xp._zeros_for(g, src_shape), dim, index),
        "src": lambda xp, g, dim, index: xp.select_at(g, dim, index),
    },
    jvp=LINEAR,
    batch=_batch_part(2),
    variants="function method",
    order="as_computed",
)

slice_scatter = primitive(
    "slice_scatter",
    forward=lambda xp, input, src, dim=0, start=None, end=None, step=1: overwritten(
        xp, slice_array, input, src, dim, start, end, step
    ),
    vjp={
        "input": lambda xp, g, src_shape, dim, start, end, step: xp.slice_scatter(
            g, xp._zeros_for(g, src_shape), dim, start, end, step
        ),
        "src": lambda xp, g, dim, start, end, step: xp.slice(g, dim, start, end, step),
    },
    jvp=LINEAR,
    batch=_batch_part(2),
    variants="function method",
    order="as_computed",
)

diagonal_scatter = primitive(
    "diagonal_scatter",
    forward=lambda xp, input, src, offset=0, dim1=0, dim2=1: overwritten(
        xp, diagonal_array, input, src, offset, dim1, dim2
    ),
    vjp={
        "input": lambda xp, g, src_shape, offset, dim1, dim2: xp.diagonal_scatter(
            g, xp._zeros_for(g, src_shape), offset, dim1, dim2
        ),
        "src": lambda xp, g, offset, dim1, dim2: xp.diagonal(g, offset, dim1, dim2),
    },
    jvp=LINEAR,
    batch=_batch_part(3, 4),
    variants="function method",
    order="as_computed",
)


# what rules put in the place of a gradient, or of a part of it, that did not arrive
zeros_for = nondifferentiable(
    "_zeros_for",
    forward=lambda xp, input, sizes: xp.zeros(sizes, input.dtype),
    inputs=("input",),
    batch=lambda call, args, in_dims: (call(args[0], (args[0].shape[in_dims[0]], *args[1])), 0),
)
