"""What the rules of inverses, factorisations and eigenvalues are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.errors import LinAlgError, UndertowError
from undertow.modes import current
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.tensor.tensor import Tensor, requires_grad

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


def solve_or_explain(xp: Namespace, problem: str, function: Callable[..., Any], *arrays: Any) -> Any:
    try:
        return function(*arrays)
    except xp.linalg.LinAlgError:
        raise LinAlgError(problem) from None


def checked_svd(xp: Namespace, A: Array, full_matrices: bool = True, compute_uv: bool = True) -> Array:
    """The singular value decomposition by LAPACK, which may go on for ever if an element is inf or nan: look first."""
    problem = "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values."
    if not xp.isfinite(A).all():
        raise LinAlgError(problem)
    return solve_or_explain(xp, problem, xp.linalg.svd, A, full_matrices, compute_uv)


def needs_gradient(A: Any) -> bool:
    """Whether a gradient is recorded: it is computed from what a decomposition finds beside what was asked for."""
    return isinstance(A, Tensor) and current().grad_enabled and requires_grad(A)


def adjoint(xp: Namespace, x: Array) -> Array:
    """The conjugate transpose of matrices."""
    return xp.swapaxes(xp.conj(x), -1, -2)


def trace_of(xp: Namespace, x: Array) -> Array:
    return xp.sum(xp.diagonal(x, 0, -2, -1), axis=-1)


def as_matrices(xp: Namespace, x: Array) -> Array:
    """Numbers as matrices of one element, to be multiplied with matrices."""
    return xp.expand_dims(xp.expand_dims(x, -1), -1)


def batch_matrices(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """One more dimension in front of the matrices."""
    return op(in_front(args[0], in_dims[0]), *args[1:]), 0


class GaugeError(UndertowError, RuntimeError):
    """A gradient depends on a choice that the factorisation is free to make."""


def diagonal_of(xp: Namespace, x: Array) -> Array:
    return xp.diagonal(x, 0, -2, -1)


def differences(xp: Namespace, values: Array) -> Array:
    """values[j] - values[i] for all pairs, with 1 on the diagonal."""
    pairs = xp.expand_dims(values, -2) - xp.expand_dims(values, -1)
    return pairs + xp.diag_embed(xp.ones_like(values))


def skew(xp: Namespace, x: Array) -> Array:
    return x - adjoint(xp, x)


def require_zero(x: Any, problem: str) -> None:
    """Rather lax, in order not to mistake rounding for dependence."""
    while hasattr(x, "_value"):  # under vmap, for all examples
        x = x._value
    array = getattr(x, "_array", x)
    if not (abs(array) < 1e-2).all() and (array == array).all():
        raise GaugeError(problem)


def rows(xp: Namespace, x: Array, start: int, stop: int) -> Array:
    return xp.slice(x, -2, start, stop)


def columns(xp: Namespace, x: Array, start: int, stop: int) -> Array:
    return xp.slice(x, -1, start, stop)
