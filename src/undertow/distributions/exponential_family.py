"""Distributions whose density is exp of a product of parameters and statistics."""

from __future__ import annotations

from typing import Any

from undertow.autograd.backward import grad
from undertow.distributions.distribution import Distribution


class ExponentialFamily(Distribution):
    """A subclass gives `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`, and has an entropy by that.

    batch_shape  the shape of a batch of distributions
    event_shape  the shape of one value

    >>> import undertow as ut
    >>> isinstance(ut.distributions.Normal(0.0, 1.0), ut.distributions.ExponentialFamily)
    True
    """

    @property
    def _natural_params(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not give its natural parameters")

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not give its log normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not give its carrier measure")

    def entropy(self) -> Any:
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        result = -self._mean_carrier_measure + normalizer
        for p, g in zip(params, grad(normalizer.sum(), params, create_graph=True), strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
