"""Probability distributions whose samples and densities can be differentiated."""

from typing import TYPE_CHECKING

from undertow.distributions import constraints as constraints
from undertow.distributions import transforms as transforms
from undertow.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from undertow.distributions.constraint_registry import biject_to, transform_to
from undertow.distributions.continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from undertow.distributions.discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from undertow.distributions.distribution import Distribution
from undertow.distributions.divergence import kl_divergence, register_kl
from undertow.distributions.exponential_family import ExponentialFamily
from undertow.distributions.extremes_and_halves import Gumbel, HalfCauchy, HalfNormal
from undertow.distributions.gammas import Beta, Chi2, Dirichlet, Gamma
from undertow.distributions.independent import Independent
from undertow.distributions.log_normal import LogNormal
from undertow.distributions.mixture import MixtureSameFamily
from undertow.distributions.multivariate_normal import LowRankMultivariateNormal, MultivariateNormal
from undertow.distributions.power_laws import GeneralizedPareto, InverseGamma, Kumaraswamy, Pareto, Weibull
from undertow.distributions.random_matrices import LKJCholesky, Wishart
from undertow.distributions.relaxed import (
    ContinuousBernoulli,
    LogisticNormal,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from undertow.distributions.student_t_and_f import FisherSnedecor, StudentT
from undertow.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    TransformedDistribution,
    identity_transform,
)
from undertow.distributions.von_mises import VonMises
from undertow.torch_names import missing as _absent
from undertow.torch_names import module_aliases as _module_aliases

__all__ = [
    # of numbers
    "Normal", "LogNormal", "HalfNormal", "Laplace", "Cauchy", "Gumbel", "StudentT", "Uniform", "Exponential", "Gamma",
    "Chi2", "Beta", "InverseGamma", "Kumaraswamy", "Pareto", "Weibull", "HalfCauchy", "MixtureSameFamily",
    "ContinuousBernoulli", "FisherSnedecor", "GeneralizedPareto", "RelaxedBernoulli", "VonMises",
    # of whole numbers
    "Bernoulli", "Binomial", "NegativeBinomial", "Geometric", "Categorical", "Multinomial", "Poisson",
    # of vectors
    "Independent", "MultivariateNormal", "Dirichlet", "OneHotCategorical", "OneHotCategoricalStraightThrough",
    "LogisticNormal", "LowRankMultivariateNormal", "RelaxedOneHotCategorical", "LKJCholesky", "Wishart",
    # functions of random values
    "TransformedDistribution", "Transform", "AffineTransform", "ComposeTransform", "ExpTransform", "SigmoidTransform",
    "TanhTransform", "AbsTransform", "CatTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform",
    "ReshapeTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform",
    "identity_transform", "biject_to", "transform_to",
    # in common
    "Distribution", "ExponentialFamily", "kl_divergence", "register_kl", "constraints", "transforms",
]  # fmt: skip

_module_aliases.register(__name__)

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("distributions")
