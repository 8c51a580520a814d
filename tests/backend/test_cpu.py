"""The CPU's own versions of NumPy functions: faster, or the transpose of something NumPy has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.backend import cpu

SIZES = st.lists(st.integers(0, 3), max_size=4)


@given(SIZES, st.data())
def test_sum_to_is_the_transpose_of_broadcasting(shape: list[int], data: Any) -> None:
    """<broadcast(x), y> == <x, sum_to(y)> for every pair of shapes that broadcasts."""
    small = [data.draw(st.sampled_from([1, n])) for n in shape[data.draw(st.integers(0, len(shape))) :]]
    random = np.random.default_rng(0)
    x, y = random.integers(-5, 5, small).astype(float), random.integers(-5, 5, shape).astype(float)
    back = cpu.sum_to(y, tuple(small))
    assert back.shape == x.shape and isinstance(back, np.ndarray)
    assert (np.broadcast_to(x, shape) * y).sum() == (x * back).sum()


def test_sum_to_of_the_same_shape_copies_nothing() -> None:
    x = np.ones((2, 3))
    assert cpu.sum_to(x, (2, 3)) is x


@given(SIZES)
def test_broadcast_to_is_numpys(shape: list[int]) -> None:
    for x in (np.array(3.0), np.ones(1), np.float64(2)):
        if x.ndim <= len(shape):
            ours, numpys = cpu.broadcast_to(x, tuple(shape)), np.broadcast_to(x, tuple(shape))
            assert ours.shape == numpys.shape and ours.dtype == numpys.dtype and np.array_equal(ours, numpys)
            assert not ours.flags.writeable


def test_broadcast_to_keeps_the_memory_alive() -> None:
    big = cpu.broadcast_to(np.array(7.0), (1000,))
    np.full(1000, 3.0)
    assert (big == 7).all()


@pytest.mark.parametrize("shape", [(-1,), (2, -1)])
def test_broadcast_to_refuses_negative_sizes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        cpu.broadcast_to(np.array(1.0), shape)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool", "complex64", "complex128"])
def test_conj(dtype: str) -> None:
    x = np.ones(2, dtype) if dtype != "complex64" else np.array([1 + 2j, 3], dtype)
    assert np.array_equal(cpu.conj(x), np.conj(x)) and cpu.conj(x).dtype == x.dtype
    if x.dtype.kind != "c":
        assert cpu.conj(x) is x, "a real array is not copied"


@pytest.mark.parametrize("number", [1, 2.5, True, 1 + 2j, np.float32(3), np.complex128(1j)])
def test_conj_of_numbers(number: Any) -> None:
    assert cpu.conj(number) == np.conj(number)
