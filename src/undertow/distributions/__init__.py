"""Probability distributions whose samples and densities can be differentiated."""

from undertow.distributions.continuous import Exponential, Laplace, LogNormal, Normal, Uniform
from undertow.distributions.discrete import Bernoulli, Categorical, Poisson
from undertow.distributions.distribution import Distribution
from undertow.distributions.divergence import kl_divergence, register_kl
from undertow.distributions.joint import Independent, MultivariateNormal

__all__ = [
    # of numbers
    "Normal", "LogNormal", "Laplace", "Uniform", "Exponential", "Bernoulli", "Categorical", "Poisson",
    # of vectors
    "Independent", "MultivariateNormal",
    # in common
    "Distribution", "kl_divergence", "register_kl",
]  # fmt: skip
