"""One step of a recurrent layer, and many, out of ordinary operations.

A step takes what the input contributes to the gates, the state (h, or h and c), and the weights (weight_hh, bias_hh,
weight_hr, of which the last two may be None), and returns the new state; h is its first part, and the step's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops

if TYPE_CHECKING:
    from undertow.tensor import Tensor

State = tuple[Any, ...]
Step = Callable[[Any, State, Any], State]


def rnn_step(nonlinearity: str) -> Step:
    activation = ops.tanh if nonlinearity == "tanh" else ops.relu

    def step(gates: Tensor, state: State, weights: Any) -> State:
        return (activation(gates + ops.linear(state[0], weights[0], weights[1])),)

    return step


def lstm_step(gates: Tensor, state: State, weights: Any) -> State:
    h, c = state
    i, f, g, o = ops.chunk(gates + ops.linear(h, weights[0], weights[1]), 4, -1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    h = ops.sigmoid(o) * ops.tanh(c)
    return (h if weights[2] is None else ops.linear(h, weights[2])), c


def gru_step(gates: Tensor, state: State, weights: Any) -> State:
    (h,) = state
    r, z, n = ops.chunk(gates, 3, -1)
    own_r, own_z, own_n = ops.chunk(ops.linear(h, weights[0], weights[1]), 3, -1)
    r, z = ops.sigmoid(r + own_r), ops.sigmoid(z + own_z)
    n = ops.tanh(n + r * own_n)
    return (n + z * (h - n),)


def run_steps(step: Step, gates: Tensor, state: State, weights: Any, reverse: bool) -> tuple[Any, State]:
    """All steps of (steps, examples, ...), the last one first if `reverse`; the outputs in their order in time."""
    outputs = []
    parts = ops.unbind(gates, 0)
    for part in reversed(parts) if reverse else parts:
        state = step(part, state, weights)
        outputs.append(state[0])
    return ops.stack(outputs[::-1] if reverse else outputs, 0), state


def run_packed(
    step: Step, gates: Tensor, state: State, weights: Any, reverse: bool, sizes: Sequence[int]
) -> tuple[Any, State]:
    """The same for sequences of different lengths, packed: step t has the first sizes[t] examples."""
    parts = ops.split(gates, list(sizes))
    run = packed_backwards if reverse else packed_forwards
    outputs, state = run(step, parts, state, weights, sizes)
    return ops.cat(outputs, 0), state


def packed_forwards(step: Step, parts: Any, state: State, weights: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
    """Sequences drop out as they end, the last ones first; their states wait for the end."""
    outputs, ended = [], []
    for part, size in zip(parts, sizes, strict=True):
        if size < state[0].shape[0]:
            ended.append(tuple(s[size:] for s in state))
            state = tuple(s[:size] for s in state)
        state = step(part, state, weights)
        outputs.append(state[0])
    ended.append(state)
    return outputs, tuple(ops.cat(list(states), 0) for states in zip(*ended[::-1], strict=True))


def packed_backwards(step: Step, parts: Any, state: State, weights: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
    """Sequences join as their last steps come."""
    outputs, first = [], state
    state = tuple(s[: sizes[-1]] for s in first)
    for part, size in zip(reversed(parts), reversed(sizes), strict=True):
        here = state[0].shape[0]
        if size > here:
            state = tuple(ops.cat([s, f[here:size]], 0) for s, f in zip(state, first, strict=True))
        state = step(part, state, weights)
        outputs.append(state[0])
    return outputs[::-1], state
