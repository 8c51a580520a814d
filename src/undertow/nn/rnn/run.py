"""Recurrent layers over whole sequences: one layer in one direction, and all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.modes import current
from undertow.nn.rnn.lstm_node import LSTMRecurrence
from undertow.nn.rnn.rnn_gru_node import GRURecurrence, RNNRecurrence
from undertow.nn.rnn.steps import Step, gru_step, lstm_step, rnn_step, run_packed, run_steps

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class Weights(NamedTuple):
    """The parameters of one layer in one direction."""

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    weight_hr: Any = None


def step_of(mode: str) -> Step:
    return {"LSTM": lstm_step, "GRU": gru_step}.get(mode) or rnn_step("tanh" if mode == "RNN_TANH" else "relu")


def has_node(input: Tensor) -> bool:
    """Whether all steps are one node where the input lies: autocast must see the products of those on devices."""
    if input._xp is cpu:
        return True
    is_exact = input.dtype in (dtypes.float32, dtypes.float64)
    return is_exact and "lstm_layer" in getattr(input._xp, "own_kernels", ()) and current().intercept is None


def run_layer(mode: str, input: Tensor, state: Any, weights: Weights, reverse: bool, sizes: Any) -> tuple[Any, Any]:
    """One layer in one direction: outputs of all steps, and the last state."""
    if sizes is not None or weights.weight_hr is not None or current().transforms or not has_node(input):
        gates = ops.linear(input, weights.weight_ih, weights.bias_ih)
        inner = (weights.weight_hh, weights.bias_hh, weights.weight_hr)
        if sizes is not None:
            return run_packed(step_of(mode), gates, state, inner, reverse, sizes)
        return run_steps(step_of(mode), gates, state, inner, reverse)
    if mode == "LSTM":
        out, h, c = LSTMRecurrence.apply(input, *state, *weights[:4], reverse)
        return out, (h, c)
    if mode == "GRU":
        gates = ops.linear(input, weights.weight_ih, weights.bias_ih)
        out, h = GRURecurrence.apply(gates, state[0], weights.weight_hh, weights.bias_hh, reverse)
        return out, (h,)
    bias = None if weights.bias_ih is None else weights.bias_ih + weights.bias_hh
    gates = ops.linear(input, weights.weight_ih, bias)
    nonlinearity = "tanh" if mode == "RNN_TANH" else "relu"
    out, h = RNNRecurrence.apply(gates, state[0], weights.weight_hh, nonlinearity, reverse)
    return out, (h,)


def run_layers(
    mode: str, x: Tensor, state: list[Any], weights: list[Weights], directions: int, dropout: float, sizes: Any
) -> tuple[Any, list[Any]]:
    """All layers: outputs of the last one, and the last states of all of them.

    state    one tensor (h), or two (h and c), for all layers and directions along their first dimension
    dropout  of what goes from layer to layer
    sizes    how many examples each step has, if `x` is packed
    """
    firsts = list(zip(*[ops.unbind(part, 0) for part in state], strict=True))
    lasts = []
    for first in range(0, len(weights), directions):
        outputs = []
        for number in range(first, first + directions):
            out, last = run_layer(mode, x, firsts[number], weights[number], number > first, sizes)
            outputs.append(out)
            lasts.append(last)
        x = outputs[0] if directions == 1 else ops.cat(outputs, -1)
        if dropout and first + directions < len(weights):
            x = ops.dropout(x, dropout)
    return x, [ops.stack(list(parts), 0) for parts in zip(*lasts, strict=True)]
