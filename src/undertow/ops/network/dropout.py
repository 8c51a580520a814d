"""Dropout and its kin: random elements, or whole channels, set to zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.graph.user_lines import warn_user
from undertow.modes import current, no_grad
from undertow.ops.arguments.operands import as_operand
from undertow.ops.create.creation import empty, zeros
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.random import draw
from undertow.ops.random.generator import as_generator
from undertow.ops.random.tensors import bernoulli

if TYPE_CHECKING:
    from undertow.ops.random.generator import Generator
    from undertow.tensor import Tensor

#: what SELU tends to for very negative inputs
SATURATION = -1.7580993408473766


def check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(xp: Namespace, input: Array, p: float, train: bool | None = True, *, generator: Any = None) -> Any:
    if train is False:
        return xp.copy(input), xp.ones(input.shape, dtypes.bool_)
    if p == 1:
        return xp.zeros_like(input), xp.zeros(input.shape, dtypes.bool_)
    source = as_generator("native_dropout", generator, xp)
    if source.is_of_gpu:
        return source.draw("dropout", input, p)
    kept = xp.asarray(draw.bernoulli(source, input.shape, dtypes.bool_, 1 - p))
    return input * kept * input.dtype.type(1 / (1 - p)), kept


def _scale(p: float, train: bool | None) -> float:
    return 1.0 if train is False else 0.0 if p == 1 else 1 / (1 - p)


def _kept_gradient(xp: Namespace, grad: Array, mask: Array, scale: float) -> Array:
    found = kernels.dropout_gradient(xp, grad, mask, scale)
    return grad * mask * grad.dtype.type(scale) if found is None else found


#: the gradient of native_dropout: `grad` where elements were kept, scaled as they were
native_dropout_backward = primitive(
    "native_dropout_backward",
    _kept_gradient,
    vjp={"grad": lambda xp, g, mask, scale: xp.native_dropout_backward(g, mask, scale), "mask": None},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    variants="",
)

#: dropout, and which elements were kept; GPUs do it in one kernel, and keep a byte for each element
native_dropout = primitive(
    "native_dropout",
    _dropped,
    vjp={"input": lambda xp, g, mask, p, train: xp.native_dropout_backward(g, mask, _scale(p, train))},
    jvp={"input": lambda xp, t, mask, p, train: xp.native_dropout_backward(t, mask, _scale(p, train))},
    batch=ELEMENTWISE,
    outputs=("output", "mask"),
    nondifferentiable=("mask",),
    random="given",
)


@composite(variants="function in_place_function", random="given")
def dropout(input: Array, p: float = 0.5, train: bool = True, *, generator: Generator | None = None) -> Array:
    """Every element 0 with probability p, else over 1 - p, so that the mean stays; the input itself if not training.

    >>> import undertow as ut
    >>> ut.dropout(ut.ones(3), 0.5, False)
    tensor([1., 1., 1.])
    """
    input = as_operand("dropout", "input", input)
    check_probability(p)
    if not train or p == 0:
        return input
    # transformations draw by bernoulli, which says by itself whether its numbers are the same for all examples
    if input._xp.device.type == "cuda" and input.is_floating_point() and current().intercept is None:
        return native_dropout(input, p, True, generator=generator)[0]
    if p == 1:
        return mul(input, 0)
    with no_grad():
        factors = bernoulli(input, 1 - p, generator=generator) / (1 - p)
    return mul(input, factors)


# ---- of channels, and with the mean and variance that SELU keeps


def factors_for(input: Tensor, shape: Sequence[int], p: float) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p)."""
    with no_grad():
        if p == 1:
            return zeros(shape, dtype=input.dtype, device=input.device)
        return bernoulli(empty(shape, dtype=input.dtype, device=input.device), 1.0 - p) / (1 - p)


def drop_channels(input: Tensor, p: float, training: bool, inplace: bool, lead: int) -> Tensor:
    """One draw for each place in the first `lead` dimensions: examples and channels, or channels alone."""
    check_probability(p)
    if not training or p == 0:
        return input
    if input.dim() < lead and p < 1:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input, examples and channels, but got "
            f"{input.dim()}. Use dropout to drop single elements."
        )
    factors = factors_for(input, (*input.shape[:lead], *[1] * (input.dim() - lead)), p)
    return input.mul_(factors) if inplace else input * factors


def warn_of_dims(name: str, input: Tensor, dims: int) -> None:
    if input.dim() not in (dims + 1, dims + 2):
        warn_user(
            f"{name}: Received a {input.dim()}-D input to {name}, which is deprecated: it is for inputs of {dims + 1} "
            f"or {dims + 2} dimensions, channels and {dims} of space. Use dropout to drop single elements."
        )


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (examples, channels, length) 0 with probability p.

    >>> import undertow as ut
    >>> ut.nn.functional.dropout1d(ut.ones(1, 2, 3), 0.5, training=False).shape
    undertow.Size([1, 2, 3])
    """
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input: channels come before the last "
            "dimension"
        )
    return drop_channels(input, p, training, inplace, input.dim() - 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (examples, channels, height, width) 0 with probability p.

    >>> import undertow as ut
    >>> ut.nn.functional.dropout2d(ut.ones(1, 2, 3, 3), 0.5).shape
    undertow.Size([1, 2, 3, 3])
    """
    warn_of_dims("dropout2d", input, 2)
    if input.dim() == 3:
        warn_user(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
            "desired - input is interpreted as shape (N, C, L), where C is the channel dim. Use dropout1d for that."
        )
    return drop_channels(input, p, training, inplace, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (examples, channels, depth, height, width) 0 with probability p.

    >>> import undertow as ut
    >>> ut.nn.functional.dropout3d(ut.ones(1, 2, 3, 3, 3), 0.5).shape
    undertow.Size([1, 2, 3, 3, 3])
    """
    warn_of_dims("dropout3d", input, 3)
    return drop_channels(input, p, training, inplace, 2 if input.dim() == 5 else 1)


def drop_to_saturation(input: Tensor, p: float, inplace: bool, shape: Sequence[int]) -> Tensor:
    """Elements set to SELU's negative limit, then scaled and shifted so that mean and variance stay."""
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    with no_grad():
        kept = bernoulli(empty(shape, dtype=input.dtype, device=input.device), 1.0 - p)
        a = 1 / math.sqrt((SATURATION * SATURATION * p + 1) * (1 - p))
        shift = (1 - kept) * (a * SATURATION) - a * SATURATION * p
        scale = kept * a
    return input.mul_(scale).add_(shift) if inplace else input * scale + shift


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of what SELU gives.

    >>> import undertow as ut
    >>> ut.nn.functional.alpha_dropout(ut.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    check_probability(p)
    return drop_to_saturation(input, p, inplace, input.shape) if training and p > 0 else input


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels.

    >>> import undertow as ut
    >>> ut.nn.functional.feature_alpha_dropout(ut.ones(1, 2, 3), 0.5).shape
    undertow.Size([1, 2, 3])
    """
    check_probability(p)
    if not training or p == 0:
        return input
    if input.dim() < 2 and p < 1:
        raise RuntimeError(f"Feature dropout requires at least 2 dimensions in the input, but got {input.dim()}")
    return drop_to_saturation(input, p, inplace, (*input.shape[:2], *[1] * (input.dim() - 2)))
