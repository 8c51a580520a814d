"""Directions in a plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.utils import lazy_property
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class VonMises(Distribution):
    """The normal distribution of angles.

    loc            the most probable angle
    concentration  how narrow it is; near 0, all angles are as probable

    >>> import undertow as ut
    >>> ut.distributions.VonMises(ut.tensor([0.0]), ut.tensor([1.0])).mean
    tensor([0.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample = False

    def __init__(self, loc: Array, concentration: Array, validate_args: Any = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        return k * ops.cos(value - self.loc) - math.log(2 * math.pi) - (ops.special_i0e(k).log() + k)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """By rejection, from a wrapped Cauchy distribution (Best and Fisher).

        sample_shape  how many: a shape
        """
        shape = tuple(self._extended_shape(sample_shape))
        with no_grad():
            loc, k = self.loc.double().expand(shape), self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = ops.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
            found = self._angles(k, r)
            return ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @staticmethod
    def _angles(k: Array, r: Array) -> Tensor:
        found, done = ops.zeros_like(k), ops.zeros(k.shape, dtype=bool)
        while not bool(done.all()):
            u = ops.rand((3, *k.shape), dtype=k.dtype)
            z = ops.cos(math.pi * u[0])
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = ((c * (2 - c) - u[1]) > 0) | ((c / u[1]).log() + 1 - c >= 0)
            found = ops.where(accepted, (u[2] - 0.5).sign() * f.clamp(-1, 1).acos(), found)
            done = done | accepted
        return found

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """1 - |mean of exp(i angle)|."""
        return 1 - ops.special_i1e(self.concentration) / ops.special_i0e(self.concentration)
