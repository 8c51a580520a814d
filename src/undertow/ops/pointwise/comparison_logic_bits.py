"""Comparisons, logic and bits: values that jump, so none of them has a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import as_operand, require_order, require_tensor, type_name
from undertow.ops.declare import adapter, alias, composite, nondifferentiable
from undertow.ops.declare.rules import ELEMENTWISE, LOOP


def binary(name: str, forward: Callable[..., Any], **options: Any) -> Any:
    options = {"number": "other", **options}
    return nondifferentiable(name, forward, inputs=("input", "other"), batch=ELEMENTWISE, **options)


def _of_two_tensors(name: str, forward: Callable[..., Any], **options: Any) -> Any:
    return binary(name, forward, number=None, **options)


def unary(name: str, forward: Callable[..., Any], **options: Any) -> Any:
    return nondifferentiable(name, forward, inputs=("input",), batch=ELEMENTWISE, **options)


# ---- order


# NumPy would order complex numbers by their real parts


@twin
def less(xp: Namespace, input: Array, other: Array) -> Array:
    require_order("lt", input)
    return xp.less(input, other)


@twin
def less_equal(xp: Namespace, input: Array, other: Array) -> Array:
    require_order("le", input)
    return xp.less_equal(input, other)


@twin
def greater(xp: Namespace, input: Array, other: Array) -> Array:
    require_order("gt", input)
    return xp.greater(input, other)


@twin
def greater_equal(xp: Namespace, input: Array, other: Array) -> Array:
    require_order("ge", input)
    return xp.greater_equal(input, other)


eq = binary("eq", lambda xp, input, other: xp.equal(input, other), promote="same", variants="function method in_place")
ne = binary(
    "ne", lambda xp, input, other: xp.not_equal(input, other), promote="same", variants="function method in_place"
)
lt = binary("lt", less, promote="same", variants="function method in_place")
le = binary("le", less_equal, promote="same", variants="function method in_place")
gt = binary("gt", greater, promote="same", variants="function method in_place")
ge = binary("ge", greater_equal, promote="same", variants="function method in_place")

# ---- logic and bits

logical_and = _of_two_tensors(
    "logical_and", lambda xp, input, other: xp.logical_and(input, other), variants="function method in_place"
)
logical_or = _of_two_tensors(
    "logical_or", lambda xp, input, other: xp.logical_or(input, other), variants="function method in_place"
)
logical_xor = _of_two_tensors(
    "logical_xor", lambda xp, input, other: xp.logical_xor(input, other), variants="function method in_place"
)
logical_not = unary("logical_not", lambda xp, input: xp.logical_not(input), variants="function method in_place")


def _of_bits(name: str, forward: Callable[..., Any]) -> Any:
    return binary(name, forward, promote="same", variants="function method in_place", numbers="one")


bitwise_and = _of_bits("bitwise_and", lambda xp, input, other: xp.bitwise_and(input, other))
bitwise_or = _of_bits("bitwise_or", lambda xp, input, other: xp.bitwise_or(input, other))
bitwise_xor = _of_bits("bitwise_xor", lambda xp, input, other: xp.bitwise_xor(input, other))
bitwise_not = unary("bitwise_not", lambda xp, input: xp.invert(input), variants="function method in_place")
bitwise_left_shift = _of_bits("bitwise_left_shift", lambda xp, input, other: xp.left_shift(input, other))
bitwise_right_shift = _of_bits("bitwise_right_shift", lambda xp, input, other: xp.right_shift(input, other))

# ---- what kind of number


def _signed_infinity(name: str, **options: Any) -> Any:
    def forward(xp: Namespace, input: Array) -> Any:
        if input.dtype.kind == "c":
            raise RuntimeError(f"{name} does not support complex inputs: their infinities have no sign")
        return getattr(xp, name)(input)

    return unary(name, forward, **options)


isnan = unary("isnan", lambda xp, input: xp.isnan(input), variants="function method")
isinf = unary("isinf", lambda xp, input: xp.isinf(input), variants="function method")
isfinite = unary("isfinite", lambda xp, input: xp.isfinite(input), variants="function method")
isposinf = _signed_infinity("isposinf", variants="function method")
isneginf = _signed_infinity("isneginf", variants="function method")
isreal = unary("isreal", lambda xp, input: xp.isreal(input), variants="function method")

# ---- nearly equal, equal as a whole, among


def close(
    xp: Namespace, input: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Array:
    if hasattr(other, "dtype") and other.dtype != input.dtype:
        names = [type_name(a) for a in (input, other)]
        raise RuntimeError(f"{names[0]} did not match {names[1]}: convert one of the tensors to the other's dtype")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {tolerance}")
    if input.dtype.kind == "b":
        return input == other
    return xp.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


isclose = _of_two_tensors("isclose", close, variants="function method")


@composite(variants="function method")
def allclose(input: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether every |input - other| is at most atol + rtol * |other|.

    >>> import undertow as ut
    >>> ut.allclose(ut.tensor([1.0, 2.0]), ut.tensor([1.0, 2.0 + 1e-6]))
    True
    """
    for name, value in (("input", input), ("other", other)):
        require_tensor("allclose", **{name: value})
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


@composite(variants="function method")
def equal(input: Array, other: Array) -> bool:
    """Whether two tensors have the same shape and the same elements.

    input, other  tensors of any shapes

    >>> import undertow as ut
    >>> ut.equal(ut.ones(2), ut.ones(2)), ut.equal(ut.ones(2), ut.ones(3))
    (True, False)
    """
    input, other = as_operand("equal", "input", input), as_operand("equal", "other", other)
    return input._array.shape == other._array.shape and bool(eq(input, other)._array.all())


def among(
    xp: Namespace, elements: Array, test_elements: Array, *, assume_unique: bool = False, invert: bool = False
) -> Array:
    return xp.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


isin = nondifferentiable("isin", among, inputs=("elements", "test_elements"), batch=LOOP, promote="same", numbers="one")


# ---- other names

alias("not_equal", ne, variants="function method in_place")
alias("less", lt, variants="function method in_place")
alias("less_equal", le, variants="function method in_place")
alias("greater", gt, variants="function method in_place")
alias("greater_equal", ge, variants="function method in_place")

# `equal` is a question about whole tensors in PyTorch; rules ask NumPy's
adapter("equal")(eq)
adapter("invert")(bitwise_not)
adapter("left_shift")(bitwise_left_shift)
adapter("right_shift")(bitwise_right_shift)
