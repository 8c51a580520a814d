"""NaN, infinities and numbers whose squares overflow: what PyTorch computes there, run in both libraries."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

import undertow as ut

INF, NAN = math.inf, math.nan


def close(found: Any, expected: list[float]) -> bool:
    return bool(found.tolist() == pytest.approx(expected, rel=1e-4, abs=0, nan_ok=True))


# ---- variance


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1)])
def test_a_deviation_whose_square_overflows(L: ModuleType, shape: tuple[int, ...]) -> None:
    x = (L.tensor([1.0, 2.0, 4.0]) * 1e20).reshape(shape).requires_grad_()
    dim = 0 if shape[0] == 3 else 1
    assert close(x.std(dim).reshape(1), [1.5275252e20])
    assert close(L.std_mean(x, dim)[0].reshape(1), [1.5275252e20]) and x.var(dim).item() == INF
    assert close(L.autograd.grad(x.std(), x)[0].reshape(3), [-0.436436, -0.109109, 0.545545])


def test_a_variance_that_fits_though_its_sum_does_not(L: ModuleType) -> None:
    assert close(L.var(L.tensor([1.0, 2.0, 4.0]) * 1e19).reshape(1), [2.3333e38])
    assert math.isnan(L.std(L.tensor([1.0, NAN])).item()) and math.isnan(L.std(L.tensor([1.0, INF])).item())


# ---- distances that count


def test_no_number_of_differences_with_nan(L: ModuleType) -> None:
    points = L.tensor([[NAN, 1.0, 2.0], [0.0, 1.0, 3.0], [0.0, INF, 3.0]], requires_grad=True)
    found = L.cdist(points, L.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, NAN]]), 0.0)
    assert close(found.reshape(6), [NAN, NAN, 1, NAN, 2, NAN])
    assert close(L.nn.functional.pdist(points, 0.0), [NAN, NAN, 1])
    assert L.autograd.grad(L.cdist(points, points, 0.0).sum(), points)[0].tolist() == [[0.0] * 3] * 3


# ---- attention


def attend(L: ModuleType, dtype: str, **options: Any) -> tuple[Any, list[Any]]:
    """With scores of -inf for the first query only: its product with every key overflows."""
    query = L.tensor([[[1e30, 1e30], [1.0, 0.5]]], dtype=getattr(L, dtype), requires_grad=True)
    key = L.full((1, 2, 2), -1e30 if dtype == "float32" else -1e290, dtype=query.dtype, requires_grad=True)
    value = L.ones(1, 2, 2, dtype=query.dtype, requires_grad=True)
    out = L.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    return out, [query, key, value]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 2.0}, {"dropout_p": 1e-30}])
def test_a_query_whose_scores_are_minus_infinity_gets_zeros(L: ModuleType, dtype: str, options: Any) -> None:
    out, inputs = attend(L, dtype, **options)
    assert out.tolist() == [[[0.0, 0.0], [1.0, 1.0]]]
    of_query, of_key, of_value = L.autograd.grad(out[:, 0].sum(), inputs)
    assert of_query.tolist() == of_key.tolist() == of_value.tolist() == [[[0.0, 0.0]] * 2]


@pytest.mark.parametrize("causal", [False, True])
def test_recorded_gradients_of_attention_that_sees_nothing(causal: bool) -> None:
    out, inputs = attend(ut, "float64", is_causal=causal)
    for gradient in ut.autograd.grad(out[:, 0].sum(), inputs, create_graph=True):
        assert gradient.tolist() == [[[0.0, 0.0]] * 2]


# ---- logcumsumexp


@pytest.mark.parametrize(
    ("values", "gradient"),
    [
        ([0.0, 1.0, 2.0, INF, 1.0], [1.358972, 0.975787, 0.665241, NAN, 0.0]),
        ([INF, INF, 0.0], [NAN, NAN, 0.0]),
        ([-INF, INF, 1.0, INF, 2.0], [NAN, NAN, 0.0, NAN, 0.0]),
    ],
)
def test_an_infinite_term_takes_no_gradient_from_the_others(
    L: ModuleType, values: list[float], gradient: list[float]
) -> None:
    x = L.tensor(values, requires_grad=True)
    assert close(L.autograd.grad(L.logcumsumexp(x, 0).sum(), x)[0], gradient)


# ---- losses


@pytest.mark.parametrize(("name", "argument"), [("huber_loss", "delta"), ("smooth_l1_loss", "beta")])
def test_the_border_of_a_loss_is_a_real_number(L: ModuleType, name: str, argument: str) -> None:
    for wrong, kind in ((1j, "complex"), ("one", "str")):
        with pytest.raises(TypeError, match=rf"{name}\(\): argument '{argument}' .*must be float, not {kind}"):
            getattr(L.nn.functional, name)(L.ones(2), L.zeros(2), **{argument: wrong})
