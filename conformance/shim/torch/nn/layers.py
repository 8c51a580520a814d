"""The layers that the tests use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import undertow

from . import functional
from .module import Module, Parameter


class Linear(Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.weight = Parameter(_uniform(in_features, out_features, in_features))
        self.bias = Parameter(_uniform(in_features, out_features)) if bias else None

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight, self.bias)


def _uniform(fan_in: int, *sizes: int) -> Any:
    bound = 1 / math.sqrt(fan_in)
    return undertow.rand(*sizes) * (2 * bound) - bound


class ReLU(Module):
    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Any) -> Any:
        return functional.relu(x, self.inplace)


class MSELoss(Module):
    def forward(self, x: Any, y: Any) -> Any:
        return functional.mse_loss(x, y)


class Sequential(Module):
    def __init__(self, *layers: Module):
        super().__init__()
        self._modules.update((str(i), layer) for i, layer in enumerate(layers))

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Module):
    def __init__(self, layers: Iterable[Module] = ()):
        super().__init__()
        for layer in layers:
            self.append(layer)

    def append(self, layer: Module) -> ModuleList:
        self._modules[str(len(self._modules))] = layer
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]


class BatchNorm1d(Module):
    """Normalisation by the statistics of the batch, or by the running ones after `eval()`."""

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True):
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.running_mean = undertow.zeros(features)
        self.running_var = undertow.ones(features)
        self.weight = Parameter(undertow.ones(features)) if affine else None
        self.bias = Parameter(undertow.zeros(features)) if affine else None

    def forward(self, x: Any) -> Any:
        mean, var = self._batch_statistics(x) if self.training else (self.running_mean, self.running_var)
        y = (x - mean) / (var + self.eps).sqrt()
        return y if self.weight is None else y * self.weight + self.bias

    def _batch_statistics(self, x: Any) -> tuple[Any, Any]:
        with undertow.no_grad():
            self.running_mean += self.momentum * (x.mean(0) - self.running_mean)
            self.running_var += self.momentum * (x.var(0) - self.running_var)
        return x.mean(0), x.var(0, unbiased=False)


class InstanceNorm2d(Module):
    """Normalisation of each image and channel by itself; the result is a view, as in PyTorch."""

    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.features = features
        self.eps = eps

    def forward(self, x: Any) -> Any:
        flat = x.reshape(x.size(0) * x.size(1), -1)
        centred = flat - flat.mean(1, keepdim=True)
        var = (centred * centred).mean(1, keepdim=True)
        return (centred / (var + self.eps).sqrt()).view(x.size())
