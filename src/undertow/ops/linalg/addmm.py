"""A product added to a tensor: beta * input + alpha * (product of the other two)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import large_arrays
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import type_name
from undertow.ops.declare import primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import in_front, padded
from undertow.ops.linalg.checks import check_bmm, check_inner, check_mv
from undertow.ops.linalg.einsum_and_tensordot import einsum_batched, einsum_pair
from undertow.ops.linalg.matmul import multiply_batches
from undertow.ops.pointwise.arithmetic import add, mul
from undertow.ops.views.dimensions import expanded_sizes

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def _add_scaled(input: Array, product: Array, beta: Any, alpha: Any) -> Array:
    """beta * input + alpha * product, in the memory of `product`; with beta 0, NaNs in input are ignored."""
    if input.dtype is not product.dtype or input.shape not in (product.shape, product.shape[-1:]):
        _check_addend(input, product)
    if alpha != 1:
        product *= _factor_for(product, "alpha", alpha)
    if beta == 1:
        product += input
    elif beta != 0:
        product += _factor_for(product, "beta", beta) * input
    return product


def _factor_for(product: Array, name: str, number: Any) -> Any:
    """The number, if it may be a factor of this array; of truth values it is one itself."""
    if type(number) is float and product.dtype.kind not in "fc":
        raise RuntimeError(
            f"For integral input tensors, argument {name} must not be a floating point number. Convert the tensors to "
            "a floating-point dtype first."
        )
    return bool(number) if product.dtype.kind == "b" else number


def _check_addend(input: Array, product: Array) -> None:
    if input.dtype != product.dtype:
        names = type_name(input), type_name(product)
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {names[0]} and {names[1]}")
    expanded_sizes(input.shape, product.shape)


def _check_matrices(mat1: Array, mat2: Array) -> None:
    for matrix, name in ((mat1, "mat1"), (mat2, "mat2")):
        if matrix.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix, got {matrix.ndim}-D tensor")
    _check_one_dtype("mat1", mat1, "mat2", mat2)
    check_inner(mat1.shape, mat2.shape)


def _check_one_dtype(name1: str, x: Array, name2: str, y: Array) -> None:
    if x.dtype != y.dtype:
        names = type_name(x), type_name(y)
        raise RuntimeError(f"{name1} and {name2} must have the same dtype, but got {names[0]} and {names[1]}")


def scaled(xp: Namespace, x: Array, factor: Any) -> Array:
    """A gradient times a factor of the forward pass."""
    return x if factor == 1 else x * xp.conj(factor)


def _batched_by(equation: str) -> Callable[..., tuple[Any, int]]:
    """The batching rule for a product that is the einsum `equation` of the last two operands."""
    rank = len(equation.partition("->")[2])

    def batch(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
        input, first, second, beta, alpha = args
        if in_dims[1] is None and in_dims[2] is None:
            product = einsum_pair(first, second, equation)
        else:
            product = einsum_batched(equation, (first, second), in_dims[1:3])
        if in_dims[0] is not None:
            input = padded(in_front(input, in_dims[0]), rank)
            product = product if beta else recorded.broadcast_to(product, (input.shape[0], *product.shape[-rank:]))
        product = mul(product, alpha) if alpha != 1 else product
        if beta == 0:
            return product, 0
        return add(product, input if beta == 1 else mul(input, beta)), 0

    return batch


def _forward_addmm(xp: Namespace, input: Array, mat1: Array, mat2: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    if mat1.dtype is not mat2.dtype or mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        _check_matrices(mat1, mat2)
    return _add_scaled(input, large_arrays.dot(mat1, mat2), beta, alpha)


addmm = primitive(
    "addmm",
    forward=_forward_addmm,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "mat1": lambda xp, g, mat2, alpha: scaled(xp, xp.mm(g, xp.t(xp.conj(mat2))), alpha),
        "mat2": lambda xp, g, mat1, alpha, mat2_by_columns: scaled(
            xp, xp.t(xp.mm(xp.t(g), xp.conj(mat1))) if mat2_by_columns else xp.mm(xp.t(xp.conj(mat1)), g), alpha
        ),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "mat1": lambda xp, t, mat2, alpha: xp.mm(t, mat2) * alpha,
        "mat2": lambda xp, t, mat1, alpha: xp.mm(mat1, t) * alpha,
    },
    batch=_batched_by("ij,jk->ik"),
    variants="function method in_place",
    autocast="lower",
)


def _forward_addmv(xp: Namespace, input: Array, mat: Array, vec: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    check_mv(mat, vec)
    if input.ndim > 1 or input.shape not in ((), (1,), mat.shape[:1]):
        n, m = mat.shape
        raise RuntimeError(f"size mismatch, got input ({input.shape[0]}), mat ({n}x{m}), vec ({vec.shape[0]})")
    return _add_scaled(input, mat.dot(vec), beta, alpha)


addmv = primitive(
    "addmv",
    forward=_forward_addmv,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "mat": lambda xp, g, vec, alpha: scaled(xp, xp.outer(g, xp.conj(vec)), alpha),
        "vec": lambda xp, g, mat, alpha: scaled(xp, xp.mv(xp.t(xp.conj(mat)), g), alpha),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "mat": lambda xp, t, vec, alpha: xp.mv(t, vec) * alpha,
        "vec": lambda xp, t, mat, alpha: xp.mv(mat, t) * alpha,
    },
    batch=_batched_by("ij,j->i"),
    variants="function method in_place in_place_function",
)


def _forward_addr(xp: Namespace, input: Array, vec1: Array, vec2: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    for vector, name in ((vec1, "vec1"), (vec2, "vec2")):
        if vector.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector.ndim}-D")
    return _add_scaled(input, vec1[:, None] * vec2, beta, alpha)


addr = primitive(
    "addr",
    forward=_forward_addr,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "vec1": lambda xp, g, vec2, alpha: scaled(xp, xp._einsum_pair(g, xp.conj(vec2), "ij,j->i"), alpha),
        "vec2": lambda xp, g, vec1, alpha: scaled(xp, xp._einsum_pair(g, xp.conj(vec1), "ij,i->j"), alpha),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "vec1": lambda xp, t, vec2, alpha: xp.outer(t, vec2) * alpha,
        "vec2": lambda xp, t, vec1, alpha: xp.outer(vec1, t) * alpha,
    },
    batch=_batched_by("i,j->ij"),
    promote="same",
    variants="function method in_place",
    order="first",
)


def _forward_baddbmm(
    xp: Namespace, input: Array, batch1: Array, batch2: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    return _add_scaled(input, multiply_batches(xp, batch1, batch2), beta, alpha)


baddbmm = primitive(
    "baddbmm",
    forward=_forward_baddbmm,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "batch1": lambda xp, g, batch2, alpha: scaled(xp, xp.bmm(g, xp.swapaxes(xp.conj(batch2), 1, 2)), alpha),
        "batch2": lambda xp, g, batch1, alpha: scaled(xp, xp.bmm(xp.swapaxes(xp.conj(batch1), 1, 2), g), alpha),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "batch1": lambda xp, t, batch2, alpha: xp.bmm(t, batch2) * alpha,
        "batch2": lambda xp, t, batch1, alpha: xp.bmm(batch1, t) * alpha,
    },
    batch=_batched_by("aij,ajk->aik"),
    variants="function method in_place",
    autocast="lower",
)


def _forward_addbmm(
    xp: Namespace, input: Array, batch1: Array, batch2: Array, *, beta: Any = 1, alpha: Any = 1
) -> Array:
    if batch1.ndim == batch2.ndim == 3 and batch1.shape[0] != batch2.shape[0]:
        sizes = f"{batch1.shape[0]} and {batch2.shape[0]}"
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {sizes}")
    check_bmm(batch1, batch2)
    return _add_scaled(input, xp._einsum_pair(batch1, batch2, "aij,ajk->ik"), beta, alpha)


addbmm = primitive(
    "addbmm",
    forward=_forward_addbmm,
    vjp={
        "input": lambda xp, g, beta: scaled(xp, g, beta),
        "batch1": lambda xp, g, batch2, alpha: scaled(xp, xp._einsum_pair(g, xp.conj(batch2), "ik,ajk->aij"), alpha),
        "batch2": lambda xp, g, batch1, alpha: scaled(xp, xp._einsum_pair(g, xp.conj(batch1), "ik,aij->ajk"), alpha),
    },
    jvp={
        "input": lambda xp, t, beta: t * beta,
        "batch1": lambda xp, t, batch2, alpha: xp._einsum_pair(t, batch2, "aij,ajk->ik") * alpha,
        "batch2": lambda xp, t, batch1, alpha: xp._einsum_pair(batch1, t, "aij,ajk->ik") * alpha,
    },
    batch=_batched_by("aij,ajk->ik"),
    variants="function method in_place",
    autocast="lower",
)
