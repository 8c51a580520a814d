"""Connectionist temporal classification: the likelihood of a sequence of classes, without saying when each comes.

Between its classes, and at both ends, a sequence may pause (`blank`). A state is a place in the sequence with these
pauses; `forward` probabilities of all states go from step to step, as logarithms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.modes import no_grad
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.create.creation import tensor
from undertow.ops.declare import Joint, primitive
from undertow.ops.declare.recorded_namespace import on_tensors, recorded
from undertow.ops.declare.rules import LOOP
from undertow.ops.index.gather_scatter import gather
from undertow.ops.network.softmax import softmax
from undertow.ops.pointwise.exp_log import logaddexp
from undertow.ops.pointwise.where_clamp import clamp_min, where
from undertow.ops.reduce.logsumexp import logsumexp
from undertow.ops.reduce.sums_and_products import mean
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.ops.shape.joining import stack
from undertow.ops.shape.padding import pad
from undertow.ops.views.dimensions import expand, squeeze, unsqueeze
from undertow.ops.views.splitting import unbind

if TYPE_CHECKING:
    from undertow.tensor import Tensor

#: the logarithm of the probability of what is impossible; finite, so that no gradient is 0 / 0
IMPOSSIBLE = -1e30


@example_by_example
@in_float32
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of target sequences.

    log_probs      (steps, examples, classes) or (steps, classes), of log_softmax
    targets        (examples, longest) or all sequences one after the other
    reduction      'mean' divides by the target's length first
    zero_infinity  a target that does not fit into the steps counts 0, not infinity

    The gradient is that of the formula. PyTorch's adds exp(log_probs), which the log_softmax before it takes out again.

    >>> import undertow as ut
    >>> log_probs = ut.zeros(4, 1, 3).log_softmax(2)
    >>> ut.nn.functional.ctc_loss(log_probs, ut.tensor([[1, 2]]), ut.tensor([4]), ut.tensor([2]))
    tensor(0.8432)
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if log_probs.numel() == 0:
        raise RuntimeError(f"log_probs tensor must not be empty, but has shape {list(log_probs.shape)}")
    single = log_probs.dim() == 2
    x = unsqueeze(log_probs, 1) if single else log_probs
    steps, wanted = (
        lengths(input_lengths, x.shape[1], "input_lengths"),
        lengths(target_lengths, x.shape[1], "target_lengths"),
    )
    check(x, steps, blank)
    check_targets(targets, wanted)
    sequences = split_targets(targets, wanted)
    losses = -likelihoods(x, sequences, steps, blank)
    impossible = losses > -IMPOSSIBLE / 10
    losses = where(impossible, 0.0 if zero_infinity else math.inf, losses)
    if reduction == "none":
        return losses[0] if single else losses
    if reduction == "sum":
        return losses.sum()
    return mean(losses / tensor([max(n, 1) for n in wanted], dtype=x.dtype, device=x.device))


def lengths(given: Any, examples: int, name: str) -> list[int]:
    found = given.tolist() if hasattr(given, "tolist") else given
    found = list(found) if isinstance(found, list | tuple) else [found]
    if any(isinstance(n, float) for n in found):
        raise RuntimeError(f"{name} must be integral, but holds floats: convert it with .long()")
    found = [int(n) for n in found]
    if len(found) != examples:
        raise RuntimeError(f"{name} must be of size batch_size: got {len(found)} for {examples} examples")
    return found


def check(x: Tensor, steps: list[int], blank: int) -> None:
    if not 0 <= blank < x.shape[2]:
        raise RuntimeError("blank must be in label range")
    if max(steps) > x.shape[0]:
        raise RuntimeError(f"Expected input_lengths to have value at most {x.shape[0]}, but got value {max(steps)}")
    if min(steps) < 0:
        raise RuntimeError(f"Expected input_lengths to have value at least 0, but got value {min(steps)}")


def check_targets(targets: Tensor, wanted: list[int]) -> None:
    if min(wanted) < 0:
        raise RuntimeError(f"Expected target_lengths to have value at least 0, but got value {min(wanted)}")
    if targets.dim() == 2 and targets.shape[1] < max(wanted):
        raise RuntimeError(
            f"Expected tensor to have size at least {max(wanted)} at dimension 1, but got size {targets.shape[1]} for "
            "argument targets: a target is shorter than its target_length"
        )
    if targets.dim() == 1 and targets.shape[0] != sum(wanted):
        raise RuntimeError(
            f"Expected tensor to have size {sum(wanted)} at dimension 0, but got size {targets.shape[0]} for argument "
            "targets: they come one after the other, sum(target_lengths) in all"
        )


def split_targets(targets: Tensor, wanted: list[int]) -> list[list[int]]:
    if targets.dim() == 2:
        return [row[:n] for row, n in zip(targets.tolist(), wanted, strict=True)]
    flat, found = targets.tolist(), []
    for n in wanted:
        found.append(flat[:n])
        flat = flat[n:]
    return found


# ---- the states, step by step


def _ways(states: Array, jumps: Array) -> Tensor:
    """The three ways to each state: from itself, from the one before, over one pause."""
    before = pad(states, (2, 0), "constant", IMPOSSIBLE)
    jumped = before[:, :-2]
    return stack([states, before[:, 1:-1], where(jumps, jumped, jumped + IMPOSSIBLE)])


def _all_states(start: Array, emissions: Array, jumps: Array, running: Array) -> list[Any]:
    states: list[Any] = [start]
    for t, emission in enumerate(unbind(emissions, 0)[1:], 1):
        reached = logsumexp(_ways(states[-1], jumps), 0) + emission
        states.append(where(running > t, reached, states[-1]))
    return states


def _adjoint(g: Array, start: Array, emissions: Array, jumps: Array, running: Array) -> tuple[Tensor, Tensor]:
    """The gradients of the start and the emissions: every state's goes back the ways that led to it."""
    states, (*of_states, back) = _all_states(start, emissions, jumps, running), unbind(g, 0)
    of_emissions = []
    for t in range(len(states) - 1, 0, -1):
        runs = running > t
        of_emissions.append(where(runs, back, 0.0))
        stay, step, jump = unbind(softmax(_ways(states[t - 1], jumps), 0) * back, 0)
        reached = stay + pad(step[:, 1:], (0, 1)) + pad(jump[:, 2:], (0, 2))[:, : stay.shape[1]]
        back = where(runs, reached, back) + of_states[t - 1]
    return back, stack([back * 0, *of_emissions[::-1]])


def _tangents(t: Array, of_start: bool, start: Array, emissions: Array, jumps: Array, running: Array) -> Tensor:
    """The tangents of all states, by that of the start, or of the emissions."""
    states = _all_states(start, emissions, jumps, running)
    found, jumped = [t if of_start else t[0] * 0], recorded.astype(jumps, t.dtype)
    for step in range(1, len(states)):
        moved = pad(found[-1], (2, 0))
        moved = stack([found[-1], moved[:, 1:-1], moved[:, :-2] * jumped])
        reached = sum_of(softmax(_ways(states[step - 1], jumps), 0) * moved, 0)
        found.append(where(running > step, reached if of_start else reached + t[step], found[-1]))
    return stack(found)


def _states_array(xp: Namespace, start: Array, emissions: Array, jumps: Array, running: Array) -> Array:
    whole = [xp.ascontiguousarray(a) for a in (start, emissions, jumps)]
    found = kernels.ctc_states(xp, *whole, running)
    return on_tensors(xp, lambda *all: stack(_all_states(*all)), *whole, running) if found is None else found


def _states_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, ...],
    start: Array,
    emissions: Array,
    jumps: Array,
    running: Array,
    out: Array,
) -> Any:
    if xp is not recorded:
        whole = [xp.ascontiguousarray(a) for a in (start, emissions, jumps)]
        found = kernels.ctc_gradients(xp, *whole, running, out, xp.ascontiguousarray(g))
        if found is not None:
            return *found, None, None
    return *on_tensors(xp, _adjoint, g, start, emissions, jumps, running), None, None


ctc_states = primitive(
    "_ctc_states",
    forward=_states_array,
    vjp=Joint(("start", "emissions", "jumps", "running"), _states_gradients),
    jvp={
        "start": lambda xp, t, start, emissions, jumps, running: on_tensors(
            xp, lambda t, *rest: _tangents(t, True, *rest), t, start, emissions, jumps, running
        ),
        "emissions": lambda xp, t, start, emissions, jumps, running: on_tensors(
            xp, lambda t, *rest: _tangents(t, False, *rest), t, start, emissions, jumps, running
        ),
    },
    batch=LOOP,
)


def likelihoods(x: Tensor, sequences: list[list[int]], steps: list[int], blank: int) -> Tensor:
    """The log-likelihood of each sequence."""
    count, longest = len(sequences), max(map(len, sequences))
    with no_grad():
        new = lambda rows, dtype=dtypes.int64: tensor(rows, dtype=dtype, device=x.device)
        states = new([interleaved(sequence, blank, longest) for sequence in sequences])
        jumps = new([may_jump(row, blank) for row in states.tolist()], dtypes.bool_)
        ends = new([[2 * len(sequence)] for sequence in sequences])
        running = new([[n] for n in steps])
        starts = new(
            [[k == 0 or (k == 1 and len(s) > 0) for k in range(2 * longest + 1)] for s in sequences], dtypes.bool_
        )
    index = expand(unsqueeze(states, 0), (x.shape[0], count, 2 * longest + 1))
    emissions = gather(x, 2, index)
    forward = where(starts, emissions[0], IMPOSSIBLE)
    if min(steps) == 0:  # without a step, only the empty sequence is possible, and certain
        at_start = tensor([0.0] + [IMPOSSIBLE] * (2 * longest), dtype=x.dtype, device=x.device)
        forward = where(running > 0, forward, at_start)
    forward = ctc_states(forward, emissions, jumps, running)[-1]
    last = gather(forward, 1, ends)
    before = where(ends > 0, gather(forward, 1, clamp_min(ends - 1, 0)), IMPOSSIBLE)
    return squeeze(logaddexp(last, before), 1)


def interleaved(sequence: list[int], blank: int, longest: int) -> list[int]:
    """A sequence with pauses, and more of them up to the longest."""
    row = [blank]
    for label in sequence:
        row += [label, blank]
    return row + [blank] * (2 * longest + 1 - len(row))


def may_jump(row: list[int], blank: int) -> list[bool]:
    """Whether a state can be reached over the pause before it: not from an equal class."""
    return [k >= 2 and label != blank and label != row[k - 2] for k, label in enumerate(row)]
