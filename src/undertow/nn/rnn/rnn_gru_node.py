"""The recurrence of RNN and GRU layers over a whole sequence, as one node each; that of LSTM is in `lstm`.

`gates` are what the inputs contribute, for all steps at once: (steps, examples, gates * hidden). The loops below work
in place on arrays; a backward pass that is itself to be differentiated, or of many gradients at once, runs the
recurrence again, step by step, out of ordinary operations (see `again`).

sigmoid(x) is taken as tanh(x / 2) / 2 + 1 / 2, so that one call serves all gates; its error is that of rounding 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow import ops
from undertow.autograd.backward import grad
from undertow.autograd.function import Function
from undertow.backend.interface import Array, Namespace
from undertow.backend.kernels import gru_layer, gru_layer_gradients, recurrent_weight_gradient
from undertow.modes import current, enable_grad
from undertow.nn.rnn.steps import gru_step, rnn_step, run_steps
from undertow.tensor import Tensor


def order_of(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def before(xp: Namespace, first: Array, sequence: Array, reverse: bool) -> Array:
    """What each step started from: the sequence, moved by one, with `first` in front."""
    whole = xp.empty(sequence.shape, sequence.dtype)
    if reverse:
        whole[-1], whole[:-1] = first, sequence[1:]
    else:
        whole[0], whole[1:] = first, sequence[:-1]
    return whole


def again(ctx: Any, run: Callable[..., Any], grads: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients, recorded if grad mode is on: from running the recurrence again on aliases of its inputs."""
    with enable_grad():
        aliases = [None if x is None else ops.view_as(x, x) for x in inputs]
        outputs = run(*aliases)
    wanted = [a for a, need in zip(aliases, ctx.needs_input_grad, strict=False) if need and a is not None]
    found = iter(grad(outputs, wanted, grads, create_graph=current().grad_enabled, allow_unused=True))
    needs = ctx.needs_input_grad
    return tuple([next(found) if need and a is not None else None for a, need in zip(aliases, needs, strict=False)])


def weight_gradient(xp: Namespace, d_gates: Array, previous: Array) -> Array:
    rows, columns = d_gates.shape[-1], previous.shape[-1]
    return d_gates.reshape(-1, rows).T @ previous.reshape(-1, columns)


def weight_gradient_over_steps(xp: Namespace, d_gates: Array, first: Array, out: Array, reverse: bool) -> Array:
    """The gradient of weight_hh, which multiplies what each step starts from."""
    found = recurrent_weight_gradient(xp, d_gates, first, out, reverse)
    return weight_gradient(xp, d_gates, before(xp, first, out, reverse)) if found is None else found


def recorded_gradients(
    ctx: Any, run: Callable[..., Any], grads: tuple[Any, ...], inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """`again`, for those outputs that have a gradient."""

    def run_defined(*aliases: Any) -> list[Any]:
        return [out for out, g in zip(run(*aliases), grads, strict=True) if g is not None]

    return again(ctx, run_defined, tuple(g for g in grads if g is not None), inputs)


# ---- GRU


class GRURecurrence(Function):
    """gates, h0, weight_hh, bias_hh -> outputs of all steps, last h."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Tensor | None, reverse: bool) -> Any:
        xp, bias = gates._xp, None if bias_hh is None else bias_hh._array
        arrays = gates._array, h0._array, weight_hh._array, bias, reverse
        outputs, active, news = gru_layer(xp, *arrays) or run_gru(xp, *arrays)
        out = Tensor(outputs, xp)
        ctx.reverse = reverse
        ctx.save_for_backward(gates, h0, weight_hh, bias_hh, out, Tensor(active, xp), Tensor(news, xp))
        ctx.set_materialize_grads(False)
        return out, Tensor(outputs[0 if reverse else -1].copy(), xp)

    @staticmethod
    def backward(ctx: Any, g_out: Tensor | None, g_h: Tensor | None) -> tuple[Any, ...]:
        gates, h0, weight_hh, bias_hh, out, active, news = ctx.saved_tensors
        if current().grad_enabled or current().transforms:
            return gru_again(ctx, (g_out, g_h), (gates, h0, weight_hh, bias_hh))
        xp, needs = gates._xp, ctx.needs_input_grad
        d_gates, d_own, dh = gru_loop(xp, ctx.reverse, g_out, g_h, h0, weight_hh, out, active, news)
        d_weight = weight_gradient_over_steps(xp, d_own, h0._array, out._array, ctx.reverse) if needs[2] else None
        d_bias = d_own.sum((0, 1)) if needs[3] else None
        return tuple([None if a is None else Tensor(a, xp) for a in (d_gates, dh, d_weight, d_bias)]) + (None,)


def run_gru(xp: Namespace, gates: Array, h0: Array, weight_hh: Array, bias: Array | None, reverse: bool) -> Any:
    """Outputs of all steps, the gates after activation, and what the reset gate multiplies."""
    size, active = h0.shape[-1], gates.copy()
    news, outputs = (xp.empty((len(gates), *h0.shape), gates.dtype) for _ in range(2))
    h, weight = h0, weight_hh.T
    for t in order_of(len(gates), reverse):
        own = xp.matmul(h, weight)
        if bias is not None:
            own += bias
        a = active[t]
        both = a[:, : 2 * size]
        both += own[:, : 2 * size]
        both *= 0.5
        xp.tanh(both, both)
        both *= 0.5
        both += 0.5
        news[t] = own[:, 2 * size :]
        n = a[:, 2 * size :]
        n += a[:, :size] * news[t]
        xp.tanh(n, n)
        h = xp.multiply(a[:, size : 2 * size], h - n, outputs[t])
        h += n
    return outputs, active, news


def gru_again(ctx: Any, grads: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    def run(gates: Tensor, h0: Tensor, weight_hh: Tensor, bias_hh: Tensor | None) -> Any:
        out, (h,) = run_steps(gru_step, gates, (h0,), (weight_hh, bias_hh, None), ctx.reverse)
        return out, h

    return recorded_gradients(ctx, run, grads, inputs) + (None,)


def gru_loop(
    xp: Namespace,
    reverse: bool,
    g_out: Tensor | None,
    g_h: Tensor | None,
    h0: Tensor,
    weight_hh: Tensor,
    out: Tensor,
    active: Tensor,
    news: Tensor,
) -> tuple[Any, Any, Any]:
    """Gradients of the gates before activation, of what h contributed to them, and of the first h."""
    grads = tuple([None if g is None else g._array for g in (g_out, g_h)])
    kept = [t._array for t in (h0, weight_hh, out, active, news)]
    found = gru_layer_gradients(xp, grads, *kept, reverse)
    if found is not None:
        return tuple(found)
    steps, examples, size = out.shape
    a, weight = active._array, weight_hh._array
    r, z, n = a[..., :size], a[..., size : 2 * size], a[..., 2 * size :]
    of_n = (1 - z) * (1 - n * n)
    of_z = (before(xp, h0._array, out._array, reverse) - n) * z * (1 - z)
    of_r = news._array * r * (1 - r)
    d_gates, d_own = xp.empty_like(a), xp.empty_like(a)
    dh = xp.zeros((examples, size), a.dtype) if g_h is None else g_h._array
    for t in order_of(steps, not reverse):
        if g_out is not None:
            dh = dh + g_out._array[t]
        d, own = d_gates[t], d_own[t]
        dn = xp.multiply(dh, of_n[t], d[:, 2 * size :])
        xp.multiply(dh, of_z[t], d[:, size : 2 * size])
        xp.multiply(dn, of_r[t], d[:, :size])
        own[:, : 2 * size] = d[:, : 2 * size]
        xp.multiply(dn, r[t], own[:, 2 * size :])
        dh = dh * z[t]
        dh += xp.matmul(own, weight)
    return d_gates, d_own, dh


# ---- the plain RNN


class RNNRecurrence(Function):
    """gates, h0, weight_hh -> outputs of all steps, last h."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, h0: Tensor, weight_hh: Tensor, nonlinearity: str, reverse: bool) -> Any:
        xp = gates._xp
        outputs = gates._array.copy()
        h, weight = h0._array, weight_hh._array.T
        for t in order_of(gates.shape[0], reverse):
            o = outputs[t]
            o += xp.matmul(h, weight)
            h = xp.tanh(o, o) if nonlinearity == "tanh" else xp.maximum(o, 0, out=o)
        out = Tensor(outputs, xp)
        ctx.nonlinearity, ctx.reverse = nonlinearity, reverse
        ctx.save_for_backward(gates, h0, weight_hh, out)
        ctx.set_materialize_grads(False)
        return out, Tensor(h.copy(), xp)

    @staticmethod
    def backward(ctx: Any, g_out: Tensor | None, g_h: Tensor | None) -> tuple[Any, ...]:
        gates, h0, weight_hh, out = ctx.saved_tensors
        if current().grad_enabled or current().transforms:
            return rnn_again(ctx, (g_out, g_h), (gates, h0, weight_hh))
        xp, steps = gates._xp, out.shape[0]
        y = out._array
        slopes = 1 - y * y if ctx.nonlinearity == "tanh" else (y > 0).astype(y.dtype)
        dh = xp.zeros(h0.shape, y.dtype) if g_h is None else g_h._array
        for t in order_of(steps, not ctx.reverse):
            if g_out is not None:
                dh = dh + g_out._array[t]
            dh = xp.matmul(xp.multiply(slopes[t], dh, slopes[t]), weight_hh._array)
        needs = ctx.needs_input_grad[2]
        d_weight = weight_gradient_over_steps(xp, slopes, h0._array, y, ctx.reverse) if needs else None
        found = [None if a is None else Tensor(a, xp) for a in (slopes, dh, d_weight)]
        return (*found, None, None)


def rnn_again(ctx: Any, grads: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    def run(gates: Tensor, h0: Tensor, weight_hh: Tensor) -> Any:
        out, (h,) = run_steps(rnn_step(ctx.nonlinearity), gates, (h0,), (weight_hh, None, None), ctx.reverse)
        return out, h

    return recorded_gradients(ctx, run, grads, inputs) + (None, None)
