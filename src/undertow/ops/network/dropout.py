"""Dropout: elements set to zero by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.modes import no_grad
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.random import draw
from undertow.ops.random.generator import as_generator
from undertow.ops.random.tensors import bernoulli

if TYPE_CHECKING:
    from undertow.ops.random.generator import Generator


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
def dropout(input: Array, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Array:
    """Every element 0 with probability p, else over 1 - p, so that the mean stays; the input itself if not training.

    >>> import undertow as ut
    >>> ut.dropout(ut.ones(3), 0.5, False)
    tensor([1., 1., 1.])
    """
    input = as_operand("dropout", "input", input)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if input._xp.device.type == "cuda" and input.is_floating_point():
        return native_dropout(input, p, True, generator=generator)[0]
    if p == 1:
        return mul(input, 0)
    with no_grad():
        factors = bernoulli(input, 1 - p, generator=generator) / (1 - p)
    return mul(input, factors)
