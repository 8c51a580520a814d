"""Modules under the names that PyTorch has for them, so that `from undertow.utils.data.sampler import Sampler` works.

>>> from undertow.utils.data.dataset import TensorDataset
>>> import undertow.backends.cudnn as cudnn
>>> cudnn.is_available()
False

This is a table, which loads nothing of the house: each package asks for its own names when it is loaded.
"""

from __future__ import annotations

import sys
from importlib import import_module

#: PyTorch has each of these distributions in a module of its own, and undertow in one with its kin
DISTRIBUTIONS = (
    "bernoulli beta binomial cauchy chi2 continuous_bernoulli dirichlet exp_family exponential "
    "fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy half_normal inverse_gamma "
    "kumaraswamy laplace lkj_cholesky logistic_normal lowrank_multivariate_normal mixture_same_family "
    "multinomial negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli "
    "relaxed_categorical studentT uniform weibull wishart "
).split()

#: package -> PyTorch's name for a module in it -> the module that is meant
ALIASES = {
    "": {name: f"ops.namespaces.{name}" for name in ("fft", "functional", "linalg", "sparse", "special")},
    "autograd": {"grad_mode": "modes"},
    "cuda": {
        "amp": "torch_names.cuda_amp",
        "memory": "cuda",
        "nvtx": "torch_names.cuda_nvtx",
        "random": "cuda",
    },
    "distributions": {"kl": "distributions.divergence", **dict.fromkeys(DISTRIBUTIONS, "distributions")},
    "nn": {"modules": "torch_names.nn_modules"},
    "testing": {"_comparison": "testing"},
    "utils": {"dlpack": "interop.dlpack", "hooks": "graph.hooks"},
    "utils.data": {
        "_utils": "data",
        "_utils.collate": "data.collate",
        "dataset": "data.datasets",
        "sampler": "data.samplers",
    },
}


def register(package: str) -> None:
    """Let the modules that PyTorch has in a package, and undertow elsewhere, be found in it."""
    for name, place in ALIASES[package.partition(".")[2]].items():
        module = import_module(f"undertow.{place}")
        sys.modules[f"{package}.{name}"] = module
        if "." not in name:
            setattr(sys.modules[package], name, module)
