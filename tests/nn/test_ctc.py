"""CTC loss against PyTorch, and against the sum over all alignments."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import kernels
from undertow.ops.network import ctc

STEPS = [7, 4, 6]
TARGETS = [[1, 2, 2], [3], []]


def run(L: Any, flat: bool, reduction: str, blank: int = 0, steps: Any = STEPS, **options: Any) -> list[np.ndarray]:
    scores = L.tensor(np.random.default_rng(0).normal(size=(7, 3, 5)), requires_grad=True)
    sequences = [[(label + blank) % 5 for label in row] for row in TARGETS]
    rows = [label for row in sequences for label in row] if flat else [row + [1] * (3 - len(row)) for row in sequences]
    sizes = L.tensor([len(row) for row in TARGETS])
    loss = L.nn.CTCLoss(blank, reduction, **options)
    out = loss(scores.log_softmax(2), L.tensor(rows), L.tensor(steps), sizes)
    (out * L.arange(1.0, 1 + out.numel(), dtype=L.float64).reshape(out.shape)).sum().backward()
    return [out.detach().numpy(), scores.grad.numpy()]


@pytest.mark.torch
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("blank", [0, 4])
def test_like_pytorch(torch: ModuleType, flat: bool, reduction: str, blank: int) -> None:
    for ours, theirs in zip(run(ut, flat, reduction, blank), run(torch, flat, reduction, blank), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10)


@pytest.mark.torch
def test_targets_that_do_not_fit(torch: ModuleType) -> None:
    steps = [3, 4, 6]  # three classes, two of them equal, need four steps
    ours, theirs = (run(L, False, "none", steps=steps, zero_infinity=True) for L in (ut, torch))
    assert ours[0][0] == 0
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)
    assert math.isinf(run(ut, False, "none", steps=steps)[0][0])


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label != 0]


def test_the_sum_over_all_alignments() -> None:
    log_probs = ut.randn(4, 3, dtype=ut.float64).log_softmax(1)
    paths = itertools.product(range(3), repeat=4)
    total = sum(math.exp(sum(log_probs[t, k].item() for t, k in enumerate(p))) for p in paths if collapsed(p) == [1, 1])
    loss = ut.nn.functional.ctc_loss(log_probs, ut.tensor([1, 1]), 4, 2, reduction="sum")
    assert loss.item() == pytest.approx(-math.log(total))


def test_gradients() -> None:
    scores = ut.randn(5, 2, 3, dtype=ut.float64, requires_grad=True)
    call = lambda s: ut.nn.functional.ctc_loss(s.log_softmax(2), ut.tensor([[1, 2], [2, 2]]), [5, 4], [2, 2])
    assert ut.autograd.gradcheck(call, scores) and ut.autograd.gradgradcheck(call, scores)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((5,), (2,), 9), "blank must be in label range"),
        (((6,), (2,), 0), "input_lengths to have value at most 5"),
        (((5, 5), (2,), 0), "input_lengths must be of size batch_size"),
    ],
)
def test_refused(L: ModuleType, arguments: Any, words: str) -> None:
    log_probs = L.zeros(5, 1, 3).log_softmax(2)
    with pytest.raises(RuntimeError, match=words):
        L.nn.functional.ctc_loss(log_probs, L.tensor([[1, 2]]), *arguments)


@pytest.mark.parametrize(
    ("targets", "input_lengths", "target_lengths", "words"),
    [
        ([[1, 2], [1, 2]], [5, 5], [2, 3], "size at least 3 at dimension 1, but got size 2"),
        ([1, 2, 1], [5, 5], [2, 2], "size 4 at dimension 0, but got size 3"),
        ([[1, 2], [1, 2]], [5, -1], [2, 2], "input_lengths to have value at least 0, but got value -1"),
        ([[1, 2], [1, 2]], [5, 5], [-1, 2], "target_lengths to have value at least 0, but got value -1"),
    ],
)
def test_lengths_that_do_not_fit(
    L: ModuleType, targets: list[Any], input_lengths: list[int], target_lengths: list[int], words: str
) -> None:
    log_probs = L.zeros(5, 2, 4).log_softmax(2)
    with pytest.raises(RuntimeError, match=words):
        L.nn.functional.ctc_loss(log_probs, L.tensor(targets), input_lengths, target_lengths)


def test_lengths_are_whole_numbers(L: ModuleType) -> None:
    log_probs, targets = L.zeros(5, 2, 4).log_softmax(2), L.tensor([[1, 2], [1, 2]])
    for lengths in ((L.tensor([5.0, 5.0]), L.tensor([2, 2])), (L.tensor([5, 5]), L.tensor([2.0, 2.0]))):
        with pytest.raises(RuntimeError, match="must be integral"):
            L.nn.functional.ctc_loss(log_probs, targets, *lengths)
    with pytest.raises(RuntimeError, match="log_probs tensor must not be empty"):
        L.nn.functional.ctc_loss(L.zeros(0, 0, 4), L.zeros(0, dtype=L.int64), [], [])


def test_no_steps(L: ModuleType) -> None:
    """Only the empty sequence has a probability then, and that is 1."""
    log_probs = L.randn(1, 2, 4).log_softmax(2).requires_grad_()
    none = L.tensor([0, 0])
    losses = L.nn.functional.ctc_loss(log_probs, L.tensor([[1], [2]]), none, none, reduction="none")
    assert losses.tolist() == [0, 0]
    losses = L.nn.functional.ctc_loss(log_probs, L.tensor([[1], [2]]), none, L.tensor([1, 1]), reduction="none")
    assert losses.tolist() == [float("inf")] * 2


def lattice(dtype: Any) -> list[Any]:
    """The arguments of _ctc_states: 4 examples of 9 states, over 6 steps or fewer."""
    rng = np.random.default_rng(3)
    jumps = rng.random((4, 9)) < 0.5
    jumps[:, :2] = False
    start = np.where(rng.random((4, 9)) < 0.5, rng.standard_normal((4, 9)), ctc.IMPOSSIBLE)
    made = [ut.tensor(x, dtype=dtype) for x in (start, rng.standard_normal((6, 4, 9)))]
    return [*[x.requires_grad_() for x in made], ut.tensor(jumps), ut.tensor([[6], [1], [4], [0]])]


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_the_kernel_is_the_formula(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, found = lattice(dtype), []
    g = ut.randn(6, 4, 9, dtype=dtype)
    for by_formula in (False, True):
        if by_formula:
            monkeypatch.setattr(kernels, "ctc_states", lambda *arguments: None)
            monkeypatch.setattr(kernels, "ctc_gradients", lambda *arguments: None)
        states = ctc.ctc_states(*arguments)
        found.append([states, *ut.autograd.grad(states, arguments[:2], g)])
    for ours, formula in zip(*found, strict=True):
        np.testing.assert_allclose(
            ours.detach(), formula.detach(), rtol=1e-12 if dtype == ut.float64 else 2e-5, atol=1e-6
        )


def test_derivatives_of_the_states() -> None:
    start, emissions, jumps, running = lattice(ut.float64)
    start = start.detach().clamp(min=-2).requires_grad_()
    states = lambda s, e: ctc.ctc_states(s, e, jumps, running)
    assert ut.autograd.gradcheck(states, (start, emissions), check_forward_ad=True, check_batched_grad=True)
    assert ut.autograd.gradgradcheck(states, (start, emissions))


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_what_has_no_probability(dtype: Any) -> None:
    """A class that is impossible at one step gets no gradient there, and others a finite one."""
    scores = ut.randn(5, 1, 3, dtype=dtype)
    scores[2, 0, 1] = -math.inf
    log_probs = scores.log_softmax(2).requires_grad_()
    ut.nn.functional.ctc_loss(log_probs, ut.tensor([[1, 2]]), [5], [2]).backward()
    assert log_probs.grad.isfinite().all() and log_probs.grad[2, 0, 1] == 0
