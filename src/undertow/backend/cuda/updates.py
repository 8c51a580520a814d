"""The steps of optimizers for all parameters at once: one launch for up to 64 of them (csrc/cuda/updates.c).

The order of operations is that of optim/adam.py and optim/sgd.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import is_real
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored

#: arrays that the arguments of a launch have room for, and the elements of one block; as in C
FEW, MANY, CHUNK = 8, 64, 4096

TEXT = r"""
struct P { i64 count; double s[12]; S *x[FIELDS][ROOM]; i64 size[ROOM], first[ROOM]; };
FN T at(const S *x, i64 i) { return Cast<T, S>::of(x[i]); }
FN void put(S *x, i64 i, T v) { x[i] = Cast<S, T>::of(v); }
KERNEL(update, P) { BEGIN
    int low = 0, high = (int)p.count - 1;
    while (low < high) { // the last array whose first block is not behind this one
        const int middle = (low + high + 1) / 2;
        if (p.first[middle] <= (i64)blockIdx.x) low = middle; else high = middle - 1;
    }
    T s[12];
    for (int k = 0; k < 12; k++) s[k] = (T)p.s[k];
    const i64 from = ((i64)blockIdx.x - p.first[low]) * CHUNK, n = p.size[low];
    const i64 end = from + CHUNK < n ? from + CHUNK : n;
    for (i64 i = from + threadIdx.x; i < end; i += blockDim.x) { BODY } }
"""

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


@functools.cache
def kernel(body: str, fields: int, room: int, dtype: np.dtype[Any]) -> Any:
    types = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n"
    sizes = f"#define FIELDS {fields}\n#define ROOM {room}\n#define CHUNK {CHUNK}\n"
    text = types + sizes + TEXT.replace("BODY", body)
    return device.extension().Kernel(compile_kernels(text, [Entry("update", "P")])[0])


def update(body: str, arrays: list[tuple[Any, ...]], numbers: tuple[float, ...]) -> Any:
    dtype, fields = arrays[0][0].dtype, len(arrays[0])
    if not is_real(dtype):
        return None
    few, many = (kernel(body, fields, room, dtype) for room in (FEW, MANY))
    return device.extension().update_together(few, many, arrays, numbers) or None


KERNELS: dict[str, Callable[..., Any]] = {
    "adam_updates": functools.partial(update, ADAM), "sgd_updates": functools.partial(update, SGD),
}  # fmt: skip
