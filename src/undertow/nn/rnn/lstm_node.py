"""The recurrence of an LSTM layer over a whole sequence, as one node.

The loops below work in place on arrays whose examples are the last dimension, (gates * hidden, examples): there every
gate is contiguous, which halves the time of what is done to it. A backward pass that is itself to be differentiated
runs the recurrence again, step by step, out of ordinary operations.

What happens between the products of matrices is a kernel of the compiled core, or the same in NumPy (`step`,
`step_gradient`). sigmoid(x) is taken there as tanh(x / 2) / 2 + 1 / 2, so that one call serves all gates; its error is
that of rounding 1. The weights are halved before the loop, which is exact.

A device that has kernels of whole layers keeps (steps, examples, ...) all through, and recomputes tanh(c).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from undertow import ops
from undertow.autograd.function import Function
from undertow.backend.interface import Array, Namespace
from undertow.backend.kernels import (
    lstm_layer,
    lstm_layer_gradients,
    lstm_step,
    lstm_step_gradient,
    packed_product,
    packed_rows,
)
from undertow.backend.large_arrays import dot
from undertow.modes import current
from undertow.nn.rnn import steps
from undertow.nn.rnn.rnn_gru_node import before, recorded_gradients, weight_gradient_over_steps
from undertow.ops.network.row_kernels import row_kernel
from undertow.tensor import Tensor

#: bytes of a row of examples up to which a BLAS multiplies as fast as the core does with packed weights
NARROW = 32


class LSTMRecurrence(Function):
    """input, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh -> outputs of all steps, last h, last c."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, h0: Tensor, c0: Tensor, *weights_and_way: Any) -> Any:
        *weights, reverse = weights_and_way
        xp = input._xp
        check_dtypes(input, h0, c0)
        whole = lstm_layer(xp, input._array, h0._array, c0._array, tuple(arrays_of(weights)), reverse)
        if whole is None:
            active, hidden, cells, tanhs = run(xp, input._array, (h0._array, c0._array), weights, reverse)
            last, outputs = (0, hidden[:-1]) if reverse else (-1, hidden[1:])
            arrays = [view.copy(order="C") for view in (outputs.transpose(0, 2, 1), hidden[last].T, cells[last].T)]
            kept = [active, cells, tanhs]
        else:
            hidden, active, cells = whole
            last = 0 if reverse else -1
            arrays, kept = [hidden, hidden[last].copy(), cells[last].copy()], [active, cells]
        out, h, c = [Tensor(array, xp) for array in arrays]
        ctx.reverse = reverse
        ctx.save_for_backward(input, h0, c0, *weights, out, *[Tensor(array, xp) for array in kept])
        ctx.set_materialize_grads(False)
        return out, h, c

    @staticmethod
    def backward(ctx: Any, g_out: Tensor | None, g_h: Tensor | None, g_c: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # once: a checkpoint hands them out a single time
        inputs, (out, active, cells, *tanhs) = saved[:7], saved[7:]
        if current().grad_enabled or current().transforms:
            return lstm_again(ctx, (g_out, g_h, g_c), inputs)
        xp = active._xp
        if not tanhs:
            found = gradients_of_layer(ctx, (g_out, g_h, g_c), inputs, out, active, cells)
            return *[None if a is None else Tensor(a, xp) for a in found], None
        grads = [None if g is None else g._array.swapaxes(-1, -2) for g in (g_out, g_h, g_c)]
        d_gates, dh, dc = backward_loop(xp, ctx.reverse, grads, inputs[4], active, cells, *tanhs)
        starts = before(xp, inputs[1]._array, out._array, ctx.reverse)
        found = weight_gradients(xp, ctx.needs_input_grad, d_gates, inputs[0]._array, inputs[3]._array, starts)
        found[1:1] = [d.T.copy(order="C") for d in (dh, dc)]
        return *[None if a is None else Tensor(a, xp) for a in found], None


def arrays_of(tensors: Any) -> list[Any]:
    return [None if t is None else t._array for t in tensors]


def gradients_of_layer(
    ctx: Any, grads: tuple[Any, ...], inputs: tuple[Any, ...], out: Tensor, active: Tensor, cells: Tensor
) -> list[Any]:
    """Gradients of input, h0, c0, weights and biases where whole layers have kernels; (steps, examples, ...) there."""
    xp, needs = active._xp, ctx.needs_input_grad
    x, h0, c0, weight_ih, weight_hh = arrays_of(inputs[:5])
    d_gates, dh, dc = lstm_layer_gradients(
        xp, tuple(arrays_of(grads)), c0, weight_hh, active._array, cells._array, ctx.reverse
    )
    flat = d_gates.reshape(-1, d_gates.shape[-1])
    of_input = xp.matmul(flat, weight_ih).reshape(x.shape) if needs[0] else None
    of_ih = xp.matmul(flat.T, x.reshape(-1, x.shape[-1])) if needs[3] else None
    of_hh = weight_gradient_over_steps(xp, d_gates, h0, out._array, ctx.reverse) if needs[4] else None
    of_bias: Any = flat.sum(0) if needs[5] or needs[6] else None
    return [of_input, dh, dc, of_ih, of_hh, *[of_bias.copy() if needed else None for needed in needs[5:7]]]


def check_dtypes(input: Tensor, *state: Any) -> None:
    for part in state:
        if part.dtype != input.dtype:
            raise RuntimeError(
                f"Input and hidden tensors are not the same dtype, found input tensor with {input.dtype} and hidden "
                f"tensor with {part.dtype}. Convert the state: hidden.to({input.dtype})"
            )


def lstm_again(ctx: Any, grads: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    def run(
        input: Tensor,
        h0: Tensor,
        c0: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor | None,
        bias_hh: Tensor | None,
    ) -> Any:
        gates = ops.linear(input, weight_ih, bias_ih)
        out, (h, c) = steps.run_steps(steps.lstm_step, gates, (h0, c0), (weight_hh, bias_hh, None), ctx.reverse)
        return out, h, c

    return recorded_gradients(ctx, run, grads, inputs) + (None,)


def product_with(xp: Namespace, matrix: Array, columns: int) -> Callable[[Array, Array], Any]:
    """(right, out) -> out = matrix @ right, to be called for many `right` of so many columns.

    A BLAS lays the matrix down anew in each product, which with few columns takes as long as multiplying.
    """
    packed = packed_rows(xp, matrix) if columns * matrix.dtype.itemsize > NARROW else None
    if packed is None:
        return functools.partial(xp.dot, xp.ascontiguousarray(matrix))

    def multiply(right: Array, out: Array) -> None:
        if packed_product(xp, packed, right, out) is None:
            xp.dot(matrix, right, out)

    return multiply


# ---- forward


@row_kernel
def run(
    xp: Namespace, x: Array, state: tuple[Any, Any], weights: list[Any], reverse: bool
) -> tuple[Any, Any, Any, Any]:
    """Gates after activation, h and c (before the first step, and after each), and tanh(c) of all steps."""
    (count, rows, width), size, dtype = x.shape, state[0].shape[-1], x.dtype
    weight = joined(xp, weights)
    sigmoids = weight[: 2 * size], weight[3 * size :]  # i, f and o: see above
    for gate in sigmoids:
        xp.multiply(gate, 0.5, gate)
    operands = xp.empty((count + 1, weight.shape[1], rows), dtype)  # what `weight` multiplies: x, h and 1
    hidden, cells = operands[:, width : width + size], xp.empty((count + 1, size, rows), dtype)
    operands[:, width + size :] = 1
    starts, first = (operands[1:], -1) if reverse else (operands[:-1], 0)
    starts[:, :width] = x.transpose(0, 2, 1)
    hidden[first], cells[first] = state[0].T, state[1].T
    active, tanhs = (xp.empty((count, n, rows), dtype) for n in (4 * size, size))
    forward_loop(xp, reverse, weight, starts, active, hidden, cells, tanhs)
    return active, hidden, cells, tanhs


def joined(xp: Namespace, weights: list[Any]) -> Array:
    """weight_ih, weight_hh and the sum of the biases, side by side."""
    weight_ih, weight_hh, bias_ih, bias_hh = [None if w is None else w._array for w in weights]
    bias = [] if bias_ih is None else [(bias_ih + bias_hh)[:, None]]
    return xp.concatenate([weight_ih, weight_hh, *bias], 1)


def forward_loop(
    xp: Namespace,
    reverse: bool,
    weight: Array,
    operands: Array,
    active: Array,
    hidden: Array,
    cells: Array,
    tanhs: Array,
) -> None:
    starts, ends = (slice(1, None), slice(-1)) if reverse else (slice(-1), slice(1, None))
    arrays = (operands, active, cells[starts], cells[ends], tanhs, hidden[ends])
    way = slice(None, None, -1 if reverse else 1)
    multiply = product_with(xp, weight, operands.shape[-1])
    # an array in a loop is a view per step, at half the price of indexing it
    for operand, *of_step in zip(*[array[way] for array in arrays], strict=True):
        multiply(operand, of_step[0])
        if lstm_step(xp, *of_step) is None:
            step(xp, *of_step)


def step(xp: Namespace, gates: Array, cell: Array, next_cell: Array, tanh_cell: Array, hidden: Array) -> None:
    """One step: `gates` are activated in place, and the last three filled in."""
    size = len(cell)
    xp.tanh(gates, gates)
    for sigmoid in (gates[: 2 * size], gates[3 * size :]):
        xp.multiply(sigmoid, 0.5, sigmoid)
        xp.add(sigmoid, 0.5, sigmoid)
    i, f, g, o = gates.reshape(4, *cell.shape)
    xp.multiply(f, cell, next_cell)
    xp.add(next_cell, i * g, next_cell)
    xp.multiply(o, xp.tanh(next_cell, tanh_cell), hidden)


# ---- backward


@row_kernel
def backward_loop(
    xp: Namespace, reverse: bool, grads: list[Any], weight_hh: Tensor, active: Tensor, cells: Tensor, tanhs: Tensor
) -> tuple[Any, Any, Any]:
    """Gradients of the gates before activation, (steps, 4 * hidden, examples), and of the first h and c."""
    g_out, g_h, g_c = grads
    dh, dc = (xp.zeros(tanhs.shape[1:], tanhs.dtype) if g is None else g.copy(order="C") for g in (g_h, g_c))
    multiply, found = product_with(xp, weight_hh._array.T, dh.shape[-1]), xp.empty_like(active._array)
    starts = cells._array[1:] if reverse else cells._array[:-1]
    way = slice(None, None, 1 if reverse else -1)
    arrives = itertools.repeat(None) if g_out is None else g_out[way]
    arrays = [array[way] for array in (active._array, found, starts, tanhs._array)]
    for arriving, (gates, d_gates, cell, tanh_cell) in zip(arrives, zip(*arrays, strict=True), strict=False):
        if arriving is not None:
            xp.add(dh, arriving, dh)
        if lstm_step_gradient(xp, gates, d_gates, cell, tanh_cell, dh, dc) is None:
            step_gradient(xp, gates, d_gates, cell, tanh_cell, dh, dc)
        multiply(d_gates, dh)
    return found, dh, dc


def step_gradient(
    xp: Namespace, gates: Array, d_gates: Array, cell: Array, tanh_cell: Array, dh: Array, dc: Array
) -> None:
    """The gradient of one step: `d_gates` is filled in, and `dc` becomes that of the cell before the step."""
    i, f, g, o = gates.reshape(4, *cell.shape)
    xp.add(dc, dh * o * (1 - tanh_cell * tanh_cell), dc)
    factors = (dc * g, dc * cell, dc * i, dh * tanh_cell)
    slopes = (i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o))
    for factor, slope, out in zip(factors, slopes, d_gates.reshape(4, *cell.shape), strict=True):
        xp.multiply(factor, slope, out)
    xp.multiply(dc, f, dc)


def weight_gradients(
    xp: Namespace, needs: tuple[bool, ...], d_gates: Array, x: Array, weight_ih: Array, starts: Array
) -> list[Any]:
    """Gradients of input, weight_ih, weight_hh, bias_ih and bias_hh, from products over all steps and examples."""
    count, columns, rows = d_gates.shape
    flat = xp.ascontiguousarray(d_gates.transpose(1, 0, 2)).reshape(columns, count * rows)
    of_input = dot(flat.T, weight_ih).reshape(x.shape) if needs[0] else None
    of_ih = dot(flat, x.reshape(-1, x.shape[-1])) if needs[3] else None
    of_hh = dot(flat, starts.reshape(-1, starts.shape[-1])) if needs[4] else None
    of_bias: Any = flat.dot(xp.ones(count * rows, flat.dtype)) if needs[5] or needs[6] else None
    return [of_input, of_ih, of_hh, *[of_bias.copy() if needed else None for needed in needs[5:7]]]
