"""The kernels of the compiled core compute what the formulas say, in double precision; and refuse what they must."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.backend import cpu, kernels
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

ALL = (True, True, True)
#: how far apart results may be, over the largest of them
TOLERANCE = {"f": 3e-6, "d": 1e-13}
#: one row, one column, fewer than a vector holds, no multiple of it, more than a block
SIZES = [(1, 1), (1, 5), (5, 1), (3, 8), (7, 33), (40, 64), (65, 100), (2, 5000)]


def random(seed: int, *shape: int, dtype: str = "f", shift: float = 0.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) + shift).astype(dtype)


def assert_close(found: Any, exact: Any, dtype: str, times: float = 1.0) -> None:
    assert found.dtype == dtype
    assert found.shape == exact.shape
    assert found.base is None  # or else a leaf would copy its gradient
    scale = max(1.0, float(np.abs(exact).max(initial=0)))
    np.testing.assert_allclose(found, exact, rtol=0, atol=TOLERANCE[dtype] * scale * times)


# ------------------------------------------------------------------ rows


def exact_rows(x: Any, g: Any, weight: Any, bias: Any, dims: int, eps: float, centred: bool) -> tuple[Any, ...]:
    """Value, mean, rstd, and the gradients of x, weight and bias."""
    x, g = x.astype("d"), g.astype("d")
    weight, bias = (np.float64(default) if t is None else t.astype("d") for t, default in ((weight, 1), (bias, 0)))
    axes, lead = tuple(range(x.ndim - dims, x.ndim)), tuple(range(x.ndim - dims))
    mean = x.mean(axes, keepdims=True) if centred else np.zeros_like(x.mean(axes, keepdims=True))
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    unit, slope = (x - mean) * rstd, g * weight
    inner = slope - unit * (slope * unit).mean(axes, keepdims=True)
    inner = inner - slope.mean(axes, keepdims=True) if centred else inner
    return unit * weight + bias, mean, rstd, rstd * inner, (g * unit).sum(lead), g.sum(lead)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("shape", [*SIZES, (2, 3, 4), (2, 1, 3, 5)])
def test_rows(shape: tuple[int, ...], centred: bool, dtype: str) -> None:
    for dims in range(1, len(shape)):
        size = shape[len(shape) - dims :]
        x, g = random(1, *shape, dtype=dtype), random(2, *shape, dtype=dtype)
        for weight, bias in ((random(3, *size, dtype=dtype), random(4, *size, dtype=dtype)), (None, None)):
            exact = exact_rows(x, g, weight, bias, dims, 0.1, centred)
            out, mean, rstd = core.norm_rows(x, dims, weight, bias, 0.1, centred)
            assert_close(out, exact[0], dtype)
            assert_close(rstd, exact[2], dtype)
            assert mean is None or centred
            if centred:
                assert_close(mean, exact[1], dtype)
            gradients = core.norm_rows_gradient(g, x, dims, mean, rstd, weight, ALL)
            for found, expected in zip(gradients, exact[3:], strict=True):
                assert_close(found, expected, dtype, times=5)


@pytest.mark.parametrize("needs", [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)])
def test_only_gradients_that_are_needed(needs: tuple[bool, bool, bool]) -> None:
    x, g, w = random(1, 6, 9), random(2, 6, 9), random(3, 9)
    _, mean, rstd = core.norm_rows(x, 1, w, None, 1e-5, True)
    everything = core.norm_rows_gradient(g, x, 1, mean, rstd, w, ALL)
    found = core.norm_rows_gradient(g, x, 1, mean, rstd, w, needs)
    _, mean, rstd, _ = core.norm_channels(x, 0, w, None, 1e-5)
    everything += core.norm_channels_gradient(g, x, 0, mean, rstd, w, ALL)
    found += core.norm_channels_gradient(g, x, 0, mean, rstd, w, needs)
    for mine, all_of_them, wanted in zip(found, everything, needs * 2, strict=True):
        assert (mine is not None) == wanted
        assert not wanted or (mine == all_of_them).all()


@pytest.mark.parametrize("width", [16, 1024, 5000])
def test_a_large_mean_costs_no_digits(width: int) -> None:
    """The error is not above that of rows around zero, in single precision."""
    x, g, w = random(1, 64, width, shift=1000), random(2, 64, width), random(3, width)
    exact = exact_rows(x, g, w, None, 1, 1e-5, True)
    out, mean, rstd = core.norm_rows(x, 1, w, None, 1e-5, True)
    gradients = core.norm_rows_gradient(g, x, 1, mean, rstd, w, ALL)
    for found, expected in zip((out, *gradients), (exact[0], *exact[3:]), strict=True):
        assert np.abs(found - expected).max() <= 3e-6 * max(1.0, np.abs(expected).max())


def test_errors_are_not_above_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x, g, w, b = random(1, 256, 300, shift=1000), random(2, 256, 300), random(3, 300), random(4, 300)
    exact = exact_rows(x, g, w, b, 1, 1e-5, True)
    out, mean, rstd = core.norm_rows(x, 1, w, b, 1e-5, True)
    found = out, *core.norm_rows_gradient(g, x, 1, mean, rstd, w, ALL)
    x, g, w, b = map(torch.tensor, (x, g, w, b))
    out, mean, rstd = torch.native_layer_norm(x, (300,), w, b, 1e-5)
    theirs = out, *torch.ops.aten.native_layer_norm_backward(g, x, (300,), mean, rstd, w, b, ALL)
    for mine, other, expected in zip(found, theirs, (exact[0], *exact[3:]), strict=True):
        assert np.abs(mine - expected).max() <= np.abs(other.numpy() - expected).max()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_numbers_stay_in_their_row(special: float) -> None:
    x, g, w = random(1, 4, 21), random(2, 4, 21), random(3, 21)
    clean = core.norm_rows(x, 1, w, None, 1e-5, True)
    x[1, 7] = special
    out, mean, rstd = core.norm_rows(x, 1, w, None, 1e-5, True)
    assert np.isnan(out[1]).all()
    of_x = core.norm_rows_gradient(g, x, 1, mean, rstd, w, ALL)[0]
    assert np.isnan(of_x[1]).all()
    for row in (0, 2, 3):
        assert (out[row] == clean[0][row]).all()
        assert np.isfinite(of_x[row]).all()


def test_rows_that_are_constant() -> None:
    x = np.full((3, 100), 1000.1, "f")
    out, mean, rstd = core.norm_rows(x, 1, None, None, 1e-5, True)
    np.testing.assert_allclose(mean[:, 0], x[:, 0])
    np.testing.assert_allclose(rstd, 1 / math.sqrt(1e-5), rtol=1e-5)
    np.testing.assert_allclose(out, 0, atol=1e-5)


# ------------------------------------------------------------------ channels


def exact_channels(x: Any, g: Any, weight: Any, bias: Any, groups: int, eps: float) -> tuple[Any, ...]:
    """Value, mean, rstd, variance, and the gradients of x, weight and bias."""
    examples, channels = x.shape[:2]
    weight, bias = (np.full(channels, d) if t is None else t.astype("d") for t, d in ((weight, 1.0), (bias, 0.0)))
    split = (groups, channels // groups) if groups else (channels, 1)
    x, g = (t.astype("d").reshape(examples, *split, -1) for t in (x, g))
    weight, bias = (t.reshape(*split, 1) for t in (weight, bias))
    axes = (2, 3) if groups else (0, 2, 3)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(variance + eps)
    unit, slope = (x - mean) * rstd, g * weight
    inner = slope - slope.mean(axes, keepdims=True) - unit * (slope * unit).mean(axes, keepdims=True)
    statistics = [t.reshape((examples, groups) if groups else channels) for t in (mean, rstd, variance)]
    sums = [t.sum((0, 3)).reshape(channels) for t in (g * unit, g)]
    return unit * weight + bias, *statistics, rstd * inner, *sums


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 1), 0), ((7, 5), 0), ((33, 64), 0), ((100, 70), 0), ((65, 1024), 0), ((2, 3, 1), 0), ((4, 3, 5), 0),
     ((3, 4, 7, 9), 0), ((2, 2, 3000), 0), ((3, 4), 2), ((3, 4), 1), ((2, 6, 5), 3), ((2, 6, 5), 6), ((1, 8, 5, 7), 2),
     ((2, 2, 3000), 1)],
)  # fmt: skip
def test_channels(shape: tuple[int, ...], groups: int, dtype: str) -> None:
    x, g = random(1, *shape, dtype=dtype, shift=3), random(2, *shape, dtype=dtype)
    given = random(3, shape[1], dtype=dtype), random(4, shape[1], dtype=dtype)
    for weight, bias in (given, (None, None), (given[0], None)):
        exact = exact_channels(x, g, weight, bias, groups, 0.1)
        found = core.norm_channels(x, groups, weight, bias, 0.1)
        gradients = core.norm_channels_gradient(g, x, groups, found[1], found[2], weight, ALL)
        for mine, expected in zip((*found, *gradients), exact, strict=True):
            assert_close(mine, expected.reshape(mine.shape), dtype, times=5)


@pytest.mark.parametrize(("shape", "groups"), [((256, 40), 0), ((16, 3, 200), 0), ((4, 6, 100), 2)])
def test_channels_with_a_large_mean(shape: tuple[int, ...], groups: int) -> None:
    x, g, w = random(1, *shape, shift=1000), random(2, *shape), random(3, shape[1])
    exact = exact_channels(x, g, w, None, groups, 1e-5)
    found = core.norm_channels(x, groups, w, None, 1e-5)
    gradients = core.norm_channels_gradient(g, x, groups, found[1], found[2], w, ALL)
    for mine, expected in zip((found[0], *found[2:], *gradients), (exact[0], *exact[2:]), strict=True):
        assert np.abs(mine - expected.reshape(mine.shape)).max() <= 5e-6 * max(1.0, np.abs(expected).max())


def test_special_numbers_stay_in_their_channel() -> None:
    for shape in ((6, 4), (3, 4, 5)):
        x = random(1, *shape)
        x[(1, 2)] = np.nan
        out, mean, rstd, _ = core.norm_channels(x, 0, None, None, 1e-5)
        of_x = core.norm_channels_gradient(x, x, 0, mean, rstd, None, ALL)[0]
        for result in (out, of_x):
            assert np.isnan(result[:, 2]).all()
            assert np.isfinite(np.delete(result, 2, 1)).all()


# ------------------------------------------------------------------ gelu


def exact_gelu(x: Any, curve: bool) -> tuple[Any, Any]:
    """The value and the derivative."""
    if curve:
        x = x.astype(np.longdouble)
        root = np.sqrt(2 / np.longdouble(math.pi))
        p = 1 / (1 + np.exp(np.minimum(-2 * root * (x + 0.044715 * x**3), 700)))
        return x * p, p + x * p * (1 - p) * 2 * root * (1 + 3 * 0.044715 * x * x)
    x = x.astype("d")
    p = np.array([0.5 * math.erfc(-t * math.sqrt(0.5)) for t in x])
    return x * p, p + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("curve", [False, True])
@pytest.mark.parametrize("reach", [1e-3, 1.0, 1.3, 6.0, 14.0, 50.0])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_gelu(reach: float, curve: bool, dtype: str) -> None:
    x = np.linspace(-reach, reach, 5001).astype(dtype)
    value, slope = exact_gelu(x, curve)
    unit = np.finfo(dtype).eps
    error = np.abs(core.gelu(x, curve) - value)
    assert (error <= 1.5 * unit * np.abs(x)).all()
    assert (error <= 2.5 * unit * np.abs(value))[x > 0].all()
    assert np.abs(core.gelu_gradient(np.ones_like(x), x, curve) - slope).max() <= 25 * unit


@pytest.mark.parametrize("curve", [False, True])
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_gelu_of_special_numbers(curve: bool, dtype: str) -> None:
    x = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1e30, -1e30], dtype)
    np.testing.assert_array_equal(core.gelu(x, curve), np.array([np.nan, np.nan, np.inf, 0, 0, 1e30, 0], dtype))
    slopes = core.gelu_gradient(np.ones_like(x), x, curve)
    np.testing.assert_array_equal(slopes[[0, 3, 4]], np.array([np.nan, 0.5, 0.5], dtype))


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 31, 100])
def test_gelu_of_any_number_of_elements(count: int) -> None:
    x, g = random(1, count), random(2, count)
    value, slope = exact_gelu(x, False)
    assert_close(core.gelu(x, False), value, "f")
    assert_close(core.gelu_gradient(g, x, False), g * slope, "f")


# ------------------------------------------------------------------ scores


@pytest.mark.parametrize(("dtype", "low"), [("f", -86.9), ("d", -707.0)])
def test_exponentials_are_within_two_units_in_the_last_place(dtype: str, low: float) -> None:
    x = np.concatenate([np.linspace(low, 0, 20001), np.linspace(-1, 0, 5001), [0.0]]).astype(dtype)[None]
    exact = np.exp(x.astype(np.longdouble))
    core.weigh_scores(x, 1.0, -1, np.zeros(1, dtype))
    assert (np.abs(x - exact) <= 2 * np.spacing(exact.astype(dtype))).all()
    assert x[0, -1] == 1


def test_exponentials_of_very_small_and_special_numbers() -> None:
    for dtype in "fd":
        x = np.array([[-1e4, -np.inf, np.nan, -1e38]], dtype)
        core.weigh_scores(x, 1.0, -1, np.zeros(1, dtype))
        np.testing.assert_array_equal(x, np.array([[0, 0, np.nan, 0]], dtype))


def exact_softmax(x: Any, scale: float, first: int) -> tuple[Any, Any]:
    x = x.astype("d") * scale
    if first >= 0:
        x = np.where(np.tri(*x.shape[-2:], first, dtype=bool), x, -np.inf)
    most = x.max(-1, keepdims=True)
    total = np.exp(x - most).sum(-1, keepdims=True)
    return np.exp(x - most) / total, (most + np.log(total))[..., 0]


@rows("dtype", ["f", "d"])
@rows("first", [-1, 0, 3])
@rows("scale", [0.3, -2.0, 40.0])
@rows("shape", [(1, 1), (4, 7), (5, 40), (3, 6, 100), (2, 2, 33, 32)])
def test_scores(shape: tuple[int, ...], scale: float, first: int, dtype: str) -> None:
    x, g = random(1, *shape, dtype=dtype), random(2, *shape, dtype=dtype)
    exact, exact_logs = exact_softmax(x, scale, first)
    weights = x.copy()
    logs = core.softmax_scores(weights, scale, first)
    assert_close(weights, exact, dtype, times=10)
    assert_close(logs, exact_logs, dtype)
    again = x.copy()
    assert core.weigh_scores(again, scale, first, logs) is True
    assert_close(again, exact, dtype, times=10)
    slopes = g.copy()
    assert core.slope_scores(slopes, scale, weights) is True
    assert_close(slopes, scale * exact * (g - (g * exact).sum(-1, keepdims=True)), dtype, times=10)


def test_scores_of_infinity() -> None:
    x = np.array([[-np.inf, 1.0, 2.0], [-np.inf, -np.inf, -np.inf], [np.nan, 1.0, 2.0], [0.0, 1.0, 2.0]], "f")
    with np.errstate(all="ignore"):
        exact, _ = exact_softmax(x, 1.0, -1)
    exact[1] = 0  # attention to nothing
    core.softmax_scores(x, 1.0, -1)
    np.testing.assert_allclose(x, exact, rtol=1e-6)


# ------------------------------------------------------------------ softmax


@rows("dtype", ["f", "d"])
@rows(("factor", "shift"), [(1.0, 0.0), (30.0, 0.0), (1.0, 1e4), (1.0, -1e4)])
@rows("shape", [(1,), (7,), *SIZES, (2, 3, 37)])
def test_softmax(shape: tuple[int, ...], factor: float, shift: float, dtype: str) -> None:
    x, g = (random(1, *shape) * factor + shift).astype(dtype), random(2, *shape, dtype=dtype)
    logs = x.astype("d") - x.max(-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    exact = np.exp(logs)
    assert_close(core.softmax_rows(x), exact, dtype)
    assert_close(core.log_softmax_rows(x), logs, dtype)
    slopes = exact * (g - (g * exact).sum(-1, keepdims=True)), g - exact * g.astype("d").sum(-1, keepdims=True)
    assert_close(core.softmax_rows_gradient(g, exact.astype(dtype)), slopes[0], dtype)
    assert_close(core.log_softmax_rows_gradient(g, logs.astype(dtype)), slopes[1], dtype, times=10)


def test_softmax_of_a_long_row() -> None:
    """Its sum is not lost in the digits of single precision."""
    x = np.zeros((1, 3_000_000), "f")
    np.testing.assert_allclose(core.softmax_rows(x), 1 / x.size, rtol=3e-7)
    np.testing.assert_allclose(core.log_softmax_rows(x), -math.log(x.size), rtol=3e-7)


@pytest.mark.parametrize("place", [0, 5, 40])
def test_softmax_of_special_numbers(place: int) -> None:
    x = random(1, 2, 41)
    x[0, place] = np.nan
    for found in (core.softmax_rows(x), core.log_softmax_rows(x)):
        assert np.isnan(found[0]).all()
        assert np.isfinite(found[1]).all()
    x[0, place] = -np.inf
    assert core.softmax_rows(x)[0, place] == 0
    assert core.log_softmax_rows(x)[0, place] == -np.inf


@pytest.mark.parametrize("row", [[np.inf, 1.0], [-np.inf, -np.inf]])
def test_infinite_rows_are_left_to_numpy(row: list[float]) -> None:
    x = np.array([[1.0, 2.0], row], "f")
    assert core.softmax_rows(x) is None
    assert core.log_softmax_rows(x) is None
    large = ut.tensor(np.tile(x, (10000, 1)))
    with np.errstate(invalid="raise"):
        assert np.isnan(ut.softmax(large, -1).numpy()[1]).any()


def test_exponentials_of_large_numbers() -> None:
    """A result of log_softmax is never above zero, but any array may be taken for one."""
    for dtype in "fd":
        y = np.array([[1.0, 50.0, 1e3, 88.0]], dtype)
        with np.errstate(over="ignore"):
            expected = 1 - np.exp(y.astype("d")).astype(dtype) * 4
        found = core.log_softmax_rows_gradient(np.ones_like(y), y)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


# ------------------------------------------------------------------ what they refuse


class Special(np.ndarray):
    """No exact array: it might do anything with what is written to it."""


def refused() -> list[Any]:
    x = random(1, 4, 6)
    return [x.T, x[:, ::2], x.astype("i"), x.astype(np.float16), x.astype("F"), x[:0], x.view(Special),
            x.astype(">f4"), 1.5, None, x.tolist()]  # fmt: skip


@pytest.mark.parametrize("number", range(len(refused())))
def test_other_arrays_are_left_to_numpy(number: int) -> None:
    x, good = refused()[number], random(1, 4, 6)
    assert core.norm_rows(x, 1, None, None, 1e-5, True) is None
    assert core.norm_channels(x, 0, None, None, 1e-5) is None
    assert core.gelu(x, False) is None
    assert core.softmax_scores(x, 1.0, -1) is None
    assert core.softmax_rows(x) is None
    assert core.log_softmax_rows_gradient(good, x) is None
    if x is not None:
        assert core.norm_rows(good, 1, x, None, 1e-5, True) is None
        assert core.norm_channels(good, 0, None, x, 1e-5) is None


def test_sizes_must_agree() -> None:
    x, short, column = random(1, 4, 6), random(1, 5), random(1, 4, 1)
    assert core.norm_rows(x, 1, short, None, 1e-5, True) is None
    assert core.norm_rows_gradient(x, x, 1, short, column, None, ALL) is None
    assert core.norm_rows_gradient(short, x, 1, column, column, None, ALL) is None
    assert core.norm_channels(x, 4, None, None, 1e-5) is None
    assert core.norm_channels(x, 0, short, None, 1e-5) is None
    assert core.gelu_gradient(short, x, False) is None
    assert core.weigh_scores(x, 1.0, -1, short) is None
    assert core.slope_scores(x, 1.0, short) is None
    assert core.norm_rows(x.astype("d"), 1, random(1, 6), None, 1e-5, True) is None


def test_numbers_must_be_numbers() -> None:
    x = random(1, 4, 6)
    for call in (
        lambda: core.norm_rows(x, 1, None, None, "eps", True),
        lambda: core.norm_channels(x, 0, None, None, "eps"),
        lambda: core.softmax_scores(x, "scale", -1),
    ):
        with pytest.raises(TypeError):
            call()


def test_a_gradient_need_not_be_contiguous() -> None:
    x, g = random(1, 5, 6), np.broadcast_to(np.float32(2), (5, 6))
    _, mean, rstd = core.norm_rows(x, 1, None, None, 1e-5, True)
    for function, *rest in ((core.norm_rows_gradient, x, 1, mean, rstd, None, ALL), (core.gelu_gradient, x, True)):
        for mine, theirs in zip(function(g, *rest), function(g.copy(), *rest), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_scores_that_may_not_be_written() -> None:
    x = random(1, 4, 6)
    x.flags.writeable = False
    assert core.softmax_scores(x, 1.0, -1) is None


def test_threads_do_not_disturb_each_other() -> None:
    inputs = [random(seed, 200, 300) for seed in range(4)]
    expected = [core.norm_channels(x, 0, None, None, 1e-5)[0] for x in inputs]
    found: list[Any] = [None] * 4

    def work(k: int) -> None:
        for _ in range(20):
            found[k] = core.norm_channels(inputs[k], 0, None, None, 1e-5)[0]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, exact in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, exact)


# ------------------------------------------------------------------ operations with and without them

RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal((3, 4, 6)), RNG.standard_normal(4), RNG.standard_normal(4)
ROW = RNG.standard_normal(6)

CALLS = {
    "layer_norm": lambda x, w, b: ut.layer_norm(x, (6,), ut.tensor(ROW, dtype=x.dtype) * w.sum(), None),
    "rms_norm": lambda x, w, b: ut.rms_norm(x, (6,), ut.tensor(ROW, dtype=x.dtype) * w.sum()),
    "rms_norm of two": lambda x, w, b: ut.rms_norm(x, (4, 6)),
    "batch_norm": lambda x, w, b: ut.batch_norm(x, None, None, w, b, True),
    "batch_norm of columns": lambda x, w, b: ut.batch_norm(x[:, :, 0] * 1, None, None, w, b, True),
    "group_norm": lambda x, w, b: ut.group_norm(x, 2, w, b),
    "instance_norm": lambda x, w, b: ut.instance_norm(x, None, None, w, b),
    "softmax": lambda x, w, b: ut.softmax(x, -1) * w.sum(),
    "log_softmax": lambda x, w, b: ut.log_softmax(x, 2),
    "softmax of dimension 1": lambda x, w, b: ut.softmax(x, 1),
    "gelu": lambda x, w, b: ut.gelu(x) * w.sum(),
    "gelu by tanh": lambda x, w, b: ut.gelu(x, approximate="tanh"),
    "attention": lambda x, w, b: ut.nn.functional.scaled_dot_product_attention(x, x * w.sum(), x + b.sum()),
    "causal attention": lambda x, w, b: ut.nn.functional.scaled_dot_product_attention(x, x * 2, x, is_causal=True),
}


def derivatives(name: str, dtype: Any) -> list[Any]:
    """The value, gradients, those of their squares, a directional derivative, and the examples one by one."""
    leaves = [ut.tensor(a, dtype=dtype, requires_grad=True) for a in (X, W, B)]
    out = CALLS[name](*leaves)
    seed = ut.tensor(np.cos(np.arange(out.numel())).reshape(out.shape), dtype=dtype)
    plain = ut.autograd.grad(out, leaves, seed, retain_graph=True, allow_unused=True)
    recorded = ut.autograd.grad(out, leaves, seed, create_graph=True, allow_unused=True)
    squares = sum((g * g).sum() for g in recorded if g is not None and g.requires_grad)
    second = ut.autograd.grad(squares, leaves, allow_unused=True)
    x, w, b = (t.detach() for t in leaves)
    _, tangent = ut.func.jvp(lambda x, w, b: CALLS[name](x, w, b), (x, w, b), (x * 0.5, w * w, b - 1))
    several = ut.func.vmap(CALLS[name], in_dims=(0, 1, None))(ut.stack([x, x * 2]), ut.stack([w, w + 1], 1), b)
    values = (out, *plain, *recorded, *second, tangent, several)
    return [None if t is None else t.detach().numpy() for t in values]


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
@pytest.mark.parametrize("name", CALLS)
def test_operations_agree(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_core = derivatives(name, dtype)
    monkeypatch.setattr(kernels, "core", None)
    for mine, theirs in zip(with_core, derivatives(name, dtype), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            scale = max(1.0, float(np.abs(theirs).max()))
            tolerance = (2e-5 if dtype is ut.float32 else 1e-12) * scale
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance)


def test_running_statistics_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved() -> list[Any]:
        found = []
        for norm in (ut.batch_norm, ut.instance_norm):
            mean, var = ut.zeros(4), ut.ones(4)
            norm(ut.tensor(X, dtype=ut.float32), mean, var, None, None, True, 0.3)
            found += [mean.numpy(), var.numpy()]
        return found

    with_core = moved()
    monkeypatch.setattr(kernels, "core", None)
    for mine, theirs in zip(with_core, moved(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)


def test_softmax_is_by_the_kernel_however_few_the_numbers() -> None:
    for shape in ((3, 4), (2, 50, 60)):
        x = ut.randn(*shape)
        assert ut.softmax(x, -1).numpy().tobytes() == core.softmax_rows(x.numpy()).tobytes()
        assert ut.log_softmax(x, -1).numpy().tobytes() == core.log_softmax_rows(x.numpy()).tobytes()
        doubled = core.softmax_rows(x.numpy().astype(np.float64))
        assert ut.softmax(x, -1, dtype=ut.float64).numpy().tobytes() == doubled.tobytes()


def test_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    class Spy:
        def __getattr__(self, name: str) -> Any:
            used.append(name)
            return getattr(core, name)

    x = ut.randn(100, 60, requires_grad=True)
    monkeypatch.setattr(kernels, "core", Spy())
    out = ut.softmax(ut.gelu(ut.batch_norm(ut.layer_norm(x, (60,)), None, None, training=True)), -1)
    (out * out).sum().backward()
    assert used == ["norm_rows", "norm_channels", "gelu", "gelu_gradient",
                    "norm_channels_gradient", "norm_rows_gradient"]  # fmt: skip


# ---- running sums


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(
    ("shape", "dim"), [((5000,), 0), ((70, 130), 1), ((130, 70), 0), ((9, 30, 41), 1), ((3, 600, 4), 2)]
)
def test_running_sums(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(dtype)
    expected = np.cumsum(x.astype(np.longdouble), dim)
    tolerance = 1e-5 if dtype == "f" else 1e-12
    np.testing.assert_allclose(core.running_sums(x, dim, False), expected, rtol=tolerance, atol=tolerance)
    reversed_ = np.flip(np.cumsum(np.flip(x.astype(np.longdouble), dim), dim), dim)
    np.testing.assert_allclose(core.running_sums(x, dim, True), reversed_, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("shape", "dim"), [((5000,), 0), ((70, 71), 0), ((70, 71), 1), ((3, 40, 300), 1)])
def test_running_products(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = (1 + np.random.default_rng(5).standard_normal(shape) / 20).astype(dtype)
    x.flat[1000] = 0
    expected = np.multiply.accumulate(x.astype("d"), dim).astype(dtype)
    np.testing.assert_allclose(core.running_products(x, dim), expected, rtol={"f": 1e-6, "d": 1e-12}[dtype])
    assert core.running_products(np.full(5000, 2, dtype), 0) is None  # too large


def test_running_sums_are_left_to_numpy() -> None:
    np.testing.assert_array_equal(core.running_sums(np.ones(3, "f"), 0, False), [1, 2, 3])  # few are not
    assert core.running_sums(np.ones((100, 100), "f").T, 0, False) is None
    assert core.running_sums(np.full(5000, 3e38, "f"), 0, False) is None
    assert core.running_sums(np.ones((100, 100), "f"), 2, False) is None


@pytest.mark.parametrize("dtype", ["f", "d"])
@rows("shape", [(1,), (7,), (3, 1), (9, 33), (33, 9), (2, 5, 300), (4, 0, 3), (17, 600)])
def test_products_of_others(shape: tuple[int, ...], dtype: str) -> None:
    for dim in range(len(shape)):
        x = random(3, *shape, dtype=dtype, shift=1.0)
        if x.size > 3:
            x.flat[1], x.flat[3] = 0, -0.0
        found = kernels.products_of_others(cpu, x, dim)
        if x.size == 0:
            assert found is None
            continue
        wide = x.astype("g")
        exact = np.stack([np.delete(wide, k, dim).prod(dim) for k in range(shape[dim])], dim)
        np.testing.assert_allclose(found, exact, rtol=1e-4 if dtype == "f" else 1e-11, atol=np.finfo(dtype).tiny)
        assert found.dtype == x.dtype


def test_what_has_no_products_of_others() -> None:
    x = random(1, 3, 4)
    for arguments in ((x, 2), (x, -1), (x, 1.0), (x.T, 0), (x.astype("i"), 0)):
        assert core.products_of_others(*arguments) is None
