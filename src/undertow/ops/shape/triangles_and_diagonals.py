"""tril and triu, and matrices with a given diagonal: diag, diag_embed, diagflat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.views.reshape import ravel
from undertow.ops.views.slices import diagonal_array

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def _triangle(name: str, **options: Any) -> Any:
    def forward(xp: Namespace, input: Array, diagonal: int = 0) -> Any:
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        found = kernels.triangle(xp, input, diagonal, name == "triu")
        return xp.asarray(getattr(xp, name)(input, diagonal), order="C") if found is None else found

    return primitive(
        name,
        forward=forward,
        vjp={"input": lambda xp, g, diagonal: getattr(xp, name)(g, diagonal)},
        jvp=LINEAR,
        batch=shifted(least=2),
        **options,
    )


tril = _triangle("tril", variants="function method in_place", same_in_numpy=True)


triu = _triangle("triu", variants="function method in_place", same_in_numpy=True)


def _embed_diagonal(xp: Namespace, input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    ndim = input.ndim + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = list(input.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, input.shape[-1] + abs(offset))
    out = xp.zeros(shape, input.dtype)
    diagonal_array(xp, out, offset, first, second)[...] = input
    return out


def _batch_embed(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    return call(input, args[1], *[wrap_dim(d, input.ndim) + 1 for d in args[2:]]), 0


diag_embed = primitive(
    "diag_embed",
    forward=_embed_diagonal,
    vjp={"input": lambda xp, g, offset, dim1, dim2: xp.diagonal(g, offset, dim1, dim2)},
    jvp=LINEAR,
    batch=_batch_embed,
    variants="function method",
)


diagonal_copy = primitive(
    "diagonal_copy",
    forward=lambda xp, input, offset=0, dim1=0, dim2=1: diagonal_array(xp, input, offset, dim1, dim2).copy(),
    vjp={
        "input": lambda xp, g, input_shape, offset, dim1, dim2: xp.diagonal_backward(g, input_shape, offset, dim1, dim2)
    },
    jvp=LINEAR,
    batch=shifted(dims=(2, 3)),
    node="DiagonalBackward0_copy",
)


@composite(variants="function method", out=True)
def diag(input: Array, diagonal: int = 0) -> Array:
    """A matrix with the given vector on a diagonal; of a matrix, a copy of that diagonal.

    >>> import undertow as ut
    >>> ut.diag(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    if input.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diag_embed(input, diagonal) if input.ndim == 1 else diagonal_copy(input, diagonal)


@composite(variants="function method")
def diagflat(input: Array, offset: int = 0) -> Array:
    """A matrix with all elements of the tensor on a diagonal.

    offset  which diagonal: above the main one if positive, below it if negative

    >>> import undertow as ut
    >>> ut.diagflat(ut.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return diag(ravel(input), offset)
