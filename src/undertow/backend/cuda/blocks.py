"""What kernels whose threads work together are made of: what a block finds together, and how one is compiled.

In the text of such a kernel S is what arrays hold and T is what it computes with: float for half precision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.cuda.reading import compile_readers
from undertow.backend.interface import Array

#: what a block finds together; on the emulated device a block has one thread, which finds everything
TOGETHER = r"""
#if ALONE
#define FN_METHOD inline
#else
#define FN_METHOD __device__ __forceinline__
#endif
// the sums of two numbers, for which the threads wait for each other only once
FN void sums_of(T &a, T &b)
{
#if !ALONE
    __shared__ T parts[2][32];
    for (int o = 16; o; o >>= 1) { a += __shfl_xor_sync(~0u, a, o); b += __shfl_xor_sync(~0u, b, o); }
    if (blockDim.x > 32) {
        const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
        __syncthreads();
        if (lane == 0) { parts[0][threadIdx.x >> 5] = a; parts[1][threadIdx.x >> 5] = b; }
        __syncthreads();
        a = lane < warps ? parts[0][lane] : T(0); b = lane < warps ? parts[1][lane] : T(0);
        for (int o = 16; o; o >>= 1) { a += __shfl_xor_sync(~0u, a, o); b += __shfl_xor_sync(~0u, b, o); }
    }
#endif
}
template <class F> FN T together(T v, T none, F join)
{
#if !ALONE
    __shared__ T part[32];
    for (int o = 16; o; o >>= 1) v = join(v, __shfl_xor_sync(~0u, v, o));
    if (blockDim.x > 32) {
        int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
        __syncthreads();
        if (lane == 0) part[threadIdx.x >> 5] = v;
        __syncthreads();
        v = lane < warps ? part[lane] : none;
        for (int o = 16; o; o >>= 1) v = join(v, __shfl_xor_sync(~0u, v, o));
    }
#endif
    return v;
}
struct Sum { FN_METHOD T operator()(T a, T b) const { return a + b; } };
struct Most { FN_METHOD T operator()(T a, T b) const { return a > b || a != a ? a : b; } };
FN T sum_of(T v) { return together(v, T(0), Sum()); }
FN T at(const S *x, i64 i) { return Cast<T, S>::of(x[i]); }
FN void put(S *x, i64 i, T v) { x[i] = Cast<S, T>::of(v); }

// a row that the threads of a block keep: each has KEPT pieces of 16 bytes
#define WIDE (16 / (int)sizeof(S))
#define KEPT (ALONE ? 64 : 2)
struct alignas(16) Piece { S v[WIDE]; };
struct Kept { T v[KEPT * WIDE]; };
#define EACH_PIECE(k, i, columns) \
    _Pragma("unroll") for (int k = 0; k < KEPT; k++) \
        if (const i64 i = threadIdx.x + (i64)k * blockDim.x; i < (columns) / WIDE)
FN void fetch(Kept &to, const S *x, i64 columns, T none)
{
#pragma unroll
    for (int j = 0; j < KEPT * WIDE; j++) to.v[j] = none;
    EACH_PIECE(k, i, columns) {
        const Piece piece = ((const Piece *)x)[i];
#pragma unroll
        for (int j = 0; j < WIDE; j++) to.v[k * WIDE + j] = Cast<T, S>::of(piece.v[j]);
    }
}
FN void store(S *x, const Kept &from, i64 columns)
{
    EACH_PIECE(k, i, columns) {
        Piece piece;
#pragma unroll
        for (int j = 0; j < WIDE; j++) piece.v[j] = Cast<S, T>::of(from.v[k * WIDE + j]);
        ((Piece *)x)[i] = piece;
    }
}
"""

#: the same of a row that is read through `take`
TAKE_ROW = r"""
FN void take_row(Kept &to, const Arguments &p, i64 row, T none)
{
#pragma unroll
    for (int j = 0; j < KEPT * WIDE; j++) to.v[j] = none;
    EACH_PIECE(k, i, p.columns) {
        S piece[WIDE];
        take<WIDE>(p, row * p.columns + i * WIDE, piece);
#pragma unroll
        for (int j = 0; j < WIDE; j++) to.v[k * WIDE + j] = Cast<T, S>::of(piece[j]);
    }
}
"""


@functools.cache
def kernel(name: str, text: str, dtype: np.dtype[Any], cooperative: bool = True) -> Any:
    """A kernel of a text on arrays of a dtype, whose threads work together or, if not `cooperative`, each alone."""
    return device.extension().Kernel(compile_kernels(head_of(dtype) + text, [Entry(name, "P", cooperative)])[0])


def head_of(dtype: np.dtype[Any]) -> str:
    return f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n{TOGETHER}"


class RowReader(NamedTuple):
    """A kernel that, if it keeps rows, reads an argument once: a field of the structure, and its place there."""

    name: str
    arguments: str
    text: str
    field: str
    place: int


@functools.cache
def reading_kernel(reader: RowReader, dtype: np.dtype[Any]) -> Any:
    """The kernel on arrays of a dtype; its last argument says whether it keeps rows (see csrc/cuda/launch.c)."""
    before, entry = f"{head_of(dtype)}{reader.arguments}\n", Entry(reader.name, "Arguments", True)
    (address,) = compile_readers(before, TAKE_ROW + reader.text, [entry], reader.field)
    return device.extension().Kernel(address, reader.place)


def threads_for(columns: int) -> int:
    """How many threads share a row."""
    threads = 32
    while threads < 512 and threads * 4 < columns:
        threads *= 2
    return threads


def threads_that_keep(columns: int, *arrays: Any) -> int:
    """How many threads can keep a row of these arrays (or None) in registers; 0: it is too long, or lies askew."""
    wide: int = 16 // arrays[0].dtype.itemsize
    most = 64 if device.emulates() else 512 * 2  # pieces of 16 bytes: what one thread keeps there, and 512 here
    if columns % wide or columns > most * wide or any([a is not None and a.address % 16 for a in arrays]):
        return 0
    return max(32, 1 << (-(-columns // (2 * wide)) - 1).bit_length())


#: dimensions of space that kernels of windows know: those that are missing come first
MOST_DIMS = 3


def three(sizes: Sequence[int], missing: int) -> list[int]:
    """The sizes of all dimensions of space, `missing` for those that are not there."""
    return [missing] * (MOST_DIMS - len(sizes)) + [int(n) for n in sizes]


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether kernels along rows know a dtype: float64, float32 and half precision."""
    return dtype in (dtypes.float32, dtypes.float64) or dtypes.is_narrow(dtype)


def exact(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What kernels compute in, and keep means and logarithms in."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def rows(array: Array) -> Any:
    """The array, or None, row after row."""
    return array if array is None or array.is_contiguous else array.copy("C")


def agree(x: Array, *others: Any) -> bool:
    """Whether an array has elements, of a dtype that these kernels know, and the others (or None) are of the same."""
    dtype = x.dtype
    if not x.size or not is_real(dtype):
        return False
    return all([a is None or (a.size and (a.dtype is dtype or a.dtype == dtype)) for a in others])
