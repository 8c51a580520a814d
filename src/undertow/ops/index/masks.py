"""Elements chosen by a mask, and where the true ones are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.compiled import twin
from undertow.ops.arguments.operands import NUMBERS, as_operand
from undertow.ops.arguments.sizes import broadcast_shapes
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR
from undertow.ops.declare.rules.batch_in_front import loop
from undertow.ops.index.index_select import cast_number, check_real
from undertow.tensor import Tensor


def check_mask(op: str, mask: Any) -> None:
    if mask.dtype != dtypes.bool_:
        raise RuntimeError(f"{op} only supports boolean masks, but got mask with dtype {mask.dtype}")


def together(xp: Any, input: Any, mask: Any) -> tuple[Any, Any]:
    """Input and mask, broadcast to their common shape."""
    shape = broadcast_shapes([tuple(mask.shape), tuple(input.shape)])
    return xp.broadcast_to(input, shape), xp.broadcast_to(mask, shape)


# ---- masked_fill


@twin
def masked_fill_array(xp: Any, input: Any, mask: Any, value: Any) -> Any:
    check_mask("masked_fill_", mask)
    if not hasattr(value, "ndim"):
        value = cast_number("masked_fill_", value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    check_real("masked_fill_", value, input.dtype)
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
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """The tensor with a number or a 0-d tensor wherever the mask is true.

    >>> import undertow as ut
    >>> ut.masked_fill(ut.ones(3), ut.tensor([True, False, True]), 0.0)
    tensor([0., 1., 0.])
    """
    fill = _masked_fill_number if isinstance(value, NUMBERS) else _masked_fill_tensor
    return fill(input, mask, value)


# ---- masked_select, masked_scatter


def masked_select_array(xp: Any, input: Any, mask: Any) -> Any:
    if mask.dtype != dtypes.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    input, mask = together(xp, input, mask)
    return input[mask]


masked_select = primitive(
    "masked_select",
    forward=masked_select_array,
    vjp={
        "input": lambda xp, g, input_shape, mask: xp.masked_scatter(
            xp._zeros_for(g, broadcast_shapes([tuple(mask.shape), tuple(input_shape)])), mask, g
        ),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="function method",
)


def masked_scatter_array(xp: Any, input: Any, mask: Any, source: Any) -> Any:
    check_mask("masked_scatter_", mask)
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


def masked_scatter_gradient(xp: Any, grad: Any, mask: Any, sizes: tuple[int, ...]) -> Any:
    """The gradient of the source: what the mask selects, then zeros for the elements that were not used."""
    found = masked_select_array(xp, grad, mask)
    out = xp.zeros(sizes, grad.dtype)
    out.reshape(-1)[: found.size] = found
    return out


masked_scatter = primitive(
    "masked_scatter",
    forward=masked_scatter_array,
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
    forward=masked_scatter_gradient,
    vjp={
        "grad": lambda xp, g, grad_shape, mask: xp.masked_scatter(xp._zeros_for(g, grad_shape), mask, g),
        "mask": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="",
)


# ---- where the true elements are

_nonzero = nondifferentiable(
    "_nonzero",
    forward=lambda xp, input: xp.argwhere(input).astype(dtypes.int64, copy=False),
    inputs=("input",),
)


@composite(variants="function method", out=True)
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: one row each, or one vector for each dimension.

    >>> import undertow as ut
    >>> ut.nonzero(ut.tensor([0.0, 3.0, 5.0]))
    tensor([[1],
            [2]])
    """
    if not as_tuple:
        return _nonzero(input)
    input = input if input.ndim else input.reshape(1)
    return tuple([Tensor(i, input._xp) for i in _nonzero(input)._array.T])


@adapter("nonzero")
def _nonzero_as_tuple(input: Any) -> Any:
    return nonzero(input, as_tuple=True)


@composite(variants="function method")
def argwhere(input: Any) -> Any:
    """The indices of the elements that are not zero, one row each."""
    return _nonzero(input)


# ---- indices without a tensor


def triangle(row: int, col: int, dtype: Any, device: Any, chosen: Any) -> Tensor:
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got{n}")
    xp, found = namespace_of(device), cpu.argwhere(chosen(cpu.ones((row, col), bool))).T
    return Tensor(xp.asarray(cpu.ascontiguousarray(found).astype(dtype or dtypes.int64)), xp)


@composite
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """The indices (rows, then columns) of the lower triangle of a matrix.

    >>> import undertow as ut
    >>> ut.tril_indices(2, 3)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return triangle(row, col, dtype, device, lambda ones: cpu.tril(ones, offset))


@composite
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """The indices (rows, then columns) of the upper triangle of a matrix."""
    return triangle(row, col, dtype, device, lambda ones: cpu.triu(ones, offset))


@composite
@example_by_example
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Flat positions as one index tensor for each dimension of `shape`.

    >>> import undertow as ut
    >>> ut.unravel_index(ut.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    indices = as_operand("unravel_index", "indices", indices)
    xp, array = indices._xp, indices._array
    if array.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {array.dtype}")
    return tuple([Tensor(xp.asarray(i), xp) for i in xp.unravel_index(array, sizes_of(shape))])


def sizes_of(shape: Any) -> tuple[int, ...]:
    """The sizes that unravel_index was given."""
    if isinstance(shape, Tensor) or not isinstance(shape, int | Sequence):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for n in sizes:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    return sizes


@composite(variants="function method")
@example_by_example
def nonzero_static(input: Any, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero`, filled up where there are fewer.

    >>> import undertow as ut
    >>> ut.nonzero_static(ut.tensor([0, 5]), size=2)
    tensor([[ 1],
            [-1]])
    """
    input = as_operand("nonzero_static", "input", input)
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = input._xp.argwhere(input._array)[:size]
    out = input._xp.full((size, input.ndim), fill_value, dtypes.int64)
    out[: len(found)] = found
    return Tensor(out, input._xp)
