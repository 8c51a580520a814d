"""Recurrent layers beyond the table: packed sequences, second derivatives, transforms, errors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

LAYERS = ["RNN", "LSTM", "GRU"]


def both(torch: ModuleType, name: str, **options: Any) -> tuple[Any, Any]:
    theirs = getattr(torch.nn, name)(3, 4, **options).double()
    ours = getattr(ut.nn, name)(3, 4, **options).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def flat(value: Any) -> list[Any]:
    return [t for part in value for t in flat(part)] if isinstance(value, tuple) else [value]


@pytest.mark.torch
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_packed_sequences(torch: ModuleType, name: str, is_sorted: bool) -> None:
    ours, theirs = both(torch, name, num_layers=2, bidirectional=True)
    lengths = [5, 3, 3, 1] if is_sorted else [3, 5, 1, 3]
    x = np.random.default_rng(0).normal(size=(5, 4, 3))
    results = []
    for L, layer in ((ut, ours), (torch, theirs)):
        tools = L.nn.utils.rnn
        data = L.tensor(x, requires_grad=True)
        packed = tools.pack_padded_sequence(data, lengths, enforce_sorted=is_sorted)
        out, state = layer(packed)
        padded, sizes = tools.pad_packed_sequence(out, padding_value=0.5, total_length=6)
        assert sizes.tolist() == lengths
        (padded**2).sum().backward()
        found = [padded, *flat(state)] + [data.grad] + [p.grad for p in layer.parameters()]
        results.append([t.detach().numpy() for t in found])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def test_packing_and_padding(L: ModuleType) -> None:
    tools = L.nn.utils.rnn
    parts = [L.arange(3.0), L.arange(2.0), L.arange(1.0)]
    packed = tools.pack_sequence(parts)
    assert packed.batch_sizes.tolist() == [3, 2, 1] and packed.data.tolist() == [0, 0, 0, 1, 1, 2]
    assert [p.tolist() for p in tools.unpack_sequence(packed)] == [p.tolist() for p in parts]
    assert tools.pad_sequence(parts, batch_first=True, padding_value=9).tolist() == [[0, 1, 2], [0, 1, 9], [0, 9, 9]]
    assert tools.pad_sequence(parts, padding_side="left").tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        tools.pack_padded_sequence(L.ones(2, 2), [1, 2])
    with pytest.raises(RuntimeError, match="Length of all samples has to be greater than 0"):
        tools.pack_padded_sequence(L.ones(2, 2), [2, 0])
    with pytest.raises(ValueError, match="total_length"):
        tools.pad_packed_sequence(packed, total_length=2)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives(name: str, reverse: bool) -> None:
    layer = getattr(ut.nn, name)(2, 2, bidirectional=reverse).double()
    x = ut.randn(3, 2, 2, dtype=ut.float64, requires_grad=True)
    params = list(layer.parameters())

    def run(x: Any, *params: Any) -> Any:
        names = [n for n, _ in layer.named_parameters()]
        out, state = ut.nn.utils.stateless.functional_call(layer, dict(zip(names, params, strict=True)), (x,))
        return (out, *flat(state))

    leaves = [p.detach().requires_grad_() for p in params]
    assert ut.autograd.gradcheck(run, (x, *leaves))
    assert ut.autograd.gradgradcheck(lambda x, w: run(x, leaves[0], w, *leaves[2:])[0], (x, leaves[1]))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_gradients_by_both_ways(name: str) -> None:
    """One recorded backward pass gives what the plain one does."""
    layer = getattr(ut.nn, name)(3, 4, 2).double()
    x = ut.randn(5, 2, 3, dtype=ut.float64, requires_grad=True)
    wanted = [x, *layer.parameters()]
    loss = lambda: (layer(x)[0] ** 2).sum()
    plain = ut.autograd.grad(loss(), wanted)
    recorded = ut.autograd.grad(loss(), wanted, create_graph=True)
    for a, b in zip(plain, recorded, strict=True):
        assert ut.allclose(a, b, rtol=1e-10) and b.requires_grad


@pytest.mark.parametrize("name", LAYERS)
def test_under_vmap_and_forward_mode(name: str) -> None:
    layer = getattr(ut.nn, name)(2, 3).double()
    run = lambda x: layer(x)[0]
    x = ut.randn(4, 5, 2, 2, dtype=ut.float64)
    assert ut.allclose(ut.vmap(run)(x), ut.stack([run(part) for part in x]))
    t = ut.randn(5, 2, 2, dtype=ut.float64)
    _, forward = ut.func.jvp(run, (x[0],), (t,))
    step = 1e-6
    assert ut.allclose(forward, (run(x[0] + step * t) - run(x[0] - step * t)) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("name", LAYERS)
def test_one_node_is_what_steps_are(name: str) -> None:
    """The fused layer against a cell called step by step."""
    layer = getattr(ut.nn, name)(3, 4).double()
    cell = getattr(ut.nn, f"{name}Cell")(3, 4).double()
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in layer.state_dict().items()})
    x = ut.randn(6, 2, 3, dtype=ut.float64)
    out, _ = layer(x)
    state, steps = None, []
    for part in x:
        state = cell(part, state)
        steps.append(state[0] if name == "LSTM" else state)
    assert ut.allclose(out, ut.stack(steps), rtol=1e-10)
    (out**2).sum().backward()
    (ut.stack(steps) ** 2).sum().backward()
    for p, q in zip(layer.parameters(), cell.parameters(), strict=True):
        assert ut.allclose(p.grad, q.grad, rtol=1e-9)


def test_an_output_changed_in_place_is_noticed() -> None:
    layer = ut.nn.LSTM(2, 2)
    out, _ = layer(ut.ones(3, 1, 2))
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_saved_tensor_hooks_see_what_a_layer_saves() -> None:
    seen: list[Any] = []
    layer = ut.nn.GRU(2, 3)
    with ut.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        out, _ = layer(ut.ones(4, 1, 2))
    out.sum().backward()
    assert (4, 1, 9) in seen


def test_frozen_weights_and_states() -> None:
    layer = ut.nn.LSTM(2, 3).requires_grad_(False)
    x = ut.randn(4, 1, 2, requires_grad=True)
    h, c = ut.randn(1, 1, 3, requires_grad=True), ut.randn(1, 1, 3)
    _, (_, last) = layer(x, (h, c))
    last.sum().backward()
    assert x.grad.abs().sum() > 0 and h.grad.abs().sum() > 0 and layer.weight_hh_l0.grad is None


def test_dropout_between_layers(L: ModuleType) -> None:
    layer = L.nn.GRU(2, 3, num_layers=2, dropout=1.0)
    x = L.ones(4, 1, 2)
    trained = layer(x)[0]
    layer.eval()
    assert not L.allclose(trained, layer(x)[0])
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer"):
        L.nn.GRU(2, 3, dropout=0.5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda L: L.nn.LSTM(2, 3)(L.ones(4, 1, 5)), RuntimeError, "must be equal to input_size. Expected 2, got 5"),
        (lambda L: L.nn.GRU(2, 3)(L.ones(4, 1, 2), L.ones(2, 1, 3)), RuntimeError, "Expected hidden size"),
        (lambda L: L.nn.LSTM(2, 3)(L.ones(4, 1, 2), (L.ones(1, 2, 3), L.ones(1, 1, 3))),
         RuntimeError, "Expected hidden"),
        (lambda L: L.nn.RNN(2, 3)(L.ones(2)), ValueError, "Expected input to be 2D or 3D, got 1D"),
        (lambda L: L.nn.RNN(2, 3)(L.ones(4, 1, 2, dtype=L.float64)), ValueError, "does not match weight dtype"),
        (lambda L: L.nn.LSTM(2, 3, proj_size=3), ValueError, "proj_size has to be smaller than hidden_size"),
        (lambda L: L.nn.RNN(2, 3, nonlinearity="sin"), ValueError, "Unknown nonlinearity"),
        (lambda L: L.nn.RNN(2, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda L: L.nn.LSTMCell(2, 3)(L.ones(1, 1, 2)), ValueError, "Expected input to be 1D or 2D, got 3D"),
    ],
)  # fmt: skip
def test_refused(L: ModuleType, call: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        call(L)


def test_all_weights(L: ModuleType) -> None:
    layer = L.nn.LSTM(2, 3, 2, bidirectional=True)
    layer.flatten_parameters()
    assert len(layer.all_weights) == 4 and layer.all_weights[1][0] is layer.weight_ih_l0_reverse


def test_an_lstm_refuses_a_state_of_another_dtype() -> None:
    layer, zeros = ut.nn.LSTM(3, 4), ut.zeros(1, 1, 4)
    for state in ((zeros.double(), zeros), (zeros, zeros.double())):
        with pytest.raises(RuntimeError, match="Input and hidden tensors are not the same dtype"):
            layer(ut.ones(2, 1, 3), state)


def test_packed_sequences_are_cast(L: ModuleType) -> None:
    rnn = L.nn.utils.rnn
    packed = rnn.pack_sequence([L.ones(3), L.ones(2)])
    for name in ("double", "half", "long", "int", "short", "char", "byte"):
        assert getattr(packed, name)().data.dtype == getattr(packed.data, name)().dtype
    assert packed.cpu() is packed and packed.float() is packed and packed.to("cpu") is packed
    assert packed.double().batch_sizes.tolist() == [2, 2, 1]


def test_nothing_to_pack(L: ModuleType) -> None:
    rnn = L.nn.utils.rnn
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        rnn.pack_padded_sequence(L.randn(0, 0), [])
    with pytest.raises(RuntimeError):
        rnn.pad_packed_sequence(rnn.PackedSequence(L.randn(0, 5), L.tensor([], dtype=L.int64)))
    with pytest.raises(RuntimeError, match="pad_sequence: Expected iterable for input sequences, but got arg of type"):
        rnn.pad_sequence(5)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_a_cell_does_not_spread_a_state_over_the_examples(L: ModuleType, name: str) -> None:
    cell, state = getattr(L.nn, name)(3, 4), L.zeros(1, 4)
    with pytest.raises(RuntimeError):
        cell(L.zeros(2, 3), (state, state) if name == "LSTMCell" else state)
