"""Slices and elements that an index names, of large arrays: taken, added and written by any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

RNG = np.random.default_rng(11)


_threads = each_with(1, 3)


def numbers(*shape: int, dtype: str = "f") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["?", "e", "f", "d", "D", "i"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices(dim: int, dtype: str) -> None:
    x = (numbers(9, 30, 40) * 3).astype(dtype)
    for shape in ((70,), (5, 30), (2, 0), ()):
        index = RNG.integers(0, x.shape[dim], shape)
        found = core.take(x, index, dim)
        expected = x.take(index, dim)
        if expected.nbytes < 1 << 17 or dim == 2:
            assert found is None
        else:
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == x.dtype


def test_indices_outside() -> None:
    x = numbers(1000, 100)
    for bad in (-1, 1000, 2**40, -(2**63)):
        index = np.arange(1000)
        index[777] = bad
        assert core.take(x, index, 0) is None
        assert core.gather(x, 0, np.repeat(index[:, None], 100, 1)) is None
        before = x.copy()
        assert core.scatter_add(x, 0, np.repeat(index[:, None], 100, 1), x.copy()) is None
        assert core.add_rows(x, index, x.copy()) is None
        np.testing.assert_array_equal(x, before)
        with pytest.raises(IndexError):
            ut.tensor(x).index_select(0, ut.tensor(index))
    np.testing.assert_array_equal(ut.tensor(x)[ut.arange(-1000, 0)].numpy(), x)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("shape", "dim"), [((300, 200), 0), ((300, 200), 1), ((4, 50, 300), 1), ((60_000,), 0)])
def test_elements(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = numbers(*shape, dtype=dtype)
    index = RNG.integers(0, shape[dim], [n // 2 if d == dim else n for d, n in enumerate(shape)])
    source = numbers(*index.shape, dtype=dtype)
    np.testing.assert_array_equal(core.gather(x, dim, index), np.take_along_axis(x, index, dim))
    added, written = x.copy(), x.copy()
    assert core.scatter_add(added, dim, index, source) is True
    assert core.scatter(written, dim, index, source) is True
    expected_sum, expected = np.moveaxis(x.copy(), dim, 0), np.moveaxis(x.copy(), dim, 0)
    places = [np.moveaxis(a, dim, 0) for a in (index, source)]
    others = np.indices(places[0].shape[1:])
    for at, values in zip(*places, strict=True):
        expected_sum[(at, *others)] += values
        expected[(at, *others)] = values
    np.testing.assert_array_equal(added, np.moveaxis(expected_sum, 0, dim))
    np.testing.assert_array_equal(written, np.moveaxis(expected, 0, dim))


@pytest.mark.parametrize("by", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize(("shape", "dim"), [((300, 200), 0), ((300, 20), 1), ((4, 50, 300), 1), ((60_000,), 0)])
def test_elements_combined(shape: tuple[int, ...], dim: int, by: str) -> None:
    x = numbers(*shape)
    x.reshape(-1)[::97], x.reshape(-1)[5::89] = np.nan, -0.0
    index = RNG.integers(0, shape[dim], shape)
    source = numbers(*shape)
    source.reshape(-1)[::101], source.reshape(-1)[7::103] = np.nan, np.inf
    found, expected = x.copy(), x.copy()
    assert getattr(core, f"scatter_{by}")(found, dim, index, source) is True
    places = list(np.indices(shape, sparse=True))
    places[dim] = index
    with np.errstate(invalid="ignore"):
        getattr(np, by).at(expected, tuple(places), source)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f", "d", "e", "i"])
def test_a_vector_repeated_over_the_other_dimensions(dim: int, dtype: str) -> None:
    """As programs on graphs write them: a row of the index says where a whole row goes."""
    x, source = [(numbers(6, 7, 40) * 9).astype(dtype) for _ in range(2)]
    vector = RNG.integers(0, x.shape[dim], x.shape[dim])
    index = np.broadcast_to(vector.reshape([-1 if d == dim else 1 for d in range(3)]), x.shape)
    packed, repeated = ut.tensor(index.copy()), ut.tensor(vector).reshape([-1 if d == dim else 1 for d in range(3)])
    repeated = repeated.expand(x.shape)
    t, s = ut.tensor(x), ut.tensor(source)
    np.testing.assert_array_equal(t.gather(dim, repeated).numpy(), np.take_along_axis(x, index, dim))
    for name in ("sum", "prod", "mean", "amax", "amin"):
        found = t.scatter_reduce(dim, repeated, s, name)
        np.testing.assert_array_equal(found.numpy(), t.scatter_reduce(dim, packed, s, name).numpy())
    assert repeated.stride().count(0) == 2
    outside = ut.full([x.shape[d] if d == dim else 1 for d in range(3)], x.shape[dim])
    for call in (lambda index: t.gather(dim, index), lambda index: t.scatter_add(dim, index, s)):
        with pytest.raises(RuntimeError, match=f"index {x.shape[dim]} is out of bounds for dimension {dim}"):
            call(outside.expand(x.shape))


@pytest.mark.parametrize("width", [1, 63, 64, 200])
def test_rows_are_added_in_their_order(width: int) -> None:
    rows, index = numbers(3000, width), RNG.integers(0, 50, 3000)
    found, expected = np.zeros((50, width), "f"), np.zeros((50, width), "f")
    assert core.add_rows(found, index, rows) is True
    for at, row in zip(index, rows, strict=True):
        expected[at] += row
    np.testing.assert_array_equal(found, expected)


def test_gradients() -> None:
    weight = ut.tensor(numbers(200, 64), requires_grad=True)
    index = ut.tensor(RNG.integers(0, 200, (40, 30)))
    (ut.nn.functional.embedding(index, weight) * 2).sum().backward()
    counts = np.bincount(index.numpy().reshape(-1), minlength=200)
    np.testing.assert_array_equal(weight.grad.numpy(), np.repeat(2.0 * counts[:, None], 64, 1))


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("width", [1, 63, 200])
def test_rows_times_numbers_are_added_in_their_order(width: int, dtype: str) -> None:
    to, at = RNG.integers(0, 50, 3000), RNG.integers(0, 40, 3000)
    factors, rows = RNG.integers(-9, 9, 3000).astype(dtype), RNG.integers(-9, 9, (40, width)).astype(dtype)
    found, expected = np.zeros((50, width), dtype), np.zeros((50, width), dtype)
    assert core.add_weighted_rows(found, to, factors, at, rows) is True
    np.add.at(expected, to, factors[:, None] * rows[at])
    np.testing.assert_array_equal(found, expected)
    places = np.stack([to, at])
    assert core.add_weighted_rows(found * 0, places[0], factors, places.T.copy()[:, 1], rows) is True


def test_which_rows_times_numbers_are_not_added() -> None:
    out, to, at, factors, rows = np.zeros((4, 3), "f"), np.array([0, 3]), np.array([1, 0]), numbers(2), numbers(2, 3)
    fixed = out.copy()
    fixed.flags.writeable = False
    for arguments in [
        (out, to + 1, factors, at, rows), (out, to - 1, factors, at, rows), (out, to, factors, at + 1, rows),
        (out, to, factors, at - 1, rows), (out, to.astype("i"), factors, at, rows), (out, to[:1], factors, at, rows),
        (out, to, factors, at[:1], rows), (out, to, factors.astype("d"), at, rows), (out, to, factors, at, rows.T),
        (out, to, factors, at, rows.astype("d")), (fixed, to, factors, at, rows), (out.T, to, factors, at, rows),
        (out, to, factors, at, rows[:, :2].copy()), (out, to[:, None], factors, at, rows),
    ]:  # fmt: skip
        assert core.add_weighted_rows(*arguments) is None
    assert (out == 0).all()


def test_a_sparse_matrix_by_a_dense_one_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    to, at = RNG.integers(0, 50, 300), RNG.integers(0, 40, 300)
    values, w = ut.tensor(numbers(300)), ut.tensor(numbers(40, 3), requires_grad=True)
    matrix = ut.sparse_coo_tensor(ut.tensor(np.stack([to, at])), values, (50, 40))
    dense = matrix.to_dense()
    monkeypatch.setattr(np, "argsort", None)
    found = ut.sparse.mm(matrix, w)
    found.sum().backward()
    np.testing.assert_allclose(found.detach(), (dense @ w).detach(), atol=1e-5)
    np.testing.assert_allclose(w.grad, dense.sum(0)[:, None].expand(-1, 3), atol=1e-5)
