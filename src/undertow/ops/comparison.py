"""Comparisons, logic and bits: their values jump, so none of them has a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.ops.declare import adapter, alias, composite, nondifferentiable
from undertow.ops.operands import as_operand
from undertow.ops.rules import ELEMENTWISE, LOOP


def binary(name: str, forward: Callable[..., Any], **options: Any) -> Any:
    return nondifferentiable(name, forward, inputs=("input", "other"), batch=ELEMENTWISE, number="other", **options)


def unary(name: str, forward: Callable[..., Any]) -> Any:
    return nondifferentiable(name, forward, inputs=("input",), batch=ELEMENTWISE)


# ---- order


def ordering(name: str, ufunc: str) -> Any:
    """A comparison of real numbers; NumPy would order complex ones by their real parts."""

    def forward(xp: Any, input: Any, other: Any) -> Any:
        if input.dtype.kind == "c":
            kind = dtypes.SCALAR_NAMES[input.dtype]
            raise NotImplementedError(f"\"{name}\" not implemented for '{kind}': complex numbers have no order")
        return getattr(xp, ufunc)(input, other)

    return binary(name, forward, promote="same")


eq = binary("eq", lambda xp, input, other: xp.equal(input, other), promote="same")
ne = binary("ne", lambda xp, input, other: xp.not_equal(input, other), promote="same")
lt = ordering("lt", "less")
le = ordering("le", "less_equal")
gt = ordering("gt", "greater")
ge = ordering("ge", "greater_equal")

# ---- logic and bits

logical_and = binary("logical_and", lambda xp, input, other: xp.logical_and(input, other))
logical_or = binary("logical_or", lambda xp, input, other: xp.logical_or(input, other))
logical_xor = binary("logical_xor", lambda xp, input, other: xp.logical_xor(input, other))
logical_not = unary("logical_not", lambda xp, input: xp.logical_not(input))

bitwise_and = binary("bitwise_and", lambda xp, input, other: xp.bitwise_and(input, other), promote="same")
bitwise_or = binary("bitwise_or", lambda xp, input, other: xp.bitwise_or(input, other), promote="same")
bitwise_xor = binary("bitwise_xor", lambda xp, input, other: xp.bitwise_xor(input, other), promote="same")
bitwise_not = unary("bitwise_not", lambda xp, input: xp.invert(input))
bitwise_left_shift = binary("bitwise_left_shift", lambda xp, input, other: xp.left_shift(input, other), promote="same")
bitwise_right_shift = binary(
    "bitwise_right_shift", lambda xp, input, other: xp.right_shift(input, other), promote="same"
)

# ---- what kind of number


def signed_infinity(name: str) -> Any:
    def forward(xp: Any, input: Any) -> Any:
        if input.dtype.kind == "c":
            raise RuntimeError(f"{name} does not support complex inputs: their infinities have no sign")
        return getattr(xp, name)(input)

    return unary(name, forward)


isnan = unary("isnan", lambda xp, input: xp.isnan(input))
isinf = unary("isinf", lambda xp, input: xp.isinf(input))
isfinite = unary("isfinite", lambda xp, input: xp.isfinite(input))
isposinf = signed_infinity("isposinf")
isneginf = signed_infinity("isneginf")
isreal = unary("isreal", lambda xp, input: xp.isreal(input))
signbit = unary("signbit", lambda xp, input: xp.signbit(input))

# ---- nearly equal, equal as a whole, among


def close(xp: Any, input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    if hasattr(other, "dtype") and other.dtype != input.dtype:
        names = [dtypes.SCALAR_NAMES[a.dtype] for a in (input, other)]
        raise RuntimeError(f"{names[0]} did not match {names[1]}: convert one of the tensors to the other's dtype")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {tolerance}")
    if input.dtype.kind == "b":
        return input == other
    return xp.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


isclose = binary("isclose", close)


@composite
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether every |input - other| is at most atol + rtol * |other|.

    >>> import undertow as ut
    >>> ut.allclose(ut.tensor([1.0, 2.0]), ut.tensor([1.0, 2.0 + 1e-6]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


@composite
def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and the same elements.

    >>> import undertow as ut
    >>> ut.equal(ut.ones(2), ut.ones(2)), ut.equal(ut.ones(2), ut.ones(3))
    (True, False)
    """
    input, other = as_operand("equal", "input", input), as_operand("equal", "other", other)
    return input._array.shape == other._array.shape and bool(eq(input, other)._array.all())


def among(xp: Any, elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    return xp.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


isin = nondifferentiable("isin", among, inputs=("elements", "test_elements"), batch=LOOP, promote="same")

# ---- other names

for _name, _function in {
    "not_equal": ne, "less": lt, "less_equal": le, "greater": gt, "greater_equal": ge,
}.items():  # fmt: skip
    alias(_name, _function)

# `equal` is a question about whole tensors in PyTorch; rules ask NumPy's
adapter("equal")(eq)
adapter("invert")(bitwise_not)
adapter("left_shift")(bitwise_left_shift)
adapter("right_shift")(bitwise_right_shift)
