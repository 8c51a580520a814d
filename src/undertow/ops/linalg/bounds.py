"""Slices of bounded norm, norms under their older names, and products of reflections."""

from __future__ import annotations

from typing import Any

from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import REGISTRY, composite
from undertow.tensor import Tensor


def operation(name: str) -> Any:
    return REGISTRY[name].function


@composite(variants="function method in_place", out=True)
def renorm(input: Any, p: float, dim: int, maxnorm: float) -> Any:
    """The tensor with every slice along `dim` scaled down to have a p-norm of at most `maxnorm`.

    >>> import undertow as ut
    >>> ut.renorm(ut.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    input = as_operand("renorm", "input", input)
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, got p={p}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    others = tuple(d for d in range(input.ndim) if d != wrap_dim(dim, input.ndim))
    norm = operation("linalg_vector_norm")(input, p, others, True)
    return input * operation("where")(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


@composite(out=True)
def frobenius_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The square root of the sum of squares."""
    return operation("linalg_vector_norm")(input, 2, dim, keepdim)


@composite(out=True)
def nuclear_norm(input: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """The sum of the singular values."""
    return operation("linalg_matrix_norm")(input, "nuc", dim, keepdim)


@composite
def linalg_vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Inner products of vectors along a dimension; the first is conjugated."""
    return operation("sum")(operation("conj")(x) * y, dim)


@composite(variants="function method", out=True)
def lu_solve(b: Any, LU_data: Any, LU_pivots: Any) -> Any:
    """Solve A x = b by the LU factorisation of A; `linalg.lu_solve` in its older form."""
    return operation("linalg_lu_solve")(LU_data, LU_pivots, b)


# ---- reflections


@composite
def linalg_householder_product(A: Any, tau: Any) -> Any:
    """The first columns of the product of reflections I - tau v v^H, whose vectors are the columns of A.

    Above the diagonal, and on it, the vectors are taken to be 0 and 1, as LAPACK stores them.
    """
    A, tau = as_operand("householder_product", "A", A), as_operand("householder_product", "tau", tau)
    m, n = A.shape[-2:]
    if m < n:
        raise RuntimeError(
            f"torch.linalg.householder_product: input.shape[-2] must be >= input.shape[-1], got {m}, {n}"
        )
    if tau.shape[-1] > n:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    eye = Tensor(A._xp.eye(m, n, dtype=A.dtype), A._xp)
    vectors = operation("tril")(A, -1) + eye
    matmul, out = operation("matmul"), eye
    for k in reversed(range(tau.shape[-1])):
        v = operation("slice")(vectors, -1, k, k + 1)
        scale = operation("unsqueeze")(operation("slice")(tau, -1, k, k + 1), -1)
        out = out - scale * matmul(v, matmul(operation("adjoint")(v), out))
    return out


@composite(variants="function method", out=True)
def orgqr(input: Any, tau: Any) -> Any:
    """`linalg.householder_product` under its older name."""
    return linalg_householder_product(input, tau)
