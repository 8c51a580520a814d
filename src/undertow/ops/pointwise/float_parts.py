"""What numbers are made of: common divisors, mantissa and exponent, the next number after one."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.ops.arguments.operands import require_kinds
from undertow.ops.declare import composite, nondifferentiable, primitive, return_types
from undertow.ops.declare.rules import ELEMENTWISE


def of_integers(name: str, **options: Any) -> Any:
    def forward(xp: Any, input: Any, other: Any) -> Any:
        require_kinds(f"{name}_cpu", input, "iu")
        return getattr(xp, name)(input, other)

    return nondifferentiable(name, forward, inputs=("input", "other"), batch=ELEMENTWISE, promote="same", **options)


gcd = of_integers("gcd", variants="function method in_place in_place_function")
lcm = of_integers("lcm", variants="function method in_place in_place_function")


def next_number(xp: Any, input: Any, other: Any) -> Any:
    require_kinds("nextafter_cpu", input, "f")
    return xp.nextafter(input, other)


nextafter = primitive(
    "nextafter",
    forward=next_number,
    bfloat16="as_is",
    vjp={
        "input": lambda xp, g, input, other: xp.where(xp.not_equal(input, other), g, 0),
        "other": lambda xp, g, other: xp.zeros_like(other),
    },
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="same",
    variants="function method in_place",
)


def mantissa_and_exponent(xp: Any, input: Any) -> Any:
    if input.dtype.kind != "f":
        raise RuntimeError(
            f"torch.frexp() only supports floating-point dtypes, but got {dtypes.SCALAR_NAMES[input.dtype]}"
        )
    mantissa, exponent = xp.frexp(input)
    return mantissa, xp.asarray(exponent, dtypes.int32)


def unscaled(xp: Any, x: Any, exponent: Any) -> Any:
    return x / xp.exp2(xp.astype(exponent, x.dtype))


frexp_parts = primitive(
    "_frexp",
    forward=mantissa_and_exponent,
    vjp={"input": lambda xp, g, exponent: unscaled(xp, g, exponent)},
    jvp={"input": lambda xp, t, exponent: unscaled(xp, t, exponent)},
    batch=lambda op, args, in_dims: (op(args[0]), in_dims[0]),
    outputs=("mantissa", "exponent"),
    nondifferentiable=("exponent",),
    node="FrexpBackward0",
)


@composite(variants="function method", out=True)
def frexp(input: Any) -> Any:
    """Each number as mantissa * 2 ** exponent, with the mantissa in [0.5, 1): (mantissa, exponent).

    >>> import undertow as ut
    >>> ut.frexp(ut.tensor([6.0])).mantissa.tolist()
    [0.75]
    """
    return return_types.frexp(frexp_parts(input))
