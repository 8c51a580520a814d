"""Kernels of LSTM layers: what happens in a step between the products of matrices (see nn/rnn/lstm_node.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.cuda.blocks import agree, kernel
from undertow.backend.interface import Array

THREADS = 128

STEP = r"""
struct P { S *gates; const S *cell; S *next_cell, *tanh_cell, *hidden; i64 n; };
KERNEL(step, P) { BEGIN
    const i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= p.n) return;
    const T half = (T)0.5;
    const T i = m_tanh(at(p.gates, k)) * half + half, f = m_tanh(at(p.gates, p.n + k)) * half + half;
    const T g = m_tanh(at(p.gates, 2 * p.n + k)), o = m_tanh(at(p.gates, 3 * p.n + k)) * half + half;
    const T c = f * at(p.cell, k) + i * g, t = m_tanh(c);
    put(p.gates, k, i); put(p.gates, p.n + k, f); put(p.gates, 2 * p.n + k, g); put(p.gates, 3 * p.n + k, o);
    put(p.next_cell, k, c); put(p.tanh_cell, k, t); put(p.hidden, k, o * t);
}
"""

GRADIENT = r"""
struct P { const S *gates; S *d_gates; const S *cell, *tanh_cell, *dh; S *dc; i64 n; };
KERNEL(gradient, P) { BEGIN
    const i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= p.n) return;
    const T i = at(p.gates, k), f = at(p.gates, p.n + k), g = at(p.gates, 2 * p.n + k), o = at(p.gates, 3 * p.n + k);
    const T t = at(p.tanh_cell, k), dh = at(p.dh, k), dc = at(p.dc, k) + dh * o * (1 - t * t);
    put(p.d_gates, k, dc * g * i * (1 - i)); put(p.d_gates, p.n + k, dc * at(p.cell, k) * f * (1 - f));
    put(p.d_gates, 2 * p.n + k, dc * i * (1 - g * g)); put(p.d_gates, 3 * p.n + k, dh * t * o * (1 - o));
    put(p.dc, k, dc * f);
}
"""


def are_of_a_step(arrays: tuple[Array, ...]) -> bool:
    return agree(*arrays) and all([a.is_contiguous for a in arrays])


def lstm_step(gates: Array, cell: Array, *filled: Array) -> bool | None:
    arrays = (gates, cell, *filled)
    if not are_of_a_step(arrays):
        return None
    kernel("step", STEP, cell.dtype, cooperative=False)(-(-cell.size // THREADS), THREADS, *arrays, cell.size)
    return True


def lstm_step_gradient(gates: Array, d_gates: Array, cell: Array, *others: Array) -> bool | None:
    arrays = (gates, d_gates, cell, *others)
    if not are_of_a_step(arrays):
        return None
    kernel("gradient", GRADIENT, cell.dtype, cooperative=False)(-(-cell.size // THREADS), THREADS, *arrays, cell.size)
    return True


KERNELS: dict[str, Callable[..., Any]] = {"lstm_step": lstm_step, "lstm_step_gradient": lstm_step_gradient}
