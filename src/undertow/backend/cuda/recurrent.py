"""Layers of LSTM and GRU: all steps, each a product of matrices and one kernel, forward and backward.

Arrays lie as the layers' results do, (steps, examples, ...). What the inputs contribute is one product for all steps,
and so are the gradients of weights (nn/rnn/lstm_node.py, rnn_gru_node.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.cuda import device
from undertow.backend.cuda.blocks import agree, kernel, rows
from undertow.backend.cuda.products import matmul
from undertow.backend.interface import Array

THREADS = 128

#: of the k-th number of a state: its example's gates begin at `base`, and are `size` apart
HEAD = r"""
FN T logistic_of(T x) { return m_tanh(x * (T)0.5) * (T)0.5 + (T)0.5; }
#define OF_STEP(count) BEGIN \
    const i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x, size = p.size; \
    if (k >= p.n) return; \
    const i64 j = k % size, base = k / size * (count) * size + j;
"""

LSTM_STEP = r"""
struct P { S *gates; const S *cell; S *next_cell, *hidden; i64 n, size; };
KERNEL(step, P) { OF_STEP(4)
    const T i = logistic_of(at(p.gates, base)), f = logistic_of(at(p.gates, base + size));
    const T g = m_tanh(at(p.gates, base + 2 * size)), o = logistic_of(at(p.gates, base + 3 * size));
    const T c = f * at(p.cell, k) + i * g;
    put(p.gates, base, i); put(p.gates, base + size, f);
    put(p.gates, base + 2 * size, g); put(p.gates, base + 3 * size, o);
    put(p.next_cell, k, c); put(p.hidden, k, o * m_tanh(c));
}
"""

LSTM_GRADIENT = r"""
struct P { const S *gates; S *d_gates; const S *cell, *next_cell, *arriving, *dh; S *dc; i64 n, size; };
KERNEL(gradient, P) { OF_STEP(4)
    const T i = at(p.gates, base), f = at(p.gates, base + size), g = at(p.gates, base + 2 * size);
    const T o = at(p.gates, base + 3 * size), t = m_tanh(at(p.next_cell, k));
    const T dh = at(p.dh, k) + (p.arriving ? at(p.arriving, k) : (T)0), dc = at(p.dc, k) + dh * o * (1 - t * t);
    put(p.d_gates, base, dc * g * i * (1 - i)); put(p.d_gates, base + size, dc * at(p.cell, k) * f * (1 - f));
    put(p.d_gates, base + 2 * size, dc * i * (1 - g * g)); put(p.d_gates, base + 3 * size, dh * t * o * (1 - o));
    put(p.dc, k, dc * f);
}
"""

GRU_STEP = r"""
struct P { S *active; const S *gates, *own, *bias, *start; S *news, *hidden; i64 n, size; };
KERNEL(step, P) { OF_STEP(3)
    T own[3];
    for (int q = 0; q < 3; q++) own[q] = at(p.own, base + q * size) + (p.bias ? at(p.bias, j + q * size) : (T)0);
    const T r = logistic_of(at(p.gates, base) + own[0]), z = logistic_of(at(p.gates, base + size) + own[1]);
    const T n = m_tanh(at(p.gates, base + 2 * size) + r * own[2]);
    put(p.active, base, r); put(p.active, base + size, z); put(p.active, base + 2 * size, n);
    put(p.news, k, own[2]); put(p.hidden, k, n + z * (at(p.start, k) - n));
}
"""

GRU_GRADIENT = r"""
struct P { S *d_gates, *d_own; const S *active, *news, *start, *arriving; S *dh; i64 n, size; };
KERNEL(gradient, P) { OF_STEP(3)
    const T r = at(p.active, base), z = at(p.active, base + size), n = at(p.active, base + 2 * size);
    const T dh = at(p.dh, k) + (p.arriving ? at(p.arriving, k) : (T)0), dn = dh * (1 - z) * (1 - n * n);
    const T dz = dh * (at(p.start, k) - n) * z * (1 - z), dr = dn * at(p.news, k) * r * (1 - r);
    put(p.d_gates, base, dr); put(p.d_gates, base + size, dz); put(p.d_gates, base + 2 * size, dn);
    put(p.d_own, base, dr); put(p.d_own, base + size, dz); put(p.d_own, base + 2 * size, dn * r);
    put(p.dh, k, dh * z);
}
"""


def empty(*shape: int, like: Array) -> Array:
    return device.extension().empty(shape, like.dtype)


def starts_of(first: Array, sequence: Array, reverse: bool) -> list[Array]:
    """What each step starts from, as it is numbered."""
    steps = list(sequence)
    return [*steps[1:], first] if reverse else [first, *steps[:-1]]


def in_time(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def multiply(a: Array, b: Array, out: Array, adds: bool) -> None:
    device.extension().multiply_into(a[None], b[None], out[None], adds)


def contributed(x: Array, weight: Array, bias_ih: Array | None, bias_hh: Array | None) -> Array:
    """What the inputs of all steps, and the biases, contribute to gates."""
    if bias_ih is None:
        return matmul(x, weight.T)
    found = device.extension().linear(x, weight, bias_ih + bias_hh)
    return matmul(x, weight.T) + (bias_ih + bias_hh) if found is None else found


def lstm_layer(x: Array, h0: Array, c0: Array, weights: tuple[Any, ...], reverse: bool) -> Any:
    """Outputs of all steps, the gates after activation, and the cells."""
    weight_ih, weight_hh, *biases = map(rows, weights)
    if not agree(x, h0, c0, weight_ih, weight_hh, *biases):
        return None
    (steps, examples, _), size = x.shape, h0.shape[-1]
    gates = contributed(x, weight_ih, *biases)
    hidden, cells = empty(steps, examples, size, like=x), empty(steps, examples, size, like=x)
    call, turned = kernel("step", HEAD + LSTM_STEP, x.dtype, cooperative=False), weight_hh.T
    arrays = [starts_of(rows(h0), hidden, reverse), list(gates), starts_of(rows(c0), cells, reverse), list(cells),
              list(hidden)]  # fmt: skip
    n = examples * size
    for t in in_time(steps, reverse):
        start, *of_step = [array[t] for array in arrays]
        multiply(start, turned, of_step[0], True)
        call(-(-n // THREADS), THREADS, *of_step, n, size)
    return hidden, gates, cells


def lstm_layer_gradients(
    grads: tuple[Any, ...], c0: Array, weight_hh: Array, gates: Array, cells: Array, reverse: bool
) -> Any:
    """Gradients of gates before activation, of the first h and c, from those of outputs and of the last h and c."""
    gates, cells = rows(gates), rows(cells)
    arriving, dh, dc = gradients_at_the_end(grads, cells[0])
    found, size, n = empty(*gates.shape, like=gates), cells.shape[-1], cells[0].size
    call, weight = kernel("gradient", HEAD + LSTM_GRADIENT, gates.dtype, cooperative=False), rows(weight_hh)
    arrays = [list(gates), list(found), starts_of(rows(c0), cells, reverse), list(cells)]
    for t in in_time(len(gates), not reverse):
        of_step = [array[t] for array in arrays]
        call(-(-n // THREADS), THREADS, *of_step, None if arriving is None else arriving[t], dh, dc, n, size)
        multiply(of_step[1], weight, dh, False)
    return found, dh, dc


def gradients_at_the_end(grads: tuple[Any, ...], like: Array) -> tuple[Any, ...]:
    """Those of outputs, one array for each step, or None; and of states, as arrays to work on."""
    states = [like.namespace.zeros(like.shape, like.dtype) if g is None else g.copy("C") for g in grads[1:]]
    return None if grads[0] is None else list(rows(grads[0])), *states


def gru_layer(gates: Array, h0: Array, weight_hh: Array, bias_hh: Array | None, reverse: bool) -> Any:
    """Outputs of all steps, the gates after activation, and what the reset gate multiplies."""
    gates, h0, weight_hh, bias_hh = map(rows, (gates, h0, weight_hh, bias_hh))
    if not agree(gates, h0, weight_hh, bias_hh):
        return None
    (steps, examples, width), size = gates.shape, h0.shape[-1]
    active, own = empty(*gates.shape, like=gates), empty(examples, width, like=gates)
    news, hidden = empty(steps, examples, size, like=gates), empty(steps, examples, size, like=gates)
    call, turned = kernel("step", HEAD + GRU_STEP, gates.dtype, cooperative=False), weight_hh.T
    arrays = [list(a) for a in (active, gates, news, hidden)]
    starts, n = starts_of(h0, hidden, reverse), examples * size
    for t in in_time(steps, reverse):
        a, g, new, out = [array[t] for array in arrays]
        multiply(starts[t], turned, own, False)
        call(-(-n // THREADS), THREADS, a, g, own, bias_hh, starts[t], new, out, n, size)
    return hidden, active, news


def gru_layer_gradients(
    grads: tuple[Any, ...], h0: Array, weight_hh: Array, hidden: Array, active: Array, news: Array, reverse: bool
) -> Any:
    """Gradients of the gates before activation, of what h contributed to them, and of the first h."""
    hidden, active, news = map(rows, (hidden, active, news))
    arriving, dh = gradients_at_the_end(grads, hidden[0])
    d_gates, d_own, size = empty(*active.shape, like=active), empty(*active.shape, like=active), hidden.shape[-1]
    call, weight = kernel("gradient", HEAD + GRU_GRADIENT, active.dtype, cooperative=False), rows(weight_hh)
    arrays = [list(d_gates), list(d_own), list(active), list(news), starts_of(rows(h0), hidden, reverse)]
    for t in in_time(len(active), not reverse):
        of_step, n = [array[t] for array in arrays], dh.size
        call(-(-n // THREADS), THREADS, *of_step, None if arriving is None else arriving[t], dh, n, size)
        multiply(of_step[1], weight, dh, True)
    return d_gates, d_own, dh


def recurrent_weight_gradient(d_gates: Array, first: Array, sequence: Array, reverse: bool) -> Array:
    """The sum over all steps of the products of these gradients and what the steps started from."""
    steps, _, size = sequence.shape
    later, sooner = (slice(-1), slice(1, None)) if reverse else (slice(1, None), slice(-1))
    edge = d_gates[-1 if reverse else 0].T
    if steps == 1:
        return matmul(edge, first)
    out = matmul(d_gates[later].reshape(-1, d_gates.shape[-1]).T, sequence[sooner].reshape(-1, size))
    multiply(edge, rows(first), out, True)
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "lstm_layer": lstm_layer, "lstm_layer_gradients": lstm_layer_gradients, "gru_layer": gru_layer,
    "gru_layer_gradients": gru_layer_gradients, "recurrent_weight_gradient": recurrent_weight_gradient,
}  # fmt: skip
