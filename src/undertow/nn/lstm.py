"""The recurrence of an LSTM layer over a whole sequence, as one node.

The loops below work in place on arrays whose examples are the last dimension, (gates * hidden, examples): there every
gate is contiguous, which halves the time of what is done to it. A backward pass that is itself to be differentiated
runs the recurrence again, step by step, out of ordinary operations.

sigmoid(x) is taken as tanh(x / 2) / 2 + 1 / 2, so that one call serves all gates; its error is that of rounding 1. The
weights are halved before the loop, which is exact.
"""

from __future__ import annotations

import itertools
from typing import Any

from undertow import ops
from undertow.autograd.function import Function
from undertow.modes import current
from undertow.nn.recurrence import before, recorded_gradients
from undertow.nn.steps import lstm_step, run_steps
from undertow.ops.rows import row_kernel
from undertow.tensor import Tensor

#: bytes of one array in a group of steps
CHUNK = 2**19


class LSTMRecurrence(Function):
    """input, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh -> outputs of all steps, last h, last c."""

    @staticmethod
    def forward(ctx: Any, input: Any, h0: Any, c0: Any, *weights_and_way: Any) -> Any:
        *weights, reverse = weights_and_way
        xp = input._xp
        check_dtypes(input, h0, c0)
        active, hidden, cells, tanhs = run(xp, input._array, (h0._array, c0._array), weights, reverse)
        last, outputs = (0, hidden[:-1]) if reverse else (-1, hidden[1:])
        views = outputs.transpose(0, 2, 1), hidden[last].T, cells[last].T
        out, h, c = [Tensor(view.copy(order="C"), xp) for view in views]
        ctx.reverse = reverse
        ctx.save_for_backward(input, h0, c0, *weights, out, *[Tensor(array, xp) for array in (active, cells, tanhs)])
        ctx.set_materialize_grads(False)
        return out, h, c

    @staticmethod
    def backward(ctx: Any, g_out: Any, g_h: Any, g_c: Any) -> Any:
        saved = ctx.saved_tensors  # once: a checkpoint hands them out a single time
        inputs, (out, active, cells, tanhs) = saved[:7], saved[7:]
        if current().grad_enabled:
            return lstm_again(ctx, (g_out, g_h, g_c), inputs)
        xp = active._xp
        grads = [None if g is None else g._array.swapaxes(-1, -2) for g in (g_out, g_h, g_c)]
        d_gates, dh, dc = backward_loop(xp, ctx.reverse, grads, inputs[4], active, cells, tanhs)
        starts = before(inputs[1], out, ctx.reverse)
        found = weight_gradients(xp, ctx.needs_input_grad, d_gates, inputs[0]._array, inputs[3]._array, starts)
        found[1:1] = [d.T.copy(order="C") for d in (dh, dc)]
        return *[None if a is None else Tensor(a, xp) for a in found], None


def check_dtypes(input: Any, *state: Any) -> None:
    for part in state:
        if part.dtype != input.dtype:
            raise RuntimeError(
                f"Input and hidden tensors are not the same dtype, found input tensor with {input.dtype} and hidden "
                f"tensor with {part.dtype}. Convert the state: hidden.to({input.dtype})"
            )


def lstm_again(ctx: Any, grads: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    def run(input: Any, h0: Any, c0: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any) -> Any:
        gates = ops.linear(input, weight_ih, bias_ih)
        out, (h, c) = run_steps(lstm_step, gates, (h0, c0), (weight_hh, bias_hh, None), ctx.reverse)
        return out, h, c

    return recorded_gradients(ctx, run, grads, inputs) + (None,)


# ---- forward


@row_kernel
def run(xp: Any, x: Any, state: tuple[Any, Any], weights: list[Any], reverse: bool) -> tuple[Any, Any, Any, Any]:
    """Gates after activation, h and c (before the first step, and after each), and tanh(c) of all steps."""
    (steps, rows, width), size, dtype = x.shape, state[0].shape[-1], x.dtype
    factors = xp.full((4, size), 0.5, dtype)
    factors[2] = 1  # i, f, g, o: all but g are sigmoids
    factors = factors.reshape(4 * size, 1)
    weight = joined(xp, weights) * factors
    operands = xp.empty((steps + 1, weight.shape[1], rows), dtype)  # what `weight` multiplies: x, h and 1
    hidden, cells = operands[:, width : width + size], xp.empty((steps + 1, size, rows), dtype)
    operands[:, width + size :] = 1
    starts, first = (operands[1:], -1) if reverse else (operands[:-1], 0)
    starts[:, :width] = x.transpose(0, 2, 1)
    hidden[first], cells[first] = state[0].T, state[1].T
    active, tanhs = (xp.empty((steps, n, rows), dtype) for n in (4 * size, size))
    forward_loop(xp, reverse, weight, starts, active, hidden, cells, tanhs, factors)
    return active, hidden, cells, tanhs


def joined(xp: Any, weights: list[Any]) -> Any:
    """weight_ih, weight_hh and the sum of the biases, side by side."""
    weight_ih, weight_hh, bias_ih, bias_hh = [None if w is None else w._array for w in weights]
    bias = [] if bias_ih is None else [(bias_ih + bias_hh)[:, None]]
    return xp.concatenate([weight_ih, weight_hh, *bias], 1)


def forward_loop(
    xp: Any,
    reverse: bool,
    weight: Any,
    operands: Any,
    active: Any,
    hidden: Any,
    cells: Any,
    tanhs: Any,
    factors: Any,
) -> None:
    columns, rows = active.shape[1:]
    size = columns // 4
    factors = xp.repeat(factors, rows, 1)  # as a whole array: broadcasting short rows takes many times as long
    shifts = 1 - factors
    part = xp.empty((size, rows), active.dtype)
    gates = [active[:, k * size : (k + 1) * size] for k in range(4)]
    add, multiply, tanh, dot = xp.add, xp.multiply, xp.tanh, xp.dot
    starts, ends = (slice(1, None), slice(-1)) if reverse else (slice(-1), slice(1, None))
    arrays = (operands, active, *gates, hidden[ends], cells[starts], cells[ends], tanhs)
    way = slice(None, None, -1 if reverse else 1)
    # an array in a loop is a view per step, at half the price of indexing it
    for operand, a, i, f, g, o, out, start, c, tc in zip(*[array[way] for array in arrays], strict=True):
        dot(weight, operand, a)
        tanh(a, a)
        multiply(a, factors, a)
        add(a, shifts, a)
        multiply(f, start, c)
        add(c, multiply(i, g, part), c)
        multiply(o, tanh(c, tc), out)


# ---- backward


@row_kernel
def backward_loop(
    xp: Any, reverse: bool, grads: list[Any], weight_hh: Any, active: Any, cells: Any, tanhs: Any
) -> tuple[Any, Any, Any]:
    """Gradients of the gates before activation, (steps, 4 * hidden, examples), and of the first h and c."""
    g_out, g_h, g_c = grads
    steps, size, rows = tanhs.shape
    a = active._array.reshape(steps, 4, size, rows)
    found = xp.empty_like(a)
    dh, dc = (xp.zeros((size, rows), a.dtype) if g is None else g.copy(order="C") for g in (g_h, g_c))
    weight, part = xp.ascontiguousarray(weight_hh._array.T), xp.empty((size, rows), a.dtype)
    add, multiply, dot = xp.add, xp.multiply, xp.dot
    starts = cells._array[1:] if reverse else cells._array[:-1]
    way = slice(None, None, 1 if reverse else -1)
    for few in chunks(steps, a[0].nbytes, not reverse):
        through = slopes(xp, a[few], starts[few], tanhs._array[few], found[few])
        d = found[few]
        views = (d.reshape(-1, 4 * size, rows), d[:, :3], d[:, 3], through, a[few][:, 1])
        arrives = itertools.repeat(None) if g_out is None else g_out[few][way]
        for arriving, (whole, three, last, via, f) in zip(
            arrives, zip(*[v[way] for v in views], strict=True), strict=False
        ):
            if arriving is not None:
                add(dh, arriving, dh)
            add(dc, multiply(dh, via, part), dc)
            multiply(three, dc, three)
            multiply(last, dh, last)
            multiply(dc, f, dc)
            dot(weight, whole, dh)
    return found.reshape(steps, 4 * size, rows), dh, dc


def chunks(steps: int, nbytes: int, backwards: bool) -> list[slice]:
    """Steps in groups that fit into a cache, so that what can be done for several at once stays near."""
    count = max(1, CHUNK // max(nbytes, 1))
    groups = [slice(start, min(start + count, steps)) for start in range(0, steps, count)]
    return groups[::-1] if backwards else groups


def slopes(xp: Any, a: Any, start: Any, tc: Any, out: Any) -> Any:
    """What dc (gates i, f, g) and dh (gate o) are multiplied with, into `out`; returns what leads from dh to dc."""
    i, g, o = a[:, 0], a[:, 2], a[:, 3]
    xp.subtract(1, a, out)
    xp.multiply(out, a, out)
    of_g = xp.multiply(g, g, out[:, 2])
    xp.subtract(1, of_g, of_g)
    for k, partner in enumerate((g, start, i, tc)):
        xp.multiply(out[:, k], partner, out[:, k])
    through = tc * tc
    xp.subtract(1, through, through)
    return xp.multiply(through, o, through)


def weight_gradients(xp: Any, needs: tuple[bool, ...], d_gates: Any, x: Any, weight_ih: Any, starts: Any) -> list[Any]:
    """Gradients of input, weight_ih, weight_hh, bias_ih and bias_hh, from products over all steps and examples."""
    steps, columns, rows = d_gates.shape
    flat = xp.ascontiguousarray(d_gates.transpose(1, 0, 2)).reshape(columns, steps * rows)
    of_input = flat.T.dot(weight_ih).reshape(x.shape) if needs[0] else None
    of_ih = flat.dot(x.reshape(-1, x.shape[-1])) if needs[3] else None
    of_hh = flat.dot(starts.reshape(-1, starts.shape[-1])) if needs[4] else None
    ones = xp.ones(steps * rows, flat.dtype)
    return [of_input, of_ih, of_hh, *[flat.dot(ones) if needed else None for needed in needs[5:7]]]
