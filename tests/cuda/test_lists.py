"""Lists of tensors in few launches: `_foreach_` functions, norms and clipping of gradients; against the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

SIZES = [(3,), (5, 7), (1,), (4500,), (2, 3, 4), (6,), (8,), (9,), (11,), (10, 2)]


def tensors(device: str, seed: int, dtype: Any = None) -> list[Any]:
    rng = np.random.default_rng(seed)
    drawn = [rng.uniform(0.5, 2.0, size).astype("float32") for size in SIZES]
    return [ut.tensor(x, device=device).to(dtype or ut.float32) for x in drawn]


def launches(function: Callable[[], Any]) -> int:
    before = ut.cuda.launch_stats()["launches"]
    function()
    return int(ut.cuda.launch_stats()["launches"] - before)


CHANGES: list[tuple[str, Callable[[str], tuple[Any, ...]]]] = [
    ("add_", lambda device: (2.5,)),
    ("add_", lambda device: (tensors(device, 1),)),
    ("add_", lambda device: (ut.tensor(2.5, device=device),)),
    ("sub_", lambda device: (tensors(device, 1),)),
    ("mul_", lambda device: (3,)),
    ("mul_", lambda device: (ut.tensor(0.25, device=device),)),
    ("mul_", lambda device: ([0.5] * len(SIZES),)),
    ("div_", lambda device: (tensors(device, 1),)),
    ("addcmul_", lambda device: (tensors(device, 1), tensors(device, 2), 0.5)),
    ("addcdiv_", lambda device: (tensors(device, 1), tensors(device, 2), -0.5)),
    ("lerp_", lambda device: (tensors(device, 1), 0.25)),
    ("lerp_", lambda device: (tensors(device, 1), 0.75)),
    ("sqrt_", lambda device: ()),
    ("neg_", lambda device: ()),
    ("exp_", lambda device: ()),
    ("reciprocal_", lambda device: ()),
    ("copy_", lambda device: (tensors(device, 3),)),
    ("zero_", lambda device: ()),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_changes_of_lists_are_one_launch_and_right(dtype: str) -> None:
    for name, args in CHANGES:
        kind = getattr(ut, dtype)
        here, there = tensors("cpu", 0, kind), tensors("cuda", 0, kind)
        as_kind = lambda value: value.to(kind) if isinstance(value, ut.Tensor) else value  # noqa: B023
        given = [
            [[as_kind(v) for v in a] if isinstance(a, list) else as_kind(a) for a in args(d)]
            for d in "cpu cuda".split()
        ]
        function = getattr(ut, f"_foreach_{name}")
        function(here, *given[0])
        versions = [t._version for t in there]
        assert launches(lambda: function(there, *given[1])) == 1, name  # noqa: B023
        assert [t._version for t in there] == [v + 1 for v in versions]
        for x, y in zip(here, there, strict=True):
            np.testing.assert_allclose(
                y.cpu().double().numpy(), x.double().numpy(), rtol=1e-2 if dtype == "bfloat16" else 1e-6
            )


def test_lists_whose_order_matters_are_changed_one_by_one() -> None:
    for device in ("cpu", "cuda"):
        x, y = ut.ones(4, device=device), ut.full((4,), 2.0, device=device)
        ut._foreach_add_([x, y], [y, x])  # the second reads what the first has changed
        assert (x[0].item(), y[0].item()) == (3.0, 5.0)
        ut._foreach_mul_([x, x], 2.0)  # twice the same
        assert x[0].item() == 12.0
        whole = ut.zeros(6, device=device)
        ut._foreach_add_([whole[:4], whole[2:]], 1.0)
        assert whole.tolist() == [1, 1, 2, 2, 1, 1]
        ut._foreach_add_([x, y], [ut.ones(1, device=device), ut.ones(4, device=device)])  # broadcast
        assert (x[0].item(), y[0].item()) == (13.0, 6.0)


def test_lists_that_need_gradients_are_recorded() -> None:
    leaves = [ut.ones(3, device="cuda", requires_grad=True) for _ in range(2)]
    with pytest.raises(RuntimeError, match="leaf"):
        ut._foreach_mul_(leaves, 2.0)
    inner = [leaf * 1 for leaf in leaves]
    ut._foreach_mul_(inner, 3.0)
    sum(t.sum() for t in inner).backward()
    assert leaves[0].grad.tolist() == [3, 3, 3]
    with ut.no_grad():
        ut._foreach_mul_(leaves, 2.0)
    assert leaves[1].tolist() == [2, 2, 2]


@pytest.mark.parametrize("order", [1.0, 2.0, math.inf, 3.0])
def test_clipping_gives_what_it_gives_on_the_cpu(order: float) -> None:
    totals, grads = [], []
    for device in ("cpu", "cuda"):
        params = [ut.nn.Parameter(ut.zeros_like(t)) for t in tensors(device, 0)]
        for p, g in zip(params, tensors(device, 5), strict=True):
            p.grad = g
        totals.append(ut.nn.utils.clip_grad_norm_(params, 1.5, order).item())
        grads.append([p.grad.cpu().numpy() for p in params])
    assert totals[1] == pytest.approx(totals[0], rel=1e-5)
    for x, y in zip(*grads, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5)


def test_clipping_takes_few_launches_and_tells_of_infinities() -> None:
    params = [ut.nn.Parameter(ut.zeros(3, device="cuda")) for _ in range(100)]
    for p in params:
        p.grad = ut.ones(3, device="cuda")
    assert launches(lambda: ut.nn.utils.clip_grad_norm_(params, 1.0)) <= 10
    params[40].grad = ut.tensor([0.0, math.nan, 1.0], device="cuda")
    for order in (1.0, 2.0, math.inf):
        with pytest.raises(RuntimeError, match="non-finite"):
            ut.nn.utils.clip_grad_norm_(params, 1.0, order, error_if_nonfinite=True)
