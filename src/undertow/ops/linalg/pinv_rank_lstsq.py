"""The pseudoinverse of matrices, systems with too many or too few equations, and the rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import broadcast_shapes
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite, nondifferentiable, primitive, return_types
from undertow.ops.declare.composite_order import moved
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import in_front, padded
from undertow.ops.linalg.checks import check_matrices
from undertow.ops.linalg.inverse_and_solve import are_vectors
from undertow.ops.linalg.matmul import matmul
from undertow.ops.linalg.rule_parts import adjoint, checked_svd
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def _default_rtol(A: Array) -> float:
    return max(A.shape[-2:]) * float(A._xp.finfo(A.dtype).eps)


def _cutoff(xp: Namespace, sizes: Sequence[int], atol: Array, rtol: Array) -> Array:
    """The size from which on a singular value counts, one for each matrix."""
    largest = xp.max(sizes, axis=-1, initial=0)
    return xp.maximum(atol, rtol * largest)[..., None]


def _batch_with_tolerances(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """The batch in front of the matrices, and in front of every dimension that the tolerances have beyond theirs."""
    matrices, atol, rtol, *rest = args
    rank = 2 + max(getattr(tolerance, "ndim", 0) for tolerance in (atol, rtol))
    return op(padded(in_front(matrices, in_dims[0]), rank), atol, rtol, *rest), 0


# ---- the pseudoinverse


def _pseudoinverse(xp: Namespace, input: Array, atol: Any, rtol: Array, hermitian: bool = False) -> Array:
    if hermitian:
        values, right = xp.linalg.eigh(input)
        left = right
    else:
        left, values, right = checked_svd(xp, input, full_matrices=False)
        right = adjoint(xp, right)
    large = xp.abs(values) > _cutoff(xp, xp.abs(values), atol, rtol)
    inverses = xp.where(large, 1 / xp.where(large, values, 1), 0).astype(values.dtype)
    return xp.matmul(right * inverses[..., None, :], adjoint(xp, left))


def _pinv_gradient(xp: Namespace, g: Array, input: Array, out: Array) -> Array:
    g, P = adjoint(xp, g), out
    Ph = adjoint(xp, P)
    inner = xp.matmul(P, xp.matmul(g, P))
    left = xp.matmul(g - xp.matmul(input, xp.matmul(P, g)), xp.matmul(P, Ph))
    right = xp.matmul(xp.matmul(Ph, P), g - xp.matmul(xp.matmul(g, P), input))
    return left + right - adjoint(xp, inner)


def _pinv_tangent(xp: Namespace, t: Array, input: Array, out: Array) -> Array:
    P, th = out, adjoint(xp, t)
    Ph = adjoint(xp, P)
    inner = xp.matmul(P, xp.matmul(t, P))
    left = xp.matmul(xp.matmul(P, Ph), th - xp.matmul(xp.matmul(th, input), P))
    right = xp.matmul(th - xp.matmul(P, xp.matmul(input, th)), xp.matmul(Ph, P))
    return left + right - inner


# valid where the rank does not change
pinv_of = primitive(
    "_pinv",
    forward=_pseudoinverse,
    vjp={"input": _pinv_gradient},
    jvp={"input": _pinv_tangent},
    batch=_batch_with_tolerances,
    node="LinalgPinvBackward0",
    autocast="float32",
)


@composite
@example_by_example
def linalg_pinv(
    A: Array, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Array | None = None
) -> Tensor:
    """The pseudoinverse: singular values up to max(atol, rtol * the largest) are taken to be 0.

    atol, rtol  a number for all matrices, or a tensor with one for each; rcond is an older name of rtol

    >>> import undertow as ut
    >>> ut.linalg.pinv(ut.tensor([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    A = as_operand("linalg.pinv", "A", A)
    if A.ndim < 2 or not dtypes.is_differentiable(A.dtype):
        kind = f"{dtypes.SCALAR_NAMES[A.dtype]}{{{list(A.shape)}}}"
        raise RuntimeError(
            f"linalg.pinv({kind}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble "
            "types"
        )
    if hermitian:
        check_matrices("linalg.pinv", A)
    return pinv_of(A, *_tolerances(A, atol, rcond if rtol is None else rtol), bool(hermitian))


def _tolerances(A: Array, atol: Array | None, rtol: Array | None) -> tuple[Any, Any]:
    """Numbers, or arrays with one for each matrix; without either, the relative one is what rounding makes of zeros."""
    given = [tuple(x.shape) for x in (rtol, atol) if isinstance(x, Tensor)]
    broadcast_shapes([*given, tuple(A.shape[:-2])])
    atol, rtol = (x._array if isinstance(x, Tensor) else x for x in (atol, rtol))
    if rtol is None:
        rtol = _default_rtol(A) if atol is None else A._xp.where(A._xp.asarray(atol) == 0, _default_rtol(A), 0.0)
    return (0.0 if atol is None else atol), rtol


@composite(variants="function method")
def pinverse(input: Array, rcond: float = 1e-15) -> Tensor:
    """Another name of `linalg.pinv`.

    rcond  singular values below so many times the largest count as zero

    >>> import undertow as ut
    >>> ut.pinverse(ut.eye(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return linalg_pinv(input, rcond)


# ---- the rank


def _rank_of(xp: Namespace, input: Array, atol: Array = 0.0, rtol: Array = 0.0, hermitian: bool = False) -> Array:
    sizes = xp.abs(xp.linalg.eigvalsh(input)) if hermitian else checked_svd(xp, input, compute_uv=False)
    return xp.sum(sizes > _cutoff(xp, sizes, atol, rtol), axis=-1)


matrix_rank = nondifferentiable("_matrix_rank", _rank_of, inputs=("input",), batch=_batch_with_tolerances)


@composite
@example_by_example
def linalg_matrix_rank(
    A: Array, tol: Any = None, hermitian: bool = False, *, atol: Array | None = None, rtol: Array | None = None
) -> Tensor:
    """The number of singular values above max(atol, rtol * the largest); `tol` is an older name of atol.

    >>> import undertow as ut
    >>> ut.linalg.matrix_rank(ut.ones(3, 3)).item()
    1
    """
    A = as_operand("linalg.matrix_rank", "A", A)
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    check_matrices("linalg.matrix_rank", A, square=hermitian)
    atol = tol if tol is not None else atol
    return matrix_rank(A, *_tolerances(A, atol, rtol), bool(hermitian))


# ---- least squares

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@composite(out=True)
@example_by_example
@in_float32
def linalg_lstsq(A: Array, B: Array, rcond: Any = None, *, driver: str | None = None) -> Any:
    """The X that minimises the length of A X - B: (solution, residuals, rank, singular_values).

    driver  "gelsy" (default), "gelsd", "gelss": what a rank-deficient A leaves free is made as short as possible;
            "gels" takes A to be of full rank. The last three say which of the further results there are.
    rcond   singular values below so many times the largest count as zero; None: the dtype's epsilon times the larger
            size

    >>> import undertow as ut
    >>> found = ut.linalg.lstsq(ut.tensor([[1.0], [1.0]]), ut.tensor([[1.0], [3.0]]))
    >>> round(found.solution.item(), 3)
    2.0
    """
    A, B = as_operand("linalg.lstsq", "A", A), as_operand("linalg.lstsq", "B", B)
    driver = _check_systems(A, B, driver)
    of_vectors = are_vectors(A, B)
    right = recorded.expand_dims(B, -1) if of_vectors else B
    if A.shape[-2] != right.shape[-2]:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)")
    rtol = 0.0 if driver == "gels" else _default_rtol(A) if rcond is None else float(rcond)
    solution = _by_columns(matmul(pinv_of(A, 0.0, rtol, False), right), max(A.shape[-2:]))
    rank, values = _rank_and_values(A, rtol, driver)
    residuals = Tensor(A._xp.empty((0,), dtypes.real_of(A.dtype)), A._xp)
    m, n = A.shape[-2:]
    if m > n and driver != "gelsy" and (driver == "gels" or (rank._array == n).all()):
        rest = matmul(A, solution) - right
        residuals = sum_of(recorded.real(rest * recorded.conj(rest)), -2)
    solution = recorded.squeeze(solution, -1) if of_vectors else solution
    return return_types.linalg_lstsq((solution, residuals, rank, values))


def _by_columns(X: Tensor, rows: int) -> Tensor:
    """X as LAPACK leaves it: the first of so many rows, by columns."""
    if type(X) is not Tensor:
        return X
    *lead, n, k = X._array.shape
    memory = X._xp.zeros((*lead, k, rows), X._array.dtype)
    memory[..., :n] = X._xp.swapaxes(X._array, -1, -2)
    return moved(X, X._xp.swapaxes(memory[..., :n], -1, -2))


def _check_systems(A: Array, B: Array, driver: str | None) -> str:
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if A.dtype != B.dtype:
        names = [dtypes.SCALAR_NAMES[x.dtype] for x in (A, B)]
        raise RuntimeError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{names[0]} and other's dtype {names[1]}"
        )
    check_matrices("linalg.lstsq", A, square=False)
    if dtypes.is_narrow(A.dtype):
        name = dtypes.SCALAR_NAMES[A.dtype]
        raise RuntimeError(f"\"linalg_lstsq_cpu\" not implemented for '{name}': convert the matrices to float32")
    if driver is not None and driver not in DRIVERS:
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of ({', '.join(DRIVERS)})")
    return driver or "gelsy"


def _rank_and_values(A: Array, rtol: float, driver: str) -> tuple[Tensor, Tensor]:
    """The rank and the singular values, each empty if the driver does not find it."""
    xp = A._xp
    if driver == "gels":
        return Tensor(xp.empty((0,), dtypes.int64), xp), Tensor(xp.empty((0,), dtypes.real_of(A.dtype)), xp)
    values = xp.ascontiguousarray(checked_svd(xp, A._array, compute_uv=False))
    rank = Tensor(xp.asarray(xp.sum(values > _cutoff(xp, values, 0.0, rtol), axis=-1), order="C"), xp)
    return rank, Tensor(values if driver != "gelsy" else xp.empty((0,), values.dtype), xp)
