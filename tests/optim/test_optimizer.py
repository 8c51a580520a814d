"""What all optimizers share: groups, errors, hooks, closures, saving; each rule proven on PyTorch where it has one."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def make(L: Any, *sizes: int, lr: float = 0.1, **options: Any) -> tuple[list[Any], Any]:
    params = [L.ones(n, requires_grad=True) for n in sizes]
    return params, L.optim.SGD(params, lr=lr, **options)


# ---- groups


def test_groups_keep_options_of_their_own(L: ModuleType) -> None:
    a, b = L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)
    optimizer = L.optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.1)
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a.tolist() == pytest.approx([0.9, 0.9]) and b.tolist() == [0.0, 0.0]
    c = L.ones(1, requires_grad=True)
    optimizer.add_param_group({"params": [c], "momentum": 0.5})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 1.0, 0.1]
    assert optimizer.param_groups[2]["momentum"] == 0.5


def test_named_parameters(L: ModuleType) -> None:
    optimizer = L.optim.SGD([("w", L.ones(2, requires_grad=True)), ("b", L.ones(1, requires_grad=True))], lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["w", "b"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]


def test_all_parameters_have_names_or_none_has(L: ModuleType) -> None:
    p, q = L.ones(1, requires_grad=True), L.ones(1, requires_grad=True)
    some = ([("a", p), q], [q, ("a", p)])
    groups = [{"params": [p]}, {"params": [("b", q)]}]
    for given, words in ((some[0], "Some param names"), (some[1], "Some param names"), (groups, "group with names"),
                         ([groups[1], groups[0]], "group without names")):  # fmt: skip
        with pytest.raises(ValueError, match=f"should be with/without names. .*{words}"):
            L.optim.SGD(given, lr=0.1)
    optimizer = L.optim.SGD([p], lr=0.1)
    with pytest.raises(ValueError, match="cannot add param group with names"):
        optimizer.add_param_group({"params": [q], "param_names": ["b"]})  # as a group that was in an optimizer has them
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        (lambda L: [], ValueError, "optimizer got an empty parameter list"),
        (lambda L: L.ones(2, requires_grad=True), TypeError, "iterable of Tensors or dicts"),
        (lambda L: [1.0], TypeError, "optimizer can only optimize Tensors"),
        (lambda L: [L.ones(2, requires_grad=True) * 2], ValueError, "can't optimize a non-leaf Tensor"),
        (lambda L: [{"params": {L.ones(2, requires_grad=True)}}], TypeError, "ordered collections"),
        (
            lambda L: [{"params": [p]} for p in [L.ones(2, requires_grad=True)] * 2],
            ValueError,
            "more than one parameter",
        ),
    ],
)
def test_bad_parameters(L: ModuleType, params: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        L.optim.SGD(params(L), lr=0.1)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
        ("SGD", {"lr": 0.1, "momentum": -1}, "Invalid momentum value: -1"),
        ("SGD", {"lr": 0.1, "nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        ("Adam", {"eps": -1}, "Invalid epsilon value: -1"),
        ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ("Adam", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
        ("Adadelta", {"rho": 2}, "Invalid rho value: 2"),
        ("Rprop", {"etas": (1.5, 2.0)}, "Invalid eta values: 1.5, 2.0"),
    ],
)
def test_bad_options(L: ModuleType, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(L.optim, name)([L.ones(2, requires_grad=True)], **options)


def test_a_captured_update_is_refused() -> None:
    with pytest.raises(ValueError, match="capturable=True is not supported"):
        ut.optim.Adam([ut.ones(2, requires_grad=True)], capturable=True)


# ---- stepping


def test_a_parameter_without_gradient_stays(L: ModuleType) -> None:
    (a, b), optimizer = make(L, 2, 2)
    a.sum().backward()
    optimizer.step()
    assert a.tolist() == pytest.approx([0.9, 0.9]) and b.tolist() == [1.0, 1.0]


def test_the_closure_runs_with_gradients_on_and_its_loss_is_returned(L: ModuleType) -> None:
    (a,), optimizer = make(L, 2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    with L.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert a.tolist() == pytest.approx([0.8, 0.8])


def test_zeroing(L: ModuleType) -> None:
    (a,), optimizer = make(L, 2)
    a.sum().backward()
    kept = a.grad
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is kept and kept.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert a.grad is None


def test_zeroing_a_gradient_with_a_history(L: ModuleType) -> None:
    (a,), optimizer = make(L, 2)
    (grad,) = L.autograd.grad((a**3).sum(), a, create_graph=True)
    a.grad = grad
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.grad_fn is None and not a.grad.requires_grad


def test_hooks_around_a_step(L: ModuleType) -> None:
    (a,), optimizer = make(L, 1)
    seen: list[Any] = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(("before", a.item())))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", a.item())))
    a.sum().backward()
    optimizer.step()
    before.remove()
    optimizer.step()
    assert [name for name, _ in seen] == ["before", "after", "after"]
    assert [value for _, value in seen] == pytest.approx([1.0, 0.9, 0.8])


def test_hooks_whose_handles_are_dropped_all_stay(L: ModuleType) -> None:
    _, optimizer = make(L, 1)
    seen: list[int] = []
    for k in range(5):
        optimizer.register_step_post_hook(lambda o, args, kwargs, k=k: seen.append(k))
    optimizer.step()
    assert seen == [0, 1, 2, 3, 4]


def test_a_graph_that_needs_the_old_value_notices_the_step(L: ModuleType) -> None:
    (a,), optimizer = make(L, 2)
    out = (a * a).sum()
    a.sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_the_error_names_the_step() -> None:
    (a,), optimizer = make(ut, 2)
    out = (a * a).sum()
    a.sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"SGD.step at .*test_optimizer.py"):
        out.backward()


def test_gradients_are_not_touched() -> None:
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"):
        a = ut.ones(3, requires_grad=True)
        options = {"maximize": True} if name == "Rprop" else {"maximize": True, "weight_decay": 0.1}
        optimizer = getattr(ut.optim, name)([a], lr=0.1, **options)
        (a * ut.arange(3)).sum().backward()
        optimizer.step()
        optimizer.step()
        assert a.grad.tolist() == [0, 1, 2], name


def test_a_read_only_parameter_is_refused_before_anything_changes() -> None:
    a = ut.zeros(1).expand(3).detach().requires_grad_()
    optimizer = ut.optim.Adam([a])
    a.grad = ut.ones(3)
    with pytest.raises(RuntimeError, match="read-only or expanded"):
        optimizer.step()
    assert not optimizer.state


def test_memory_laid_out_in_another_order() -> None:
    rows = ut.ones(2, 3).t().detach().requires_grad_()
    for name in ("SGD", "Adam"):
        getattr(ut.optim, name)([rows], lr=0.5)
    optimizer = ut.optim.Adam([rows], lr=0.5)
    (rows * ut.arange(6.0).reshape(3, 2)).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(rows.tolist(), [[1, 0.5], [0.5, 0.5], [0.5, 0.5]], rtol=1e-6)


def test_an_optimizer_inside_the_backward_pass(L: ModuleType) -> None:
    """With a post-accumulate hook a gradient is used and freed as soon as it is there."""
    params = [L.ones(2, requires_grad=True) for _ in range(3)]
    optimizers = {p: L.optim.SGD([p], lr=0.5) for p in params}

    def apply(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in params:
        p.register_post_accumulate_grad_hook(apply)
    (params[0] + params[1] * 2 + params[2] * 3).sum().backward()
    assert [p.tolist() for p in params] == [[0.5, 0.5], [0.0, 0.0], [-0.5, -0.5]]
    assert all(p.grad is None for p in params)


# ---- saving


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_a_restored_optimizer_goes_on_as_if_nothing_had_been(L: ModuleType, name: str) -> None:
    def step(p: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        ((p - 3) ** 2).sum().backward()
        optimizer.step()

    options = {"momentum": 0.9} if name == "SGD" else {}
    p = L.zeros(3, requires_grad=True)
    optimizer = getattr(L.optim, name)([p], lr=0.1, **options)
    for _ in range(3):
        step(p, optimizer)
    q = p.detach().clone().requires_grad_()
    other = getattr(L.optim, name)([q], lr=0.7, **options)
    other.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    for _ in range(3):
        step(p, optimizer)
        step(q, other)
    assert p.tolist() == q.tolist() and other.param_groups[0]["lr"] == 0.1


def test_lbfgs_goes_on_from_a_file(tmp_path: Path) -> None:
    def step(p: Any, optimizer: Any) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((p - ut.arange(3)) ** 4).sum() + (p[0] * p[1]) ** 2
            loss.backward()
            return loss

        optimizer.step(closure)

    p = ut.zeros(3, dtype=ut.float64, requires_grad=True)
    optimizer = ut.optim.LBFGS([p], max_iter=2, line_search_fn="strong_wolfe")
    for _ in range(3):
        step(p, optimizer)
    ut.save(optimizer.state_dict(), tmp_path / "state.npz")
    q = p.detach().clone().requires_grad_()
    other = ut.optim.LBFGS([q])
    other.load_state_dict(ut.load(tmp_path / "state.npz"))
    for _ in range(3):
        step(p, optimizer)
        step(q, other)
    assert p.tolist() == q.tolist()


def test_loaded_state_is_a_copy_in_the_dtype_of_the_parameter(L: ModuleType) -> None:
    p, q = L.zeros(2, requires_grad=True), L.zeros(2, dtype=L.float64, requires_grad=True)
    first, second = L.optim.Adam([p]), L.optim.Adam([q])
    p.sum().backward()
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype == L.float64
    assert second.state[q]["exp_avg"] is not first.state[p]["exp_avg"]


def test_a_state_that_does_not_fit(L: ModuleType) -> None:
    _, one = make(L, 2)
    _, two = make(L, 2, 2)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        one.load_state_dict(two.state_dict())
    two.add_param_group({"params": [L.ones(1, requires_grad=True)]})
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one.load_state_dict(two.state_dict())


def test_what_it_looks_like() -> None:
    text = repr(make(ut, 2)[1])
    assert text.startswith("SGD (\nParameter Group 0\n") and "    lr: 0.1\n" in text


# ---- schedules


def test_a_schedule_goes_on_from_its_state(L: ModuleType) -> None:
    _, optimizer = make(L, 1)
    scheduler = L.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    _, other = make(L, 1)
    again = L.optim.lr_scheduler.CosineAnnealingLR(other, T_max=10)
    other.load_state_dict(optimizer.state_dict())
    again.load_state_dict(scheduler.state_dict())
    for s, o in ((scheduler, optimizer), (again, other)):
        o.step()
        s.step()
    assert scheduler.get_last_lr() == again.get_last_lr()


def test_too_many_steps_of_one_cycle(L: ModuleType) -> None:
    _, optimizer = make(L, 1, momentum=0.9)
    scheduler = L.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=2)
    optimizer.step()
    scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        for _ in range(3):
            scheduler.step()


# ---- what older versions saved, and parameters that are there twice


def test_a_parameter_twice_in_a_group_is_warned_of(L: ModuleType) -> None:
    p = L.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        optimizer = L.optim.SGD([p, p], lr=0.1)
    p.sum().backward()
    optimizer.step()
    assert p.item() == pytest.approx(0.8)
    assert optimizer.state_dict()["param_groups"][0]["params"] == [1, 1]


def test_options_that_were_not_saved_keep_their_values(L: ModuleType) -> None:
    p = L.ones(1, requires_grad=True)
    optimizer = L.optim.Adam([p], lr=0.5)
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["maximize"], saved["param_groups"][0]["amsgrad"]
    saved["param_groups"][0]["lr"] = 0.25
    other = L.optim.Adam([("p", p)])
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.25 and other.param_groups[0]["param_names"] == ["p"]
    p.sum().backward()
    other.step()


def test_steps_that_were_saved_as_numbers(L: ModuleType) -> None:
    p = L.ones(1, requires_grad=True)
    p.sum().backward()
    optimizer = L.optim.Adam([p])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = 3
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert float(optimizer.state[p]["step"]) == 4


def test_decay_stays_decoupled(L: ModuleType) -> None:
    p = L.ones(1, requires_grad=True)
    optimizer = L.optim.AdamW([p])
    optimizer.load_state_dict(L.optim.Adam([p]).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def test_state_of_the_optimizer_itself(L: ModuleType) -> None:
    optimizer = L.optim.SGD([L.ones(1, requires_grad=True)], lr=0.1)
    optimizer.state["mine"] = {"count": 3}
    saved = optimizer.state_dict()
    assert saved["state"] == {"mine": {"count": 3}}
    other = L.optim.SGD([L.ones(1, requires_grad=True)], lr=0.1)
    other.load_state_dict(saved)
    assert other.state["mine"] == {"count": 3}


def test_a_closure_that_returns_a_number(L: ModuleType) -> None:
    p = L.zeros(2, requires_grad=True)
    optimizer = L.optim.LBFGS([p], tolerance_grad=-1.0)
    p.grad = L.zeros(2)
    assert optimizer.step(lambda: 1.5) == 1.5 and p.tolist() == [0, 0]
    with pytest.raises(TypeError, match=r"step\(\) missing 1 required positional argument: 'closure'"):
        optimizer.step()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam"])
def test_rates_given_as_tensors(L: ModuleType, name: str) -> None:
    found = []
    for rates in ([0.5, 0.25], [L.tensor(0.5), L.tensor([[0.25]])]):
        a, b = L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)
        optimizer = getattr(L.optim, name)(
            [{"params": [a], "lr": rates[0]}, {"params": [b], "lr": rates[1]}], foreach=False
        )
        (a.sum() + b.sum()).backward()
        optimizer.step()
        found.append([*a.tolist(), *b.tolist()])
    assert found[0] == pytest.approx(found[1]) and found[0][0] != found[0][2]
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        getattr(L.optim, name)([L.ones(2, requires_grad=True)], lr=L.tensor([0.1, 0.2]))
