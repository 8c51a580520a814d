"""Numbers at random and at equal distances in the compiled core: those of the Python functions behind it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.compiled import core

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)

SIZES = [(), (0,), (1,), (7,), (15,), (16,), (3, 11), (2, 3, 4), (1300,), (40000,)]

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda f, s: f(s),
    "rand, sizes one by one": lambda f, s: f(*s) if s else f(s),
    "rand, a list": lambda f, s: f(list(s)),
    "randn": lambda f, s: f(s),
    "randint": lambda f, s: f(9, s),
    "randint, between": lambda f, s: f(-5, 6, list(s)),
    "randint, wide": lambda f, s: f(-(2**40), 2**40, s),
    "randint, of 28 bits": lambda f, s: f(2**28, s),
    "randint, the widest": lambda f, s: f(-(2**63), 2**63 - 1, s),
    "randint, one": lambda f, s: f(3, 4, s),
    "randperm": lambda f, s: f(math.prod(s)),
}

FILLS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform_": lambda f, x: f(x),
    "uniform_, between": lambda f, x: f(x, -3, 0.1),
    "uniform_, from below": lambda f, x: f(x, -2.5),
    "uniform_, in a point": lambda f, x: f(x, 2, 2),
    "uniform_, nearly one number": lambda f, x: f(x, 1.0, 1.0000002),
    "uniform_, very wide": lambda f, x: f(x, -2e38, 2e38),
    "normal_": lambda f, x: f(x),
    "normal_, of a mean": lambda f, x: f(x, 3),
    "normal_, of a deviation": lambda f, x: f(x, 0, 0.3),
    "normal_, of both": lambda f, x: f(x, -1e3, 1e-3),
    "normal_, a point": lambda f, x: f(x, 2.5, 0),
}


def from_seed(call: Callable[..., Any], function: Any, *args: Any) -> list[Any]:
    """What is drawn, twice, and what is drawn next."""
    ut.manual_seed(5)
    found = [call(function, *args) for _ in range(2)]
    return [
        *[f.numpy().copy() for f in found],
        ut.random.default_generator.get_state().numpy()[:5024],
        found[0]._version,
    ]


def compare(found: list[Any], expected: list[Any], exact: bool) -> None:
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(found[2], expected[2])
    assert found[3] == expected[3]


@rows(("name", "size"), [(name, size) for name in DRAWS for size in SIZES])
@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_new_numbers(name: str, size: tuple[int, ...], dtype: Any) -> None:
    function = ut.ops.REGISTRY[name.split(",")[0]].function
    before = ut.get_default_dtype()
    ut.set_default_dtype(dtype)
    try:
        compare(from_seed(DRAWS[name], function, size), from_seed(DRAWS[name], function.__wrapped__, size), True)
    finally:
        ut.set_default_dtype(before)


@rows(("name", "size"), [(name, size) for name in FILLS for size in SIZES])
@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_numbers_in_place(name: str, size: tuple[int, ...], dtype: Any) -> None:
    function = vars(ut.Tensor)[name.split(",")[0]]
    call = lambda f, size: FILLS[name](f, ut.empty(size, dtype=dtype))
    compare(from_seed(call, function, size), from_seed(call, function.__wrapped__, size), True)


def test_an_odd_normal_number_is_kept_for_the_next_call() -> None:
    ut.manual_seed(3)
    one_by_one = [ut.randn(1).item() for _ in range(6)]
    ut.manual_seed(3)
    assert [*ut.randn(1).tolist(), *ut.empty(3).normal_().tolist(), *ut.randn(2).tolist()] == one_by_one


@rows("name", ["uniform_", "normal_"])
def test_what_may_not_be_filled_or_not_with_that(name: str) -> None:
    fill = lambda x, *args: getattr(x, name)(*args)
    leaf = ut.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        fill(leaf)
    with pytest.raises(RuntimeError):
        fill(ut.ones(3), math.nan, math.nan)
    with pytest.raises((RuntimeError, NotImplementedError)):
        fill(ut.ones(3, dtype=ut.int64))
    with ut.no_grad():
        assert fill(leaf)._version == 1
    followed = fill(leaf * 2)
    followed.sum().backward()
    assert leaf.grad.tolist() == [0, 0, 0]
    transposed = ut.zeros(3, 2).t()
    assert fill(transposed) is transposed
    assert transposed.count_nonzero() == 6


def test_sizes_and_bounds_that_are_refused() -> None:
    for call in (
        lambda: ut.rand(-1),
        lambda: ut.randn((2, -1)),
        lambda: ut.randperm(-1),
        lambda: ut.randint(3, 3, (2,)),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: ut.rand(2.0), lambda: ut.rand(), lambda: ut.randint(3), lambda: ut.randint(3, 2)):
        with pytest.raises(TypeError):
            call()


def test_where_new_numbers_are_made() -> None:
    for make in (lambda: ut.rand(3), lambda: ut.randn(3), lambda: ut.randint(4, (3,)), lambda: ut.randperm(3)):
        with ut.device("meta"):
            assert make().device.type == "meta"
        drawn = ut.func.vmap(lambda x, make=make: x + make(), randomness="different")(ut.zeros(20))
        assert len({tuple(row) for row in drawn.tolist()}) > 1
    for make in (lambda: ut.arange(3), lambda: ut.linspace(0, 1, 3)):
        with ut.device("meta"):
            assert make().device.type == "meta"


RANGES = [
    (0,), (5,), (7.5,), (-0.0,), (2, 9), (9, 2, -2), (9, 2, -0.5), (0, 1, 0.1), (1, 2, 0.3), (0.1, 0.7, 0.2),
    (-3, 4, 3), (5, 5), (0, 2**31, 2**29), (2**31, 2**31 + 4), (2**60, 2**60 + 3), (-(2**53) - 1, -(2**53) + 2),
    (40000,), (0, 20000.5), (True,), (0, 10, 2.0), (1e9, 1e9 + 64, 7.3), (0, 1e-300, 1e-301),
]  # fmt: skip


@rows("bounds", RANGES)
@pytest.mark.parametrize("dtype", [ut.float32, ut.float64, ut.float16])
def test_arange(bounds: tuple[Any, ...], dtype: Any) -> None:
    function = ut.ops.REGISTRY["arange"].function
    before = ut.get_default_dtype()
    ut.set_default_dtype(dtype)
    try:
        found, expected = function(*bounds).numpy(), function.__wrapped__(*bounds).numpy()
    finally:
        ut.set_default_dtype(before)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@rows("bounds", [(0, 0, 0), (0, 3, -1), (3, 0, 1), (0.0, math.inf), (0, math.nan), (math.nan, 1)])
def test_ranges_that_are_refused(bounds: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError):
        ut.arange(*bounds)


@rows("bounds", [b for b in RANGES if len(b) == 3 and all(abs(n) < 2**53 for n in b)])
def test_ranges_of_other_dtypes(bounds: tuple[Any, ...]) -> None:
    """The kernel behind `dtype=` gives what NumPy does."""
    start, end, step = bounds
    for dtype in (np.float32, np.float64):
        expected = (start + step * np.arange(math.ceil((end - start) / step), dtype=np.float64)).astype(dtype)
        np.testing.assert_array_equal(ut.arange(*bounds, dtype=dtype).numpy(), expected)


@rows(
    "bounds",
    [(0, 1, 0), (0, 1, 1), (3, 1, 2), (0, 1, 7), (-2.5, 7, 10), (1, 0, 40001), (0.1, 0.1, 4), (-1e30, 1e30, 5)]
    + [(0, 2**60, 3), (0, math.inf, 3), (0, math.nan, 4)],
)
@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_linspace(bounds: tuple[Any, ...], dtype: Any) -> None:
    start, end, steps = bounds
    expected = np.full(steps, start, np.float64)
    if steps > 1:
        numbers, step, half = np.arange(steps, dtype=np.float64), (end - start) / (steps - 1), steps // 2
        with np.errstate(invalid="ignore"):
            expected[:half], expected[half:] = start + step * numbers[:half], end - step * (steps - 1 - numbers[half:])
    np.testing.assert_array_equal(
        ut.linspace(*bounds, dtype=dtype).numpy(), expected.astype(np.dtype(str(dtype).split(".")[-1]))
    )
    np.testing.assert_array_equal(ut.linspace(*bounds).numpy(), expected.astype(np.float32))


def test_ranges_are_the_same_with_any_number_of_threads() -> None:
    before = ut.get_num_threads()
    try:
        ut.set_num_threads(4)
        many = [ut.arange(2_000_000), ut.arange(0, 200_000.5, 0.1), ut.linspace(-1, 1, 2_000_001)]
        ut.set_num_threads(1)
        one = [ut.arange(2_000_000), ut.arange(0, 200_000.5, 0.1), ut.linspace(-1, 1, 2_000_001)]
    finally:
        ut.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(many, one, strict=True))
