"""`torch.nn.functional`: what undertow has under the same name, and a few made from its operations."""

from __future__ import annotations

from typing import Any

import undertow

from .._undertow import forward

__getattr__ = forward("nn.functional.", "")


def relu(x: Any, inplace: bool = False) -> Any:
    return x.relu_() if inplace else x.relu()


def threshold(x: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    return undertow.threshold_(x, threshold, value) if inplace else undertow.threshold(x, threshold, value)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    if bias is None:
        return x.matmul(weight.t())
    return undertow.addmm(bias, x, weight.t()) if x.dim() == 2 else x.matmul(weight.t()) + bias


def mse_loss(x: Any, y: Any) -> Any:
    return ((x - y) ** 2).mean()
