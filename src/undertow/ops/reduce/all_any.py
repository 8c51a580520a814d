"""Whether any or all elements are true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import Dims, numpy_spelling, reduced_axes
from undertow.ops.declare import adapter, composite, nondifferentiable
from undertow.ops.declare.composite_order import rearranged
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import REDUCTION
from undertow.tensor import Tensor

#: elements that are counted in less time than a ufunc needs to begin
FEW = 4096


def truth(ufunc: str) -> Any:
    """The forward of any and all; PyTorch answers in uint8 for uint8."""

    def forward(xp: Namespace, input: Array, dim: Dims = None, keepdim: bool = False) -> Any:
        if dim is None and not keepdim and xp is cpu and input.size <= FEW:
            true = cpu.count_nonzero(input)
            out = cpu.asarray(true > 0 if ufunc == "logical_or" else true == input.size)
        else:
            out = getattr(xp, ufunc).reduce(input, reduced_axes(dim, input.ndim), keepdims=keepdim)
        return out.astype(dtypes.uint8) if input.dtype == dtypes.uint8 else out

    return forward


def _truth_dtype(input: Array) -> DType:
    return dtypes.uint8 if input.dtype == dtypes.uint8 else dtypes.bool_


any_dims = nondifferentiable("_any_dims", truth("logical_or"), inputs=("input",), batch=REDUCTION)


all_dims = nondifferentiable("_all_dims", truth("logical_and"), inputs=("input",), batch=REDUCTION)


def _truth_along(reduce: Callable[..., Any], input: Array, dim: Dims, keepdim: bool) -> Tensor:
    """any(dim=()) and all(dim=()) reduce nothing, unlike every other reduction."""
    if isinstance(dim, Iterable) and not tuple(dim):
        return rearranged(recorded.astype(recorded.not_equal(input, 0), _truth_dtype(input)), "rows", ())
    return reduce(input, dim, keepdim)


@composite(variants="function method", out=True)
@numpy_spelling
def any(input: Array, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether an element along `dim`, or of all elements, is not zero.

    >>> import undertow as ut
    >>> ut.any(ut.tensor([[1.0, 2.0], [3.0, 4.0]]) > 3, dim=1)
    tensor([False,  True])
    """
    return _truth_along(any_dims, input, dim, keepdim)


@composite(variants="function method", out=True)
@numpy_spelling
def all(input: Array, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element along `dim`, or of all elements, is not zero.

    >>> import undertow as ut
    >>> ut.all(ut.tensor([[1.0, 2.0], [3.0, 4.0]]) > 1)
    tensor(False)
    """
    return _truth_along(all_dims, input, dim, keepdim)


adapter("any")(any)
adapter("all")(all)
