"""docs/kinks.md, row by row: the gradient where there is no derivative, and the rule that decides it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows

PAGE = Path(__file__).parents[2] / "docs" / "kinks.md"
ROW = re.compile(r"^\| `(?P<call>.+?)` \| `(?P<point>\[.*?\])` \| `(?P<gradient>\[.*?\])` \| (?P<rule>\d) \|", re.M)
NUMBERS = {"inf": math.inf, "nan": math.nan}
STEP = 1e-6

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")


class Kink(NamedTuple):
    call: str
    point: list[float]
    gradient: list[float]
    rule: int


def read_rows() -> list[Kink]:
    found = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return [
        Kink(m["call"], eval(m["point"], dict(NUMBERS)), eval(m["gradient"], dict(NUMBERS)), int(m["rule"]))
        for m in found
    ]


KINKS = read_rows()
each = rows("kink", KINKS, ids=[f"{k.call} at {k.point}" for k in KINKS])


class Functions:
    """`F`: the functions of several modules under one roof."""

    def __init__(self, *modules: Any) -> None:
        self.modules = modules

    def __getattr__(self, name: str) -> Any:
        return next(getattr(m, name) for m in self.modules if hasattr(m, name))


def evaluate(kink: Kink, F: Any, x: Any) -> Any:
    with np.errstate(all="ignore"):
        return eval(kink.call, {"F": F, "x": x, **NUMBERS}).sum()


def value(kink: Kink, point: list[float]) -> float:
    return float(evaluate(kink, ut, ut.tensor(point, dtype=ut.float64)).item())


def test_the_page_has_rows() -> None:
    assert len(KINKS) > 120
    assert {k.rule for k in KINKS} == {1, 2, 3, 4, 5}


@each
def test_gradient(kink: Kink) -> None:
    x = ut.tensor(kink.point, dtype=ut.float64, requires_grad=True)
    (found,) = ut.autograd.grad(evaluate(kink, ut, x), x)
    np.testing.assert_allclose(found.numpy(), kink.gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.torch
@each
def test_gradient_is_that_of_pytorch(kink: Kink, torch: Any) -> None:
    x = torch.tensor(kink.point, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(evaluate(kink, Functions(torch.nn.functional, torch), x), x)
    np.testing.assert_allclose((found + 0).numpy(), kink.gradient, rtol=1e-8, atol=1e-9)


def slopes(kink: Kink) -> list[tuple[float, float]]:
    """For each element, the slopes before and behind the point."""
    here = value(kink, kink.point)
    found = []
    for k in range(len(kink.point)):
        before, behind = list(kink.point), list(kink.point)
        before[k] -= STEP
        behind[k] += STEP
        found.append(((here - value(kink, before)) / STEP, (value(kink, behind) - here) / STEP))
    return found


def least(low: float, high: float) -> float:
    """The number of least size between two."""
    return 0.0 if low <= 0 <= high else min(low, high, key=abs)


@pytest.mark.parametrize("kink", [k for k in KINKS if k.rule == 1], ids=lambda k: f"{k.call} at {k.point}")
def test_rule_1_the_gradient_exists(kink: Kink) -> None:
    for g, (before, behind) in zip(kink.gradient, slopes(kink), strict=True):
        np.testing.assert_allclose([before, behind], g, atol=2e-3)


@pytest.mark.parametrize("kink", [k for k in KINKS if k.rule in (2, 3)], ids=lambda k: f"{k.call} at {k.point}")
def test_rules_2_and_3_least_norm_between_the_slopes(kink: Kink) -> None:
    """Convex: the slopes grow; concave: they fall. With one element, the gradient is the least between them."""
    sign = 1 if kink.rule == 2 else -1
    for g, (before, behind) in zip(kink.gradient, slopes(kink), strict=True):
        low, high = sorted([before, behind])
        assert sign * (behind - before) >= -1e-4
        assert low - 1e-4 <= g <= high + 1e-4
        if len(kink.point) == 1:
            np.testing.assert_allclose(g, least(low, high), atol=1e-3)


@pytest.mark.parametrize("kink", [k for k in KINKS if k.rule == 2 and len(k.point) > 1], ids=lambda k: k.call)
def test_rule_2_is_a_subgradient(kink: Kink) -> None:
    """f(y) >= f(x) + g (y - x), near x and for every y."""
    rng, here = np.random.default_rng(0), value(kink, kink.point)
    for _ in range(50):
        move = rng.normal(size=len(kink.point)) * 1e-3
        there = value(kink, (np.array(kink.point) + move).tolist())
        assert there >= here + float(np.dot(kink.gradient, move)) - 1e-9


@pytest.mark.parametrize("kink", [k for k in KINKS if k.rule == 4], ids=lambda k: f"{k.call} at {k.point}")
def test_rule_4_the_function_is_defined(kink: Kink) -> None:
    assert not math.isnan(value(kink, kink.point))
    assert not any(math.isnan(g) for g in kink.gradient)


# ---- rule 6, and what has no gradient at all


def test_random_numbers_have_no_gradient_or_zero() -> None:
    p = ut.tensor([0.3, 0.7], requires_grad=True)
    assert not ut.multinomial(p, 1).requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        ut.multinomial(p, 1).sum().backward()
    ut.bernoulli(p).sum().backward()
    assert p.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["argmax", "argsort", "isnan", "sign"])
def test_steps(name: str) -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    out = getattr(ut, name)(x)
    assert out.requires_grad == (name == "sign")


def test_derivatives_that_are_refused() -> None:
    x = ut.tensor([0.0], requires_grad=True)
    with pytest.raises(NotImplementedError, match="the derivative for 'heaviside' is not implemented"):
        ut.heaviside(x, ut.ones(1)).sum().backward()
    with pytest.raises(NotImplementedError, match="the derivative for 'floor_divide' is not implemented"):
        (x // 2).sum().backward()
