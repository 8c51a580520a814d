"""The core's elementary functions: how far from the truth they are, at the edges too, wherever a number lies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.compiled import core

pytestmark = [
    pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]

#: the largest error, in units in the last place (docs/compiled-core.md)
ULP = {"exp": 1.1, "expm1": 2.0, "logistic": 2.4, "cosh": 1.6, "sinh": 1.8, "tanh": 1.5, "log": 1.0, "log2": 1.8,
       "log1p": 1.2, "log1p_of_exp": 2.0, "direction": 0.1, "sin": 2.4, "cos": 2.4, "arctan": 2.7,
       "exp2": 1.1, "sqrt": 0.501}  # fmt: skip

FUNCTIONS = {} if core is None else core.make_functions()


def logistic(x: Any) -> Any:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


#: what NumPy has no function for
OWN: dict[str, Callable[..., Any]] = {
    "logistic": logistic,
    "log1p_of_exp": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "direction": lambda x: (x > 0) * np.ones_like(x) - (x < 0),
}


def exact(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = OWN[name] if name in OWN else getattr(np, name)
    return found


def numbers(name: str, dtype: str) -> Any:
    """Numbers of all sizes for which the function is finite."""
    rng, count = np.random.default_rng(3), 20_000
    reach = (
        {"f": 88, "d": 709}[dtype]
        if name in ("exp", "exp2", "expm1", "logistic", "cosh", "sinh", "log1p_of_exp")
        else 90_000
    )
    small = 10.0 ** rng.uniform(-44 if dtype == "f" else -320, 0, count)
    signs = rng.choice([-1, 1], count)
    found = [rng.standard_normal(count), rng.uniform(-reach, reach, count), small * signs, rng.uniform(-2, 2, count)]
    if name in ("log", "log2", "sqrt"):
        found = [np.abs(part) for part in found] + [10.0 ** rng.uniform(0, 38 if dtype == "f" else 307, count)]
    if name == "log1p":
        found = [np.abs(part) for part in found] + [rng.uniform(-1, 0, count) * 0.99999, -small * 0.99999]
    return np.concatenate(found).astype(dtype)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="there are no longer numbers here to compare with")
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", ULP)
def test_errors(name: str, dtype: str) -> None:
    x = numbers(name, dtype)
    x = x[np.isfinite(exact(name)(x.astype(np.longdouble)).astype(dtype))]
    found, truth = FUNCTIONS[name](x), exact(name)(x.astype(np.longdouble))
    error = np.abs(found.astype(np.longdouble) - truth) / np.spacing(np.abs(truth.astype(dtype)))
    assert np.max(error) < ULP[name], (x[np.argmax(error)], np.max(error))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", ULP)
def test_edges(name: str, dtype: str) -> None:
    limits = np.finfo(dtype)
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, -limits.max, limits.tiny, limits.smallest_subnormal,
                  -limits.smallest_subnormal, 1, -1, 1e6, -1e6], dtype)  # fmt: skip
    with np.errstate(all="ignore"):
        found, expected = FUNCTIONS[name](x), exact(name)(x.astype(np.longdouble)).astype(dtype)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = np.isfinite(expected)
    assert np.all(np.abs(found[finite] - expected[finite]) <= 3 * np.spacing(np.abs(expected[finite])))
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))


def test_error_function() -> None:
    math = pytest.importorskip("math")
    x = np.random.default_rng(1).uniform(-6, 6, 5000)
    truth = np.array([math.erf(v) for v in x.astype("f").astype("d").tolist()])
    error = np.abs(FUNCTIONS["error_function"](x.astype("f")) - truth) / np.spacing(np.abs(truth).astype("f"))
    assert np.max(error) < 2.6
    x = np.concatenate([x, np.random.default_rng(2).uniform(-1.5, 1.5, 5000), 10.0 ** np.arange(-320.0, 0, 0.5)])
    truth = np.array([math.erf(v) for v in x.tolist()])  # the C library's: below one unit itself
    error = np.abs(FUNCTIONS["error_function"](x) - truth) / np.spacing(np.abs(truth))
    assert np.max(error) <= 2
    for dtype in "fd":
        edges = FUNCTIONS["error_function"](np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 7, -1e300], dtype))
        np.testing.assert_array_equal(edges, [0, 0, 1, -1, np.nan, 1, -1])
        assert np.signbit(edges[1])


def test_powers() -> None:
    rng = np.random.default_rng(2)
    x, y = (10.0 ** rng.uniform(-8, 8, 5000)).astype("f"), rng.uniform(-5, 5, 5000).astype("f")
    with np.errstate(all="ignore"):
        found, truth = cpu.power(x, y), np.power(x.astype("d"), y.astype("d"))
        same = np.isfinite(truth.astype("f"))
        error = np.abs(found[same] - truth[same]) / np.spacing(truth[same].astype("f"))
        assert np.max(error) < 0.51
        edges = np.array([0, -0.0, 1, -1, 2, -2, 0.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], "f")
        x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
        np.testing.assert_allclose(cpu.power(x, y), np.power(x, y), rtol=2e-7)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", [*ULP, "error_function"])
def test_a_value_does_not_depend_on_its_place(name: str, dtype: str) -> None:
    function = FUNCTIONS[name]
    x = np.abs(np.random.default_rng(4).standard_normal(1501).astype(dtype)) + np.finfo(dtype).tiny
    expected = function(x)
    assert function(x[1:])[40] == expected[41]
    np.testing.assert_array_equal(function(x[::-3]), expected[::-3])
    np.testing.assert_array_equal([function(v) for v in x[:70]], expected[:70])
    within = np.zeros((2, 1501), dtype)
    function(x, out=within[1])
    np.testing.assert_array_equal(within, [np.zeros_like(x), expected])
    function(x, out=x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("exp", 1e4, "overflow"),
        ("expm1", 1e4, "overflow"),
        ("sinh", -1e4, "overflow"),
        ("cosh", 1e4, "overflow"),
        ("log", 0, "divide by zero"),
        ("log2", 0, "divide by zero"),
        ("log1p", -1, "divide by zero"),
        ("log", -1, "invalid value"),
        ("log1p", -2, "invalid value"),
        ("sin", np.inf, "invalid value"),
        ("exp2", 1e4, "overflow"),
        ("sqrt", -1, "invalid value"),
        ("power", -2, "invalid value"),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 600])
def test_warnings_are_those_of_numpy(name: str, value: float, words: str, count: int) -> None:
    x = np.ones(count, "f")
    x[count // 2] = value
    operands = [x, np.float32(0.5)] if name == "power" else [x]
    with pytest.warns(RuntimeWarning, match=f"{words} encountered in {name}"):
        FUNCTIONS[name](*operands)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=words):
        FUNCTIONS[name](*operands)


@pytest.mark.parametrize("name", [*ULP, "error_function"])
def test_no_warning_without_cause(name: str) -> None:
    x = np.linspace(0.01, 3, 700).astype("f")
    x[5], x[6] = np.nan, (np.inf if name not in ("sin", "cos") else 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FUNCTIONS[name](x)
        FUNCTIONS[name](x.astype("d"))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", ["maximum", "minimum", "power"])
def test_functions_of_two_numbers(name: str, dtype: str) -> None:
    ours, theirs = FUNCTIONS[name], getattr(np, name)
    if name == "power":  # in double: for float32 NumPy's vectors of 64 bytes are wrong at some infinities
        theirs = np.frompyfunc(lambda a, b: np.power(np.float64(a), np.float64(b)), 2, 1)
    x = np.tile(np.array([np.nan, 1, -1, 0, -0.0, np.inf, -np.inf, 2, 3, 0.7], dtype), 50)
    y = np.roll(x, 3)
    number = np.array(0.7, dtype)
    for a, b in [(x, y), (x, number), (number, x), (x[::2], y[::-2]), (x, np.array(np.nan, dtype))]:
        np.testing.assert_allclose(ours(a, b), theirs(a, b).astype(dtype), rtol=2e-7)
    z = np.abs(y[1:7].copy())
    np.testing.assert_array_equal(ours.accumulate(z), getattr(np, name).accumulate(z))
    np.testing.assert_array_equal(ours.reduce(z), getattr(np, name).reduce(z))
    if name != "power":
        np.testing.assert_array_equal(ours.reduce(x.reshape(50, 10), (0, 1)), theirs.reduce(x))
        np.testing.assert_array_equal(ours.accumulate(x), theirs.accumulate(x))
    within = x.copy()
    ours(within[:-1], within[1:], out=within[:-1])
    np.testing.assert_allclose(within[:-1], theirs(x[:-1], x[1:]).astype(dtype), rtol=2e-7)


@pytest.mark.parametrize("dtype", ["F", "D"])
def test_exp_of_complex_numbers(dtype: str) -> None:
    rng, count = np.random.default_rng(7), 5003
    z = (5 * rng.standard_normal(count) + 50j * rng.standard_normal(count)).astype(dtype)
    found, expected = FUNCTIONS["exp"](z), np.exp(z.astype(np.clongdouble))
    for part in ("real", "imag"):
        one, other = getattr(found, part), getattr(expected, part)
        assert np.max(np.abs(one - other) / np.spacing(np.abs(other.astype(one.dtype)))) < 4
    for piece in (slice(1), slice(33), slice(None, None, 3), slice(None, None, -1)):
        np.testing.assert_array_equal(FUNCTIONS["exp"](z[piece]), found[piece])
    sizes, turns = (0, -0.0, np.inf, -np.inf, np.nan, 100, 800, -800), (0.0, -0.0, np.inf, np.nan, 1, 1e6, 1e20)
    edges = np.array([complex(x, y) for x in sizes for y in turns], dtype)
    np.testing.assert_array_equal(FUNCTIONS["exp"](edges), np.exp(edges))
    zero = FUNCTIONS["exp"](np.array([complex(0, -0.0)], dtype))
    assert np.signbit(zero.imag)


@pytest.mark.parametrize("size", [12, 1200, 120_000])
@pytest.mark.parametrize("dtype", ["f", "d", "e"])
def test_powers_that_are_multiplied(dtype: str, size: int) -> None:
    """Of numbers of both signs, zeros, infinities, large and small ones; beside powers that are not multiplied."""
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e38, 1.5, -2.25, 1e-45]
    with np.errstate(all="ignore"):
        x = np.resize(np.concatenate([ends, np.random.default_rng(0).standard_normal(500)]), size).astype(dtype)
        for exponent in (3, 4, 5, 8, -1, -2, -3, -8, 9, 2.5, 3.0, -2.0):
            exact = np.power(x.astype(np.longdouble), exponent).astype(dtype)
            found = (ut.tensor(x) ** exponent).numpy()
            assert found.dtype == exact.dtype
            is_exact = (found == exact) | (np.isnan(found) & np.isnan(exact))
            away = np.abs(found - exact) / np.spacing(np.abs(exact))
            assert (is_exact | (away <= 2)).all(), exponent
        roots = (ut.tensor(x) ** -0.5).numpy()
        expected = (1 / np.sqrt(x.astype("d") + 0)).astype(dtype)
        np.testing.assert_allclose(roots, expected, rtol={"f": 2e-7, "d": 4e-16, "e": 1e-3}[dtype])


def test_powers_that_are_no_numbers_or_zero() -> None:
    """Between whole exponents: negative numbers have none, zeros have zero; infinities are the C library's."""
    x = np.tile(np.array([-3, -1e-40, -np.inf, -0.0, 0.0, 1e-40, 2, np.inf, np.nan], "f"), 20)
    for exponent in (1.5, -1.5, 0.375, np.inf, -np.inf, np.nan, 9.0, -9.0):
        with np.errstate(all="ignore"):
            found, wanted = cpu.power(x, np.float32(exponent)), np.power(x.astype("d"), exponent).astype("f")
        np.testing.assert_allclose(found, wanted, rtol=2e-7)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))
