"""Products of groups of rows with a matrix each: what a layer of experts computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow import ops

if TYPE_CHECKING:
    from undertow.backend.interface import DType
    from undertow.tensor import Tensor


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """Products of matrices that lie one behind the other: group `i` ends at `offs[i]`, where the next one begins.

    In a stack, of three dimensions, each matrix is a group. A matrix `mat_a` is divided by its rows, `mat_b` by its
    columns, and two matrices by what they are summed over. What is behind the last group is zero in the result
    (PyTorch leaves there whatever was in the memory).

    bias       accepted if None
    out_dtype  the dtype of the result; None: that of `mat_a`

    >>> import undertow as ut
    >>> rows, experts = ut.ones(3, 2), ut.tensor([[[1.0], [1.0]], [[5.0], [5.0]]])
    >>> ut.nn.functional.grouped_mm(rows, experts, offs=ut.tensor([1, 3], dtype=ut.int32)).T
    tensor([[ 2., 10., 10.]])
    """
    ends = _checked(mat_a, mat_b, offs, bias, out_dtype)
    if ends is None:
        return ops.bmm(mat_a, mat_b)
    bounds = list(zip([0, *ends], ends, strict=False))
    if mat_a.ndim == 2 and mat_b.ndim == 2:
        return ops.stack([mat_a[:, start:end] @ mat_b[start:end] for start, end in bounds])
    if mat_a.ndim == 2:
        rest = mat_a.new_zeros(len(mat_a) - ends[-1], mat_b.shape[2])
        return ops.cat([*[mat_a[start:end] @ mat_b[i] for i, (start, end) in enumerate(bounds)], rest])
    rest = mat_a.new_zeros(mat_a.shape[1], mat_b.shape[1] - ends[-1])
    return ops.cat([*[mat_a[i] @ mat_b[:, start:end] for i, (start, end) in enumerate(bounds)], rest], 1)


def _checked(
    mat_a: Tensor, mat_b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: DType | None
) -> list[int] | None:
    """Where the groups end; None for two stacks."""
    dims = mat_a.ndim, mat_b.ndim
    if not set(dims) <= {2, 3}:
        raise RuntimeError(
            f"grouped_mm: mat_a and mat_b have to be 2D or 3D, but they have {dims[0]} and {dims[1]} dimensions"
        )
    if (offs is None) != (dims == (3, 3)):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet: add it to the result")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(
            f"contraction dimension of mat_a and mat_b must match, but they are {mat_a.shape[-1]} and {mat_b.shape[-2]}"
        )
    return None if offs is None else _ends(mat_a, mat_b, offs)


def _ends(mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> list[int]:
    if offs.ndim != 1:
        raise RuntimeError("offs has to be 1D")
    if str(offs.dtype).rpartition(".")[2] != "int32":
        raise RuntimeError(f"Offsets have to be int32, but they are {offs.dtype}")
    stacks = [len(x) for x in (mat_a, mat_b) if x.ndim == 3]
    if stacks and stacks[0] != len(offs):
        raise RuntimeError(f"matrix batch sizes have to match: there are {len(offs)} groups, and {stacks[0]} matrices")
    ends = [int(end) for end in offs.tolist()]
    divided = mat_b.shape[1] if mat_a.ndim == 3 else mat_a.shape[-1 if mat_b.ndim == 2 else 0]
    if ends != sorted(ends) or (ends and (ends[0] < 0 or ends[-1] > divided)):
        raise RuntimeError(f"grouped_mm: offs has to rise from 0 to at most {divided}, but it is {ends}")
    return ends
