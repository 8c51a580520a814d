"""QR factorisations as products of reflections I - tau v v^H, and what can be multiplied with them."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive, return_types
from undertow.ops.declare.rules import LOOP
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.matmul import matmul
from undertow.ops.pointwise.arithmetic import add
from undertow.ops.pointwise.complex import conj
from undertow.ops.shape.triangles_and_diagonals import tril
from undertow.ops.views.dimensions import adjoint, expand, unsqueeze
from undertow.ops.views.slices import narrow, slice_
from undertow.tensor import Tensor


def _reflections(xp: Namespace, input: Array) -> tuple[Array, ...]:
    check_matrices("geqrf", input, square=False)
    *lead, m, n = input.shape
    stack = input.reshape(math.prod(lead), m, n)
    found = [xp.linalg.qr(matrix, mode="raw") for matrix in stack]  # of the transposed matrix
    a = xp.stack([h.T for h, _ in found]) if found else stack.copy()
    tau = xp.stack([t for _, t in found]) if found else xp.empty((0, min(m, n)), input.dtype)
    return a.reshape(*lead, m, n), tau.reshape(*lead, min(m, n))


def refuse(xp: Namespace, g: Array) -> Any:
    raise NotDifferentiableError("geqrf", "Use linalg.qr, which has a derivative.")


_geqrf = primitive(
    "_geqrf",
    forward=_reflections,
    vjp={"input": refuse},
    jvp={"input": refuse},
    batch=LOOP,
    node="GeqrfBackward0",
    outputs=("a", "tau"),
    order="columns rows",
)


@composite(variants="function method", out=True)
def geqrf(input: Array) -> Any:
    """The reflections whose product is Q, below the diagonal of `a`, R on and above it; and their factors: (a, tau).

    >>> import undertow as ut
    >>> ut.geqrf(ut.tensor([[3.0], [4.0]])).a
    tensor([[-5.0000],
            [ 0.5000]])
    """
    return return_types.geqrf(_geqrf(as_operand("geqrf", "input", input)))


@composite(variants="function method", out=True, order="columns")
def ormqr(input: Array, tau: Array, other: Array, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other, or other @ Q if not `left`, for the Q of `geqrf` (its adjoint, if `transpose`), which is not formed.

    tau  (..., k): the factors, which `geqrf` also returns

    >>> import undertow as ut
    >>> a, tau = ut.geqrf(ut.tensor([[3.0], [4.0]]))
    >>> ut.ormqr(a, tau, ut.tensor([[3.0], [4.0]]), transpose=True).round()
    tensor([[-5.],
            [ 0.]])
    """
    input, tau, other = (as_operand("ormqr", name, x) for name, x in (("input", input), ("tau", tau), ("other", other)))
    _check_ormqr(input, tau, other, left)
    if not left:
        turned = ormqr(input, tau, adjoint(other), True, not transpose)
        return adjoint(turned)
    m, count = input.shape[-2], tau.shape[-1]
    eye = Tensor(input._xp.eye(m, input.shape[-1], dtype=input.dtype), input._xp)
    vectors = add(tril(input, -1), eye)
    out = other
    for k in range(count) if transpose else reversed(range(count)):
        v = narrow(vectors, -1, k, 1)
        scale = unsqueeze(narrow(tau, -1, k, 1), -1)
        scale = conj(scale) if transpose else scale
        out = out - scale * matmul(v, matmul(adjoint(v), out))
    return out


def _check_ormqr(input: Array, tau: Array, other: Array, left: bool) -> None:
    for name, x, least in (("input", input, 2), ("tau", tau, 1), ("other", other, 2)):
        if x.ndim < least:
            raise RuntimeError(f"torch.ormqr: {name} must have at least {least} dimensions, got {x.ndim}")
    side = -2 if left else -1
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]: got {other.shape[side]} and "
            f"{input.shape[-2]}"
        )
    if tau.shape[-1] > min(input.shape[-2:]):
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be less than or equal to the sizes of input's matrices")


# ---- the product itself


@composite(order="columns")
def linalg_householder_product(A: Array, tau: Array) -> Array:
    """The first columns of the product of reflections I - tau v v^H, whose vectors are the columns of A.

    Above the diagonal, and on it, the vectors are taken to be 0 and 1, as LAPACK stores them.

    >>> import undertow as ut
    >>> ut.linalg.householder_product(ut.zeros(2, 2), ut.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
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
    vectors = tril(A, -1) + eye
    out = expand(eye, A.shape)
    if not tau.shape[-1]:  # no reflection: a sum of nothing, whose derivatives by A and tau are zeros
        v = slice_(vectors, -1, 0, 0)
        return out - matmul(v * unsqueeze(tau, -2), slice_(adjoint(v), -1, 0, n))
    for k in reversed(range(tau.shape[-1])):
        v = slice_(vectors, -1, k, k + 1)
        scale = unsqueeze(slice_(tau, -1, k, k + 1), -1)
        out = out - scale * matmul(v, matmul(adjoint(v), out))
    return out


@composite(variants="function method", out=True)
def orgqr(input: Array, tau: Array) -> Array:
    """`linalg.householder_product` under its older name.

    tau  (..., k): the factors, which `geqrf` also returns

    >>> import undertow as ut
    >>> ut.orgqr(*ut.geqrf(ut.eye(2))).shape
    undertow.Size([2, 2])
    """
    return linalg_householder_product(input, tau)
