"""Sums, products and what is made of them. Quotients are in division.py, powers in powers.py."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import adapter, alias, composite, primitive
from undertow.ops.declare.rules import BILINEAR, ELEMENTWISE, LINEAR


def is_integral(value: Array) -> bool:
    return value.dtype.kind in "bui" if hasattr(value, "dtype") else isinstance(value, int)


# ---- sums


def times_alpha(input: Array, other: Array, alpha: Any) -> Any:
    if isinstance(alpha, float | complex) and is_integral(input) and is_integral(other):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number. Convert the "
            "tensors to a floating-point dtype first."
        )
    if isinstance(alpha, complex) and input.dtype.kind != "c":
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return other & bool(alpha) if getattr(other, "dtype", None) == dtypes.bool_ else other * alpha


@twin
def difference(xp: Namespace, a: Array, b: Array) -> Array:
    try:
        return xp.subtract(a, b)
    except TypeError:
        if dtypes.bool_ != a.dtype:
            raise
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        ) from None


@twin
def negated(xp: Namespace, input: Array) -> Array:
    try:
        return xp.negative(input)
    except TypeError:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
            "mask, use the `~` or `logical_not()` operator instead."
        ) from None


add = primitive(
    "add",
    forward=lambda xp, input, other, *, alpha=1: xp.add(
        input, other if alpha == 1 else times_alpha(input, other, alpha)
    ),
    vjp={
        "input": lambda xp, g: g,
        "other": lambda xp, g, alpha: g if alpha == 1 else g * xp.conj(alpha),
    },
    jvp=LINEAR,
    batch=ELEMENTWISE,
    promote="same",
    number="other",
    ufunc="add",
    variants="function method in_place foreach",
    numbers="any",
)

sub = primitive(
    "sub",
    forward=lambda xp, input, other, *, alpha=1: difference(
        xp, input, other if alpha == 1 else times_alpha(input, other, alpha)
    ),
    vjp={
        "input": lambda xp, g: g,
        "other": lambda xp, g, alpha: -g if alpha == 1 else g * -xp.conj(alpha),
    },
    jvp=LINEAR,
    batch=ELEMENTWISE,
    promote="numbers",
    number="other",
    ufunc="subtract",
    variants="function method in_place foreach",
    numbers="any",
)

rsub = primitive(
    "rsub",
    forward=lambda xp, input, other, *, alpha=1: difference(
        xp, other, input if alpha == 1 else times_alpha(input, input, alpha)
    ),
    vjp={
        "input": lambda xp, g, alpha: -g if alpha == 1 else g * -xp.conj(alpha),
        "other": lambda xp, g: g,
    },
    jvp=LINEAR,
    batch=ELEMENTWISE,
    number_node="RsubBackward1",
    promote="numbers",
    number="other",
    number_edge=False,
    order="second",
)

neg = primitive(
    "neg",
    forward=negated,
    vjp={"input": lambda xp, g: -g},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    ufunc="negative",
    variants="function method in_place in_place_function foreach",
)


@composite(variants="function method")
def positive(input: Array) -> Array:
    """The tensor itself.

    >>> import undertow as ut
    >>> ut.positive(ut.tensor([1.0, 2.0, 3.0]))
    tensor([1., 2., 3.])
    """
    input = as_operand("positive", "input", input)
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# ---- products

mul = primitive(
    "mul",
    forward=lambda xp, input, other: xp.multiply(input, other),
    vjp={
        "input": lambda xp, g, other: g * xp.conj(other),
        "other": lambda xp, g, input: g * xp.conj(input),
    },
    jvp=BILINEAR,
    batch=ELEMENTWISE,
    promote="same",
    number="other",
    variants="function method in_place foreach",
    numbers="any",
)

addcmul = primitive(
    "addcmul",
    forward=lambda xp, input, tensor1, tensor2, *, value=1: input + tensor1 * tensor2 * value,
    vjp={
        "input": lambda xp, g: g,
        "tensor1": lambda xp, g, tensor2, value: g * xp.conj(tensor2) * xp.conj(value),
        "tensor2": lambda xp, g, tensor1, value: g * xp.conj(tensor1) * xp.conj(value),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place foreach",
)


def _interpolated(xp: Namespace, input: Array, end: Array, weight: Array) -> Array:
    # from the nearer end, so that weights 0 and 1 give the ends exactly
    step = end - input
    if getattr(weight, "ndim", 0) == 0 and type(weight) is not complex:
        is_near = abs(weight) < 0.5
        step *= weight if is_near else weight - 1
        step += input if is_near else end
        return step
    near = input + weight * step
    far = end - step * (1 - weight)
    return xp.where(abs(weight) < 0.5, near, far)


lerp = primitive(
    "lerp",
    forward=_interpolated,
    vjp={
        "input": lambda xp, g, weight: g * xp.conj(1 - weight),
        "end": lambda xp, g, weight: g * xp.conj(weight),
        "weight": lambda xp, g, input, end: g * xp.conj(end - input),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="LerpBackward1",
    number_node="LerpBackward0",
    promote="same",
    number="weight",
    number_edge=False,
    variants="function method in_place foreach",
)

# ---- other names

alias("negative", neg, variants="function method in_place in_place_function")
alias("subtract", sub, variants="function method in_place")
alias("multiply", mul, variants="function method in_place")
adapter("negative")(neg)
adapter("positive")(positive)
