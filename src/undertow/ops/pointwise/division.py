"""Quotients, whole quotients and remainders; common divisors and multiples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import adapter, alias, composite, nondifferentiable, primitive
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.arithmetic import is_integral
from undertow.ops.pointwise.unary import not_implemented

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


def _has_zero(xp: Namespace, numbers: Array) -> Any:
    if isinstance(numbers, cpu.ndarray):
        return cpu.count_nonzero(numbers) < numbers.size  # in a tenth of the time that `all` takes for few
    return numbers == 0 if isinstance(numbers, int) else not xp.all(numbers)


def _refuse_zero(xp: Namespace, input: Array, other: Array) -> None:
    """Integers cannot be divided by zero; NumPy would warn and give 0."""
    if is_integral(input) and is_integral(other) and _has_zero(xp, other):
        raise RuntimeError("ZeroDivisionError: integer division or modulo by zero. Divide floats to get inf or nan.")


def _floor_quotient(xp: Namespace, input: Array, other: Array) -> Array:
    _refuse_zero(xp, input, other)
    return xp.floor_divide(input, other)


def _whole_quotient(xp: Namespace, input: Array, other: Array, rounding_mode: str) -> Array:
    if rounding_mode == "floor":
        return _floor_quotient(xp, input, other)
    if is_integral(input) and is_integral(other):
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

    rounding_mode  None: the exact quotient; "floor" or "trunc": rounded down, or towards zero

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


def _rest(name: str, forward: Callable[..., Any], other_rule: Callable[..., Any], node: str, **options: Any) -> Any:
    return primitive(
        name,
        forward=forward,
        vjp={"input": lambda xp, g: g, "other": other_rule},
        jvp=ELEMENTWISE,
        batch=ELEMENTWISE,
        node=f"{node}1",
        number_node=f"{node}0",
        promote="same",
        number="other",
        number_edge=False,
        ufunc=name,
        variants="function method in_place",
        **options,
    )


remainder = _rest(
    "remainder",
    _modulo,
    lambda xp, g, input, other: -g * xp._div_rounded(input, other, "floor"),
    "RemainderBackward",
    numbers="one",
)
fmod = _rest("fmod", _c_modulo, lambda xp, g, input, other: -g * xp._div_rounded(input, other, "trunc"), "FmodBackward")


def _sum_with_quotient(xp: Namespace, input: Array, tensor1: Array, tensor2: Array, *, value: Any = 1) -> Array:
    if is_integral(tensor1) and is_integral(tensor2):
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

# ---- divisors and multiples


def _of_integers(name: str, **options: Any) -> Any:
    def forward(xp: Namespace, input: Array, other: Array) -> Any:
        require_kinds(f"{name}_cpu", input, "iu")
        return getattr(xp, name)(input, other)

    return nondifferentiable(name, forward, inputs=("input", "other"), batch=ELEMENTWISE, promote="same", **options)


gcd = _of_integers("gcd", variants="function method in_place in_place_function")
lcm = _of_integers("lcm", variants="function method in_place in_place_function")

# ---- other names

alias("divide", div, variants="function method in_place", out=True)
adapter("divide")(true_divide)
adapter("mod")(remainder)
