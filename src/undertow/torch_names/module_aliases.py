"""Modules under the names that PyTorch has for them, so that `from undertow.utils.data.sampler import Sampler` works.

>>> from undertow.utils.data.dataset import TensorDataset
>>> import undertow.backends.cudnn as cudnn
>>> cudnn.is_available()
False
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from undertow import cuda, distributions, modes, pytree
from undertow.data import collate, datasets, loader, samplers
from undertow.distributions import constraints, divergence
from undertow.graph import hooks
from undertow.interop import dlpack
from undertow.nn.utils import clip_grad, convert_parameters
from undertow.ops.namespaces import fft, linalg, sparse, special
from undertow.torch_names import accelerator, backends, nn_modules, random, utils, variable
from undertow.torch_names import cuda_amp as cuda_amp
from undertow.torch_names.utils import data

#: where PyTorch keeps a single distribution in a module of its own
DISTRIBUTIONS = "bernoulli beta binomial categorical cauchy dirichlet distribution exponential gamma geometric gumbel \
independent laplace log_normal multinomial multivariate_normal normal one_hot_categorical poisson uniform".split()

#: PyTorch's name -> what is meant by it here
PLACES: dict[str, Any] = {
    "accelerator": accelerator,
    "backends": backends,
    "random": random,
    "utils": utils,
    "utils.data": data,
    "utils.checkpoint": utils.checkpoint,
    "autograd.variable": variable,
    "nn.modules": nn_modules,
    "linalg": linalg,
    "fft": fft,
    "special": special,
    "sparse": sparse,
    "cuda.amp": cuda_amp,
    "backends.cuda": backends.cuda,
    "backends.cudnn": backends.cudnn,
    "backends.mkl": backends.mkl,
    "backends.mps": backends.mps,
    "backends.openmp": backends.openmp,
    "backends.mkldnn": backends.mkldnn,
    "distributions.kl": divergence,
    "distributions.constraints": constraints,
    "autograd.grad_mode": modes,
    "nn.utils.clip_grad": clip_grad,
    "nn.utils.convert_parameters": convert_parameters,
    "utils.data.sampler": samplers,
    "utils.data.dataset": datasets,
    "utils.data._utils": data,
    "utils.data._utils.collate": collate,
    "utils.dlpack": dlpack,
    "utils.hooks": hooks,
    "utils._pytree": pytree,
} | {
    f"distributions.{name}": distributions
    for name in DISTRIBUTIONS
    if hasattr(distributions, name.title().replace("_", ""))
}


def module_of(name: str, about: str, *sources: ModuleType) -> ModuleType:
    """A module with the public names of others."""
    made = ModuleType(name, about)
    for source in sources:
        vars(made).update({key: value for key, value in vars(source).items() if not key.startswith("_")})
    return made


def register() -> None:
    for name, place in PLACES.items():
        sys.modules.setdefault(f"undertow.{name}", place)
    name = "undertow.utils.data.dataloader"
    sys.modules[name] = module_of(name, "The loader, and what it makes batches with.", loader, collate)
    cuda.amp = cuda_amp  # type: ignore[attr-defined]
    for name in ("dlpack", "hooks", "_pytree"):
        setattr(utils, name, PLACES[f"utils.{name}"])
    for name, module in (("sampler", samplers), ("dataset", datasets)):
        setattr(data, name, module)


register()
