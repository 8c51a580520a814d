"""The kernels for long rows compute what the plain ones do: values, first and second derivatives, special numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import kernels
from undertow.compiled import core
from undertow.ops.network import row_kernels
from undertow.ops.pointwise import gelu

PLAIN = 10**12  # no array has so many elements


@pytest.fixture(autouse=True)
def without_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They have tests of their own, tests/compiled."""
    monkeypatch.setattr(kernels, "core", None)
    if core is not None:
        core.use_twins(False)
    yield
    if core is not None:
        core.use_twins(True)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is long enough, and takes several blocks."""
    monkeypatch.setattr(row_kernels, "FEW", 0)
    monkeypatch.setattr(row_kernels, "BLOCK", 400)
    monkeypatch.setattr(gelu, "FEW", 0)
    monkeypatch.setattr(gelu, "BLOCK", 32)


def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_kernels, "FEW", PLAIN)
    monkeypatch.setattr(gelu, "FEW", PLAIN)


RNG = np.random.default_rng(0)
X, G = RNG.standard_normal((2, 9, 13)), RNG.standard_normal((2, 9, 13))
W, B = RNG.standard_normal(13), RNG.standard_normal(13)
CLASSES = RNG.integers(0, 13, 18)

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda x, w, b: ut.softmax(x, -1),
    "softmax of 2": lambda x, w, b: ut.softmax(x * 1.0, 2),
    "log_softmax": lambda x, w, b: ut.log_softmax(x, -1),
    "layer_norm": lambda x, w, b: ut.layer_norm(x, (13,), w, b),
    "layer_norm, weight alone": lambda x, w, b: ut.layer_norm(x, (13,), w),
    "layer_norm, bias alone": lambda x, w, b: ut.layer_norm(x, (13,), None, b),
    "layer_norm, plain": lambda x, w, b: ut.layer_norm(x, (9, 13), eps=0.1),
    "cross_entropy": lambda x, w, b: ut.cross_entropy(x.reshape(18, 13), ut.tensor(CLASSES)),
    "cross_entropy, each": lambda x, w, b: ut.cross_entropy(
        x.reshape(18, 13), ut.tensor(CLASSES), ignore_index=3, reduction="none"
    ),
    "gelu": lambda x, w, b: ut.gelu(x),
}


def derivatives(name: str, dtype: Any) -> list[Any]:
    """The value, the gradients, and the gradients of their sum of squares."""
    leaves = [ut.tensor(a, dtype=dtype, requires_grad=True) for a in (X, W, B)]
    out = CALLS[name](*leaves)
    seed = ut.tensor(G.ravel()[: max(out.numel(), 1)].reshape(out.shape), dtype=dtype)
    plain = ut.autograd.grad(out, leaves, seed, retain_graph=True, allow_unused=True)
    recorded = ut.autograd.grad(out, leaves, seed, create_graph=True, allow_unused=True)
    squares = sum((g * g).sum() for g in recorded if g is not None and g.requires_grad)
    second = ut.autograd.grad(squares, leaves, allow_unused=True)
    return [None if t is None else t.detach().numpy() for t in (out, *plain, *recorded, *second)]


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
@pytest.mark.parametrize("name", CALLS)
def test_they_agree_with_the_plain_kernels(
    name: str, dtype: Any, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = derivatives(name, dtype)
    plainly(monkeypatch)
    for mine, theirs in zip(got, derivatives(name, dtype), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.dtype == dtype
            tolerance = 3e-5 if dtype is ut.float32 else 1e-11
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def test_they_are_used_for_large_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for name in ("softmax", "softmax_gradient", "layer_norm", "layer_norm_gradient"):
        kernel = getattr(row_kernels, name)
        monkeypatch.setattr(row_kernels, name, lambda *a, _k=kernel, _n=name: (used.append(_n), _k(*a))[1])
    x = ut.randn(100, 100, requires_grad=True)
    ut.softmax(ut.layer_norm(x, (100,)), -1).sum().backward()
    assert used == ["layer_norm", "softmax", "softmax_gradient", "layer_norm_gradient"]


SPECIAL = {
    "large": [[1000.0, 999.0, 0.0], [3.0, 2.0, 1.0]],
    "tiny": [[-1000.0, -1001.0, -1002.0], [3.0, 2.0, 1.0]],
    "masked": [[-np.inf, 1.0, 2.0], [3.0, -np.inf, 1.0]],
    "all masked": [[-np.inf, -np.inf, -np.inf], [3.0, 2.0, 1.0]],
    "infinite": [[np.inf, 1.0, 2.0], [3.0, 2.0, 1.0]],
    "nan": [[np.nan, 1.0, 2.0], [3.0, 2.0, 1.0]],
    "far apart": [[29.0, -200.0, 0.0], [-15.0, -16.0, -17.0]],
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("function", [ut.softmax, ut.log_softmax])
def test_special_numbers(function: Any, kind: str, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ut.tensor(SPECIAL[kind], dtype=ut.float32)
    with np.errstate(all="ignore"):
        got = function(x, -1).numpy()
        plainly(monkeypatch)
        np.testing.assert_allclose(got, function(x, -1).numpy(), rtol=2e-6, atol=1e-37)


def test_results_own_their_memory() -> None:
    """Or else a leaf would copy its gradient."""
    x = np.ones((3, 4, 5), np.float32)
    made = [
        row_kernels.softmax(x),
        row_kernels.softmax_gradient(x, x),
        row_kernels.layer_norm(x, 5, None, None, 1.0)[0],
        gelu.fast_gelu(x),
    ]
    assert [a.base for a in made] == [None] * 4 and {a.shape for a in made} == {(3, 4, 5)}


def test_no_rows_and_no_columns(small_blocks: None) -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        x = ut.ones(shape, requires_grad=True)
        ut.softmax(x, -1).sum().backward()
        assert x.grad.shape == shape
    assert ut.gelu(ut.ones(0)).shape == (0,)


def test_a_gradient_that_is_no_contiguous_array(small_blocks: None) -> None:
    for function in (lambda x: ut.softmax(x, -1), ut.gelu, lambda x: ut.layer_norm(x, (4,))):
        x = ut.randn(3, 4, requires_grad=True)
        (mine,) = ut.autograd.grad(function(x), x, ut.ones(4, 3).T * 2)
        (theirs,) = ut.autograd.grad((function(x) * 2).sum(), x)
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


def test_a_mean_far_from_zero(small_blocks: None) -> None:
    x = ut.tensor(X + 300, dtype=ut.float32, requires_grad=True)
    exact = ut.tensor(x.detach().numpy().astype(np.float64), requires_grad=True)
    for t in (x, exact):
        (ut.layer_norm(t, (13,)) * ut.tensor(G, dtype=t.dtype)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), exact.grad.numpy(), atol=2e-3)


@pytest.mark.parametrize("low", [-6.0, -1e-3, -40.0])
def test_gelu_is_within_an_ulp_of_one(low: float, small_blocks: None) -> None:
    x = np.linspace(low, -low, 4001).astype(np.float32)
    exact = ut.tensor(x.astype(np.float64), requires_grad=True)
    single = ut.tensor(x, requires_grad=True)
    for t in (exact, single):
        ut.gelu(t).sum().backward()
    error = np.abs(ut.gelu(single).detach().numpy() - ut.gelu(exact).detach().numpy())
    assert (error <= 1.3e-7 * np.maximum(np.abs(x), 1e-6)).all()
    np.testing.assert_allclose(single.grad.numpy(), exact.grad.numpy(), atol=4e-7)


def random_rows(scale: float, shift: float) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((64, 600)) * scale + shift).astype(np.float32)


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (80, 0), (1, -60), (1, 1000), (1e4, 0)])
def test_softmax_of_large_and_tiny_numbers(scale: float, shift: float) -> None:
    x = random_rows(scale, shift)
    below = x.astype(np.float64) - x.max(1, keepdims=True)
    expected = np.exp(below) / np.exp(below).sum(1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ut.softmax(ut.tensor(x), -1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=3e-6, atol=1e-30)


def test_kernels_leave_the_settings_of_numpy_alone() -> None:
    before = np.getbufsize(), np.geterr()
    x = ut.tensor(random_rows(80, 0), requires_grad=True)
    ut.nn.functional.layer_norm(ut.softmax(x, -1), (600,)).sum().backward()
    assert (np.getbufsize(), np.geterr()) == before


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cumprod"])
def test_running_totals_keep_their_digits(name: str) -> None:
    """They are accumulated in float64; in float32 the last of them would be off by thousands of roundings."""
    near_one = np.random.default_rng(0).uniform(0.999, 1.001, 20_000)
    x = ut.tensor(near_one, dtype=ut.float32, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    for out in (getattr(x, name)(0), getattr(exact, name)(0)):
        out.sum().backward()
        last = out if out.dtype == ut.float64 else out.double()
    assert (getattr(x, name)(0).double() / last - 1).abs().max().item() < 1e-7
    if name == "cumsum":
        assert ut.equal(x.grad, exact.grad.float())
