"""Complex numbers: their parts, conjugation, and conversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import UndertowError
from undertow.ops.arguments.operands import as_operand, type_name
from undertow.ops.declare import adapter, composite, primitive, view
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.tensor import Tensor
from undertow.tensor.facts import element_strides
from undertow.tensor.memory import bytes_into_base

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- conjugation, which is always carried out


def _conjugation(name: str, node: str) -> Any:
    return primitive(
        name,
        forward=lambda xp, input: xp.conjugate(input),
        vjp={"input": lambda xp, g: xp.conj(g)},
        jvp=LINEAR,
        batch=ELEMENTWISE,
        node=node,
    )


_conj = _conjugation("_conj", "ConjBackward0")
_conj_physical = _conjugation("_conj_physical", "ConjPhysicalBackward0")


def is_complex(tensor: Array) -> bool:
    return bool(tensor._array.dtype.kind == "c")


@composite(variants="function method")
def conj(input: Array) -> Array:
    """The complex conjugate; a real tensor is returned as it is.

    >>> import undertow as ut
    >>> ut.conj(ut.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    input = as_operand("conj", "input", input)
    return _conj(input) if is_complex(input) else input


@composite(variants="function method in_place in_place_function", out=True)
def conj_physical(input: Array) -> Array:
    """The complex conjugate; a real tensor is returned as it is.

    >>> import undertow as ut
    >>> ut.conj_physical(ut.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    input = as_operand("conj_physical", "input", input)
    return _conj_physical(input) if is_complex(input) else input


# PyTorch conjugates and negates lazily and marks such tensors with a bit; here no tensor ever has one


@composite(variants="function method")
def resolve_conj(input: Array) -> Array:
    """The tensor itself: no conjugation is ever pending.

    >>> import undertow as ut
    >>> ut.resolve_conj(ut.tensor([1j]).conj())
    tensor([0.-1.j])
    """
    return as_operand("resolve_conj", "input", input)


@composite(variants="function method")
def resolve_neg(input: Array) -> Array:
    """The tensor itself: no negation is ever pending.

    >>> import undertow as ut
    >>> ut.resolve_neg(ut.tensor([1.0]))
    tensor([1.])
    """
    return as_operand("resolve_neg", "input", input)


@composite(variants="function method")
def is_conj(input: Array) -> bool:
    """False: no conjugation is ever pending.

    >>> import undertow as ut
    >>> ut.is_conj(ut.tensor([1j]))
    False
    """
    as_operand("is_conj", "input", input)
    return False


@composite(variants="function method")
def is_neg(input: Array) -> bool:
    """False: no negation is ever pending.

    >>> import undertow as ut
    >>> ut.is_neg(ut.tensor([1.0]))
    False
    """
    as_operand("is_neg", "input", input)
    return False


# ---- parts, as views

_real = view(
    "_real",
    forward=lambda xp, input: input.real,
    vjp={"input": lambda xp, g: g},
    batch=ELEMENTWISE,
    node="RealBackward0",
)

_imag = view(
    "_imag",
    forward=lambda xp, input: input.imag,
    vjp={"input": lambda xp, g: g * 1j},
    batch=ELEMENTWISE,
    node="ImagBackward0",
)


@composite
def real(input: Array) -> Array:
    """The real parts, as a view; a real tensor is returned as it is.

    >>> import undertow as ut
    >>> ut.real(ut.tensor([1 + 2j]))
    tensor([1.])
    """
    input = as_operand("real", "input", input)
    return _real(input) if is_complex(input) else input


class NoImaginaryPartError(UndertowError, RuntimeError, AttributeError):
    """`.imag` of a real tensor. An AttributeError, too, so that `hasattr` says no: xarray asks."""


@composite
def imag(input: Array) -> Array:
    """The imaginary parts of a complex tensor, as a view.

    >>> import undertow as ut
    >>> ut.imag(ut.tensor([1 + 2j]))
    tensor([2.])
    """
    input = as_operand("imag", "input", input)
    if not is_complex(input):
        raise NoImaginaryPartError(
            "imag is not implemented for tensors with non-complex dtypes. The imaginary part of a real tensor is zero."
        )
    return _imag(input)


def pairs_of_parts(xp: Namespace, input: Array) -> Array:
    if input.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    parts = xp.asarray(input).real
    return xp.lib.stride_tricks.as_strided(parts, (*parts.shape, 2), (*parts.strides, parts.itemsize))


def _complex_of_pairs(xp: Namespace, input: Array) -> Array:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            "view_as_complex is only supported for float and double tensors, but got a tensor of scalar type"
            f": {type_name(input)}"
        )
    if input.ndim == 0:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got shape {list(input.shape)}")
    if element_strides(input)[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1. Call contiguous() first.")
    return input.view(dtypes.complex_of(input.dtype))[..., 0]


def _batched_view_as_complex(function: Callable[..., Any], args: Any, in_dims: InDims) -> tuple[Any, ...]:
    """A batch dimension behind the pairs leaves them apart in memory: then the result is a copy."""
    input = in_front(args[0], in_dims[0])
    return (function if in_dims[0] < input._array.ndim - 1 else _complex_from_pairs)(input), 0


# not elementwise, but with a single input whose batch dimension in front is out of their way
view_as_real = view(
    "view_as_real",
    forward=pairs_of_parts,
    vjp={"input": lambda xp, g: xp._complex_from_pairs(g)},
    batch=ELEMENTWISE,
)

# view_as_complex for memory of any layout
_complex_from_pairs = primitive(
    "_complex_from_pairs",
    forward=lambda xp, input: joined(xp, input[..., 0], input[..., 1]),
    vjp={"input": lambda xp, g: xp.view_as_real(g)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
    node="ViewAsComplexBackward0",
)

_view_as_complex = view(
    "_view_as_complex",
    forward=_complex_of_pairs,
    vjp={"input": lambda xp, g: xp.view_as_real(g)},
    batch=_batched_view_as_complex,
    autocast="float32",
)


@composite
def view_as_complex(input: Array) -> Array:
    """Pairs of real numbers in the last dimension, as complex numbers in the same memory.

    input  (..., 2), real, the stride of the last dimension 1; the result has the shape (...)

    >>> import undertow as ut
    >>> ut.view_as_complex(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1.+2.j, 3.+4.j])
    """
    input = as_operand("view_as_complex", "input", input)
    result = _view_as_complex(input)
    if type(input) is Tensor:
        _check_pairs(input, input._array)
    return result


def _check_pairs(tensor: Tensor, array: Array) -> None:
    """Refuse pairs that do not lie at even places. The operation itself takes them: gradients lie anywhere."""
    if any([n > 1 and s % (2 * array.itemsize) for n, s in zip(array.shape[:-1], array.strides, strict=False)]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension. Take a clone() of it.")
    if bytes_into_base(tensor) % (2 * array.itemsize):
        raise RuntimeError("Tensor must have a storage_offset divisible by 2. Take a clone() of it.")


# ---- from and to real numbers


def _check_parts(real: Array, imag: Array) -> None:
    names = [type_name(part) for part in (real, imag)]
    if real.dtype.kind != "f" or imag.dtype.kind != "f":
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {names[0]} and {names[1]}"
        )
    if real.dtype != imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {names[0]} but got scalar type {names[1]} for second argument"
        )


def joined(xp: Namespace, real: Array, imag: Array) -> Array:
    _check_parts(real, imag)
    out = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), dtypes.complex_of(real.dtype))
    out.real[...], out.imag[...] = real, imag
    return out


def _from_polar(xp: Namespace, abs: Array, angle: Array) -> Array:
    _check_parts(abs, angle)
    return joined(xp, abs * xp.cos(angle), abs * xp.sin(angle))


complex = primitive(
    "complex",
    forward=joined,
    vjp={"real": lambda xp, g: xp.real(g), "imag": lambda xp, g: xp.imag(g)},
    jvp=LINEAR,
    batch=ELEMENTWISE,
)

polar = primitive(
    "polar",
    forward=_from_polar,
    vjp={
        "abs": lambda xp, g, angle: xp.real(g) * xp.cos(angle) + xp.imag(g) * xp.sin(angle),
        "angle": lambda xp, g, out: xp.imag(g * xp.conj(out)),
    },
    jvp={
        "abs": lambda xp, t, angle: t * xp.exp(angle * 1j),
        "angle": lambda xp, t, out: t * out * 1j,
    },
    batch=ELEMENTWISE,
    autocast="float32",
)


def _angle_of(xp: Namespace, input: Array) -> Array:
    if input.dtype.kind == "c":
        return xp.asarray(xp.angle(input), order="C")
    if getattr(xp, "traces", False):  # over large arrays: no quotient, no arcus tangent
        return xp.where(input < 0, math.pi, xp.where(input == input, 0, input))
    return xp.angle(input + 0.0 if input.dtype.kind == "f" else input)  # that of -0.0 is 0 without a sign


def _angle_rule(xp: Namespace, g: Array, input: Array) -> Array:
    if input.dtype.kind != "c":
        return xp.zeros_like(g)
    size = xp.abs(input)
    return xp.where(xp.equal(size, 0), 0, g * input / (size * size) * 1j)


angle = primitive(
    "angle",
    forward=_angle_of,
    vjp={"input": _angle_rule},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    promote="float",
    variants="function method",
    order="as_computed",  # PyTorch's angles of complex numbers lie by rows
)

adapter("conj")(lambda x: conj(x) if hasattr(x, "_array") else x.conjugate())
adapter("conjugate")(conj)
adapter("real")(real)
adapter("imag")(imag)
