"""What the parameters and the values of a distribution must satisfy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class Constraint:
    """A condition on tensors; `event_dim` dimensions at the end are judged together."""

    def __init__(self, text: str, test: Callable[[Any], Any], event_dim: int = 0, is_discrete: bool = False) -> None:
        self.text, self.test, self.event_dim, self.is_discrete = text, test, event_dim, is_discrete

    def check(self, value: Tensor) -> Tensor:
        """A bool for each value that is judged."""
        return self.test(value)

    def __repr__(self) -> str:
        return self.text


def is_positive_definite(matrix: Tensor) -> Tensor:
    symmetric = ops.isclose(matrix, ops.transpose(matrix, -2, -1), atol=1e-6).all(-1).all(-1)
    if not bool(symmetric.all()):
        return symmetric
    return (ops.linalg_eigvalsh(matrix) > 0).all(-1)


def greater_than(bound: Any) -> Constraint:
    return Constraint(f"GreaterThan(lower_bound={bound})", lambda x: x > bound)


def less_than(bound: Tensor) -> Constraint:
    return Constraint(f"LessThan(upper_bound={bound})", lambda x: x < bound)


def greater_than_eq(bound: Any) -> Constraint:
    return Constraint(f"GreaterThanEq(lower_bound={bound})", lambda x: x >= bound)


def interval(low: Any, high: Any) -> Constraint:
    return Constraint(f"Interval(lower_bound={low}, upper_bound={high})", lambda x: (x >= low) & (x <= high))


def integer_interval(low: int, high: int) -> Constraint:
    return Constraint(
        f"IntegerInterval(lower_bound={low}, upper_bound={high})",
        lambda x: (x % 1 == 0) & (x >= low) & (x <= high),
        is_discrete=True,
    )


def independent(inner: Constraint, dims: int) -> Constraint:
    """A condition on all elements of the last dimensions."""

    def test(value: Tensor) -> Tensor:
        found = inner.check(value)
        return ops.reshape(found, (*found.shape[: found.dim() - dims], -1)).all(-1)

    return Constraint(f"IndependentConstraint({inner}, {dims})", test, inner.event_dim + dims, inner.is_discrete)


real = Constraint("Real()", lambda x: x == x)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0), is_discrete=True
)
one_hot = Constraint("OneHot()", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True)
real_vector = independent(real, 1)
simplex = Constraint("Simplex()", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), 1)
positive_definite = Constraint("PositiveDefinite()", is_positive_definite, 2)
lower_cholesky = Constraint(
    "LowerCholesky()",
    lambda x: (ops.tril(x) == x).all(-1).all(-1) & (ops.diagonal(x, 0, -2, -1) > 0).all(-1),
    2,
)
