"""Elements chosen by a mask."""

from __future__ import annotations

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.operands import NUMBERS
from undertow.ops.arguments.sizes import broadcast_shapes
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.declare.rules.batch_in_front import loop
from undertow.ops.index.index_select import cast_number, check_real


def _check_mask(op: str, mask: Array) -> None:
    if mask.dtype != dtypes.bool_:
        raise RuntimeError(f"{op} only supports boolean masks, but got mask with dtype {mask.dtype}")


def together(xp: Namespace, input: Array, mask: Array) -> tuple[Array, Array]:
    """Input and mask, broadcast to their common shape."""
    shape = broadcast_shapes([tuple(mask.shape), tuple(input.shape)])
    return xp.broadcast_to(input, shape), xp.broadcast_to(mask, shape)


# ---- masked_fill


@twin
def masked_fill_array(xp: Namespace, input: Array, mask: Array, value: Array) -> Array:
    _check_mask("masked_fill_", mask)
    if not hasattr(value, "ndim"):
        value = cast_number("masked_fill_", value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    check_real("masked_fill_", value, input.dtype)
    if getattr(xp, "traces", False):
        return xp.where(mask, xp.astype(value, input.dtype), input)
    if input.shape != mask.shape:
        input, mask = together(xp, input, mask)
    out = xp.array(input, order="C")
    whole = value.dtype.kind != "c" or input.dtype.kind == "c"
    xp.copyto(out, value if whole else value.real, where=mask, casting="unsafe")
    return out


_masked_fill_number = primitive(
    "_masked_fill_number",
    forward=masked_fill_array,
    vjp={"input": lambda xp, g, mask: xp._masked_fill_number(g, mask, 0), "mask": None},
    jvp={"input": lambda xp, t, mask: xp._masked_fill_number(t, mask, 0)},
    batch=ELEMENTWISE,
    node="MaskedFillBackward0",
    order="rows",
)

_masked_fill_tensor = primitive(
    "_masked_fill_tensor",
    forward=masked_fill_array,
    vjp={
        "input": lambda xp, g, mask: xp._masked_fill_number(g, mask, 0),
        "value": lambda xp, g, mask: xp._masked_fill_number(g, xp.logical_not(mask), 0),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    node="MaskedFillBackward1",
)


@composite(variants="function method in_place")
def masked_fill(input: Array, mask: Array, value: Array) -> Array:
    """The tensor with a number or a 0-d tensor wherever the mask is true.

    value  a number, or a 0-d tensor, to which gradients flow

    >>> import undertow as ut
    >>> ut.masked_fill(ut.ones(3), ut.tensor([True, False, True]), 0.0)
    tensor([0., 1., 0.])
    """
    fill = _masked_fill_number if isinstance(value, NUMBERS) else _masked_fill_tensor
    return fill(input, mask, value)


# ---- masked_select, masked_scatter


def _masked_select_array(xp: Namespace, input: Array, mask: Array) -> Array:
    if mask.dtype != dtypes.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    input, mask = together(xp, input, mask)
    return input[mask]


masked_select = primitive(
    "masked_select",
    forward=_masked_select_array,
    vjp={
        "input": lambda xp, g, input_shape, mask: xp.masked_scatter(
            xp._zeros_for(g, broadcast_shapes([tuple(mask.shape), tuple(input_shape)])), mask, g
        ),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="function method",
    overlap="any",
)


def _masked_scatter_array(xp: Namespace, input: Array, mask: Array, source: Array) -> Array:
    _check_mask("masked_scatter_", mask)
    if source.dtype != input.dtype:
        names = dtypes.SCALAR_NAMES
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{names[input.dtype]} and {names[source.dtype]}"
        )
    input, mask = together(xp, input, mask)
    wanted = int(mask.sum())
    if source.size < wanted:
        raise RuntimeError(
            f"masked_scatter: Number of elements of source < number of ones in mask ({source.size} < {wanted})"
        )
    out = xp.array(input, order="C")
    out[mask] = source.reshape(-1)[:wanted]
    return out


def _masked_scatter_gradient(xp: Namespace, grad: Array, mask: Array, sizes: tuple[int, ...]) -> Array:
    """The gradient of the source: what the mask selects, then zeros for the elements that were not used."""
    found = _masked_select_array(xp, grad, mask)
    out = xp.zeros(sizes, grad.dtype)
    out.reshape(-1)[: found.size] = found
    return out


masked_scatter = primitive(
    "masked_scatter",
    forward=_masked_scatter_array,
    vjp={
        "input": lambda xp, g, mask: xp._masked_fill_number(g, mask, 0),
        "source": lambda xp, g, mask, source_shape: xp.masked_scatter_backward(g, mask, source_shape),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="function method in_place",
)

masked_scatter_backward = primitive(
    "masked_scatter_backward",
    forward=_masked_scatter_gradient,
    vjp={
        "grad": lambda xp, g, grad_shape, mask: xp.masked_scatter(xp._zeros_for(g, grad_shape), mask, g),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="",
)
