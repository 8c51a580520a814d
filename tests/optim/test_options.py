"""Optimizers and schedulers by chance: random options, parameters and interruptions, step by step as in PyTorch."""

from __future__ import annotations

import copy
import pickle
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

RULES: dict[str, dict[str, list[Any]]] = {
    "SGD": {"lr": [0.1, 0.01], "momentum": [0, 0.9], "dampening": [0, 0.3], "weight_decay": [0, 0.1]},
    "Adam": {"lr": [0.1], "betas": [(0.9, 0.999), (0.0, 0.9)], "weight_decay": [0, 0.1], "amsgrad": [False, True]},
    "AdamW": {"lr": [0.1], "eps": [1e-8, 1e-3], "weight_decay": [0, 0.1], "amsgrad": [False, True]},
    "NAdam": {"lr": [0.1], "weight_decay": [0, 0.1], "decoupled_weight_decay": [False, True]},
    "RAdam": {"lr": [0.1], "weight_decay": [0, 0.1], "decoupled_weight_decay": [False, True]},
    "Adamax": {"lr": [0.1], "betas": [(0.9, 0.999), (0.5, 0.9)], "weight_decay": [0, 0.1]},
    "Adadelta": {"lr": [1.0, 0.1], "rho": [0.9, 0.5], "weight_decay": [0, 0.1]},
    "Adagrad": {"lr": [0.1], "lr_decay": [0, 0.1], "initial_accumulator_value": [0, 0.5], "weight_decay": [0, 0.1]},
    "RMSprop": {"lr": [0.1], "momentum": [0, 0.9], "centered": [False, True], "weight_decay": [0, 0.1]},
    "Rprop": {"lr": [0.1], "etas": [(0.5, 1.2), (0.3, 1.5)], "step_sizes": [(1e-6, 50), (1e-3, 0.2)]},
    "ASGD": {"lr": [0.1], "lambd": [1e-4, 0.1], "t0": [1e6, 3], "weight_decay": [0, 0.1]},
    "Adafactor": {"lr": [0.1, 0.01], "eps": [(None, 1e-3), (1e-20, 1e-2)], "d": [1.0, 2.0], "weight_decay": [0, 0.1]},
}
#: rules for real parameters with elements
REAL = {"Adafactor"}
SHAPES = [(), (3,), (2, 3), (0,), (1,)]


def twin(value: Any) -> Any:
    """PyTorch's tensors as ours, in lists and dicts, too."""
    if hasattr(value, "detach"):
        return ut.tensor(value.detach().numpy().copy()).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(twin(v) for v in value)
    return {k: twin(v) for k, v in value.items()} if isinstance(value, dict) else value


def loss(params: list[Any], targets: list[Any], used: list[bool]) -> Any:
    total: Any = 0.0
    for k, (p, target) in enumerate(zip(params, targets, strict=True)):
        if used[k]:
            d = p - target
            total = total + (k + 1) * (abs(d) ** 2).sum()
    return total


class Run:
    """One optimizer of one library, with its parameters."""

    def __init__(self, optimizer: Any, params: list[Any], targets: list[Any]) -> None:
        self.optimizer, self.params, self.targets = optimizer, params, targets

    def step(self, used: list[bool]) -> None:
        self.optimizer.zero_grad()
        total = loss(self.params, self.targets, used)
        if any(used):
            total.backward()
        self.optimizer.step()

    def begin_anew(self, state: Any) -> None:
        """Go on with another optimizer, which is given the state."""
        self.optimizer = type(self.optimizer)(self.params, lr=0.5)
        self.optimizer.load_state_dict(state)


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RULES)
def test_steps_with_random_options(torch: ModuleType, name: str, seed: int) -> None:
    rng = random.Random(f"{name}{seed}")
    options = {key: rng.choice(values) for key, values in RULES[name].items()} | {"maximize": rng.random() < 0.3}
    dtypes = [torch.float64] if name in REAL else [torch.float64, torch.float64, torch.complex128]
    shapes = [shape for shape in SHAPES if name not in REAL or 0 not in shape]
    kinds = [(rng.choice(shapes), rng.choice(dtypes)) for _ in range(3)]
    theirs_params = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape, dtype in kinds]
    targets = [torch.randn(shape, dtype=dtype) for shape, dtype in kinds]
    ours_params = twin(theirs_params)
    theirs = Run(getattr(torch.optim, name)(theirs_params, **options), theirs_params, targets)
    ours = Run(getattr(ut.optim, name)(ours_params, **options), ours_params, twin(targets))
    for step in range(12):
        if step == 6:  # from PyTorch's state, or from our own
            state = theirs.optimizer.state_dict()
            ours.begin_anew(twin(state) if seed % 2 else copy.deepcopy(ours.optimizer.state_dict()))
            theirs.begin_anew(copy.deepcopy(state))
        used = [rng.random() < 0.8 for _ in kinds]
        theirs.step(used)
        ours.step(used)
        for a, b in zip(ours.params, theirs.params, strict=True):
            same(a, b)


@pytest.mark.parametrize("shape", [(2, 3), (4, 2), (3, 3)])
@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}])
def test_muon(torch: ModuleType, shape: tuple[int, int], options: dict[str, Any]) -> None:
    """PyTorch's steps are those of numbers with three digits."""
    theirs_p = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    targets, before = [torch.randn(shape, dtype=torch.float64)], theirs_p.detach().clone()
    ours_p = twin(theirs_p)
    theirs = Run(torch.optim.Muon([theirs_p], lr=0.1, **options), [theirs_p], targets)
    ours = Run(ut.optim.Muon([ours_p], lr=0.1, **options), [ours_p], twin(targets))
    for _ in range(3):
        theirs.step([True])
        ours.step([True])
    moved = (theirs_p - before).abs().max().item()
    np.testing.assert_allclose(ours_p.detach().numpy(), theirs_p.detach().numpy(), atol=0.03 * moved)


def test_muon_is_for_matrices(L: ModuleType) -> None:
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        L.optim.Muon([L.ones(3, requires_grad=True)])
    p = L.ones(2, 2, dtype=L.complex64, requires_grad=True)
    optimizer = L.optim.Muon([p])
    p.grad = L.ones(2, 2, dtype=L.complex64)
    with pytest.raises(RuntimeError, match="does not support complex parameters"):
        optimizer.step()


def test_a_state_for_what_has_no_gradient_yet(L: ModuleType) -> None:
    """Adagrad has its sums from the start."""
    p = L.zeros(2, requires_grad=True)
    optimizer = L.optim.Adagrad([p], initial_accumulator_value=0.5)
    assert optimizer.state_dict()["state"][0]["sum"].tolist() == [0.5, 0.5]
    assert optimizer.state[p]["step"].item() == 0


def test_lbfgs_goes_on_from_pytorchs_state_and_back(torch: ModuleType) -> None:
    theirs_p = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64, requires_grad=True)
    ours_p = twin(theirs_p)

    def step(optimizer: Any, p: Any) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            value = ((p - 1) ** 4 + (p - 1) ** 2).sum()
            value.backward()
            return value

        optimizer.step(closure)

    theirs, ours = torch.optim.LBFGS([theirs_p], max_iter=3), ut.optim.LBFGS([ours_p], max_iter=3)
    for turn in range(4):
        step(theirs, theirs_p)
        step(ours, ours_p)
        same(ours_p, theirs_p)
        if turn == 1:
            state = twin(theirs.state_dict())
            ours = ut.optim.LBFGS([ours_p], max_iter=3)
            ours.load_state_dict(state)
        if turn == 2:
            saved = ours.state_dict()["state"][0]
            assert {"d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"} <= set(saved)


def test_how_optimizers_are_shown(L: ModuleType) -> None:
    a, b = L.zeros(1, requires_grad=True), L.zeros(1, requires_grad=True)
    text = repr(L.optim.SGD([{"params": [("a", a)]}, {"params": [("b", b)], "lr": 2.0}], lr=0.1))
    assert "\n\nParameter Group 1\n" in text and "    param_names: ['b']\n" in text


def test_milestones_from_a_plain_dict(L: ModuleType) -> None:
    """As files give them back."""
    optimizer = L.optim.SGD([L.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = L.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2], gamma=0.5)
    if L.__name__ == "undertow":
        scheduler.load_state_dict({**scheduler.state_dict(), "milestones": {2: 2}})
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    assert scheduler.get_last_lr() == [0.25]


def test_a_constant_rate_for_no_steps(L: ModuleType) -> None:
    optimizer = L.optim.SGD([L.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = L.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=0)
    assert scheduler.get_last_lr() == [0.5]


# ---- hooks


def test_hooks_see_and_replace_arguments(L: ModuleType) -> None:
    p = L.ones(1, requires_grad=True)
    optimizer = L.optim.SGD([p], lr=0.5)
    seen: list[Any] = []

    def closure() -> Any:
        seen.append("closure")
        return (p * p).sum()

    def give_closure(o: Any, args: Any, kwargs: Any) -> Any:
        seen.append(("before", o is optimizer, args[0] is optimizer, dict(kwargs)))
        return args, {"closure": closure}

    optimizer.register_step_pre_hook(give_closure)
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", list(kwargs))))
    assert optimizer.step().item() == 1
    assert seen == [("before", True, True, {}), "closure", ("after", ["closure"])]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\), but got 3"):
        optimizer.step()


def test_hooks_of_all_optimizers(L: ModuleType) -> None:
    import importlib

    module = importlib.import_module(f"{L.__name__}.optim.optimizer")
    seen: list[str] = []
    handles = [
        module.register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("any before")),
        module.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("any after")),
    ]
    optimizer = L.optim.Adam([L.ones(1, requires_grad=True)])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen == ["any before", "before", "after", "any after", "before", "after"]


def test_hooks_of_optimizers_with_a_step_of_their_own(L: ModuleType) -> None:
    class Own(L.optim.Optimizer):  # type: ignore[name-defined,misc]
        def step(self, closure: Any = None) -> str:
            return "stepped"

    seen: list[str] = []
    for optimizer in (Own([L.ones(1, requires_grad=True)], {}), L.optim.LBFGS([L.ones(1, requires_grad=True)])):
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(type(o).__name__))
        optimizer.step(lambda: L.zeros(()))
    assert seen == ["Own", "LBFGS"]


def test_hooks_around_saving_and_loading(L: ModuleType) -> None:
    optimizer = L.optim.SGD([L.ones(1, requires_grad=True)], lr=0.5)
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("save"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda o, state: seen.append("first"), prepend=True)
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(f"load {len(state)}"))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    optimizer.load_state_dict(state)
    assert seen == ["save", "first", "load 3", "loaded"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_copies_go_on_alone_and_without_hooks(L: ModuleType, name: str) -> None:
    p = L.nn.Parameter(L.ones(2))
    optimizer = getattr(L.optim, name)([p], lr=0.1)
    optimizer.register_step_post_hook(lambda o, args, kwargs: pytest.fail("a hook of another optimizer"))
    for made in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        own = made.param_groups[0]["params"][0]
        own.grad = L.ones(2)
        made.step()
        assert own.tolist() == pytest.approx([0.9, 0.9]) and p.tolist() == [1, 1]
