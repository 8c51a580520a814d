"""Operations under names, and in forms, that PyTorch keeps for older programs and for its own."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import REGISTRY, composite
from undertow.tensor import Tensor


def operation(name: str) -> Any:
    return REGISTRY[name].function


@composite
def spmm(input: Any, mat2: Any) -> Tensor:
    """`mm`, which takes sparse matrices, too."""
    return operation("mm")(input, mat2)


@composite(variants="function method", out=True)
def lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """`linalg.lu_factor`: (LU, pivots), with get_infos (LU, pivots, infos).

    >>> import undertow as ut
    >>> ut.lu(ut.tensor([[1.0, 2.0], [2.0, 2.0]]))[0].tolist()
    [[2.0, 2.0], [0.5, 1.0]]
    """
    LU, pivots, infos = operation("linalg_lu_factor_ex")(A, pivot=pivot)
    return (LU, pivots, infos) if get_infos else (LU, pivots)


@composite(variants="method")
def sum_to_size(input: Any, *size: Any) -> Tensor:
    """The sum over the dimensions along which a tensor of `size` would be broadcast to the shape of `input`.

    >>> import undertow as ut
    >>> ut.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    input = as_operand("sum_to_size", "input", input)
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    shape = tuple(input.shape)
    extra = len(shape) - len(wanted)
    if extra < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[extra:], strict=True)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    dims = [*range(extra), *[d + extra for d, n in enumerate(wanted) if n == 1 and shape[d + extra] != 1]]
    if not dims:
        return input
    total = operation("sum")(input, tuple(dims), keepdim=True)
    return operation("reshape")(total, wanted) if extra else total


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


@composite(variants="function")
def _unique2(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`unique` with all three results; those that are not asked for are empty."""
    values, inverse, counts = operation("unique")(input, sorted, True, True)
    empty = Tensor(inverse._xp.zeros(0, dtypes.int64), inverse._xp)
    return values, inverse if return_inverse or return_counts else empty, counts if return_counts else empty


@composite(variants="function")
def _unique(input: Any, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """`unique` with both results; the inverse is empty if it is not asked for."""
    values, inverse, _ = _unique2(input, sorted, return_inverse)
    return values, inverse
