"""`torch.nn` is undertow's; a few layers make the graph that PyTorch's own make, because tests look at it."""

from __future__ import annotations

from typing import Any

import undertow.nn

from .._undertow import forward, late
from . import functional, parallel

__getattr__ = forward("nn.")

DataParallel, Module, Parameter = late("nn.DataParallel"), late("nn.Module"), late("nn.Parameter")


class Linear(undertow.nn.Linear):
    """AddmmBackward0 and TBackward0, where undertow makes one LinearBackward0."""

    def forward(self, input: Any) -> Any:
        return functional.linear(input, self.weight, self.bias)


class InstanceNorm2d(undertow.nn.InstanceNorm2d):
    """The result is a view."""

    def forward(self, input: Any) -> Any:
        out = super().forward(input)
        return out.view(out.size())
