"""Between the layouts of tensors: dense, sparse by coordinates, sparse by compressed rows or columns.

Every conversion keeps all gradients: the gradient of what is converted comes back in the layout that it was converted
from. See backend/sparse/compressed.py for what a Form is.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.sparse.compressed import (
    OF_BLOCKS,
    STRIDED,
    CompressedArray,
    Form,
    form_of,
    is_compressed,
    masked,
    to_form,
)
from undertow.backend.sparse.coo import is_sparse
from undertow.backend.sparse.protocol import layout_title
from undertow.ops.create.convert import convert
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.sparse.coo import refuse_batch, refuse_simulated
from undertow.tensor import Tensor
from undertow.tensor.layouts import layout as Layout
from undertow.tensor.layouts import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr


def _restored(xp: Namespace, g: Array, form: Form) -> Array:
    """What a rule has in its hands, in the form of the tensor that it is the gradient of."""
    here = form_of(g)
    return g if here == form else xp._to_form(g, form, here)


def _conversion(name: str, node: str) -> Any:
    """form: what to convert to; origin: what it is converted from, which the gradient goes back to."""
    return primitive(
        name,
        forward=lambda xp, input, form, origin: to_form(input, form),
        vjp={"input": lambda xp, g, origin: _restored(xp, g, origin)},
        jvp=LINEAR,
        batch=refuse_batch,
        node=node,
    )


_to_form = _conversion("_to_form", "ToFormBackward0")
_to_sparse_dim = _conversion("_to_sparse_dim", "ToSparseBackward0")
_to_sparse = _conversion("_to_sparse", "ToSparseBackward1")
COMPRESSING = {
    f"sparse_{kind}": _conversion(f"_to_sparse_{kind}", f"ToSparse{kind.capitalize()}Backward0")
    for kind in ("csr", "csc", "bsr", "bsc")
}


# ---- to dense


def _dense_gradient(xp: Namespace, g: Array, input: Array, masked_grad: bool) -> Array:
    if masked_grad:
        return at_places_of(xp, g, xp._coalesce(input))
    return _restored(xp, g, form_of(input))


_to_dense = primitive(
    "_to_dense",
    forward=lambda xp, input, masked_grad=True: to_form(input, STRIDED),
    vjp={"input": _dense_gradient},
    jvp=LINEAR,
    batch=refuse_batch,
    node="ToDenseBackward0",
)


@composite(variants="")
def to_dense(input: Array, dtype: DType | None = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor with all of its elements; itself if it is dense.

    masked_grad  the gradient has values only where the sparse tensor has; False: wherever it is not zero

    >>> import undertow as ut
    >>> ut.tensor([0.0, 2.0]).to_sparse().to_dense()
    tensor([0., 2.])
    """
    result: Tensor = input if form_of(input) == STRIDED else _to_dense(input, masked_grad)
    return result if dtype is None else convert(result, dtypes.as_dtype(dtype, "to_dense"), result._xp)


# ---- to sparse


@composite(variants="")
def to_sparse(
    input: Array, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Tensor:
    """The tensor without its zeros; itself if it has the layout.

    sparse_dim  how many of the leading dimensions become sparse, by default all; of the others, blocks are kept
    layout      sparse_coo (default), sparse_csr, sparse_csc, sparse_bsr or sparse_bsc
    blocksize   the rows and columns of the blocks of sparse_bsr and sparse_bsc
    dense_dim   how many of the trailing dimensions stay dense: 0 by default

    >>> import undertow as ut
    >>> ut.tensor([0.0, 2.0, 0.0]).to_sparse().indices()
    tensor([[1]])
    >>> ut.eye(2).to_sparse(layout=ut.sparse_csr).crow_indices()
    tensor([0, 1, 2])
    """
    if isinstance(sparse_dim, Layout):
        layout, sparse_dim = sparse_dim, None
    if layout is not None and layout is not sparse_coo:
        return _to_compressed(input, layout.name, blocksize, dense_dim)
    if blocksize is not None:
        raise RuntimeError("to_sparse: a blocksize is for the layouts sparse_bsr and sparse_bsc")
    if is_compressed(input):
        return _uncompressed(input, sparse_dim)
    return _to_coo(input, sparse_dim, dense_dim)


def _to_coo(input: Tensor, sparse_dim: int | None, dense_dim: int | None) -> Tensor:
    ndim, given = input._array.ndim, sparse_dim is not None
    count = ndim - (dense_dim or 0) if sparse_dim is None else sparse_dim
    if not 0 <= count <= ndim:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{ndim}] range, but {count} is given")
    if ndim and not count:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    if is_sparse(input):
        return _same_sparse(input, count, given)
    refuse_simulated(input)
    result: Tensor = (_to_sparse_dim if given else _to_sparse)(input, Form("sparse_coo", count), STRIDED)
    return result


def _same_sparse(input: Tensor, sparse_dim: int, given: bool) -> Tensor:
    if given and sparse_dim != input._array.sparse_dim:
        raise RuntimeError(
            "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not "
            "supported: call to_dense() first"
        )
    return input


def _uncompressed(input: Tensor, sparse_dim: int | None) -> Tensor:
    array: CompressedArray = input._array
    if sparse_dim not in (None, 2):
        raise RuntimeError(
            f"sparse_compressed_to_sparse: conversion from {layout_title(array.layout)} to Sparse with sparse_dim "
            "argument !=2 is not supported"
        )
    result: Tensor = _to_sparse(input, Form("sparse_coo", array.batch_dim + 2), form_of(input))
    return result


# ---- to compressed layouts


def _to_compressed(input: Tensor, layout: str, blocksize: Any, dense_dim: int | None) -> Tensor:
    origin = form_of(input)
    count = _sparse_dims(input, origin, layout, dense_dim)
    form = Form(layout, count, _checked_blocks(input, count, layout, blocksize))
    if form == origin:
        return input
    refuse_simulated(input)
    result: Tensor = COMPRESSING[layout](input, form, origin)
    return result


def _sparse_dims(input: Tensor, origin: Form, layout: str, dense_dim: int | None) -> int:
    """How many dimensions, batches and the two of the matrices, the places of the result have."""
    title = layout_title(layout)
    if origin != STRIDED and dense_dim is not None:
        raise RuntimeError(f"to_{layout}: conversion from {layout_title(origin.layout)} with dense_dim argument given")
    if origin.layout == "sparse_coo" and origin.sparse_dim != 2:
        raise RuntimeError(
            f"coo_to_{layout}: conversion from Sparse to {title} for input tensors with sparse_dim()!=2 is not "
            "supported: call to_dense() first"
        )
    count = origin.sparse_dim or input._array.ndim - (dense_dim or 0)
    if count < 2 or (dense_dim or 0) < 0:
        raise RuntimeError(
            f"dense_to_{layout}: {title} layout has two sparse dimensions at least, but got a tensor of "
            f"{input._array.ndim} dimensions, of which {dense_dim or 0} are to be dense"
        )
    return count


def _checked_blocks(input: Tensor, count: int, layout: str, blocksize: Any) -> tuple[int, int] | None:
    """The size of the blocks, for the layouts that have any."""
    given = "without" if blocksize is None else "with"
    if (blocksize is None) == (layout in OF_BLOCKS):
        raise RuntimeError(
            f"dense_to_sparse: conversion to {layout_title(layout)} {given} blocksize argument given is not supported"
        )
    if blocksize is None:
        return None
    sizes = (blocksize, blocksize) if isinstance(blocksize, int) else tuple(blocksize)
    if len(sizes) != 2:
        raise RuntimeError(
            f"dense_to_{layout}: blocksize needs to be a tuple of size 2, but got {len(sizes)}: give rows and columns"
        )
    (rows, cols), (height, width) = input._array.shape[count - 2 : count], sizes
    if height < 1 or width < 1 or rows % height or cols % width:
        raise RuntimeError(
            f"dense_to_{layout}: tensor sparse size ({rows},{cols}) must be divisible by given blocksize "
            f"({height},{width})"
        )
    return sizes


@composite(variants="")
def to_sparse_csr(input: Array, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of matrices, by compressed rows.

    dense_dim  how many of the last dimensions belong to each element

    >>> import undertow as ut
    >>> ut.tensor([[0.0, 5.0], [6.0, 7.0]]).to_sparse_csr().col_indices()
    tensor([1, 0, 1])
    """
    return to_sparse(input, layout=sparse_csr, dense_dim=dense_dim)


@composite(variants="")
def to_sparse_csc(input: Array, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of matrices, by compressed columns.

    dense_dim  how many of the last dimensions belong to each element

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse_csc().layout
    undertow.sparse_csc
    """
    return to_sparse(input, layout=sparse_csc, dense_dim=dense_dim)


@composite(variants="")
def to_sparse_bsr(input: Array, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of matrices, by compressed rows of blocks.

    blocksize  height and width of the blocks, which divide those of the matrix
    dense_dim  how many of the last dimensions belong to each element

    >>> import undertow as ut
    >>> ut.eye(4).to_sparse_bsr((2, 2)).values().shape
    undertow.Size([2, 2, 2])
    """
    return to_sparse(input, layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@composite(variants="")
def to_sparse_bsc(input: Array, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of matrices, by compressed columns of blocks.

    blocksize  height and width of the blocks, which divide those of the matrix
    dense_dim  how many of the last dimensions belong to each element

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse_bsc((1, 1)).row_indices()
    tensor([0, 1])
    """
    return to_sparse(input, layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


# ---- picking what another sparse tensor has


def at_places_of(xp: Namespace, x: Array, mask: Array) -> Array:
    """What a rule has in its hands, dense or sparse, at the places of a sparse tensor and in its layout."""
    return xp._sparse_mask(x, mask, form_of(x))


_sparse_mask = primitive(
    "_sparse_mask",
    forward=lambda xp, input, mask, origin: masked(input, mask),
    vjp={"input": lambda xp, g, mask, origin: _restored(xp, at_places_of(xp, g, mask), origin), "mask": None},
    jvp=LINEAR,
    batch=refuse_batch,
    node="SparseMaskBackward0",
)


@composite
def sparse_mask(input: Array, mask: Array) -> Tensor:
    """The elements of the tensor, dense or sparse, at the places of the sparse tensor `mask`, in the layout of that.

    >>> import undertow as ut
    >>> ut.tensor([1.0, 2.0, 3.0]).sparse_mask(ut.tensor([0.0, 1.0, 0.0]).to_sparse()).to_dense()
    tensor([0., 2., 0.])
    """
    if form_of(mask) == STRIDED:
        raise RuntimeError("sparse_mask: expected the mask to have a sparse layout but got Strided: call to_sparse()")
    if input._array.shape != mask._array.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(input._array.shape)} but mask has "
            f"size {list(mask._array.shape)}"
        )
    result: Tensor = _sparse_mask(input, mask, form_of(input))
    return result


def to_sparse_coo(self: Tensor) -> Any:
    """As `to_sparse()`: coordinates and values of what is not zero.

    >>> import undertow as ut
    >>> ut.eye(2).to_sparse_coo().layout
    undertow.sparse_coo
    """
    return to_sparse(self)


#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "sparse_mask": sparse_mask, "to_dense": to_dense, "to_sparse": to_sparse, "to_sparse_bsc": to_sparse_bsc,
    "to_sparse_bsr": to_sparse_bsr, "to_sparse_coo": to_sparse_coo, "to_sparse_csc": to_sparse_csc,
    "to_sparse_csr": to_sparse_csr,
}  # fmt: skip
