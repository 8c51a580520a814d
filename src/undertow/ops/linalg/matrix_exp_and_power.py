"""Powers of square matrices, and their exponential, by scaling and squaring of a Pade approximation (Higham, 2005).

And Vandermonde's matrices, of the powers of numbers.
"""

from __future__ import annotations

from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import as_int
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.inplace.overwriting import copy
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.inverse_and_solve import linalg_inv
from undertow.ops.linalg.matmul import matmul
from undertow.ops.linalg.rule_parts import adjoint, batch_matrices
from undertow.ops.reduce.cumulative import cumprod
from undertow.ops.shape.flip_roll import flip
from undertow.ops.shape.joining import cat
from undertow.ops.views.clone import clone
from undertow.ops.views.dimensions import expand, unsqueeze
from undertow.tensor import Tensor
from undertow.tensor.memory_formats import contiguous_format

#: of the numerator of degree 13, lowest power first
PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
#: up to this norm, the approximation is exact in double precision
THETA = 5.371920351148152


def exponential(xp: Namespace, A: Array) -> Array:
    check_matrices("linalg.matrix_exp", A)
    if not A.size:
        return A.copy()
    norms = xp.max(xp.sum(xp.abs(A), axis=-2), axis=-1)
    with xp.errstate(all="ignore"):
        halvings = xp.ceil(xp.log2(norms / THETA))
    halvings = xp.where(halvings > 0, halvings, 0)
    halvings = xp.where(xp.isfinite(halvings), halvings, 0).astype(int)[..., None, None]
    out = _pade_quotient(xp, A * xp.exp2(-halvings).astype(norms.dtype))
    for k in range(int(halvings.max())):
        out = xp.where(k < halvings, xp.matmul(out, out), out)
    return out


def _pade_quotient(xp: Namespace, A: Array) -> Array:
    b = PADE
    identity = xp.eye(A.shape[-1], dtype=A.dtype)
    A2 = xp.matmul(A, A)
    A4 = xp.matmul(A2, A2)
    A6 = xp.matmul(A2, A4)
    odd = xp.matmul(A6, b[13] * A6 + b[11] * A4 + b[9] * A2) + b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * identity
    even = xp.matmul(A6, b[12] * A6 + b[10] * A4 + b[8] * A2) + b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * identity
    odd = xp.matmul(A, odd)
    return xp.linalg.solve(even - odd, even + odd)


def derivative(xp: Namespace, A: Array, t: Array) -> Array:
    """The change of exp(A) with A along t: the upper right block of exp([[A, t], [0, A]])."""
    n = A.shape[-1]
    above = xp.concatenate([A, t], axis=-1)
    below = xp.concatenate([xp.zeros_like(A), A], axis=-1)
    whole = xp.linalg_matrix_exp(xp.concatenate([above, below], axis=-2))
    return xp.slice(xp.slice(whole, -2, 0, n), -1, n, 2 * n)


linalg_matrix_exp = primitive(
    "linalg_matrix_exp",
    forward=exponential,
    vjp={"A": lambda xp, g, A: derivative(xp, adjoint(xp, A), g)},
    jvp={"A": lambda xp, t, A: derivative(xp, A, t)},
    batch=batch_matrices,
    out=False,
)


@composite(variants="function method")
def matrix_exp(input: Array) -> Tensor:
    """The exponential of square matrices: the sum of their powers A^k / k!.

    >>> import undertow as ut
    >>> ut.matrix_exp(ut.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return linalg_matrix_exp(input)


@composite(variants="function method", out=True)
def matrix_power(input: Array, n: int) -> Array:
    """The matrix multiplied with itself n times; negative powers are those of the inverse.

    >>> import undertow as ut
    >>> ut.matrix_power(ut.tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    input = as_operand("matrix_power", "input", input)
    _check_square("linalg.matrix_power", input)
    n = as_int("matrix_power", "n", n)
    if n == 0:
        eye = copy(input, Tensor(input._xp.eye(input.shape[-1], dtype=input.dtype), input._xp))
        return rearranged(eye, "rows", ())
    if n < 0:
        return _positive_power(linalg_inv(input), -n)
    return clone(input, memory_format=contiguous_format) if n == 1 else _positive_power(input, n)


def _check_square(name: str, A: Array) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if A.shape[-1] != A.shape[-2]:
        n, m = A.shape[-2:]
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {n} by {m} matrices")


def _positive_power(matrix: Array, n: int) -> Array:
    """By squaring: one factor for each binary digit of n that is 1."""
    result = None
    while n:
        if n % 2:
            result = matrix if result is None else matmul(result, matrix)
        n //= 2
        if n:
            matrix = matmul(matrix, matrix)
    return result


# ---- powers of numbers


@composite(out=False)
def linalg_vander(x: Array, *, N: int | None = None) -> Tensor:
    """The powers 0, 1, ..., N - 1 of the elements of x, along one more dimension.

    >>> import undertow as ut
    >>> ut.linalg.vander(ut.tensor([2, 3]), N=3).tolist()
    [[1, 2, 4], [1, 3, 9]]
    """
    x = as_operand("linalg.vander", "x", x)
    x = x if x.ndim else unsqueeze(x, 0)
    N = x.shape[-1] if N is None else N
    if N <= 1:
        raise RuntimeError("N must be greater than 1.")
    repeated = expand(unsqueeze(x, -1), (*x.shape, N - 1))
    powers = cumprod(repeated, -1)
    return cat([recorded.ones_like(unsqueeze(x, -1)), powers], -1)


@composite
def vander(x: Array, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector as columns, the highest first unless `increasing`.

    x  a vector of n elements
    N  how many columns; n by default

    >>> import undertow as ut
    >>> ut.vander(ut.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 1., 1.],
            [4., 2., 1.],
            [9., 3., 1.]])
    """
    x = as_operand("vander", "x", x)
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    N = x.shape[0] if N is None else N
    if N < 0:
        raise RuntimeError("N must be non-negative.")
    if N < 2:
        return recorded.ones_like(expand(unsqueeze(x, -1), (x.shape[0], N)))
    powers = linalg_vander(x, N=N)
    return powers if increasing else flip(powers, (1,))
