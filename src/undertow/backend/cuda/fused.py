"""Kernels that do in one step what takes array functions several: the names and arguments of backend/kernels.py.

Each returns None where it does not serve: the caller then computes the same with array functions.
"""

from __future__ import annotations

import functools
from typing import Any

from undertow.backend import dtypes
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import stored
from undertow.backend.interface import Array

THREADS = 256


def are_simple(*arrays: Array) -> bool:
    """Whether arrays (or None) lie row after row, in one dtype of float32 or float64, and have elements."""
    given = [a for a in arrays if a is not None]
    dtype = given[0].dtype
    return dtype in (dtypes.float32, dtypes.float64) and all(
        [a.dtype == dtype and a.is_contiguous and a.size for a in given]
    )


@functools.cache
def kernel(name: str, text: str, word: str, cooperative: bool = False) -> Any:
    """A kernel of a text, in which T is the type of numbers."""
    address = compile_kernels(f"typedef {word} T;\n{text}", [Entry(name, "P", cooperative)])[0]
    return device.extension().Kernel(address)


# ---- counting

COUNT = r"""
struct P { T *out; i64 n, start, step; };
KERNEL(count, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.out[i] = p.start + i * p.step; }
"""


def count(out: Array, start: int, step: int) -> None:
    """start, start + step, ... into an array of int64."""
    if out.size:
        kernel("count", COUNT, "i64")(-(-out.size // THREADS), THREADS, out, out.size, start, step)


# ---- optimizers

# the order of operations is that of optim/adam.py
ADAM = r"""
struct P { T *param, *grad, *mean, *square, *largest; i64 n; double s[7]; };
KERNEL(adam, P) { BEGIN
    T s[7]; for (int k = 0; k < 7; k++) s[k] = (T)p.s[k];
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        T g = p.grad[i], m = p.mean[i] * s[0] + g * s[1], v = p.square[i] * s[2] + g * g * s[3];
        p.mean[i] = m; p.square[i] = v;
        if (p.largest) { T l = p.largest[i]; v = l > v || l != l ? l : v; p.largest[i] = v; }
        p.param[i] -= m / (m_sqrt(v) * s[4] + s[5]) * s[6];
    }
}
"""


def adam_update(param: Array, grad: Array, mean: Array, square: Array, largest: Array | None, *numbers: Any) -> Any:
    if not are_simple(param, grad, mean, square, largest) or not param.is_writeable:
        return None
    blocks = min(-(-param.size // THREADS), 4096)
    call = kernel("adam", ADAM, stored(param.dtype))
    call(blocks, THREADS, param, grad, mean, square, largest, param.size, *[float(n) for n in numbers])
    return True
