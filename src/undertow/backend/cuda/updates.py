"""One launch for up to 64 arrays (csrc/cuda/updates.c): steps of optimizers, `_foreach_` functions, norms of gradients.

The order of operations is that of optim/adam.py and optim/sgd.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import TOGETHER, exact, is_real, threads_for
from undertow.backend.cuda.blocks import kernel as block_kernel
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored

if TYPE_CHECKING:
    from undertow.backend.interface import Array

#: arrays that the arguments of a launch have room for, and the elements of one block; as in C
FEW, MANY, CHUNK = 8, 64, 4096

HEAD = r"""
struct P { i64 count, before; S *shared; double s[12]; S *x[FIELDS][ROOM]; i64 size[ROOM], first[ROOM]; };
// the last array whose first block is not behind this one
FN int array_of_block(const P &p)
{
    int low = 0, high = (int)p.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (p.first[middle] <= (i64)blockIdx.x) low = middle; else high = middle - 1;
    }
    return low;
}
"""

TEXT = (
    HEAD
    + r"""
FN T at(const S *x, i64 i) { return Cast<T, S>::of(x[i]); }
FN void put(S *x, i64 i, T v) { x[i] = Cast<S, T>::of(v); }
KERNEL(update, P) { BEGIN
    const int low = array_of_block(p);
    T s[12];
    for (int k = 0; k < 12; k++) s[k] = (T)p.s[k];
    const i64 from = ((i64)blockIdx.x - p.first[low]) * CHUNK, n = p.size[low];
    const i64 end = from + CHUNK < n ? from + CHUNK : n;
    for (i64 i = from + threadIdx.x; i < end; i += blockDim.x) { BODY } }
"""
)

# s: what keeps and moves the means (4), the scale of the root, eps, the rate, what decay leaves, decay, the sign
ADAM = r"""
        T param = at(p.x[0][low], i) * s[7], g = at(p.x[1][low], i) * s[9];
        if (s[8] != 0) g = g + param * s[8];
        const T m = at(p.x[2][low], i) * s[0] + g * s[1], v = at(p.x[3][low], i) * s[2] + g * g * s[3];
        put(p.x[2][low], i, m); put(p.x[3][low], i, v);
        put(p.x[0][low], i, param - m / (m_sqrt(v) * s[4] + s[5]) * s[6]);
"""

# s: the rate, decay, the sign, momentum, what of the gradient momentum takes, whether it is Nesterov's
SGD = r"""
        T param = at(p.x[0][low], i), g = at(p.x[1][low], i) * s[2];
        if (s[1] != 0) g = g + param * s[1];
#if FIELDS > 2
        const T buffer = at(p.x[2][low], i) * s[3] + g * s[4];
        put(p.x[2][low], i, buffer);
        g = s[5] != 0 ? g + buffer * s[3] : buffer;
#endif
        put(p.x[0][low], i, param - g * s[0]);
"""


# s: whether the largest is wanted, or the sum; of absolute values, or of squares. `shared`: what each block has found
PARTS = (
    TOGETHER
    + HEAD
    + r"""
KERNEL(update, P) { BEGIN
    const int low = array_of_block(p);
    const i64 from = ((i64)blockIdx.x - p.first[low]) * CHUNK, n = p.size[low];
    const i64 end = from + CHUNK < n ? from + CHUNK : n;
    T found = 0;
    for (i64 i = from + threadIdx.x; i < end; i += blockDim.x) {
        const T v = m_fabs(at(p.x[0][low], i));
        found = p.s[0] != 0 ? Most()(found, v) : found + (p.s[1] != 0 ? v * v : v);
    }
    found = p.s[0] != 0 ? together(found, T(0), Most()) : sum_of(found);
    if (threadIdx.x == 0) ((T *)p.shared)[p.before + blockIdx.x] = found; }
"""
)

WHOLE = r"""
struct P { S *out; const T *parts; i64 n, is_most, is_root; };
KERNEL(whole, P) { BEGIN T found = 0;
    for (i64 i = threadIdx.x; i < p.n; i += blockDim.x)
        found = p.is_most ? Most()(found, p.parts[i]) : found + p.parts[i];
    found = p.is_most ? together(found, T(0), Most()) : sum_of(found);
    if (threadIdx.x == 0) put(p.out, 0, p.is_root ? m_sqrt(found) : found); }
"""


@functools.cache
def kernel(body: str, fields: int, room: int, dtype: np.dtype[Any]) -> Any:
    types = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n"
    sizes = f"#define FIELDS {fields}\n#define ROOM {room}\n#define CHUNK {CHUNK}\n"
    text = types + sizes + (PARTS if body == "" else TEXT.replace("BODY", body))
    return device.extension().Kernel(compile_kernels(text, [Entry("update", "P", cooperative=body == "")])[0])


def update(body: str, arrays: list[tuple[Any, ...]], numbers: tuple[float, ...], *shared: Any) -> Any:
    dtype, fields = arrays[0][0].dtype, len(arrays[0])
    if not is_real(dtype):
        return None
    few, many = kernel(body, fields, FEW, dtype), kernel(body, fields, MANY, dtype)
    return device.extension().update_together(few, many, arrays, numbers, *shared) or None


def change_all(code: str, arrays: list[tuple[Any, ...]], numbers: tuple[float, ...], shared: Any = None) -> Any:
    """The formula of a, b, c (a tuple of arrays), numbers s, and `shared` (one in an array), into the first."""
    dtype = arrays[0][0].dtype
    if not is_real(dtype) or (shared is not None and (shared.dtype != dtype or shared.size != 1)):
        return None
    names = "".join([f"const T {name} = at(p.x[{k}][low], i); " for k, name in enumerate("abc"[: len(arrays[0])])])
    one = "" if shared is None else "const T shared = at(p.shared, 0); "
    body = f"{names}{one}put(p.x[0][low], i, {code});"
    return update(body, arrays, numbers, *(() if shared is None else (shared,)))


def total_norm(arrays: list[Array], order: float) -> Array:
    """The norm of all elements of arrays of one dtype, of the order 1, 2 or infinity: an array of one number."""
    if order not in (1.0, 2.0, math.inf) or not is_real(arrays[0].dtype) or not all([a.size for a in arrays]):
        return None
    dtype, extension = arrays[0].dtype, device.extension()
    count = sum([-(-a.size // CHUNK) for a in arrays])
    parts, out = extension.empty((count,), exact(dtype)), extension.empty((), dtype)
    is_most, is_root = order == math.inf, order == 2.0
    if not update("", [(a,) for a in arrays], (float(is_most), float(is_root)), parts):
        return None
    block_kernel("whole", WHOLE, dtype)(1, threads_for(count), out, parts, count, int(is_most), int(is_root))
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "adam_updates": functools.partial(update, ADAM), "sgd_updates": functools.partial(update, SGD),
    "change_all": change_all, "total_norm": total_norm,
}  # fmt: skip
