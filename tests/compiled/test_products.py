"""Products of large matrices: with several threads the core's own, the same numbers for any number of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import large_arrays
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

#: whether the core computes products with one thread, too
ONE_THREAD_TOO = core is not None and core.is_ahead_of_blas()

RNG = np.random.default_rng(3)

#: rows, elements of the sums, columns: tiles and panels that are full or not, sums that are divided, narrow results
SIZES = ((96, 96, 96), (100, 300, 70), (150, 257, 65), (17, 2000, 29), (301, 64, 600), (48, 1024, 200), (9000, 3, 17),
         (20, 5000, 4), (1, 600, 700), (700, 600, 1))  # fmt: skip


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Small products are the core's, too."""
    before = core.set_small_product(1 << 18)
    yield
    core.set_small_product(before)
    ut.set_num_threads(ut.get_num_threads())


def laid_out(rows: int, columns: int, dtype: str, layout: str) -> Any:
    if layout == "apart":
        return RNG.standard_normal((2 * rows, 3 * columns)).astype(dtype)[::-2, ::3]
    return np.asarray(RNG.standard_normal((rows, columns)).astype(dtype), order=layout)


def product(a: Any, b: Any, threads: int) -> Any:
    core.set_threads(threads)
    out = np.full((*a.shape[:-1], b.shape[-1]), np.nan, a.dtype)
    assert core.matrix_product(a, b, out)
    return out


@pytest.mark.parametrize(("dtype", "tolerance"), [("f", 1e-5), ("d", 1e-13)])
def test_products(dtype: str, tolerance: float) -> None:
    for (rows, elements, columns), layouts in itertools.product(
        SIZES, itertools.product(("C", "F", "apart"), repeat=2)
    ):
        a, b = laid_out(rows, elements, dtype, layouts[0]), laid_out(elements, columns, dtype, layouts[1])
        found = product(a, b, 2)
        exact = a.astype("d") @ b.astype("d")
        np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance * (1 + elements**0.5))
        for threads in (3, 5):
            np.testing.assert_array_equal(product(a, b, threads), found)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f", 1e-5), ("d", 1e-13)])
@pytest.mark.parametrize("layout", ["C", "F", "apart"])
def test_a_left_factor_that_is_packed_once(dtype: str, tolerance: float, layout: str) -> None:
    for rows, elements, columns in (*SIZES, (512, 300, 16), (24, 7, 32), (13, 600, 8), (1, 1, 1)):
        a = laid_out(rows, elements, dtype, layout)
        packed = core.packed_rows(a)
        for threads in (1, 3):
            core.set_threads(threads)
            b, out = laid_out(elements, columns, dtype, "C"), np.full((rows, columns), np.nan, dtype)
            assert core.packed_product(packed, b, out)
            np.testing.assert_allclose(out, a.astype("d") @ b, rtol=0, atol=tolerance * (1 + elements**0.5))


def test_what_cannot_be_packed_once() -> None:
    a, b, out = np.ones((9, 8), "f"), np.ones((8, 7), "f"), np.empty((9, 7), "f")
    for other in (a[:0], a[0], a[None], a.astype("F"), a.astype(">f4"), a.astype("i"), None):
        assert core.packed_rows(other) is None
    packed = core.packed_rows(a)
    assert core.packed_product(packed, b, out)
    read_only = out.copy()
    read_only.flags.writeable = False
    for right, target in ((b[:5], out), (b[:, :5], out), (b.astype("d"), out), (b, out.astype("d")), (b, out[None]),
                          (b, np.empty((30, 7), "f")), (b, out[::2]), (b, read_only)):  # fmt: skip
        assert core.packed_product(packed, right, target) is None
    assert core.packed_product(packed[:-1], b, out) is None


@pytest.mark.parametrize("sizes", [(1, 1100, 9000), (9000, 1100, 2), (3, 30, 17000)])
def test_factors_that_are_packed_in_turns(sizes: tuple[int, int, int]) -> None:
    a, b = laid_out(*sizes[:2], "f", "C"), laid_out(*sizes[1:], "f", "C")
    found = product(a, b, 2)
    np.testing.assert_allclose(found, a @ b, rtol=0, atol=4e-4)
    np.testing.assert_array_equal(product(a, b, 5), found)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_stacks(dtype: str) -> None:
    core.set_threads(3)
    a, b = (RNG.standard_normal(shape).astype(dtype) for shape in ((2, 3, 70, 80), (2, 3, 90, 80)))
    turned = b.swapaxes(-1, -2)
    cases = (
        (a, turned),
        (a[0], turned[0]),
        (a[0, 0], turned[0]),
        (a[:, :1], turned),
        (a.swapaxes(0, 1), turned.swapaxes(0, 1)),
    )
    many = RNG.standard_normal((60, 70, 80)).astype(dtype), RNG.standard_normal((60, 80, 70)).astype(dtype)
    for x, y in (*cases, many):
        np.testing.assert_allclose(large_arrays.matmul(x, y), np.matmul(x, y), rtol=0, atol=1e-4)


def test_infinite_and_undefined_numbers_stay_in_their_rows_and_columns() -> None:
    a, b = np.ones((101, 70), "f"), np.ones((70, 99), "f")
    a[3, 5], a[100, 0], b[2, 7], b[69, 98] = np.inf, np.nan, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product(a, b, 4), a @ b)


def test_what_is_left_to_a_blas() -> None:
    a, b = np.ones((90, 80), "f"), np.ones((80, 70), "f")
    out = np.empty((90, 70), "f")
    core.set_threads(1)
    assert core.matrix_product(a, b, out) == ONE_THREAD_TOO  # a single thread
    core.set_threads(2)
    assert core.matrix_product(a, b, out)
    read_only = out.copy()
    read_only.flags.writeable = False
    assert not core.matrix_product(a, b, read_only)
    assert not core.matrix_product(a, b, np.empty((70, 90), "f").T)
    assert not core.matrix_product(a, b, np.empty((90, 71), "f"))
    assert not core.matrix_product(a, a, out)
    assert not core.matrix_product(a[:50], b, np.empty((50, 70), "f")[:, :60])
    assert not core.matrix_product(a.astype("d"), b, out)
    assert not core.matrix_product(a.astype("F"), b.astype("F"), out.astype("F"))
    assert not core.matrix_product(a.astype(">f4"), b, out)
    assert not core.matrix_product(a[:9, :9], b[:9, :9], np.empty((9, 9), "f"))  # little to do
    column = np.ones((80, 1), "f")
    assert not core.matrix_product(a, column, np.empty((90, 1), "f"))  # less to do than to pack
    assert not core.matrix_product(a[:, :0], b[:0], out)  # nothing to add


def test_linear_layers_with_few_rows_leave_the_threads_of_a_blas_alone() -> None:
    x, weight = np.sin(np.arange(32 * 784.0, dtype="f")).reshape(32, 784), np.cos(np.arange(128 * 784.0, dtype="f"))
    weight = weight.reshape(128, 784)
    core.set_threads(2)
    expected = np.empty((32, 128), "f")
    assert core.matrix_product(x, weight.T, expected)
    assert (expected != x @ weight.T).any()  # a BLAS adds in another order
    found = ut.nn.functional.linear(ut.from_numpy(x), ut.from_numpy(weight))
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", ["f", "d", "F", "e"])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_nothing_are_zeros(dtype: str, threads: int) -> None:
    core.set_threads(threads)
    for shapes in (((90, 0), (0, 70)), ((3, 90, 0), (0, 70)), ((3, 90, 0), (3, 0, 70)), ((90, 0), (3, 0, 70))):
        a, b = [ut.tensor(np.zeros(s, dtype), requires_grad=True) for s in shapes]
        for call in (ut.matmul, lambda a, b: ut.einsum("...ij,...jk->...ik", a, b)):
            used = [ut.full((3, 90, 70), 7.0, dtype=a.dtype) for _ in range(4)]
            del used  # its memory is free next, and is not all zeros
            out = call(a, b)
            assert out.shape[-2:] == (90, 70) and not out.any()
            assert [g.shape for g in ut.autograd.grad(out.real.sum(), (a, b))] == list(shapes)


@pytest.mark.skipif(not ONE_THREAD_TOO, reason="a BLAS is as quick on this processor")
@pytest.mark.parametrize("sizes", [(70, 300, 65), (64, 20_000, 64), (5000, 60, 40), (48, 7000, 48)])
def test_a_single_thread_adds_in_the_same_order(sizes: tuple[int, int, int]) -> None:
    a, b = laid_out(*sizes[:2], "f", "C"), laid_out(*sizes[1:], "f", "F")
    np.testing.assert_array_equal(product(a, b, 1), product(a, b, 3))


def test_gradients_through_large_products() -> None:
    found = []
    for threads in (1, 3):
        core.set_threads(threads)
        ut.manual_seed(0)
        layer, x = ut.nn.Linear(120, 90), ut.randn(4, 30, 120, requires_grad=True)
        (layer(x) @ layer(x).mT).sin().sum().backward()
        found.append([x.grad, layer.weight.grad, layer.bias.grad])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-3)
