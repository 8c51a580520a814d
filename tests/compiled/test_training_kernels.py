"""Kernels of layers and optimizers compute what the same formulas in NumPy do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.compiled import core
from undertow.nn.rnn import lstm_node
from undertow.optim import adam

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

#: how far apart results may be
TOLERANCE = {"f": 1e-6, "d": 2e-15}
#: hidden size and examples
SIZES = [(1, 1), (1, 7), (3, 5), (8, 8), (64, 17)]


def random(seed: int, *shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ------------------------------------------------------------------ LSTM


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", SIZES)
def test_step_of_an_lstm(shape: tuple[int, int], dtype: str) -> None:
    gates, cell = 3 * random(1, 4 * shape[0], shape[1], dtype=dtype), random(2, *shape, dtype=dtype)
    results = []
    for step in (core.lstm_step, lambda *arrays: lstm_node.step(cpu, *arrays)):
        arrays = [gates.copy(), cell.copy(), *[np.full(shape, np.nan, dtype) for _ in range(3)]]
        step(*arrays)
        results.append(arrays)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("shape", SIZES)
def test_gradient_of_a_step(shape: tuple[int, int], dtype: str) -> None:
    gates = 1 / (1 + np.exp(-random(1, 4 * shape[0], shape[1], dtype=dtype)))
    cell, tanh_cell, d_hidden, d_cell = (random(seed, *shape, dtype=dtype) for seed in (2, 3, 4, 5))
    results = []
    for step in (core.lstm_step_gradient, lambda *arrays: lstm_node.step_gradient(cpu, *arrays)):
        arrays = [a.copy() for a in (gates, gates * np.nan, cell, np.tanh(tanh_cell), d_hidden, d_cell)]
        step(*arrays)
        results.append(arrays)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_sigmoid_and_tanh_are_within_three_units_in_the_last_place(dtype: str) -> None:
    x = np.concatenate([np.linspace(-40, 40, 40001), np.linspace(-1, 1, 20001), [1e-30, -1e-30]]).astype(dtype)
    gates, cell, next_cell, tanh_cell, hidden = np.tile(x, 4), *[np.zeros_like(x) for _ in range(4)]
    assert core.lstm_step(gates, cell, next_cell, tanh_cell, hidden)
    exact = x.astype(np.longdouble)
    for found, expected in ((gates[: x.size], 1 / (1 + np.exp(-2 * exact))), (gates.reshape(4, -1)[2], np.tanh(exact))):
        assert (np.abs(found - expected) <= 3 * np.spacing(np.abs(expected).astype(dtype))).all()


def test_special_numbers_in_gates() -> None:
    for dtype in "fd":
        x = np.array([np.inf, -np.inf, np.nan, 0.0, 1e30, -1e30], dtype)
        gates, others = np.tile(x, 4), [np.zeros_like(x) for _ in range(4)]
        assert core.lstm_step(gates, *others)
        np.testing.assert_array_equal(gates[:6], np.array([1, 0, np.nan, 0.5, 1, 0], dtype))
        np.testing.assert_array_equal(gates[12:18], np.array([1, -1, np.nan, 0, 1, -1], dtype))


def test_steps_refuse_what_they_do_not_know() -> None:
    good = [np.ones(8, "f"), *[np.ones(2, "f") for _ in range(4)]]
    for k, bad in ((0, np.ones(8, "e")), (0, np.ones(16, "f")[::2]), (1, np.ones(2)), (2, np.ones(3, "f")), (4, None)):
        arrays = [bad if n == k else a.copy() for n, a in enumerate(good)]
        assert core.lstm_step(*arrays) is None
        assert core.lstm_step_gradient(arrays[0], arrays[0], *arrays[1:]) is None
    assert core.lstm_step(*good[:-1]) is None


def gradients_of_an_lstm(dtype: Any, reverse: bool, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> list[Any]:
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(lstm_node, "lstm_step", lambda *arguments: None)
            patch.setattr(lstm_node, "lstm_step_gradient", lambda *arguments: None)
            patch.setattr(lstm_node, "packed_product", lambda *arguments: None)
        ut.manual_seed(0)
        layer = ut.nn.LSTM(3, 5, bidirectional=reverse, dtype=dtype)
        x = ut.randn(6, 9, 3, dtype=dtype, requires_grad=True)  # enough examples for weights that are packed
        out, (h, c) = layer(x)
        ((out**2).sum() + (h * c).sum()).backward()
        return [out, h, c, x.grad, *[p.grad for p in layer.parameters()]]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_layer_is_the_same_with_and_without_kernels(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients_of_an_lstm(ut.float64, reverse, monkeypatch, compiled=True)
    expected = gradients_of_an_lstm(ut.float64, reverse, monkeypatch, compiled=False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------ Adam


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adam_is_the_same_to_the_last_bit(
    dtype: str, amsgrad: bool, decoupled: bool, maximize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for update in (adam.adam_update, lambda *arguments: None):
        monkeypatch.setattr(adam, "adam_update", update)
        param = ut.from_numpy(random(0, 7, 19, dtype=dtype)).requires_grad_()
        options = {"amsgrad": amsgrad, "maximize": maximize, "decoupled_weight_decay": decoupled}
        optimizer = ut.optim.Adam([param], lr=0.01, weight_decay=0.1, **options)
        for seed in range(10):
            param.grad = ut.from_numpy(random(seed, 7, 19, dtype=dtype))
            optimizer.step()
        state = optimizer.state_dict()["state"][0]
        results.append([param.detach().numpy(), *[value.numpy() for value in state.values()]])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_nan_stays_the_largest_square() -> None:
    numbers = [np.full((), v) for v in (0.9, 0.1, 0.99, 0.01, 1.0, 1e-8, 0.1)]
    for largest, grad, expected in ((np.nan, 1.0, np.nan), (1.0, np.nan, np.nan), (5.0, 1.0, 5.0), (0.0, 1.0, 0.01)):
        arrays = [np.full(3, v) for v in (1.0, grad, 0.0, 0.0, largest)]
        assert core.adam_update(*arrays, *numbers)
        np.testing.assert_array_equal(arrays[4], np.full(3, expected))


def test_adam_refuses_what_it_does_not_know() -> None:
    numbers = [np.full((), v, "f") for v in (0.9, 0.1, 0.99, 0.01, 1.0, 1e-8, 0.1)]
    good = [*[np.ones(4, "f") for _ in range(4)], None]
    read_only = np.ones(4, "f")
    read_only.flags.writeable = False
    for k, bad in ((0, read_only), (0, np.ones(8, "f")[::2]), (1, np.ones(4)), (2, np.ones(3, "f")), (3, None)):
        arrays = [bad if n == k else a for n, a in enumerate(good)]
        kept = [None if a is None else a.copy() for a in arrays]
        assert core.adam_update(*arrays, *numbers) is None
        for a, b in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(a, b)
    assert core.adam_update(*good, *numbers[:-1]) is None
