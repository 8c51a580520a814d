"""scatter_reduce and index_reduce: sum, product, mean, maximum or minimum of all that falls on a place.

In the comments a *group* is the elements of src that fall on one place, and what was there if `include_self`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite, nondifferentiable, primitive
from undertow.ops.declare.rules.batch_in_front import loop
from undertow.ops.declare.rules.shifted_dims import along
from undertow.ops.index.elements_along import combine_along, gathered
from undertow.ops.index.getitem import getitem
from undertow.ops.index.index_arrays import (
    add_flat,
    positions_of,
)
from undertow.ops.index.index_select import check_source, check_vector
from undertow.ops.views.reshape import reshape

UFUNCS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
REDUCTIONS = tuple(UFUNCS)


def _start_of(xp: Namespace, reduce: str, dtype: DType) -> float:
    """What a reduction of nothing begins with."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.kind == "f":
        return float("-inf") if reduce == "amax" else float("inf")
    if dtype.kind == "b":
        return reduce == "amin"
    limits = xp.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _scatter_reduce_array(
    xp: Namespace, input: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    if reduce not in UFUNCS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if input.dtype.kind == "c" and reduce in ("amax", "amin"):
        raise RuntimeError(f"scatter_reduce(): reduce='{reduce}' is not defined for complex numbers")
    out = xp.array(input, order="C")
    if not include_self:
        positions = positions_of(xp, "scatter_reduce", input, dim, index).reshape(-1)
        out.reshape(-1)[positions] = _start_of(xp, reduce, input.dtype)
    combine_along(xp, out, dim, index, src, UFUNCS[reduce], "scatter_reduce")
    if reduce == "mean":
        count = counts(xp, index, input.shape, dim, include_self)
        out = out / count.astype(out.dtype) if out.dtype.kind in "fc" else out // count
    return out.astype(input.dtype, copy=False)


def counts(
    xp: Namespace, index: Array, sizes: tuple[int, ...], dim: int, include_self: bool, dtype: DType = dtypes.int64
) -> Array:
    """The sizes of the groups; 1 where nothing falls."""
    found = xp.full(sizes, float(include_self), dtypes.float64)  # there are kernels for these
    ones = xp.broadcast_to(xp.ones((), dtypes.float64), index.shape)
    return xp.maximum(combine_along(xp, found, dim, index, ones, op="scatter_reduce"), 1).astype(dtype)


# ---- what the rules need to know about groups; none of it is differentiated

_group_sizes = nondifferentiable("_group_sizes", forward=counts, inputs=("index",))


def _shares(
    xp: Namespace, input: Array, dim: int, index: Array, src: Array, result: Array, include_self: bool
) -> tuple[Array, Array]:
    """The shares of input and src in the gradient of a maximum or minimum: even among all that attain it."""
    attained = xp.array(input == result, input.dtype, order="C")
    if not include_self:
        attained.reshape(-1)[positions_of(xp, "scatter_reduce", input, dim, index).reshape(-1)] = 0
    src_attained = (src == gathered(xp, result, dim, index)).astype(input.dtype)
    number = combine_along(xp, attained.copy(), dim, index, src_attained)
    return attained / number, src_attained / gathered(xp, number, dim, index)


_extreme_shares = nondifferentiable(
    "_extreme_shares",
    forward=_shares,
    inputs=("input", "index", "src", "result"),
    outputs=("input_share", "src_share"),
)


def zeros_in_groups(xp: Namespace, src: Array, sizes: tuple[int, ...], dim: int, index: Array) -> tuple[Array, Array]:
    """Which elements of src are zero, and which of these are the only zero of src in their group."""
    positions = positions_of(xp, "scatter_reduce", xp.empty(sizes, bool), dim, index)
    zero = src == 0
    number = add_flat(xp, xp.zeros(sizes, dtypes.int64), positions, zero)
    return zero, zero & (number.reshape(-1).take(positions) == 1)


_zeros_in_groups = nondifferentiable(
    "_zeros_in_groups", forward=zeros_in_groups, inputs=("src", "index"), outputs=("zero", "alone")
)


_ones_for = nondifferentiable("_ones_for", forward=lambda xp, input: xp.ones_like(input), inputs=("input",))


def refuse(xp: Namespace, g: Array, message: str) -> Any:
    raise RuntimeError(message)


_once_differentiable = primitive(
    "_once_differentiable",
    forward=lambda xp, input, message: input,
    vjp={"input": refuse},
    jvp={"input": refuse},
    batch=loop,
    node="Error",
)


# ---- rules


def input_gradient(
    xp: Namespace,
    g: Array,
    input: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    include_self: bool,
    out: Array,
) -> Array:
    if reduce == "mean":
        g = g / xp._group_sizes(index, tuple(input.shape), dim, include_self, input.dtype)
    elif reduce == "prod":
        g = g * xp.conj(xp._scatter_reduce(xp._ones_for(input), dim, index, src, "prod"))
    elif reduce != "sum":
        g = g * xp._extreme_shares(input, dim, index, src, out, include_self)[0]
    return g if include_self else xp._scatter_number(g, dim, index, 0)


def _src_gradient(
    xp: Namespace,
    g: Array,
    input: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    include_self: bool,
    out: Array,
) -> Array:
    if reduce == "prod":
        return _prod_src_gradient(xp, g, input, dim, index, src, include_self, out)
    if reduce == "mean":
        g = g / xp._group_sizes(index, tuple(input.shape), dim, include_self, input.dtype)
    g = xp.gather(g, dim, index)
    if reduce in ("amax", "amin"):
        g = g * xp._extreme_shares(input, dim, index, src, out, include_self)[1]
    return g


def _prod_src_gradient(
    xp: Namespace, g: Array, input: Array, dim: int, index: Array, src: Array, include_self: bool, out: Array
) -> Array:
    """g times the product of the rest of the group: the product divided by the element, but for zeros.

    The only zero of a group gets the product with a one in its place. Beside another zero the gradient is
    zero, but then dividing does not show how it changes with that other one: no second derivative.
    """
    zero, alone = xp._zeros_in_groups(src, tuple(input.shape), dim, index)
    rest = xp._scatter_reduce(
        input, dim, index, xp._masked_fill_number(src, alone, 1), "prod", include_self=include_self
    )
    divided = xp.gather(g * xp.conj(out), dim, index) / xp.conj(xp._masked_fill_number(src, zero, 1))
    grad = xp.where(alone, xp.gather(g * xp.conj(rest), dim, index), divided)
    if values(zero).sum() > values(alone).sum():
        grad = xp._once_differentiable(
            grad,
            "scatter_reduce() and index_reduce(): Double backward is unsupported for src when >1 zeros in src are "
            "scattered to the same position in self",
        )
    return grad


def tangent(
    xp: Namespace,
    tangents: Any,
    input: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    include_self: bool,
    out: Array,
) -> Array:
    """The transposes of the rules: what flows back as c * gather(g) flows forward as scatter_add(c * t)."""
    total = None
    if "input" in tangents:
        t = xp.conj(tangents["input"])
        total = xp.conj(input_gradient(xp, t, input, dim, index, src, reduce, include_self, out))
    if "src" in tangents:
        weight = _src_gradient(xp, xp._ones_for(out), input, dim, index, src, reduce, include_self, out)
        start = xp._zeros_for(out, tuple(out.shape)) if total is None else total
        total = xp._scatter_add(start, dim, index, xp.conj(weight) * tangents["src"])
    return total


def values(x: Array) -> Array:
    """The array of a tensor, or the array itself."""
    return getattr(x, "_array", x)


_scatter_reduce = primitive(
    "_scatter_reduce",
    forward=_scatter_reduce_array,
    vjp={"input": input_gradient, "src": _src_gradient, "index": None},
    jvp=tangent,
    batch=along(dim=1),
)


@composite(variants="function method in_place", out=True, overlap="any")
def scatter_reduce(
    input: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """`input` and the elements of `src` that `index` sends to the same place along `dim`, reduced to one.

    reduce         "sum", "prod", "mean", "amax" or "amin"
    include_self   whether what is in `input` takes part where something falls

    >>> import undertow as ut
    >>> x, index = ut.zeros(2), ut.tensor([0, 0, 1])
    >>> ut.scatter_reduce(x, 0, index, ut.tensor([1.0, 3.0, 5.0]), "mean", include_self=False)
    tensor([2., 5.])
    """
    src = fitted("scatter", input, dim, index, src)
    return _scatter_reduce(input, dim, index, src, reduce, include_self=include_self)


# ---- index_reduce: the same, with one index for a whole slice


def _spread_array(xp: Namespace, index: Array, dim: int, sizes: tuple[int, ...]) -> Array:
    if not sizes:
        return index.reshape(())
    shape = [1] * len(sizes)
    shape[wrap_dim(dim, len(sizes))] = index.size
    return xp.broadcast_to(index.reshape(shape), sizes)


_spread_index = nondifferentiable("_spread_index", forward=_spread_array, inputs=("index",))


def _index_reduce_array(
    xp: Namespace, input: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    check_vector("index_reduce", index)
    check_source("index_reduce", input, wrap_dim(dim, input.ndim), index, source)
    spread = _spread_array(xp, index, dim, source.shape)
    return _scatter_reduce_array(xp, input, dim, spread, source, reduce, include_self=include_self)


def _spread_rule(rule: Callable[..., Any]) -> Any:
    def spread(
        xp: Namespace,
        g: Array,
        input: Array,
        dim: int,
        index: Array,
        source: Array,
        reduce: str,
        include_self: bool,
        out: Array,
    ) -> Array:
        index = xp._spread_index(index, dim, tuple(source.shape))
        return rule(xp, g, input, dim, index, source, reduce, include_self, out)

    return spread


def _spread_tangent(
    xp: Namespace,
    tangents: Any,
    input: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: str,
    include_self: bool,
    out: Array,
) -> Array:
    named = {"src" if name == "source" else name: t for name, t in tangents.items()}
    index = xp._spread_index(index, dim, tuple(source.shape))
    return tangent(xp, named, input, dim, index, source, reduce, include_self, out)


index_reduce = primitive(
    "index_reduce",
    forward=_index_reduce_array,
    vjp={"input": _spread_rule(input_gradient), "source": _spread_rule(_src_gradient), "index": None},
    jvp=_spread_tangent,
    batch=along(dim=1, shared=2),
    variants="function method in_place",
    overlap="any",
)


def _check_src(op: str, input: Array, dim: int, index: Array, src: Array) -> None:
    """Refuse a src of another dtype, or one that has not an element for every index."""
    if src.dtype != input.dtype:
        raise RuntimeError(f"{op}(): Expected self.dtype to be equal to src.dtype, got {input.dtype} and {src.dtype}")
    if 0 in index.shape:
        return
    if max(index.ndim, 1) != max(src.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if any(n > m for n, m in zip(index.shape, src.shape, strict=False)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension "
            f"{dim} and to be no larger size than src {list(src.shape)}"
        )


def fitted(op: str, input: Array, dim: int, index: Array, src: Array) -> Array:
    """The part of src that the index has room for, as a view."""
    input, index = as_operand(op, "input", input), as_operand(op, "index", index)
    src = as_operand(op, "src", src)
    if not src.ndim and index.ndim == 1:
        src = reshape(src, (1,))
    _check_src(op, input, dim, index, src)
    if tuple(src.shape) == tuple(index.shape):
        return src
    if 0 in index.shape:
        return reshape(getitem(src, (None, slice(0, 0))) if not src.ndim else getitem(src, slice(0, 0)), index.shape)
    return getitem(src, tuple([slice(0, n) for n in index.shape])) if index.ndim else reshape(src, ())
