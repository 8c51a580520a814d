"""Connectionist temporal classification: the likelihood of a sequence of classes, without saying when each comes.

Between its classes, and at both ends, a sequence may pause (`blank`). A state is a place in the sequence with these
pauses; `forward` probabilities of all states go from step to step, as logarithms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.modes import no_grad
from undertow.ops.arguments.autocast_float32 import in_float32
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.create.creation import tensor
from undertow.ops.index.gather_scatter import gather
from undertow.ops.pointwise.exp_log import logaddexp
from undertow.ops.pointwise.where_clamp import clamp_min, where
from undertow.ops.reduce.sums_and_products import mean
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


def likelihoods(x: Tensor, sequences: list[list[int]], steps: list[int], blank: int) -> Tensor:
    """The log-likelihood of each sequence."""
    count, longest = len(sequences), max(map(len, sequences))
    with no_grad():
        new = lambda rows, dtype=dtypes.int64: tensor(rows, dtype=dtype, device=x.device)
        states = new([interleaved(sequence, blank, longest) for sequence in sequences])
        may = [may_jump(row, blank) for row in states.tolist()]
        jumps = new([[0.0 if yes else IMPOSSIBLE for yes in row] for row in may], x.dtype)
        ends = new([[2 * len(sequence)] for sequence in sequences])
        running = new([[n] for n in steps])
        starts = new(
            [[k == 0 or (k == 1 and len(s) > 0) for k in range(2 * longest + 1)] for s in sequences], dtypes.bool_
        )
    index = expand(unsqueeze(states, 0), (x.shape[0], count, 2 * longest + 1))
    emissions = unbind(gather(x, 2, index), 0)
    forward = where(starts, emissions[0], IMPOSSIBLE)
    if min(steps) == 0:  # without a step, only the empty sequence is possible, and certain
        at_start = tensor([0.0] + [IMPOSSIBLE] * (2 * longest), dtype=x.dtype, device=x.device)
        forward = where(running > 0, forward, at_start)
    for t, emission in enumerate(emissions[1:], 1):
        before = pad(forward, (2, 0), "constant", IMPOSSIBLE)
        stepped, jumped = before[:, 1:-1], before[:, :-2] + jumps
        reached = logaddexp(logaddexp(forward, stepped), jumped) + emission
        forward = reached if t < min(steps) else where(running > t, reached, forward)
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
