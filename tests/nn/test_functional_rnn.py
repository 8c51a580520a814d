"""Recurrent layers as functions: the layers' numbers, and PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}
RNG = np.random.default_rng(0)


def weights(gates: int, biases: bool, layers: int, directions: int) -> list[np.ndarray]:
    found = []
    for layer in range(layers):
        for _ in range(directions):
            width = 2 if layer == 0 else 3 * directions
            shapes = [(3 * gates, width), (3 * gates, 3), *([(3 * gates,), (3 * gates,)] if biases else [])]
            found += [RNG.normal(size=shape) for shape in shapes]
    return found


def outcome(framework: ModuleType, name: str, arrays: list[Any], x: Any, states: Any, sizes: Any, flags: Any) -> Any:
    params = [framework.tensor(a, requires_grad=True) for a in arrays]
    hx = [framework.tensor(s) for s in states]
    given = hx if name == "lstm" else hx[0]
    if sizes is None:
        out = getattr(framework, name)(framework.tensor(x), given, params, *flags, True)
    else:
        out = getattr(framework, name)(framework.tensor(x), framework.tensor(sizes), given, params, *flags)
    sum([o.sum() for o in out]).backward()
    return [o.detach().numpy() for o in out] + [p.grad.numpy() for p in params]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_whole_layers(torch: ModuleType, name: str, packed: bool) -> None:
    for biases, layers, directions in ((True, 2, 2), (False, 1, 1)):
        arrays = weights(GATES[name], biases, layers, directions)
        x = RNG.normal(size=(9, 2) if packed else (4, 5, 2))
        states = [RNG.normal(size=(layers * directions, 4, 3)) for _ in range(2 if name == "lstm" else 1)]
        flags = (biases, layers, 0.0, False, directions == 2)
        sizes = [4, 3, 2] if packed else None
        ours, theirs = (outcome(m, name, arrays, x, states, sizes, flags) for m in (ut, torch))
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", GATES)
def test_cells(torch: ModuleType, name: str) -> None:
    arrays, x, h = weights(GATES[name], True, 1, 1), RNG.normal(size=(4, 2)), RNG.normal(size=(2, 4, 3))

    def next_state(framework: ModuleType) -> Any:
        hx = [framework.tensor(part) for part in h]
        cell = getattr(framework, f"{name}_cell")
        out = cell(framework.tensor(x), hx if name == "lstm" else hx[0], *[framework.tensor(a) for a in arrays])
        return [o.numpy() for o in (out if name == "lstm" else [out])]

    np.testing.assert_allclose(next_state(ut), next_state(torch), rtol=1e-9, atol=1e-12)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="expected 4 weights, or 5 with a projection"):
        ut.gru(ut.ones(2, 1, 2), ut.zeros(1, 1, 3), [ut.ones(9, 2)], True, 1, 0.0, False, False, False)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_batch_of_gradients_goes_back_at_once(kind: str) -> None:
    layer, x = getattr(ut.nn, kind)(2, 3, dtype=ut.float64), ut.rand(4, 5, 2, dtype=ut.float64, requires_grad=True)
    out = layer(x)[0]
    seeds = ut.rand(6, *out.shape, dtype=ut.float64)
    targets = [x, *layer.parameters()]
    together = ut.autograd.grad(out, targets, seeds, is_grads_batched=True, retain_graph=True)
    alone = [ut.autograd.grad(out, targets, seed, retain_graph=True) for seed in seeds]
    for found, expected in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(
            found.numpy(), np.stack([e.detach().numpy() for e in expected]), rtol=1e-9, atol=1e-12
        )
