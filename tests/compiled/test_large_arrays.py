"""Products of small matrices and Fourier transforms over stacks, by any number of threads: NumPy's numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.backend import cpu, large_arrays
from undertow.compiled import core
from undertow.ops.fourier.along_one_dim import transformed

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(7)


_threads = each_with(1, 2, 5)


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    imaginary = 1j * RNG.standard_normal(shape) if dtype in "FD" else 0
    return (RNG.standard_normal(shape) + imaginary).astype(dtype)


PRODUCTS = (
    ((64, 64, 32), (64, 32, 64)),
    ((4, 5, 20, 30), (5, 30, 17)),
    ((4, 1, 20, 30), (1, 5, 30, 17)),
    ((2, 60, 64), (2, 64, 66)),
    ((7, 20, 30), (30, 40)),
    ((9, 30, 0), (9, 0, 300)),
    ((0, 30, 20), (0, 20, 300)),
)


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_products(dtype: str) -> None:
    for shape, other in PRODUCTS:
        a, b = numbers(shape, dtype), numbers(other, dtype)
        for x, y in ((a, b), (a, b.swapaxes(-1, -2).copy().swapaxes(-1, -2)), (a[..., ::-1], b[..., ::-1, :])):
            found = large_arrays.matmul(x, y)
            assert_the_same(found, np.matmul(x, y))
            assert found.dtype == dtype
    a, b = numbers((70, 50), dtype), numbers((50, 70), dtype)
    assert_the_same(large_arrays.dot(a, b), a.dot(b))
    assert_the_same(large_arrays.dot(a, a.T), a.dot(a.T))


def assert_the_same(found: Any, numpys: Any) -> None:
    """Complex products are NumPy's; real ones may be the core's, which adds in another order."""
    tolerance = {"f": 2e-5, "d": 2e-14}.get(found.dtype.char, 0)
    np.testing.assert_allclose(found, numpys, rtol=0, atol=tolerance)


def test_what_is_no_stack_is_left_to_numpy() -> None:
    a, b, out = numbers((64, 64, 32), "f"), numbers((64, 32, 64), "f"), np.empty((64, 64, 64), "f")
    loop = large_arrays.loop_of(np.matmul, "ff->f")
    assert core.over_stacks(np.matmul, loop, (a, b, out), 1000.0)
    np.testing.assert_array_equal(out, a @ b)
    read_only = out.copy()
    read_only.flags.writeable = False
    for operands in (
        (a, b),
        (a, b, out.astype("d")),
        (a, b[:, :31], out),
        (a, b, out[:, :63]),
        (a, b[:63], out),
        (a, b, out[0]),
        (a[0, 0], b, out),
        (a, b, read_only),
        (a.astype(">f4"), b, out),
    ):
        assert core.over_stacks(np.matmul, loop, operands, 1000.0) is None
    for ufunc, number in ((np.matmul, -1), (np.matmul, 99), (np.add, 0), (len, 0)):
        assert core.over_stacks(ufunc, number, (a, b, out), 1000.0) is None
    with pytest.raises(ValueError, match=r"incompatible|mismatch|match"):
        large_arrays.matmul(a, b[:, :31])
    with pytest.raises(ValueError, match=r"broadcast|match"):
        large_arrays.matmul(a, b[:63])


SIGNALS = (((40, 512), 1), ((512, 40), 0), ((7, 64, 50), 1), ((3, 5), 1), ((1,), 0), ((130, 257), -1), ((20_000,), 0))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms(name: str) -> None:
    cases = itertools.product(SIGNALS, ("backward", "ortho", "forward"), "fd", "CF")
    for (shape, axis), norm, precision, order in cases:
        x = np.array(numbers(shape, precision if name == "rfft" else precision.upper()), order=order)
        for size in (None, 2 * shape[axis] - 1, 7) if name == "irfft" and shape[axis] > 1 else (None,):
            if name == "irfft" and size is None and shape[axis] == 1:
                continue
            expected = getattr(np.fft, name)(x, size, axis=axis, norm=norm)
            found = transformed(cpu, name, x, axis, norm, size)
            near = 2e-6 if precision == "f" else 1e-14
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=0, atol=near * max(1, np.abs(expected).max()))


def test_transforms_are_the_same_for_any_number_of_threads() -> None:
    x = numbers((64, 1000), "f")
    found = ut.fft.rfft(ut.tensor(x)).numpy()
    core.set_threads(1)
    np.testing.assert_array_equal(found, ut.fft.rfft(ut.tensor(x)).numpy())


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_biases(dtype: str) -> None:
    for shape in ((700, 33), (20, 30, 64), (20_000, 1)):
        rows, bias = numbers(shape, dtype), numbers(shape[-1:], dtype)
        expected = rows + bias
        assert core.add_bias(rows, bias) is True
        np.testing.assert_array_equal(rows, expected)
    rows = numbers((700, 33), dtype)
    before = rows.copy()
    read_only = rows.copy()
    read_only.flags.writeable = False
    bias = numbers((33,), dtype)
    for wrong in (
        (rows[:9], bias),
        (rows, bias[:32]),
        (rows.T, bias),
        (rows, rows[:1]),
        (read_only, bias),
        (rows, 1.0),
    ):
        assert core.add_bias(*wrong) is None
    assert core.add_bias(rows, bias.astype("fd"[dtype == "f"])) is None
    np.testing.assert_array_equal(rows, before)


def test_memory_is_kept() -> None:
    made = core.empty((300, 300), np.float32)
    assert made.shape == (300, 300)
    assert made.dtype == np.float32
    before = core.kept_memory()[0]
    del made
    assert core.kept_memory()[0] > before
    assert cpu.empty((2, 0), dtype="D").shape == (2, 0)
    for shape in ((-1,), (1 << 40, 1 << 40)):
        with pytest.raises(ValueError, match=r"negative|big"):
            core.empty(shape, np.float32)


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_columns_times_rows_need_no_blas(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, rows = numbers((8, 20, 1), dtype), numbers((8, 1, 130), dtype)
    expected = np.multiply(columns, rows)
    monkeypatch.setattr(np, "matmul", None)
    np.testing.assert_array_equal(large_arrays.matmul(columns, rows), expected)
    np.testing.assert_array_equal(large_arrays.dot(columns[0], rows[0]), expected[0])
