"""A layer and the batch norm behind it as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from undertow import ops
from undertow.nn.parameter import Parameter

if TYPE_CHECKING:
    from undertow.nn.module import Module
    from undertow.tensor import Tensor


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A convolution that computes what `conv` and then `bn` do in evaluation mode.

    transpose  for transposed convolutions

    >>> import undertow as ut
    >>> conv, norm = ut.nn.Conv2d(3, 4, 3).eval(), ut.nn.BatchNorm2d(4).eval()
    >>> fused, x = ut.nn.utils.fuse_conv_bn_eval(conv, norm), ut.randn(2, 3, 5, 5)
    >>> ut.allclose(fused(x), norm(conv(x)), atol=1e-5)
    True
    """
    fused = copied(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """A linear layer that computes what `linear` and then `bn` do in evaluation mode.

    >>> import undertow as ut
    >>> linear, norm = ut.nn.Linear(2, 3).eval(), ut.nn.BatchNorm1d(3).eval()
    >>> fused = ut.nn.utils.fuse_linear_bn_eval(linear, norm)
    >>> ut.allclose(fused(ut.ones(4, 2)), norm(linear(ut.ones(4, 2))), atol=1e-6)
    True
    """
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copied(linear, bn)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def copied(layer: Module, bn: Module) -> Module:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call eval() on both layers first.")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None: the batch norm tracks no statistics")
    return copy.deepcopy(layer)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of the fused convolution.

    conv_w, conv_b  weight and bias (or None) of the convolution
    bn_rm, bn_rv    running mean and variance
    bn_eps          eps of the batch norm
    bn_w, bn_b      its weight and bias, or None
    transpose       whether the convolution is a transposed one

    >>> import undertow as ut
    >>> conv, norm = ut.nn.Conv1d(1, 2, 3), ut.nn.BatchNorm1d(2)
    >>> fused = ut.nn.utils.fuse_conv_bn_weights(
    ...     conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    ... )
    >>> [part.shape for part in fused]
    [undertow.Size([2, 1, 3]), undertow.Size([2])]
    """
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return fused_parameters(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """The weight and bias of the fused linear layer.

    linear_w, linear_b  weight and bias (or None) of the linear layer
    bn_rm, bn_rv        running mean and variance
    bn_eps              eps of the batch norm
    bn_w, bn_b          its weight and bias, or None

    >>> import undertow as ut
    >>> linear, norm = ut.nn.Linear(3, 2), ut.nn.BatchNorm1d(2)
    >>> fused = ut.nn.utils.fuse_linear_bn_weights(
    ...     linear.weight, linear.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    ... )
    >>> [part.shape for part in fused]
    [undertow.Size([2, 3]), undertow.Size([2])]
    """
    return fused_parameters(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fused_parameters(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    shape: list[int],
) -> tuple[Parameter, Parameter]:
    """(weight x + bias - mean) / sqrt(var + eps) * scale + shift, as one weight and one bias."""
    factor = ops.rsqrt(var + eps) * (1.0 if scale is None else scale)
    moved = (0.0 if bias is None else bias) - mean
    fused_bias = moved * factor + (0.0 if shift is None else shift)
    fused_weight = ops._to_copy(weight * ops.reshape(factor, shape), weight.dtype).detach()
    fused_bias = ops._to_copy(fused_bias, weight.dtype if bias is None else bias.dtype).detach()
    wanted = False if bias is None else bias.requires_grad
    return Parameter(fused_weight, weight.requires_grad), Parameter(fused_bias, wanted)
