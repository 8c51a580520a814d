"""The queue of launches: the same results however they are sent, repeated sequences as graphs, and when it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.test_training import train
from undertow.compiled import core
from undertow.nn import functional as F


@pytest.fixture(autouse=True)
def back_to_the_queue() -> Iterator[None]:
    yield
    ut.cuda.set_launch_mode("queue")


def test_all_modes_compute_the_same() -> None:
    found = {}
    for mode in ("direct", "queue", "blocking"):
        ut.cuda.set_launch_mode(mode)
        found[mode] = train("cuda", "AdamW", lr=0.01)
    assert found["direct"] == found["queue"] == found["blocking"]
    with pytest.raises(ValueError, match="'queue', 'direct', 'blocking'"):
        ut.cuda.set_launch_mode("later")


def test_any_length_of_the_queue_computes_the_same() -> None:
    from undertow import _cuda

    wanted = train("cuda", "SGD", lr=0.1)
    for entries in (1, 2, 3, 7, 1000):
        _cuda.set_launch_mode(entries, False)
        assert train("cuda", "SGD", lr=0.1) == wanted


def steps(count: int) -> Any:
    """The losses of a model's steps, and how many launches were graphs in the last."""
    ut.manual_seed(0)
    model = ut.nn.Sequential(ut.nn.Linear(4, 6), ut.nn.ReLU(), ut.nn.Linear(6, 3)).to("cuda")
    x, y = ut.randn(5, 4).to("cuda"), ut.tensor([0, 1, 2, 0, 1], device="cuda")
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(count):
        before = ut.cuda.launch_stats()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        after = ut.cuda.launch_stats()
    return [loss.item() for loss in losses], {name: after[name] - before[name] for name in after}


def test_steps_that_repeat_themselves_become_graphs() -> None:
    losses, last = steps(8)
    ut.cuda.set_launch_mode("direct")
    assert steps(8)[0] == losses
    ut.cuda.set_launch_mode("queue")
    x = ut.ones(4, 4, device="cuda")
    before = ut.cuda.launch_stats()
    for _ in range(8):
        out = ((x * 2 + 1).exp() - x).sum()
        del out
        ut.cuda.synchronize()
    after = ut.cuda.launch_stats()
    assert after["graphs"] - before["graphs"] >= 4 and after["captures"] - before["captures"] == 1
    assert last["flushes"] == 1  # at the end of the step: nothing looks at values


def test_a_step_asks_for_the_same_addresses_again() -> None:
    x = ut.ones(64, device="cuda", requires_grad=True)

    def step() -> list[int]:
        x.grad = None
        hidden = x * 3
        out = hidden.tanh().sum()
        out.backward()
        return [hidden._array.address, out._array.address, x.grad._array.address]

    step()
    assert step() == step() == step()


def test_a_look_sends_what_was_asked_for() -> None:
    x = ut.zeros(3, device="cuda")
    y = x + 1
    assert ut.cuda.launch_stats()["waiting"] > 0
    assert y.tolist() == [1, 1, 1] and ut.cuda.launch_stats()["waiting"] == 0
    z = y * 2
    assert z._array.__cuda_array_interface__["shape"] == (3,) and ut.cuda.launch_stats()["waiting"] == 0
    w = z * 2
    ut.cuda.empty_cache()
    assert ut.cuda.launch_stats()["waiting"] == 0 and w.sum().item() == 12


def test_blocking_raises_where_the_operation_is() -> None:
    ut.cuda.set_launch_mode("blocking")
    x = ut.zeros(3, device="cuda")
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        x[ut.tensor([9], device="cuda")]
    ut.cuda.set_launch_mode("queue")
    y = x[ut.tensor([9], device="cuda")]
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        y.sum().item()


def test_targets_out_of_range_are_told() -> None:
    scores = ut.randn(3, 4, device="cuda", requires_grad=True)
    loss = F.cross_entropy(scores, ut.tensor([0, 4, 1], device="cuda"))
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension with size 4"):
        loss.item()
    for reduction in ("mean", "sum", "none"):
        targets = ut.tensor([0, -100, 3])
        found = F.cross_entropy(scores, targets.cuda(), reduction=reduction)
        here = scores.detach().cpu().requires_grad_()
        wanted = F.cross_entropy(here, targets, reduction=reduction)
        np.testing.assert_allclose(found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=1e-6)
        (gradient,) = ut.autograd.grad(found.sum(), scores)
        (expected,) = ut.autograd.grad(wanted.sum(), here)
        np.testing.assert_allclose(gradient.cpu().numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)
    assert np.isnan(F.cross_entropy(scores, ut.full((3,), -100, dtype=ut.int64).cuda()).item())


def test_indices_out_of_range_are_told_as_they_were_given() -> None:
    x = ut.zeros(50, 8, device="cuda")

    def told(call: Any, index: int, size: int) -> None:
        with pytest.raises(IndexError, match=f"index {index} is out of bounds for dimension with size {size},"):
            call().sum().item()

    one = lambda *values: ut.tensor(values, device="cuda")
    told(lambda: x.gather(0, one([1], [77])), 77, 50)
    told(lambda: x.scatter_add(0, one([1], [77]), ut.ones(2, 1, device="cuda")), 77, 50)
    told(lambda: x.index_add(1, one(9), ut.ones(50, 1, device="cuda")), 9, 8)
    for target in (-1, 8):
        told(lambda target=target: F.nll_loss(x, ut.full((50,), target, device="cuda")), target, 8)
        told(lambda target=target: F.cross_entropy(x.view(2, 8, 25), one([target] * 25, [0] * 25)), target, 8)
    assert F.nll_loss(x, ut.full((50,), -100, device="cuda"), reduction="sum").item() == 0


def test_a_rule_is_one_kernel() -> None:
    if core is None:
        pytest.skip("formulas are joined for the compiled core")
    x = ut.tensor([0.5, -1.0, 2.0], device="cuda", requires_grad=True)
    for function, wanted in ((ut.sin, np.cos), (ut.exp, np.exp)):
        for _ in range(2):
            out, g = function(x), ut.full((3,), 2.0, device="cuda")
            before = ut.cuda.launch_stats()["launches"]
            (gradient,) = ut.autograd.grad(out, x, g)
            count = ut.cuda.launch_stats()["launches"] - before
        assert count == 1
        np.testing.assert_allclose(gradient.cpu().numpy(), 2 * wanted(x.detach().cpu().numpy()), rtol=1e-6)
    z = ut.tensor([0.5 + 1j], device="cuda", requires_grad=True)  # complex numbers take the formula part by part
    z.sin().abs().sum().backward()
    here = z.detach().cpu().requires_grad_()
    here.sin().abs().sum().backward()
    np.testing.assert_allclose(z.grad.cpu().numpy(), here.grad.numpy(), rtol=1e-6)


def test_long_launches_wait_for_each_other_behind_the_first() -> None:
    x = ut.ones(300_000, dtype=ut.int8, device="cuda")
    ut.cuda.synchronize()

    def waiting_behind(count: int) -> int:
        for _ in range(count):
            x.sum()  # of several launches, one of them long
        return ut.cuda.launch_stats()["waiting"]

    x.flip(0)
    assert waiting_behind(1) > 0 and waiting_behind(40) < 40
    ut.cuda.synchronize()
    before = ut.cuda.launch_stats()["flushes"]
    x.flip(0)  # one launch, which finds the device with nothing to do
    assert ut.cuda.launch_stats()["flushes"] == before + 1 and ut.cuda.launch_stats()["waiting"] == 0


def test_a_device_with_nothing_to_do_is_not_kept_waiting_for_a_full_queue() -> None:
    x = ut.ones(8, device="cuda")

    def most_waiting() -> int:
        most = 0
        for _ in range(60):
            x + x
            most = max(most, ut.cuda.launch_stats()["waiting"])
        return most

    ut.cuda.synchronize()
    before = ut.cuda.launch_stats()["flushes"]
    for _ in range(8):
        x + x
    assert ut.cuda.launch_stats()["flushes"] == before + 1
    assert most_waiting() == 31
    assert x.sum().item() == 8  # which waits
    for _ in range(8):
        x + x
    assert ut.cuda.launch_stats()["waiting"] == 0


def test_a_few_launches_at_the_end_of_a_pass_wait_for_a_step() -> None:
    x = ut.ones(8, device="cuda", requires_grad=True)

    def waiting_behind(nodes: int) -> int:
        y = x
        for _ in range(nodes):
            y = y * 2
        y.sum().backward()
        x.grad = None
        return int(ut.cuda.launch_stats()["waiting"])

    ut.cuda.synchronize()
    assert waiting_behind(1) == 0  # the device has nothing to do
    assert 0 < waiting_behind(1) < 16
    ut.cuda.synchronize()
    waiting_behind(1)
    assert waiting_behind(9) == 0
    steps = ut.optim.SGD([x], lr=0.1)
    (x * 2).sum().backward()
    steps.step()
    assert ut.cuda.launch_stats()["waiting"] == 0
    big = ut.ones(300_000, device="cuda", requires_grad=True)
    (big * 2).sum().backward()
    (big * 2).sum().backward()
    assert ut.cuda.launch_stats()["waiting"] == 0


def test_a_call_of_a_library_becomes_a_graph_by_itself() -> None:
    a = ut.ones(4, 4, device="cuda")
    before = ut.cuda.launch_stats()
    for _ in range(4):
        assert (a @ a).sum().item() == 64
        product = a @ a
        ut.cuda.synchronize()
        del product
    after = ut.cuda.launch_stats()
    assert after["captures"] - before["captures"] >= 2  # the product and the sum; the product alone
