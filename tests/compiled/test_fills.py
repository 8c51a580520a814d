"""Arrays of one number, which the core writes by threads: what NumPy writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.compiled import core

if core is None:
    pytest.skip("undertow was installed without a C compiler", allow_module_level=True)

threads = each_with(1, 3)

DTYPES = ["?", "b", "H", "i", "q", "e", "f", "d", "F", "D"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 5, 37, 70_001, 300_000])
def test_every_element_is_the_number(dtype: str, count: int) -> None:
    for number in (0, 1, 7, True, 2.5, -0.0):
        if isinstance(number, float) and np.dtype(dtype).kind not in "fc":
            continue
        expected = np.full(count, number, dtype)
        for found in (core.filled((count,), np.dtype(dtype), number), np.ones(count, dtype)):
            core.fill(found, number)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [3, 400])
def test_only_what_belongs_to_the_array_is_written(size: int) -> None:
    for part in (np.s_[:, ::2], np.s_[1:-1, 1:-1], np.s_[::-1], np.s_[1:2], np.s_[:, 1]):
        for order in "CF":
            whole, expected = np.zeros((size, size), "f", order), np.zeros((size, size), "f", order)
            core.fill(whole[part], 2.5)
            expected[part] = 2.5
            np.testing.assert_array_equal(whole, expected)


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(OverflowError):
        core.filled((3,), np.dtype("B"), 300)
    with pytest.raises(ValueError, match="written"):
        core.fill(np.broadcast_to(np.float32(0), (3,)), 1)
    with np.errstate(all="raise"):  # infinity is a result like others
        assert np.isinf(core.filled((3,), np.dtype("f"), 1e300)).all()
        assert np.isinf(core.filled((3,), np.dtype("e"), 1e300)).all()


def made(x: Any) -> list[Any]:
    y = ut.empty(x.shape, dtype=x.dtype)
    return [ut.zeros_like(x), ut.ones_like(x), ut.full_like(x, 3), ut.ones(x.shape, dtype=x.dtype), y.fill_(3),
            ut.full(x.shape, 3, dtype=x.dtype), x.new_ones(x.shape), ut.zeros_like(x, dtype=ut.int16),
            ut.empty_like(x).zero_()]  # fmt: skip


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64, ut.int64, ut.bool, ut.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (700, 300), (0, 2)])
def test_the_functions_that_fill(shape: tuple[int, ...], dtype: Any) -> None:
    x = ut.zeros(shape, dtype=dtype)
    for found, number in zip(made(x), (0, 1, 3, 1, 3, 3, 1, 0, 0), strict=True):
        np.testing.assert_array_equal(found.numpy(), np.full(shape, number, found.numpy().dtype))
    assert [t.dtype is dtype for t in made(x)] == [True] * 7 + [False, True]


def test_likenesses_keep_the_order_of_memory() -> None:
    x = ut.rand(4, 6).t()
    assert [f(x).stride() for f in (ut.zeros_like, ut.ones_like, ut.empty_like)] == [x.stride()] * 3
    with ut.inference_mode():
        assert ut.zeros_like(ut.ones(3)).is_inference()
    assert ut.zeros_like(ut.ones(3), requires_grad=True).requires_grad
