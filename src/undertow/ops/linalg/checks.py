"""What shapes and dtypes the operands of products, and the matrices to be factorised, may have."""

from __future__ import annotations

import math
from collections.abc import Sequence

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import type_name

CPP_NAMES = {
    dtypes.bool_: "bool", dtypes.uint8: "unsigned char", dtypes.int8: "signed char", dtypes.int16: "short",
    dtypes.int32: "int", dtypes.int64: "long", dtypes.float16: "c10::Half", dtypes.float32: "float",
    dtypes.float64: "double", dtypes.complex64: "c10::complex<float>", dtypes.complex128: "c10::complex<double>",
}  # fmt: skip


def check_mm(mat1: Array, mat2: Array) -> None:
    """Two matrices of one dtype whose inner sizes agree, or a RuntimeError."""
    if mat1.ndim != 2 or mat2.ndim != 2:
        wrong, what = (mat1, "self") if mat1.ndim != 2 else (mat2, "mat2")
        raise RuntimeError(f"{what} must be a matrix, got {wrong.ndim}-D tensor")
    if mat1.dtype != mat2.dtype:
        names = [CPP_NAMES.get(m.dtype, m.dtype.name) for m in (mat1, mat2)]
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}. Convert one of them with "
            ".to(dtype)."
        )
    check_inner(mat1.shape, mat2.shape)


def check_inner(shape1: Sequence[int], shape2: Sequence[int]) -> None:
    if shape1[1] != shape2[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({shape1[0]}x{shape1[1]} and {shape2[0]}x{shape2[1]})"
        )


def check_mv(input: Array, vec: Array) -> None:
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    if input.dtype != vec.dtype:
        found, other = dtypes.SCALAR_NAMES[input.dtype], dtypes.SCALAR_NAMES[vec.dtype]
        raise RuntimeError(f"addmv input tensors must have the same dtype, but got {other}, {found}, and {other}")
    if input.shape[1] != vec.shape[0]:
        n, m = input.shape
        raise RuntimeError(f"size mismatch, got input ({n}), mat ({n}x{m}), vec ({vec.shape[0]})")


def check_dot(input: Array, other: Array) -> None:
    if input.ndim != 1 or other.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {other.ndim}D tensors")
    if input.dtype != other.dtype:
        names = dtypes.SCALAR_NAMES
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {names[input.dtype]} and {names[other.dtype]}"
        )
    n, m = input.shape[0], other.shape[0]
    if n != m:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, but "
            f"got {n} and {m} elements respectively"
        )


def check_bmm(batch1: Array, batch2: Array) -> None:
    for batch, name in ((batch1, "batch1"), (batch2, "batch2")):
        if batch.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor, got {batch.ndim}-D tensor")
    check_same_dtype(batch1, batch2)
    _check_batch2(batch1.shape, batch2.shape)


def _check_batch2(shape1: Sequence[int], shape2: Sequence[int]) -> None:
    expected = [*shape1[:-2], shape1[-1]]
    if list(shape2[:-1]) != expected:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: {expected} but got: {list(shape2[:-1])}."
        )


def check_same_dtype(first: Array, second: Array) -> None:
    if first.dtype != second.dtype:
        names = dtypes.SCALAR_NAMES
        raise RuntimeError(f"expected scalar type {names[first.dtype]} but found {names[second.dtype]}")


def check_matmul(input: Array, other: Array) -> None:
    """For stacks of matrices whose leading dimensions broadcast."""
    check_same_dtype(input, other)
    if other.ndim == 2:
        check_inner((math.prod(input.shape[:-1]), input.shape[-1]), other.shape)
    elif input.shape[-1] != other.shape[-2]:
        batch = math.prod(other.shape[:-2])
        _check_batch2((batch, *input.shape[-2:]), (batch, *other.shape[-2:]))
    a, b = input.shape[:-2], other.shape[:-2]
    for k in range(1, 1 + min(len(a), len(b))):
        if a[-k] != b[-k] and 1 not in (a[-k], b[-k]):
            raise RuntimeError(
                f"The size of tensor a ({a[-k]}) must match the size of tensor b ({b[-k]}) at non-singleton dimension "
                f"{max(len(a), len(b)) - k}"
            )


def check_matrices(name: str, A: Array, square: bool = True) -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if not dtypes.is_differentiable(A.dtype):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {type_name(A)}")
    n, m = A.shape[-2:]
    if square and n != m:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {n} by {m} matrices")
