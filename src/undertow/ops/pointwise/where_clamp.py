"""Choosing one of two numbers: where, the larger, the smaller, within bounds, finite ones for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import NUMBERS, number_tensor, result_type_of, type_name
from undertow.ops.declare import adapter, alias, composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.unary import unary
from undertow.tensor import Tensor

# ---- where


def chosen(xp: Namespace, condition: Array, input: Array, other: Array) -> Array:
    if condition.dtype.kind != "b" and condition.dtype != dtypes.uint8:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{type_name(condition)}. Compare it with something: condition != 0."
        )
    return xp.where(condition, input, other)


_where = primitive(
    "_where",
    forward=chosen,
    vjp={
        "condition": None,
        "input": lambda xp, g, condition: xp.where(condition, g, 0),
        "other": lambda xp, g, condition: xp.where(condition, 0, g),
    },
    jvp={
        "input": lambda xp, t, condition: xp.where(condition, t, 0),
        "other": lambda xp, t, condition: xp.where(condition, 0, t),
    },
    batch=ELEMENTWISE,
    node="WhereBackward0",
    promote="same",
    number="other",
)


@composite(variants="function method", out=True, overlap="part")
def where(condition: Array, input: Array | None = None, other: Array | None = None) -> Array:
    """Elements of `input` where the condition holds, of `other` elsewhere; given that alone, its places.

    >>> import undertow as ut
    >>> ut.where(ut.tensor([True, False]), ut.tensor([1.0, 2.0]), 0).tolist()
    [1.0, 0.0]
    """
    if input is None and other is None:
        return recorded.nonzero(condition)
    if isinstance(input, NUMBERS) and isinstance(other, NUMBERS):
        input = number_tensor(input)
        input = Tensor(input._array.astype(result_type_of((input, other))), input._xp)
    return _where(condition, input, other)


adapter("where")(where)

# ---- the larger and the smaller


def refuse_unordered(name: str, array: Array) -> None:
    if array.dtype.kind == "c":
        raise NotImplementedError(f"{name} not implemented for complex tensors: complex numbers have no order")


def larger(xp: Namespace, input: Array, other: Array) -> Array:
    refuse_unordered("maximum", input)
    return xp.maximum(input, other)


def smaller(xp: Namespace, input: Array, other: Array) -> Array:
    refuse_unordered("minimum", input)
    return xp.minimum(input, other)


def _larger_number(xp: Namespace, input: Array, other: Array) -> Array:
    refuse_unordered("fmax", input)
    return xp.fmax(input, other)


def _smaller_number(xp: Namespace, input: Array, other: Array) -> Array:
    refuse_unordered("fmin", input)
    return xp.fmin(input, other)


def share(xp: Namespace, g: Array, loses: Callable[..., Any], a: Array, b: Array) -> Array:
    """The gradient of `a`, which gets none where it loses: ties share evenly, and both get it at nan."""
    return xp.where(xp.equal(a, b), g / 2, xp.where(loses(a, b), 0, g))


maximum = primitive(
    "maximum",
    forward=larger,
    vjp={
        "input": lambda xp, g, input, other: share(xp, g, xp.less, input, other),
        "other": lambda xp, g, input, other: share(xp, g, xp.less, other, input),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method foreach",
)

minimum = primitive(
    "minimum",
    forward=smaller,
    vjp={
        "input": lambda xp, g, input, other: share(xp, g, xp.greater, input, other),
        "other": lambda xp, g, input, other: share(xp, g, xp.greater, other, input),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method foreach",
)


def _input_wins(xp: Namespace, compare: Callable[..., Any], input: Array, other: Array) -> Array:
    """Where fmax and fmin take their first argument: ties, too, and where the second is nan."""
    return xp.logical_or(compare(input, other), xp.isnan(other))


fmax = primitive(
    "fmax",
    forward=_larger_number,
    vjp={
        "input": lambda xp, g, input, other: xp.where(_input_wins(xp, xp.greater_equal, input, other), g, 0),
        "other": lambda xp, g, input, other: xp.where(_input_wins(xp, xp.greater_equal, input, other), 0, g),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method",
)

fmin = primitive(
    "fmin",
    forward=_smaller_number,
    vjp={
        "input": lambda xp, g, input, other: xp.where(_input_wins(xp, xp.less_equal, input, other), g, 0),
        "other": lambda xp, g, input, other: xp.where(_input_wins(xp, xp.less_equal, input, other), 0, g),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method",
)

# ---- clamp: the gradient of the input includes the bounds


def _clamped_below(xp: Namespace, input: Array, min: Array) -> Array:
    refuse_unordered("clamp", input)
    return xp.maximum(input, min)


def _clamped_above(xp: Namespace, input: Array, max: Array) -> Array:
    refuse_unordered("clamp", input)
    return xp.minimum(input, max)


def _clamped(xp: Namespace, input: Array, min: Array, max: Array) -> Array:
    refuse_unordered("clamp", input)
    return xp.minimum(xp.maximum(input, min), max)


def inside(xp: Namespace, input: Array, min: Array, max: Array) -> Array:
    return xp.logical_and(xp.greater_equal(input, min), xp.less_equal(input, max))


def below(xp: Namespace, input: Array, min: Array, max: Array) -> Array:
    return xp.logical_and(xp.less(input, min), xp.less(min, max))


def above(xp: Namespace, input: Array, min: Array, max: Array) -> Array:
    return xp.logical_or(xp.greater(input, max), xp.less(max, min))


def _lower_bound(name: str, **options: Any) -> Any:
    return primitive(
        name,
        forward=_clamped_below,
        vjp={
            "input": lambda xp, g, input, min: xp.where(xp.greater_equal(input, min), g, 0),
            "min": lambda xp, g, input, min: xp.where(xp.less(input, min), g, 0),
        },
        jvp=ELEMENTWISE,
        batch=ELEMENTWISE,
        promote="same",
        **options,
    )


def _upper_bound(name: str, **options: Any) -> Any:
    return primitive(
        name,
        forward=_clamped_above,
        vjp={
            "input": lambda xp, g, input, max: xp.where(xp.less_equal(input, max), g, 0),
            "max": lambda xp, g, input, max: xp.where(xp.greater(input, max), g, 0),
        },
        jvp=ELEMENTWISE,
        batch=ELEMENTWISE,
        promote="same",
        **options,
    )


clamp_min = _lower_bound(
    "clamp_min",
    node="ClampMinBackward1",
    number_node="ClampMinBackward0",
    number="min",
    number_edge=False,
    variants="function method in_place in_place_function foreach",
)
clamp_max = _upper_bound(
    "clamp_max",
    node="ClampMaxBackward1",
    number_node="ClampMaxBackward0",
    number="max",
    number_edge=False,
    variants="function method in_place in_place_function foreach",
)
_clamp_below = _lower_bound("_clamp_below", node="ClampBackward0")
_clamp_above = _upper_bound("_clamp_above", node="ClampBackward0")

# bounds that are tensors; where they cross, max decides
_clamp_tensors = primitive(
    "_clamp_tensors",
    forward=_clamped,
    vjp={
        "input": lambda xp, g, input, min, max: xp.where(inside(xp, input, min, max), g, 0),
        "min": lambda xp, g, input, min, max: xp.where(below(xp, input, min, max), g, 0),
        "max": lambda xp, g, input, min, max: xp.where(above(xp, input, min, max), g, 0),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="ClampBackward0",
    promote="same",
)


@twin
def clamped_to_numbers(xp: Namespace, input: Array, min: Any = None, max: Any = None) -> Array:
    refuse_unordered("clamp", input)
    out = input if min is None else xp.maximum(input, min)
    out = out if max is None else xp.minimum(out, max)
    if out.dtype is not input.dtype:
        bounds = [bound for bound in (min, max) if bound is not None]
        out = out.astype(result_type_of((Tensor(input, xp), *bounds)))
    return out


@twin
def clamp_to_numbers_rule(xp: Namespace, g: Array, input: Array, min: Any, max: Any) -> Array:
    if min is None or max is None:
        return xp.where(xp.less_equal(input, max) if min is None else xp.greater_equal(input, min), g, 0)
    return xp.where(inside(xp, input, min, max), g, 0)


_clamp = unary(
    "_clamp",
    forward=clamped_to_numbers,
    vjp=clamp_to_numbers_rule,
    node="ClampBackward1",
    promote=None,
)


@composite(variants="function method in_place in_place_function", out=True, overlap="part")
def clamp(input: Array, min: Array | None = None, max: Array | None = None) -> Array:
    """Every element, moved into [min, max]; each bound is a number, a tensor, or None.

    >>> import undertow as ut
    >>> ut.clamp(ut.tensor([-1.0, 0.5, 3.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None. Give a bound.")
    if (min is None or isinstance(min, NUMBERS)) and (max is None or isinstance(max, NUMBERS)):
        return _clamp(input, min, max)
    if max is None:
        return _clamp_below(input, min)
    return _clamp_above(input, max) if min is None else _clamp_tensors(input, min, max)


# ---- finite numbers


def _finite_part(xp: Namespace, g: Array, input: Array) -> Array:
    """`g` where the input is finite; real and imaginary parts each for themselves."""
    if input.dtype.kind != "c":
        return xp.where(xp.isfinite(input), g, 0)
    return _finite_part(xp, xp.real(g), xp.real(input)) + 1j * _finite_part(xp, xp.imag(g), xp.imag(input))


def _made_finite(
    xp: Namespace, input: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    nan = 0.0 if nan is None else nan
    if input.dtype in (dtypes.float32, dtypes.float64):
        limits = xp.finfo(input.dtype)
        high, low = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
        bounded = xp.where(input == math.inf, high, xp.where(input == -math.inf, low, input))
        return xp.where(input == input, bounded, nan)
    if input.dtype.kind != "V":
        return xp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
    limits = xp.finfo(input.dtype)  # NumPy does not know those of bfloat16
    ends = float(limits.max) if posinf is None else posinf, float(limits.min) if neginf is None else neginf
    return _made_finite(xp, input.astype(dtypes.float32), nan, *ends).astype(input.dtype)


nan_to_num = unary(
    "nan_to_num",
    forward=_made_finite,
    vjp=_finite_part,
    promote=None,
    half_precision="as_is",
    variants="function method in_place in_place_function",
)


alias("clip", clamp, variants="function method in_place in_place_function", out=True)
