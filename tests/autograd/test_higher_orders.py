"""Derivatives beyond the first for one row of every operation: third order, symmetric Hessians, at random points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, every, is_float, leaf, like
from undertow.autograd.forward_ad import dual_level, make_dual, unpack_dual
from undertow.tensor import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

#: the first smooth row of every operation that has derivatives of all orders
ROWS = list({
    (c.sample.op, c.complex): c
    for c in reversed(cases())
    if c.differentiable and not c.sample.kink and c.sample.gradgrad and c.sample.note != "outside"
}.values())[::-1]  # fmt: skip


def product(tensors: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """The real inner product of tensors with arrays, as a tensor."""
    parts = [(t * leaf(a.conj(), False)).sum() for t, a in zip(tensors, arrays, strict=True) if t is not None]
    total = sum(parts[1:], parts[0])
    return total.real if total.is_complex() else total


class Derivatives:
    """A row's operation as a real function of its differentiable inputs, and its derivatives along directions."""

    def __init__(self, case: Case, tensors: list[Tensor]) -> None:
        self.chosen = case.chosen(tensors)
        results = case.call(tensors)
        self.value = product([results[k] for k in case.differentiable_results], case.cotangents)

    def along(self, value: Tensor, direction: Sequence[Any]) -> Tensor | None:
        """The derivative of a value along a direction; None if it does not depend on the inputs."""
        found = self.gradient(value)
        return None if found is None else product(found, direction)

    def gradient(self, value: Tensor) -> Any:
        if not value.requires_grad:
            return None
        found = ut.autograd.grad(value, self.chosen, create_graph=True, allow_unused=True)
        return None if all(g is None for g in found) else found


def leaves(case: Case) -> list[Tensor]:
    return [leaf(a.copy(), k in case.differentiable) for k, a in enumerate(case.arrays)]


def directions(case: Case, count: int) -> list[list[Any]]:
    rng = case.rng("further directions")
    return [[like(rng, a) for a in case.chosen(case.arrays)] for _ in range(count)]


def close(found: float, wanted: float) -> bool:
    return not np.isfinite(wanted) or abs(found - wanted) <= 1e-6 * max(1.0, abs(wanted))


@every(ROWS)
def test_hessians_are_symmetric(case: Case) -> None:
    if not case.has_gradient():
        return
    u, v = directions(case, 2)
    found = []
    for first, second in ((u, v), (v, u)):
        f = Derivatives(case, leaves(case))
        once = f.along(f.value, first)
        twice = None if once is None else f.along(once, second)
        found.append(0.0 if twice is None else twice.item())
    assert close(*found)


@every(ROWS)
def test_third_derivatives_by_reverse_and_by_forward_mode(case: Case) -> None:
    if not case.has_gradient():
        return
    u, v, w = directions(case, 3)

    def second(tensors: list[Tensor]) -> Any:
        f = Derivatives(case, tensors)
        once = f.along(f.value, u)
        return f, None if once is None else f.along(once, v)

    f, twice = second(leaves(case))
    if twice is None:
        return
    thrice = f.along(twice, w)
    with dual_level():
        tensors = leaves(case)
        for k, direction in zip(case.differentiable, w, strict=True):
            tensors[k] = make_dual(tensors[k], leaf(direction, False))
        tangent = unpack_dual(second(tensors)[1]).tangent
    assert close(0.0 if tangent is None else tangent.item(), 0.0 if thrice is None else thrice.item())


@every(ROWS)
def test_products_agree_at_random_points(case: Case) -> None:
    """`jvp` and `vjp` are transposed to each other, wherever the point is."""
    if not case.has_gradient():
        return
    rng = case.rng("points")
    for _ in range(3):
        point = [a + 1e-3 * like(rng, a) if k in case.differentiable else a for k, a in enumerate(case.arrays)]
        tangents = [like(rng, a) for a in case.chosen(point)]

        def function(*chosen: Tensor, point: Any = point) -> Any:
            tensors = [leaf(a, False) for a in point]
            for k, x in zip(case.differentiable, chosen, strict=True):
                tensors[k] = x
            results = case.call(tensors)
            return tuple([results[k] for k in case.differentiable_results])

        given = tuple([leaf(a.copy(), False) for a in case.chosen(point)])
        outputs, pull = ut.func.vjp(function, *given)
        weights = [like(rng, as_array(o)) for o in outputs]
        back = pull(tuple([leaf(w, False) for w in weights]))
        _, ahead = ut.func.jvp(function, given, tuple([leaf(t, False) for t in tangents]))
        left, right = (as_number(product(*pair)) for pair in ((ahead, weights), (back, tangents)))
        size = sum([float(np.abs(as_array(t)).sum()) for t in ahead if is_float(as_array(t))])
        assert not np.isfinite(left + right) or abs(left - right) <= 1e-8 * max(1.0, size)


def as_number(tensor: Tensor) -> float:
    return float(as_array(tensor))
