"""Kernels of sums and their like, and the functions of NumPy that they make up (csrc/cuda/reduce.c launches them)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry
from undertow.backend.cuda.kernel_text import computed, dtype_of, stored
from undertow.backend.cuda.reading import compile_readers
from undertow.backend.interface import Array, DType

#: operation -> its number in C, what no element gives, and what two give
OPERATIONS = {
    "add": (0, "Cast<A, i32>::of(0)", "a + b"),
    "multiply": (1, "Cast<A, i32>::of(1)", "a * b"),
    "maximum": (2, "LOWEST", "a > b || a != a ? a : b"),
    "minimum": (3, "HIGHEST", "a < b || a != a ? a : b"),
    "logical_or": (4, "false", "a || b"),
    "logical_and": (5, "true", "a && b"),
}
BY_NUMBER = {number: (none, join) for number, none, join in OPERATIONS.values()}

ARGUMENTS = "struct P { char *out; const char *in; i64 outer, length, inner, piece, pieces; double scale; };\n"

TEXT = r"""
FN A join(A a, A b) { return (A)(JOIN); }
FN A element(const Arguments &p, i64 i) { S one; take<1>(p, i, &one); return Cast<A, S>::of(one); }
FN O finished(const P &p, A v) { return Cast<O, A>::of(SCALED); }
#if !ALONE
FN A exchanged(A v, int distance)
{
    union { A value; u32 words[(sizeof(A) + 3) / 4]; } x; x.value = v;
    for (int k = 0; k < (int)((sizeof(A) + 3) / 4); k++) x.words[k] = __shfl_xor_sync(~0u, x.words[k], distance);
    return x.value;
}
#endif
// what all threads of a block have together
FN A together(A v)
{
#if !ALONE
    __shared__ A part[32];
    for (int o = 16; o; o >>= 1) v = join(v, exchanged(v, o));
    if (blockDim.x > 32) {
        int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
        if (lane == 0) part[threadIdx.x >> 5] = v;
        __syncthreads();
        v = lane < warps ? part[lane] : A(NONE);
        for (int o = 16; o; o >>= 1) v = join(v, exchanged(v, o));
    }
#endif
    return v;
}
#define WIDE (16 / (int)sizeof(S))
KERNEL(rows, Arguments) { BEGIN
    i64 row = blockIdx.x / p.pieces, from = row * p.length + (blockIdx.x - row * p.pieces) * p.piece;
    i64 to = from + p.piece, end = (row + 1) * p.length, i = from + threadIdx.x; const i64 B = blockDim.x;
    if (to > end) to = end;
    A v = NONE;
#if !ALONE
    if (sizeof(S) < 4 && (p.length | p.piece) % WIDE == 0 && ((u64)p.in & 15) == 0) { // 16 bytes at a time
        for (i = from / WIDE + threadIdx.x; i < to / WIDE; i += B) {
            S part[WIDE];
            take<WIDE>(p, i * WIDE, part);
            for (int k = 0; k < WIDE; k++) v = join(v, Cast<A, S>::of(part[k]));
        }
        i = to;
    }
#endif
    for (; i + 3 * B < to; i += 4 * B)
        v = join(v, join(join(element(p, i), element(p, i + B)), join(element(p, i + 2 * B), element(p, i + 3 * B))));
    for (; i < to; i += B) v = join(v, element(p, i));
    v = together(v);
    if (threadIdx.x == 0) ((O *)p.out)[blockIdx.x] = finished(p, v);
}
// elements of two bytes are read in pairs
#define PAIR (sizeof(S) == 2 ? 2 : 1)
FN void fetch(const Arguments &p, i64 i, int count, bool whole, A *to)
{
    if (whole) {
        S pair[PAIR];
        take<PAIR>(p, i, pair);
        for (int k = 0; k < PAIR; k++) to[k] = Cast<A, S>::of(pair[k]);
    }
    else for (int k = 0; k < count; k++) to[k] = element(p, i + k);
}
// 32 columns (or pairs of them) for each block, and for each of them a thread of every warp
KERNEL(columns, Arguments) { BEGIN
    const i64 width = 32 * PAIR, across = (p.inner + width - 1) / width, rest = blockIdx.x / across;
    const i64 outer = rest / p.pieces, from = (rest - outer * p.pieces) * p.piece;
    const i64 to = from + p.piece < p.length ? from + p.piece : p.length;
    const int lanes = ALONE ? 32 : 1, rows = ALONE ? 1 : blockDim.x >> 5;
    __shared__ A part[16][32 * PAIR + 1];
    for (int lane = 0; lane < lanes; lane++) {
        const int x = ALONE ? lane : threadIdx.x & 31, y = ALONE ? 0 : threadIdx.x >> 5;
        const i64 column = (blockIdx.x - rest * across) * width + x * PAIR, left = p.inner - column;
        const int count = left <= 0 ? 0 : left < PAIR ? 1 : PAIR;
        const bool whole = count == PAIR && p.inner % PAIR == 0 && (u64)p.in % (PAIR * sizeof(S)) == 0;
        const i64 at = outer * p.length * p.inner + column;
        A v[PAIR], a[PAIR], b[PAIR], c[PAIR], d[PAIR];
        for (int k = 0; k < PAIR; k++) v[k] = a[k] = b[k] = c[k] = d[k] = NONE;
        i64 r = from + y;
        for (; count && r + 3 * rows < to; r += 4 * rows) {
            fetch(p, at + r * p.inner, count, whole, a); fetch(p, at + (r + rows) * p.inner, count, whole, b);
            fetch(p, at + (r + 2 * rows) * p.inner, count, whole, c);
            fetch(p, at + (r + 3 * rows) * p.inner, count, whole, d);
            for (int k = 0; k < PAIR; k++) v[k] = join(v[k], join(join(a[k], b[k]), join(c[k], d[k])));
        }
        for (; count && r < to; r += rows) {
            fetch(p, at + r * p.inner, count, whole, a);
            for (int k = 0; k < PAIR; k++) v[k] = join(v[k], a[k]);
        }
        if (!ALONE) {
            for (int k = 0; k < PAIR; k++) part[y][x * PAIR + k] = v[k];
            __syncthreads();
            if (y == 0) for (int other = 1; other < rows; other++)
                for (int k = 0; k < PAIR; k++) v[k] = join(v[k], part[other][x * PAIR + k]);
        }
        if (y == 0) for (int k = 0; k < count; k++) ((O *)p.out)[rest * p.inner + column + k] = finished(p, v[k]);
    }
}
"""


def bound(dtype: np.dtype[Any], lowest: bool) -> str:
    """The lowest or highest number of a dtype, in C++."""
    if dtypes.kind_of(dtype) == "f":
        return "float_of(0xff800000u)" if lowest else "float_of(0x7f800000u)"
    if dtype.kind == "b":
        return "false" if lowest else "true"
    limits = np.iinfo(dtype)
    return f"(A){hex(int(limits.min if lowest else limits.max) & (1 << 64) - 1)}ull"


def make(operation: int, from_: int, to: int, layout: int) -> int:
    """The address of a kernel; csrc/cuda/reduce.c asks for it."""
    source, result = dtype_of(from_), dtype_of(to)
    none, join = BY_NUMBER[operation]
    definitions = {
        "A": computed(result), "S": stored(source), "O": stored(result),
    }  # fmt: skip
    head = "".join([f"typedef {text} {name};\n" for name, text in definitions.items()])
    scaled = "(A)(v * (A)p.scale)" if dtypes.kind_of(result) == "f" else "v"
    macros = {"JOIN": join, "SCALED": scaled, "LOWEST": bound(result, True) if result.kind != "c" else "0",
              "HIGHEST": bound(result, False) if result.kind != "c" else "0", "NONE": none}  # fmt: skip
    head += "".join([f"#define {name} {text}\n" for name, text in macros.items()])
    entries = [Entry(name, "Arguments", True) for name in ("rows", "columns")]
    return compile_readers(head + ARGUMENTS, TEXT, entries)[layout]


# ---- NumPy's functions


def axes_of(axis: Any, nd: int) -> tuple[int, ...]:
    """The dimensions of a reduction, in their order."""
    if axis is None:
        return tuple(range(nd))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted([np.lib.array_utils.normalize_axis_index(int(a), nd) for a in given])
    if len(set(found)) < len(found):
        raise ValueError("duplicate value in 'axis'")
    return tuple(found)


def reduce(name: str, x: Array, axis: Any, dtype: np.dtype[Any], keepdims: bool, scale: float = 1.0) -> Array:
    """Reduce an array over dimensions in any order, to a dtype."""
    axes = axes_of(axis, x.ndim)
    shape: tuple[int, ...] = tuple([1 if d in axes else n for d, n in enumerate(x.shape)])
    extension = device.extension()
    number = OPERATIONS[name][0]
    if name in ("maximum", "minimum") and not math.prod([x.shape[d] for d in axes]) and 0 not in shape:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if not axes:
        return x.astype(dtype) if x.dtype != dtype or name in ("add", "multiply") else x.copy()
    if axes[-1] - axes[0] + 1 == len(axes):
        return extension.reduce(number, x, axes[0], axes[-1] + 1, keepdims, dtype, scale)
    others = [d for d in range(x.ndim) if d not in axes]
    out = extension.reduce(number, x.transpose(*others, *axes), len(others), x.ndim, False, dtype, scale)
    return out.reshape(shape) if keepdims else out


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What NumPy adds up in: bools and small integers in 64 bits."""
    return np.add.reduce(np.empty(0, dtype)).dtype if dtype.kind in "bui" else dtype


def result_dtype(name: str, x: Array, dtype: DType) -> np.dtype[Any]:
    if dtype is not None:
        return np.dtype(dtype)
    if name in ("logical_or", "logical_and"):
        return np.dtype(bool)
    return sum_dtype(x.dtype) if name in ("add", "multiply") else x.dtype


def supported(name: str, x: Array, dtype: np.dtype[Any], options: dict[str, Any]) -> bool:
    """Whether the kernels do it: no extrema of complex numbers, and nothing that NumPy's options ask for."""
    given = [k for k, v in options.items() if v is not np._NoValue and not (k == "where" and v is True)]
    return (
        not given
        and dtypes.kind_of(x.dtype) in "buifc"
        and dtypes.kind_of(dtype) in "buifc"
        and not (name in ("maximum", "minimum") and x.dtype.kind == "c")
    )


def mean_of(x: Array, axis: Any, keepdims: bool, dtype: np.dtype[Any]) -> Array:
    """The mean, in a dtype of real numbers, in one step."""
    count = math.prod([x.shape[d] for d in axes_of(axis, x.ndim)])
    return reduce("add", x, axis, dtype, keepdims, 1.0 / count if count else math.nan)


def sum_to(x: Array, shape: Sequence[int]) -> Array:
    """Sum `x` down to `shape`, which broadcasts to x's."""
    if x.shape == tuple(shape):
        return x
    if dtypes.is_narrow(x.dtype):  # added up in float32, and rounded once
        lead = x.ndim - len(shape)
        axes = [d for d, n in enumerate(x.shape) if d < lead or (n != 1 and shape[d - lead] == 1)]
        return reduce("add", x, axes, x.dtype, True).reshape(shape)
    return device.extension().sum_to(x, tuple(shape))
