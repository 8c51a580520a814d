"""`torch.autograd`, from `undertow.autograd`."""

from __future__ import annotations

import contextlib
from typing import Any

import torch  # the tests reach it through here

from .._undertow import forward, late
from .function import Function
from .variable import Variable

__getattr__ = forward("autograd.", "autograd.graph.", "")

detect_anomaly = late("autograd.detect_anomaly", "autograd.anomaly.detect_anomaly")
SavedTensor = late("autograd.SavedTensor", "autograd.graph.SavedTensor", "graph.saved.SavedTensor")
_profiler_enabled = late("profiler.is_enabled")


def _force_original_view_tracking(mode: bool) -> Any:
    """undertow's switch; without one, views are never replayed and switching that off has nothing to do."""
    try:
        switch = __getattr__("force_original_view_tracking")
    except AttributeError:
        if mode:
            raise
        return contextlib.nullcontext()
    return switch(mode)


def kineto_available() -> bool:
    return False


def _calculate_shape(output: Any, grad: Any, is_grads_batched: bool) -> Any:
    """The shapes that backward() compares: those of the output and of its (unbatched) gradient."""
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


# The engine's functions, not the shim's modules of the same name, answer `torch.autograd.gradcheck(...)`.
from . import (
    _functions,
    anomaly_mode,
    forward_ad,
    function,
    functional,
    grad_mode,
    graph,
    profiler,
    profiler_util,
    variable,
)
from .gradcheck import gradcheck, gradgradcheck
