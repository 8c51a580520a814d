"""Dropout and its kin: setting random elements, or whole channels, to zero."""

from __future__ import annotations

import math
from typing import Any

from undertow import ops
from undertow.graph.sites import warn_user
from undertow.modes import no_grad

#: what SELU tends to for very negative inputs
SATURATION = -1.7580993408473766


def check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Every element 0 with probability p, else over 1 - p; the input itself if not training."""
    if not inplace:
        return ops.dropout(input, p, training)
    check_probability(p)
    return input.mul_(factors_for(input, input.shape, p)) if training and p > 0 else input


def factors_for(input: Any, shape: Any, p: float) -> Any:
    """Zeros with probability p, else 1 / (1 - p)."""
    with no_grad():
        kept = ops.bernoulli(ops.full(shape, 1.0 - p, dtype=input.dtype, device=input.device))
        return kept if p == 1 else kept / (1 - p)


def drop_channels(input: Any, p: float, training: bool, inplace: bool, shape: Any) -> Any:
    check_probability(p)
    if not training or p == 0:
        return input
    factors = factors_for(input, shape, p)
    return input.mul_(factors) if inplace else input * factors


def channel_shape(name: str, input: Any, dims: int) -> tuple[int, ...]:
    """One element for every channel of every example; without a dimension of examples there is one."""
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}: Expected {dims + 1}D or {dims + 2}D input, but received a {input.dim()}D input: channels come "
            "before the last dimensions"
        )
    lead = input.shape[: input.dim() - dims]
    return (*lead, *[1] * dims)


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Whole channels of (examples, channels, length) 0 with probability p."""
    return drop_channels(input, p, training, inplace, channel_shape("dropout1d", input, 1))


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Whole channels of (examples, channels, height, width) 0 with probability p."""
    if input.dim() == 3:
        warn_user(
            "dropout2d: Received a 3-D input to dropout2d and assuming that channel-wise 1-D dropout behavior is "
            "desired - input is interpreted as shape (N, C, L), where C is the channel dim. Use dropout1d for that."
        )
        return drop_channels(input, p, training, inplace, channel_shape("dropout2d", input, 1))
    return drop_channels(input, p, training, inplace, channel_shape("dropout2d", input, 2))


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Whole channels of (examples, channels, depth, height, width) 0 with probability p."""
    return drop_channels(input, p, training, inplace, channel_shape("dropout3d", input, 3))


def drop_to_saturation(input: Any, p: float, inplace: bool, shape: Any) -> Any:
    """Elements set to SELU's negative limit, then scaled and shifted so that mean and variance stay."""
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    with no_grad():
        kept = ops.bernoulli(ops.full(shape, 1.0 - p, dtype=input.dtype, device=input.device))
        a = 1 / math.sqrt((SATURATION * SATURATION * p + 1) * (1 - p))
        shift = (1 - kept) * (a * SATURATION) - a * SATURATION * p
        scale = kept * a
    return input.mul_(scale).add_(shift) if inplace else input * scale + shift


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout that keeps mean and variance of what SELU gives."""
    check_probability(p)
    return drop_to_saturation(input, p, inplace, input.shape) if training and p > 0 else input


def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """alpha_dropout of whole channels."""
    check_probability(p)
    shape = (*input.shape[:2], *[1] * (input.dim() - 2))
    return drop_to_saturation(input, p, inplace, shape) if training and p > 0 else input
