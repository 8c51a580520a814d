"""`torch.nn.functional` is undertow's; `linear` makes the graph that PyTorch's does, because tests look at it."""

from __future__ import annotations

from typing import Any

import undertow

from .._undertow import forward

__getattr__ = forward("nn.functional.")


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    if undertow.profiler.is_enabled():  # which shows undertow's one operation, as PyTorch's shows the outermost
        return undertow.nn.functional.linear(x, weight, bias)
    if bias is None:
        return x.matmul(weight.t())
    return undertow.addmm(bias, x, weight.t()) if x.dim() == 2 else x.matmul(weight.t()) + bias
