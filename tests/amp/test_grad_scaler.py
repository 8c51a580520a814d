"""GradScaler: steps, skipped steps, and the scale, as PyTorch's."""

from __future__ import annotations

import pytest

import undertow as ut


def problem(gradient: float = 1.0, **options):
    w = ut.tensor([1.0, 2.0], requires_grad=True)
    optimizer = ut.optim.SGD([w], lr=0.5)
    scaler = ut.amp.GradScaler("cpu", **options)
    scaler.scale((w * gradient).sum()).backward()
    return w, optimizer, scaler


def test_a_step_uses_the_gradient_of_the_loss() -> None:
    w, optimizer, scaler = problem(init_scale=1024.0)
    assert w.grad.tolist() == [1024.0, 1024.0]
    scaler.step(optimizer)
    assert w.tolist() == [0.5, 1.5] and w.grad.tolist() == [1.0, 1.0]


def test_unscaled_for_clipping() -> None:
    w, optimizer, scaler = problem()
    scaler.unscale_(optimizer)
    ut.nn.utils.clip_grad_norm_([w], 0.5)
    scaler.step(optimizer)
    assert ut.allclose(w, ut.tensor([1.0, 2.0]) - 0.5 * 0.5 / 2**0.5)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_step_that_is_not_finite_is_left_out(bad: float) -> None:
    w, optimizer, scaler = problem(bad)
    assert scaler.step(optimizer) is None
    assert w.tolist() == [1.0, 2.0]
    scaler.update()
    assert scaler.get_scale() == 2.0**15


def test_the_scale_grows() -> None:
    w, optimizer, scaler = problem(growth_interval=2, init_scale=4.0)
    scales = []
    for _ in range(5):
        w.grad = None
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [4, 8, 8, 16, 16]


def test_two_optimizers() -> None:
    a, b = ut.ones(1, requires_grad=True), ut.ones(1, requires_grad=True)
    first, second = ut.optim.SGD([a], lr=1.0), ut.optim.SGD([b], lr=1.0)
    scaler = ut.amp.GradScaler("cpu")
    for loss in scaler.scale([a.sum(), (b * float("inf")).sum()]):
        loss.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.item(), b.item(), scaler.get_scale()) == (0.0, 1.0, 2.0**15)


def test_sparse_gradients() -> None:
    table = ut.nn.Embedding(4, 2, sparse=True)
    before = table.weight.detach().clone()
    optimizer, scaler = ut.optim.SGD(table.parameters(), lr=1.0), ut.amp.GradScaler("cpu")
    scaler.scale(table(ut.tensor([1, 1])).sum()).backward()
    scaler.step(optimizer)
    assert ut.allclose(before - table.weight, ut.tensor([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]), atol=1e-6)


def test_disabled_it_hands_everything_on() -> None:
    w, optimizer, scaler = problem(enabled=False)
    assert w.grad.tolist() == [1.0, 1.0] and scaler.get_scale() == 1.0 and not scaler.is_enabled()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 1.5] and scaler.state_dict() == {}


def test_saved_and_loaded() -> None:
    _, optimizer, scaler = problem(growth_interval=7)
    scaler.step(optimizer)
    scaler.update()
    other = ut.amp.GradScaler("cpu", init_scale=3.0)
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    assert other.state_dict()["_growth_tracker"] == 1 and other.get_growth_interval() == 7
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        other.load_state_dict({})


def test_what_is_refused() -> None:
    _, optimizer, scaler = problem()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: 0.0)
    with pytest.raises(AssertionError, match=r"did not use scaler.scale"):
        ut.amp.GradScaler("cpu").step(optimizer)
    with pytest.raises(ValueError, match="outputs must be a Tensor"):
        scaler.scale("loss")


def test_half_precision_parameters_are_refused() -> None:
    w = ut.ones(2, dtype=ut.float16, requires_grad=True)
    optimizer, scaler = ut.optim.SGD([w], lr=1.0), ut.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


@pytest.mark.slow
@pytest.mark.torch
def test_the_same_scales_as_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    factors = [1.0, 1.0, float("inf"), 1.0, 1.0, 1.0, float("nan"), 1.0]
    found = []
    for lib in (ut, torch):
        w = lib.ones(1, requires_grad=True)
        optimizer = lib.optim.SGD([w], lr=0.1)
        scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        row = []
        for factor in factors:
            optimizer.zero_grad()
            scaler.scale((w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            row.append((scaler.get_scale(), round(w.item(), 6)))
        found.append(row)
    assert found[0] == found[1]
