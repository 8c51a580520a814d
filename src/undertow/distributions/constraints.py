"""What the parameters and the values of a distribution must satisfy.

Each condition is a class, as in PyTorch, whose registry of transforms (constraint_registry.py) goes by class. Those
without a parameter are used by an instance: `constraints.real`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops

if TYPE_CHECKING:
    from undertow.backend.interface import Array, DType
    from undertow.tensor import Tensor


class Constraint:
    """A condition on tensors; `event_dim` dimensions at the end are judged together.

    >>> import undertow as ut
    >>> ut.distributions.constraints.positive.check(ut.tensor([-1.0, 2.0]))
    tensor([False,  True])
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Any:
        """A bool for each value that is judged."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it asks for: it needs check")

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_")])
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Dependent(Constraint):
    """A condition that depends on other parameters, and cannot be checked without them.

    is_discrete  whether values are discrete, if that is known
    event_dim    how many dimensions a value has, if that is known

    >>> from undertow.distributions import constraints
    >>> constraints.is_dependent(constraints.dependent(is_discrete=False, event_dim=0))
    True
    """

    def __init__(self, *, is_discrete: DType = NotImplemented, event_dim: DType = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return type(self)(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property that is a condition on an object, and a dependent one on its class.

    fn           the function that computes it
    is_discrete  whether values are discrete, if that is known
    event_dim    how many dimensions a value has, if that is known

    >>> import undertow as ut
    >>> from undertow.distributions import Uniform, constraints
    >>> constraints.is_dependent(Uniform.support), Uniform(0.0, 2.0).support
    (True, Interval(lower_bound=0.0, upper_bound=2.0))
    """

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> Any:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _GreaterThan(Constraint):
    """Greater than a bound.

    >>> import undertow as ut
    >>> ut.distributions.constraints.greater_than(1.0).check(ut.tensor([1.0, 2.0]))
    tensor([False,  True])
    """

    def __init__(self, lower_bound: Array) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Array) -> Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_GreaterThan):
    """At least a bound.

    >>> import undertow as ut
    >>> ut.distributions.constraints.greater_than_eq(1.0).check(ut.tensor([1.0, 0.0]))
    tensor([ True, False])
    """

    def check(self, value: Array) -> Tensor:
        return self.lower_bound <= value


class _LessThan(Constraint):
    """Less than a bound.

    >>> import undertow as ut
    >>> ut.distributions.constraints.less_than(1.0).check(ut.tensor([0.5, 1.0]))
    tensor([ True, False])
    """

    def __init__(self, upper_bound: Array) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Array) -> Tensor:
        return value < self.upper_bound


class _Interval(Constraint):
    """From a lower bound to an upper one.

    >>> import undertow as ut
    >>> ut.distributions.constraints.interval(0.0, 1.0).check(ut.tensor([0.5, 2.0]))
    tensor([ True, False])
    """

    def __init__(self, lower_bound: Array, upper_bound: Array) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Array) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """From a lower bound on, and below an upper one.

    >>> import undertow as ut
    >>> ut.distributions.constraints.half_open_interval(0.0, 1.0).check(ut.tensor([0.0, 1.0]))
    tensor([ True, False])
    """

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Interval):
    """Integers from a lower bound to an upper one.

    >>> import undertow as ut
    >>> ut.distributions.constraints.integer_interval(0, 3).check(ut.tensor([1.5, 2.0]))
    tensor([False,  True])
    """

    is_discrete = True

    def check(self, value: Array) -> Tensor:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerGreaterThan(Constraint):
    is_discrete = True

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Array) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _IndependentConstraint(Constraint):
    """A condition on all elements of the last dimensions.

    base_constraint            the condition on elements
    reinterpreted_batch_ndims  how many of the last dimensions

    >>> import undertow as ut
    >>> constraints = ut.distributions.constraints
    >>> constraints.independent(constraints.positive, 1).check(ut.tensor([1.0, 2.0]))
    tensor(True)
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim) + self.reinterpreted_batch_ndims

    def check(self, value: Array) -> Tensor:
        found = self.base_constraint.check(value)
        if found.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(
                f"Expected value.dim() >= {self.event_dim} but got {value.dim()}: there are "
                f"{self.reinterpreted_batch_ndims} dimensions to judge together"
            )
        return ops.reshape(found, (*found.shape[: found.dim() - self.reinterpreted_batch_ndims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"


class _Real(Constraint):
    def check(self, value: Array) -> Tensor:
        return value == value


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Array) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value: Array) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Array) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts that are not negative and add up to a number.

    >>> import undertow as ut
    >>> ut.distributions.constraints.multinomial(3).check(ut.tensor([1.0, 2.0]))
    tensor(True)
    """

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Array) -> Tensor:
        return ((value >= 0) & (value % 1 == 0)).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Array) -> Tensor:
        return (ops.tril(value) == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Array) -> Tensor:
        return super().check(value) & (ops.diagonal(value, 0, -2, -1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """A lower triangle whose rows have length one."""

    def check(self, value: Array) -> Tensor:
        tolerance = float(value._xp.finfo(value.dtype.dtype).eps) * value.size(-1) * 10
        lengths = ops.linalg_vector_norm(value.detach(), dim=-1)
        return super().check(value) & ((lengths - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return ops.full(tuple(value.shape[:-2]), value.shape[-2] == value.shape[-1], dtype=bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Array) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return ops.isclose(value, ops.transpose(value, -2, -1), atol=1e-6).all(-1).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return symmetric if not bool(symmetric.all()) else (ops.linalg_eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Array) -> Tensor:
        symmetric = super().check(value)
        return symmetric if not bool(symmetric.all()) else (ops.linalg_eigvalsh(value) > 0).all(-1)


class _Parts(Constraint):
    """Conditions on parts of a tensor along one dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    @property
    def is_discrete(self) -> bool:
        return any([c.is_discrete for c in self.cseq])

    @property
    def event_dim(self) -> int:
        return max([int(c.event_dim) for c in self.cseq])


class _Cat(_Parts):
    """The parts of a tensor along `dim` satisfy one constraint each.

    cseq     the constraints
    lengths  the sizes of the parts; None: 1 each

    >>> import undertow as ut
    >>> constraints = ut.distributions.constraints
    >>> constraints.cat([constraints.positive, constraints.real]).check(ut.tensor([1.0, -1.0]))
    tensor([True, True])
    """

    def check(self, value: Any) -> Any:
        parts, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths, strict=True):
            parts.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return ops.cat(parts, self.dim)


class _Stack(_Parts):
    """The slices of a tensor along `dim` satisfy one constraint each.

    cseq     the constraints
    lengths  accepted, without effect

    >>> import undertow as ut
    >>> constraints = ut.distributions.constraints
    >>> constraints.stack([constraints.positive, constraints.real]).check(ut.tensor([1.0, -1.0]))
    tensor([True, True])
    """

    @property
    def event_dim(self) -> int:
        dim = max([int(c.event_dim) for c in self.cseq])
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        parts = [value.select(self.dim, n) for n in range(value.size(self.dim))]
        return ops.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class MixtureSameFamilyConstraint(Constraint):
    """The condition of a component, on values that have no dimension for components.

    base_constraint  the condition of a component

    >>> import undertow as ut
    >>> from undertow.distributions import constraints
    >>> constraints.MixtureSameFamilyConstraint(constraints.positive).check(ut.tensor([1.0, -1.0]))
    tensor([ True, False])
    """

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim)

    def check(self, value: Array) -> Tensor:
        found = self.base_constraint.check(ops.unsqueeze(value, -1 - self.event_dim))
        return found.reshape((*found.shape[: value.dim() - self.event_dim], -1)).all(-1)


def is_dependent(constraint: Any) -> bool:
    """Whether a condition depends on other parameters.

    constraint  a condition

    >>> import undertow as ut
    >>> ut.distributions.constraints.is_dependent(ut.distributions.constraints.real)
    False
    """
    return isinstance(constraint, _Dependent)


greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent, multinomial, cat, stack = _IndependentConstraint, _Multinomial, _Cat, _Stack
dependent, dependent_property = _Dependent(), _DependentProperty
real, real_vector = _Real(), independent(_Real(), 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean, one_hot, simplex = _Boolean(), _OneHot(), _Simplex()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip
