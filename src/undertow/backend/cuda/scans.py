"""Running sums and their like along a dimension, and where the largest and smallest elements are.

An array is taken for (outer, length, inner). With an inner dimension a thread goes down each column; without, a block
goes along each row, as many elements at a time as it has threads. A few long rows are divided into chunks: first what
each of these comes to is computed, then with what those before it come to, its elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import kernel, rows
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.formulas import FORMULAS
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.cuda.reductions import OPERATIONS, bound, sum_dtype
from undertow.backend.interface import Array, DType

#: ufunc -> what no element gives, and what two give
JOINS = {
    **{name: (none, join) for name, (_, none, join) in OPERATIONS.items() if name in ("add", "multiply")},
    "maximum": ("LOWEST", "a > b || a != a ? a : b"), "minimum": ("HIGHEST", "a < b || a != a ? a : b"),
    "logaddexp": ("LOWEST", "log_add(a, b)"),
}  # fmt: skip

TEXT = r"""
struct P { O *out; const S *in; i64 outer, length, inner, backwards, chunk, chunks; const C *before; C *totals; };
FN A join(A a, A b) { return (A)(JOIN); }
FN A element(const P &p, i64 i) { return Cast<A, S>::of(p.in[i]); }
KERNEL(columns, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = p.outer * p.inner;
    for (; i < n; i += (i64)gridDim.x * blockDim.x) {
        const i64 outer = i / p.inner, first = outer * p.length * p.inner + (i - outer * p.inner);
        i64 at = p.backwards ? first + (p.length - 1) * p.inner : first;
        const i64 step = p.backwards ? -p.inner : p.inner;
        A v = element(p, at);
        p.out[at] = Cast<O, A>::of(v);
        for (i64 k = 1; k < p.length; k++) { at += step; v = join(v, element(p, at)); p.out[at] = Cast<O, A>::of(v); }
    } }
#if !ALONE
FN A received(A v, int distance)
{
    union { A value; u32 words[(sizeof(A) + 3) / 4]; } x; x.value = v;
    for (int k = 0; k < (int)((sizeof(A) + 3) / 4); k++) x.words[k] = __shfl_up_sync(~0u, x.words[k], distance);
    return x.value;
}
#endif
// a block for each chunk of a row: its elements to `out`, or what they come to, to `totals`
KERNEL(along, P) { BEGIN const i64 row = blockIdx.x / p.chunks, part = blockIdx.x - row * p.chunks, width = blockDim.x;
    const i64 from = row * p.length, begin = part * p.chunk;
    const i64 end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
    bool begun = p.before && part;
    A carry = begun ? Cast<A, C>::of(p.before[blockIdx.x - 1]) : A(NONE);
#if ALONE
    for (i64 k = begin; k < end; k++) {
        const i64 at = from + (p.backwards ? p.length - 1 - k : k);
        carry = begun ? join(carry, element(p, at)) : element(p, at);
        begun = true;
        if (p.out) p.out[at] = Cast<O, A>::of(carry);
    }
#else
    __shared__ A ends[33];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (i64 base = begin; base < end; base += width) {
        const i64 k = base + threadIdx.x, at = from + (p.backwards ? p.length - 1 - k : k);
        A v = k < end ? element(p, at) : A(NONE);
        for (int o = 1; o < 32; o <<= 1) { A before = received(v, o); if (lane >= o) v = join(before, v); }
        if (lane == 31) ends[warp] = v;
        __syncthreads();
        if (warp == 0) {
            A e = lane < warps ? ends[lane] : A(NONE);
            for (int o = 1; o < 32; o <<= 1) { A before = received(e, o); if (lane >= o) e = join(before, e); }
            ends[lane] = e;
        }
        __syncthreads();
        if (warp) v = join(ends[warp - 1], v);
        if (begun) v = join(carry, v);
        const A all = ends[warps - 1];
        carry = begun ? join(carry, all) : all; begun = true;
        __syncthreads();
        if (k < end && p.out) p.out[at] = Cast<O, A>::of(v);
    }
#endif
    if (p.totals && threadIdx.x == 0) p.totals[blockIdx.x] = Cast<C, A>::of(carry);
}
"""


#: elements of a row that is divided, if there are fewer rows than these
LONG, FEW = 1 << 14, 1 << 8


@functools.cache
def scan_kernel(name: str, source: np.dtype[Any], summed: np.dtype[Any], result: np.dtype[Any], by_rows: bool) -> Any:
    """The kernel from arrays of one dtype, by way of another, to those of a third."""
    none, join = JOINS[name]
    head = f"typedef {computed(summed)} A; typedef {stored(source)} S; typedef {stored(result)} O;\n"
    head += f"typedef {stored(summed)} C;\n"
    has_bounds = summed.kind != "c"
    macros = {"JOIN": join, "LOWEST": bound(summed, True) if has_bounds else "0",
              "HIGHEST": bound(summed, False) if has_bounds else "0", "NONE": none}  # fmt: skip
    head += "".join([f"#define {key} {text}\n" for key, text in macros.items()])
    entry = Entry("along", "P", True) if by_rows else Entry("columns", "P")
    return device.extension().Kernel(compile_kernels(head + TEXT, [entry])[0])


def scan(
    name: str, x: Array, axis: int, summed: np.dtype[Any], result: np.dtype[Any], backwards: bool = False
) -> Array:
    x = rows(x)
    out = device.extension().empty(x.shape, result)
    if not x.size:
        return out
    outer, length, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    call = scan_kernel(name, x.dtype, summed, result, inner == 1)
    sizes = outer, length, inner, int(backwards)
    if inner == 1:
        scan_rows(call, name, out, x, sizes, summed)
    elif length > LONG and outer * inner < FEW:
        turned = scan(name, x.swapaxes(axis, -1), x.ndim - 1, summed, result, backwards)
        x.namespace.copyto(out, turned.swapaxes(axis, -1))
    else:
        call(min(-(-outer * inner // 64), 1 << 20), 64, out, x, *sizes, 0, 1, None, None)
    return out


def scan_rows(call: Any, name: str, out: Array, x: Array, sizes: tuple[int, ...], summed: np.dtype[Any]) -> None:
    outer, length = sizes[:2]
    if length <= LONG or outer >= FEW:
        call(outer, 32 if length <= 32 else 256, out, x, *sizes, length, 1, None, None)
        return
    chunk = max(LONG // 4, -(-length // (1 << 18)) * 256)
    chunks = -(-length // chunk)
    totals, before = (device.extension().empty((outer, chunks), summed) for _ in range(2))
    call(outer * chunks, 256, None, x, *sizes, chunk, chunks, None, totals)
    along = scan_kernel(name, summed, summed, summed, True)
    scan_rows(along, name, before, totals, (outer, chunks, 1, 0), summed)
    call(outer * chunks, 256, out, x, *sizes, chunk, chunks, before, None)


#: what running sums of real numbers are added up in
EXACT = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}


def running_sums(x: Array, dim: int, backwards: bool) -> Array | None:
    """Running sums along a dimension of real or complex numbers, from either end."""
    if x.dtype.kind not in "fc" or dtypes.is_narrow(x.dtype) or not x.ndim:
        return None
    return scan("add", x, dim, EXACT.get(x.dtype, x.dtype), x.dtype, backwards)


def accumulate(ufunc: Array, x: Array, axis: int = 0, dtype: DType = None, out: Any = None) -> Array:
    """`ufunc.accumulate`, where there is a kernel for it."""
    name = ufunc.__name__
    if name not in JOINS or out is not None or not x.ndim or x.dtype.kind not in "buifc":
        return NotImplemented
    to = np.dtype(dtype) if dtype is not None else sum_dtype(x.dtype) if name in ("add", "multiply") else x.dtype
    known = "f" if name == "logaddexp" else "uif" if name in ("maximum", "minimum") else "uifc"
    if to.kind not in known or dtypes.is_narrow(to) or dtypes.is_narrow(x.dtype):
        return NotImplemented
    return scan(name, x, np.lib.array_utils.normalize_axis_index(axis, x.ndim), to, to)


def cumulative(ufunc: Array) -> Any:
    """`cumsum`, `cumprod`."""

    def function(a: Array, axis: int | None = None, dtype: DType = None, out: Any = None) -> Any:
        return accumulate(ufunc, a.reshape(-1) if axis is None else a, 0 if axis is None else axis, dtype, out)

    return function


# ---- where the largest is: the first of them, or the first nan

PLACE = r"""
struct P { i64 *out; const S *in; i64 length, inner, chunk, chunks; const i64 *among; };
FN bool wins(T a, i64 i, T b, i64 j)
{
    if (j < 0 || i < 0) return j < 0;
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a BETTER b || (a == b && i < j);
}
// a block for each chunk of a column, or for each column, of places that are known `among` its elements
KERNEL(place, P) { BEGIN
    const i64 column = blockIdx.x / p.chunks, begin = (blockIdx.x - column * p.chunks) * p.chunk;
    const i64 end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
    const i64 outer = column / p.inner, first = outer * p.length * p.inner + (column - outer * p.inner);
    T most = T(0); i64 place = -1;
    for (i64 n = begin + threadIdx.x; n < end; n += blockDim.x) {
        const i64 k = p.among ? p.among[column * p.chunk + n] : n;
        const T v = at(p.in, first + k * p.inner);
        if (wins(v, k, most, place)) { most = v; place = k; }
    }
#if !ALONE
    __shared__ T values[32]; __shared__ i64 places[32];
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (int o = 16; o; o >>= 1) {
        const T v = __shfl_xor_sync(~0u, most, o); const i64 k = __shfl_xor_sync(~0u, place, o);
        if (wins(v, k, most, place)) { most = v; place = k; }
    }
    if (lane == 0) { values[threadIdx.x >> 5] = most; places[threadIdx.x >> 5] = place; }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < warps; w++)
            if (wins(values[w], places[w], most, place)) { most = values[w]; place = places[w]; }
#endif
    if (threadIdx.x == 0) p.out[blockIdx.x] = place; }
"""


# a thread for each column of each part; NumPy's rule: a part that is empty gives the element it begins with
PARTS = r"""
struct P { S *out; const S *in; const i64 *starts; i64 n, parts, length, columns; };
FN T join(T a, T b) { return (T)(JOIN); }
KERNEL(parts, P) { BEGIN const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    const i64 part = i / p.columns, column = i - part * p.columns, first = p.starts[part];
    const i64 end = part + 1 < p.parts ? p.starts[part + 1] : p.length;
    T v = at(p.in, first * p.columns + column);
    for (i64 row = first + 1; row < end; row++) v = join(v, at(p.in, row * p.columns + column));
    put(p.out, i, v); }
"""


def reduceat(ufunc: Array, x: Array, starts: Any, axis: int = 0, dtype: DType = None, out: Any = None) -> Any:
    """`ufunc.reduceat` along the first dimension, of places on the device."""
    join = FORMULAS.get(ufunc.__name__, {}).get(dtypes.kind_of(x.dtype))
    starts_fit = isinstance(starts, device.array_type()) and starts.dtype == np.int64 and starts.ndim == 1
    same = join is not None and ufunc.nin == 2 and ufunc.resolve_dtypes((x.dtype, x.dtype, None))[2] == x.dtype
    if axis % max(x.ndim, 1) or dtype not in (None, x.dtype) or out is not None or not (starts_fit and same):
        return NotImplemented
    found = device.extension().empty((len(starts), *x.shape[1:]), x.dtype)
    if found.size:
        columns = math.prod(x.shape[1:])
        call = kernel("parts", PARTS.replace("JOIN", str(join)), x.dtype, False)
        call(-(-found.size // 128), 128, found, rows(x), rows(starts), found.size, len(starts), len(x), columns)
    return found


def find_places(call: Any, found: Array, x: Array, length: int, inner: int) -> None:
    columns = x.size // length
    if length <= LONG or columns >= FEW:
        call(
            columns, 32 if length <= 128 else 256 if length <= 8192 else 1024, found, x, length, inner, length, 1, None
        )
        return
    chunk = max(LONG // 4, -(-length // 1024))
    chunks = -(-length // chunk)
    among = device.extension().empty((columns, chunks), found.dtype)
    call(columns * chunks, 256, among, x, length, inner, chunk, chunks, None)
    call(columns, 256, found, x, length, inner, chunks, 1, among)


def place_of(sign: str) -> Any:
    """`argmax` (by ">") or `argmin`."""

    def function(a: Array, axis: int | None = None, out: Any = None, *, keepdims: Any = np._NoValue) -> Any:
        none = not a.size and (axis is None or not a.shape[axis])  # NumPy's error
        if out is not None or a.dtype.kind not in "buif" or none or dtypes.is_narrow(a.dtype):
            return NotImplemented
        keep = keepdims is not np._NoValue and keepdims
        shape = a.shape
        x, axis_ = (a.reshape(-1), 0) if axis is None else (a, np.lib.array_utils.normalize_axis_index(axis, a.ndim))
        x = rows(x)
        kept = tuple([1] * len(shape) if axis is None else [1 if d == axis_ else n for d, n in enumerate(shape)])
        left = () if axis is None else tuple([n for d, n in enumerate(shape) if d != axis_])
        found = device.extension().empty(kept if keep else left, np.dtype(np.int64))
        if not found.size:
            return found
        length, inner = x.shape[axis_], math.prod(x.shape[axis_ + 1 :])
        find_places(kernel("place", PLACE.replace("BETTER", sign), x.dtype), found, x, length, inner)
        return found

    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "argmax": place_of(">"), "argmin": place_of("<"), "cumsum": cumulative(np.add), "cumprod": cumulative(np.multiply),
}  # fmt: skip
