"""The CPU backend's own versions of NumPy functions do what NumPy's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.backend import cpu

BROADCASTS = [
    ((), ()), ((), (3,)), ((), (2, 3)), ((3,), (3,)), ((3,), (2, 3)), ((1,), (4,)), ((2, 1), (2, 3)), ((1, 3), (2, 3)),
    ((2, 1), (4, 2, 3)), ((1, 1), (1, 1)), ((2, 1, 3), (5, 2, 4, 3)), ((3,), (0, 3)), ((1,), (0,)), ((0,), (0,)),
    ((0, 1), (0, 5)), ((1, 0), (4, 0)),
]  # fmt: skip

LAYOUTS = {
    "contiguous": lambda x: x,
    "reversed": lambda x: x[tuple([slice(None, None, -1)] * x.ndim)],
    "transposed": lambda x: x.T.copy().T,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
}


def some(shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "target"), BROADCASTS)
def test_broadcast_to(shape: tuple[int, ...], target: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](np.asarray(some(shape)))
    found, expected = cpu.broadcast_to(x, target), np.broadcast_to(x, target)
    np.testing.assert_array_equal(found, expected)
    assert (found.dtype, found.shape, found.flags.writeable) == (expected.dtype, expected.shape, False)


@pytest.mark.parametrize(("shape", "target"), [((3,), (2,)), ((3,), ()), ((2, 3), (3,)), ((2,), (2, 3)), ((3,), (-1,)),
                                               ((), (-1,)), ((1,), (-2,)), ((0,), (3,))])  # fmt: skip
def test_broadcast_to_refuses_what_numpy_refuses(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="broadcast|negative|more dimensions"):
        cpu.broadcast_to(np.zeros(shape), target)


def test_broadcast_to_takes_numpy_scalars() -> None:
    np.testing.assert_array_equal(cpu.broadcast_to(np.float32(2), (2, 2)), np.full((2, 2), 2, np.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.int64])
@pytest.mark.parametrize(("shape", "target"), [(t, s) for s, t in BROADCASTS] + [((4100, 2), (2,)), ((7, 3), (1,))])
def test_sum_to(shape: tuple[int, ...], target: tuple[int, ...], dtype: Any, layout: str) -> None:
    x = LAYOUTS[layout](np.asarray(some(shape, dtype)))
    lead = tuple(range(x.ndim - len(target)))
    expected = x.sum(axis=lead, dtype=np.complex128)
    ones = tuple(i for i, n in enumerate(target) if n == 1)
    expected = expected.sum(axis=ones, keepdims=True)
    found = cpu.sum_to(x, target)
    assert type(found) is np.ndarray and found.shape == target and found.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0.5 if dtype is np.float16 else 1e-4)


def test_conj_copies_nothing_real() -> None:
    real, half, complex_ = some((3,)), some((3,), np.float16), some((3,), np.complex64) * 1j
    assert cpu.conj(real) is real and cpu.conj(half) is half and cpu.conj(2.0) == 2.0
    np.testing.assert_array_equal(cpu.conj(complex_), np.conj(complex_))
    assert cpu.conj(1 + 2j) == 1 - 2j
