"""How many elements, or points, fall into each of several bins: bincount, histc, histogram, histogramdd."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import as_operand, require_kinds
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive, return_types
from undertow.ops.declare.rules import LOOP
from undertow.tensor import Tensor


def counted(
    xp: Namespace, input: Array, weight: Array, bins: Any, limits: Any, density: bool, name: str
) -> list[Array]:
    """The histogram of points, the rows of `input`, and the edges of the bins along each dimension."""
    if input.dtype.kind != "f":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{dtypes.SCALAR_NAMES[input.dtype]}'")
    points = input.reshape(-1, len(bins))
    weights = None if weight is None else weight.reshape(-1)
    if weights is not None and len(weights) != len(points):
        raise RuntimeError(
            f"{name}(): if weight tensor is provided, it should have the same shape as the input tensor, excluding its "
            f"innermost dimension: got {list(weight.shape)} for {list(input.shape)}"
        )
    with xp.errstate(invalid="ignore", divide="ignore"):
        found, edges = xp.histogramdd(points, list(bins), limits, density, weights)
    return [xp.asarray(a).astype(input.dtype) for a in (found, *edges)]


def refuse(xp: Namespace, g: Array) -> Any:
    raise NotDifferentiableError("histogram", "Call detach() on the input and on the weights.")


_histogram = primitive(
    "_histogram",
    forward=counted,
    vjp={"input": refuse, "weight": refuse},
    jvp={"input": refuse, "weight": refuse},
    batch=LOOP,
    node="NotImplemented",
    outputs="list",
    optional=("weight",),
)


def _edges_or_number(bins: Array) -> Any:
    return bins._array if isinstance(bins, Tensor) else int(bins)


@composite(variants="function method", out=True)
@example_by_example
def histogram(
    input: Array,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Any:
    """How many elements are in each of `bins` (a number, or their edges), or the sum of their weights; and the edges.

    range    the lowest and the highest edge; by default those of the elements
    weight   what each element counts; a tensor of the shape of `input`
    density  divide by the sum and by the widths, so that the integral is 1

    >>> import undertow as ut
    >>> ut.histogram(ut.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0)).hist
    tensor([0., 2., 1., 0.])
    """
    input = as_operand("histogram", "input", input)
    limits = [tuple(range)] if range else None
    found = _histogram(input, weight, (_edges_or_number(bins),), limits, density, "histogram")
    return return_types.histogram(found)


@composite
@example_by_example
def histogramdd(
    input: Array,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Any:
    """How many points, the rows of `input`, are in each box; and the edges of the boxes along each dimension.

    bins     a number, one for each dimension, or a tensor of edges for each
    range    the lowest and highest edge along the first dimension, along the second, ...
    weight   what each point counts
    density  divide by the sum and by the volumes, so that the integral is 1

    >>> import undertow as ut
    >>> points = ut.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])
    >>> ut.histogramdd(points, bins=[2, 2]).hist.tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    input = as_operand("histogramdd", "input", input)
    if input.ndim < 2:
        raise RuntimeError(f"histogramdd(): input tensor should have at least 2 dimensions, but got {input.ndim}")
    count = input.shape[-1]
    each = [bins] * count if isinstance(bins, Integral) else list(bins)
    if len(each) != count or (range is not None and len(range) != 2 * count):
        raise RuntimeError(
            f"histogramdd(): The size of bins must be equal to the innermost dimension of the input, {count}, and "
            f"range must have twice as many numbers; got {len(each)} and {None if range is None else len(range)}"
        )
    limits = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    hist, *edges = _histogram(input, weight, tuple(map(_edges_or_number, each)), limits, density, "histogramdd")
    edges = [given if isinstance(given, Tensor) else found for given, found in zip(each, edges, strict=True)]
    return return_types.histogramdd((hist, tuple(edges)))


def _bincount_forward(xp: Namespace, input: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    require_kinds("bincount_cpu", input, "iu")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    if input.ndim != 1 or (input.size and input.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return xp.bincount(input, None, minlength).astype(dtypes.int64)
    if weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return xp.bincount(input, weights, minlength).astype(
        dtypes.float32 if weights.dtype == dtypes.float32 else dtypes.float64
    )


bincount = primitive(
    "bincount",
    forward=_bincount_forward,
    vjp={"input": None, "weights": lambda xp, g, input: xp.take_along_axis(g, input, 0)},
    jvp={"weights": lambda xp, t, input, minlength: xp.bincount(input, t, minlength)},
    batch=LOOP,
    optional=("weights",),
    check_output=True,
    variants="function method",
)


adapter("bincount")(bincount)


def _histc_range(input: Array, low: float, high: float) -> tuple[float, float]:
    """The range of the bins: as given, or that of the data; never of zero width."""
    if low == 0 == high and input.size:
        low, high = float(input.min()), float(input.max())
    if low > high:
        raise RuntimeError(f"histc: max must be larger than min, got min {low} and max {high}")
    if low - low != 0 or high - high != 0:
        raise RuntimeError(f"histc: range of [{low}, {high}] is not finite")
    return (low - 1, high + 1) if low == high else (low, high)


def _histc_forward(xp: Namespace, input: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    require_kinds("histogram_cpu", input, "f")
    if bins <= 0:
        raise RuntimeError(f"histc: bins must be > 0, but got {bins}")
    low, high = _histc_range(input, min, max)
    return xp.histogram(input, bins, (low, high))[0].astype(input.dtype)


histc = nondifferentiable("histc", _histc_forward, inputs=("input",), batch=LOOP, variants="function method")
