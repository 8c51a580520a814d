"""Sums, products, quotients and what is made of them."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import adapter, alias, composite, primitive
from undertow.ops.declare.rules import BILINEAR, ELEMENTWISE, LINEAR


def _is_integral(value: Array) -> bool:
    return value.dtype.kind in "bui" if hasattr(value, "dtype") else isinstance(value, int)


# ---- sums


def times_alpha(input: Array, other: Array, alpha: Any) -> Any:
    if isinstance(alpha, float | complex) and _is_integral(input) and _is_integral(other):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number. Convert the "
            "tensors to a floating-point dtype first."
        )
    if isinstance(alpha, complex) and input.dtype.kind != "c":
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return other & bool(alpha) if getattr(other, "dtype", None) == dtypes.bool_ else other * alpha


def difference(xp: Namespace, a: Array, b: Array) -> Any:
    try:
        return xp.subtract(a, b)
    except TypeError:
        if dtypes.bool_ != a.dtype:
            raise
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        ) from None


def negative(xp: Namespace, input: Array) -> Array:
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
    promote="same",
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
    promote="same",
    number="other",
    number_edge=False,
    order="second",
)

neg = primitive(
    "neg",
    forward=negative,
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

# ---- quotients

true_divide = primitive(
    "true_divide",
    forward=lambda xp, input, other: xp.divide(input, other),
    vjp={
        "input": lambda xp, g, other: g / xp.conj(other),
        "other": lambda xp, g, input, other: -g * xp.conj(input) / xp.conj(other) / xp.conj(other),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="DivBackward0",
    promote="float",
    number="other",
    variants="function method in_place",
    numbers="any",
)


def _refuse_zero(xp: Namespace, input: Array, other: Array) -> None:
    """Integers cannot be divided by zero; NumPy would warn and give 0."""
    if _is_integral(input) and _is_integral(other) and not xp.all(other):
        raise RuntimeError("ZeroDivisionError: integer division or modulo by zero. Divide floats to get inf or nan.")


def _floor_quotient(xp: Namespace, input: Array, other: Array) -> Array:
    _refuse_zero(xp, input, other)
    return xp.floor_divide(input, other)


def _whole_quotient(xp: Namespace, input: Array, other: Array, rounding_mode: str) -> Array:
    if rounding_mode == "floor":
        return _floor_quotient(xp, input, other)
    if _is_integral(input) and _is_integral(other):
        _refuse_zero(xp, input, other)
        return (input - xp.fmod(input, other)) // other
    return xp.trunc(input / other)


_div_rounded = primitive(
    "_div_rounded",
    forward=_whole_quotient,
    vjp={
        "input": lambda xp, g, rounding_mode: xp.zeros_like(g),
        "other": lambda xp, g, rounding_mode: xp.zeros_like(g),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="DivBackward2",
    promote="same",
    number="other",
    piecewise_constant=True,
)


@composite(variants="function method in_place foreach", out=True)
def div(input: Array, other: Array, *, rounding_mode: str | None = None) -> Array:
    """The quotient; with rounding_mode "floor" or "trunc", the whole part of it, whose gradient is zero.

    >>> import undertow as ut
    >>> ut.div(ut.tensor([7, -7]), 2, rounding_mode="trunc").tolist()
    [3, -3]
    """
    if rounding_mode is None:
        return true_divide(input, other)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    return _div_rounded(input, other, rounding_mode)


def not_implemented(name: str, fact: str = "It is zero wherever it exists") -> Any:
    """The rule of an operation that PyTorch records but does not differentiate."""

    def rule(xp: Namespace, g: Array) -> Any:
        raise NotDifferentiableError(name, f"{fact}: detach() the inputs if no gradient is to flow to them.")

    return rule


floor_divide = primitive(
    "floor_divide",
    forward=_floor_quotient,
    vjp={"input": not_implemented("floor_divide"), "other": not_implemented("floor_divide")},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NotImplemented",
    promote="same",
    number="other",
    ufunc="floor_divide",
    variants="function method in_place",
    numbers="any",
)


def _modulo(xp: Namespace, input: Array, other: Array) -> Array:
    _refuse_zero(xp, input, other)
    return xp.remainder(input, other)


def _c_modulo(xp: Namespace, input: Array, other: Array) -> Array:
    _refuse_zero(xp, input, other)
    return xp.fmod(input, other)


remainder = primitive(
    "remainder",
    forward=_modulo,
    vjp={
        "input": lambda xp, g: g,
        "other": lambda xp, g, input, other: -g * xp._div_rounded(input, other, "floor"),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="RemainderBackward1",
    number_node="RemainderBackward0",
    promote="same",
    number="other",
    number_edge=False,
    ufunc="remainder",
    variants="function method in_place",
    numbers="one",
)

fmod = primitive(
    "fmod",
    forward=_c_modulo,
    vjp={
        "input": lambda xp, g: g,
        "other": lambda xp, g, input, other: -g * xp._div_rounded(input, other, "trunc"),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="FmodBackward1",
    number_node="FmodBackward0",
    promote="same",
    number="other",
    number_edge=False,
    ufunc="fmod",
    variants="function method in_place",
)


def _sum_with_quotient(xp: Namespace, input: Array, tensor1: Array, tensor2: Array, *, value: Any = 1) -> Array:
    if _is_integral(tensor1) and _is_integral(tensor2):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported. Convert one of tensor1 and tensor2 to a "
            "floating-point dtype, or write input + value * trunc(tensor1 / tensor2)."
        )
    return input + tensor1 / tensor2 * value


addcdiv = primitive(
    "addcdiv",
    forward=_sum_with_quotient,
    vjp={
        "input": lambda xp, g: g,
        "tensor1": lambda xp, g, tensor2, value: g * xp.conj(value) / xp.conj(tensor2),
        "tensor2": lambda xp, g, tensor1, tensor2, value: -g * xp.conj(tensor1 / tensor2 / tensor2 * value),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place foreach",
)

# ---- other names

alias("negative", neg, variants="function method in_place in_place_function")
alias("subtract", sub, variants="function method in_place")
alias("multiply", mul, variants="function method in_place")
alias("divide", div, variants="function method in_place", out=True)
adapter("divide")(true_divide)
adapter("negative")(neg)
adapter("positive")(positive)
adapter("mod")(remainder)
