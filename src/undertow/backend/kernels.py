"""Kernels of the compiled core (csrc/kernels_*.c), which do in one step what takes NumPy several.

Each takes the array namespace and then the arguments that its C function names. It returns None where it does not
serve (no compiled core, another device than the CPU, arrays that are not contiguous, not float32 or float64, or empty):
the caller then computes the same with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.cpu import cpu
from undertow.compiled import core


def kernel(name: str) -> Callable[..., Any]:
    def call(xp: Any, *arguments: Any) -> Any:
        return getattr(core, name)(*arguments) if xp is cpu and core is not None else None

    return call


#: (x, dims, weight, bias, eps, centred) -> (out, mean, rstd)
norm_rows = kernel("norm_rows")
#: (g, x, dims, mean, rstd, weight, needs) -> gradients of x, weight and bias
norm_rows_gradient = kernel("norm_rows_gradient")
#: (x, groups, weight, bias, eps) -> (out, mean, rstd, variance)
norm_channels = kernel("norm_channels")
#: (g, x, groups, mean, rstd, weight, needs) -> gradients of x, weight and bias
norm_channels_gradient = kernel("norm_channels_gradient")
#: (x, whether by the curve of tanh) -> gelu(x); and its gradient, with g before x
gelu = kernel("gelu")
gelu_gradient = kernel("gelu_gradient")
#: (scores, scale, first) -> logs of the sums; the scores become their softmax
softmax_scores = kernel("softmax_scores")
#: (scores, scale, first, logs) -> True; the same, when the logs are known
weigh_scores = kernel("weigh_scores")
#: (slopes, scale, weights) -> True; gradients of weights become those of scores
slope_scores = kernel("slope_scores")
