"""Rules whose other operand is of a lesser dtype: what is computed of it neither wraps round nor loses digits."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut

INTEGERS = ["uint8", "int8", "int16", "int64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("base", [-3.0, 1e30, float("inf"), 0.0])
def test_an_exponent_of_zero_has_a_gradient_of_zero(L: ModuleType, base: float, dtype: str) -> None:
    x = L.tensor([base], requires_grad=True)
    (g,) = L.autograd.grad(x ** L.zeros(1, dtype=getattr(L, dtype)), x, L.ones(1))
    assert g.tolist() == [0.0]


def test_an_exponent_below_all_of_its_dtype() -> None:
    x = ut.tensor([2.0], dtype=ut.float64, requires_grad=True)
    (g,) = ut.autograd.grad(x ** ut.tensor([-128], dtype=ut.int8), x, ut.ones(1))
    assert g.tolist() == [-128 * 2.0**-129]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_a_logarithm_of_integers_has_the_digits_of_the_gradient(L: ModuleType, dtype: str) -> None:
    x = L.tensor([0.5, -3.0, 2.0], dtype=L.float64, requires_grad=True)
    y = L.special.xlog1py(x, L.tensor([1, 2, 100], dtype=getattr(L, dtype)))
    (g,) = L.autograd.grad(y.sum(), x)
    assert g.tolist() == pytest.approx([0.6931471805599453, 1.0986122886681098, 4.61512051684126], rel=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_logarithm_of_lesser_floats_has_the_digits_of_the_gradient(L: ModuleType, dtype: str) -> None:
    x = L.tensor([0.5, -3.0, 2.0], dtype=L.float64, requires_grad=True)
    y = L.special.xlog1py(x, L.tensor([1.0, 2.0, 0.25], dtype=getattr(L, dtype)))
    (g,) = L.autograd.grad(y.sum(), x)
    assert g.tolist() == pytest.approx([0.6931471805599453, 1.0986122886681098, 0.22314355131420976], rel=1e-14)


@pytest.mark.parametrize("swapped", [False, True])
def test_cosine_similarity_with_integers(L: ModuleType, swapped: bool) -> None:
    x = L.tensor([[3.0, 4.0]], requires_grad=True)
    given: list[Any] = [x, L.tensor([[1, 0]])]
    found = L.cosine_similarity(*(given[::-1] if swapped else given))
    assert found.tolist() == pytest.approx([0.6])
    (g,) = L.autograd.grad(found.sum(), x)
    assert g.tolist()[0] == pytest.approx([0.128, -0.096], rel=1e-5)
    with pytest.raises(RuntimeError, match="floating point"):
        L.cosine_similarity(given[1], given[1])


def test_shapes_that_do_not_fit_are_named(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(2\)"):
        L.dist(L.ones(2, 3), L.ones(2))
    with pytest.raises(RuntimeError, match="should have positive dimension, but got 0 dimension"):
        L.searchsorted(L.tensor(1.0), L.tensor([1.0]))
