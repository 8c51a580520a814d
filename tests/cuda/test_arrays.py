"""Arrays on the (emulated) GPU: dtypes, layouts, views, writing, reductions, products, against NumPy."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import namespace_of
from undertow.backend.cuda import OutOfMemoryError, tail


@pytest.fixture
def xp() -> Any:
    return namespace_of("cuda")


def same(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    host = found.to_host()
    assert host.dtype == np.asarray(wanted).dtype and host.shape == np.shape(wanted)
    np.testing.assert_allclose(host, wanted, rtol=tolerance, atol=tolerance)


REAL = np.array([[0.5, -1.25, 2.0], [3.5, 0.25, -0.75]], np.float32)
FUNCTIONS = [
    lambda a, b: a + b, lambda a, b: a * 2.5 - b / a, lambda a, b: np.exp(a) * np.sin(b), lambda a, b: a // b,
    lambda a, b: a % b, lambda a, b: np.maximum(a, b), lambda a, b: abs(a) ** 1.5, lambda a, b: np.where(a > b, a, 0.0),
    lambda a, b: np.tanh(a) + np.log1p(abs(b)), lambda a, b: np.clip(a, -1, 1), lambda a, b: 3 - a, lambda a, b: -b,
]  # fmt: skip


@pytest.mark.parametrize("layout", ["rows", "columns", "steps", "row beside column"])
def test_elementwise_functions_walk_through_any_layout(xp: Any, layout: str) -> None:
    a, b = REAL, REAL[::-1] + 0.5
    if layout == "columns":
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    x, y = xp.asarray(a), xp.asarray(b)
    if layout == "steps":
        a, b, x, y = a[:, ::-2], b[:, ::-2], x[:, ::-2], y[:, ::-2]
    if layout == "row beside column":
        a, b, x, y = a[:1], b[:, :1], x[:1], y[:, :1]
    for function in FUNCTIONS:
        same(function(x, y), function(a, b))
    if layout == "columns":
        assert (x + y).strides == (a + b).strides


def test_dtypes_are_those_of_numpy(xp: Any) -> None:
    kinds = [np.bool_, np.int8, np.int64, np.float32, np.complex64]
    for kind in kinds:
        host = np.array([0, 1, 3]).astype(kind)
        here = xp.asarray(host)
        for number in (True, 2, 0.5, 1j, np.float64(2)):
            same(here * number, host * number)
        for other in kinds:
            same(here.astype(other), host.real.astype(other) if other is not np.complex64 else host.astype(other))


def test_integers_divide_as_in_numpy(xp: Any) -> None:
    a, b = np.array([7, -7, 7, -7, 5]), np.array([2, 2, -2, -2, 0])
    with np.errstate(all="ignore"):
        for function in (lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a << 2, lambda a, b: a >> 1):
            assert function(xp.asarray(a), xp.asarray(b)).tolist() == function(a, b).tolist()
    with pytest.raises(OverflowError, match="300"):
        xp.asarray(np.array([1], np.uint8)) + 300


def test_half_precision_is_rounded_as_numpy_rounds_it(xp: Any) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = bits[~np.isnan(bits)]
    assert np.array_equal(xp.asarray(finite).astype(np.float32).to_host(), finite.astype(np.float32))
    numbers = np.random.default_rng(0).standard_normal(4000).astype(np.float32) * np.float32(10.0) ** np.arange(
        -9, 7, 0.004
    )
    numbers = numbers.astype(np.float32)
    with np.errstate(over="ignore"):
        assert np.array_equal(xp.asarray(numbers).astype(np.float16).to_host(), numbers.astype(np.float16))
    narrow = pytest.importorskip("ml_dtypes").bfloat16
    assert np.array_equal(
        xp.asarray(numbers).astype(narrow).to_host().view(np.uint16), numbers.astype(narrow).view(np.uint16)
    )


def test_complex_functions(xp: Any) -> None:
    z = np.array([1 + 2j, -0.5 - 1j, 0.25j, -2 + 0.1j, 3 - 0.2j])
    for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "abs", "conj", "square", "sign"):
        same(getattr(xp, name)(xp.asarray(z)), getattr(np, name)(z), 1e-10)
    same(xp.asarray(z) / xp.asarray(z[::-1]), z / z[::-1], 1e-10)
    same(xp.asarray(z) ** (2 + 1j), z ** (2 + 1j), 1e-10)
    same(xp.asarray(z).real + xp.asarray(z).imag, z.real + z.imag)


def test_large_arrays_are_read_in_vectors(xp: Any) -> None:
    host = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    x, half = xp.asarray(host), xp.asarray(np.float32(0.5))
    same(x * x + x * half, host * host + host * np.float32(0.5))
    same((x + 1.0)[4:] * 2.0, (host + 1)[4:] * 2)


def test_sums_and_their_like(xp: Any) -> None:
    host = np.random.default_rng(2).standard_normal((3, 4, 5))
    x = xp.asarray(host)
    for axis in (None, 0, 1, -1, (0, 1), (0, 2), ()):
        same(x.sum(axis=axis), host.sum(axis=axis), 1e-10)
        same(x.max(axis=axis, keepdims=True), host.max(axis=axis, keepdims=True))
        same((x > 0).any(axis=axis), (host > 0).any(axis=axis))
    same(x.mean((0, 2)), host.mean((0, 2)))
    same((x > 0).sum(), (host > 0).sum())
    same(xp.prod(x[:, 0], axis=0), host[:, 0].prod(axis=0))
    long = np.arange(70_000, dtype=np.float64)
    same(xp.asarray(long).sum(), long.sum())
    tall = long.reshape(-1, 7)
    same(xp.asarray(tall).sum(0), tall.sum(0))
    assert np.isnan(xp.asarray(np.array([1.0, np.nan, 2.0])).max().item())
    with pytest.raises(ValueError, match="zero-size"):
        xp.zeros((0,)).max()
    assert xp.zeros((0, 2)).sum(0).tolist() == [0, 0]


def test_products(xp: Any) -> None:
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64, np.complex128):
        a, b = rng.standard_normal((2, 3, 4)).astype(dtype), rng.standard_normal((2, 4, 5)).astype(dtype)
        x, y = xp.asarray(a), xp.asarray(b)
        same(x @ y, a @ b)
        same(x @ y[0], a @ b[0])
        same(x[0] @ y, a[0] @ b)
        same(x[0].T @ x[1], a[0].T @ a[1])
        same(x[0] @ y[0, :, 0], a[0] @ b[0, :, 0])
        same(x[:, None] @ y[None], a[:, None] @ b[None])
        same(y.transpose(0, 2, 1)[:, ::2] @ y, b.transpose(0, 2, 1)[:, ::2] @ b)
    assert (xp.zeros((2, 0)) @ xp.zeros((0, 3))).tolist() == [[0] * 3] * 2
    with pytest.raises(ValueError, match="mismatch"):
        xp.zeros((2, 3)) @ xp.zeros((2, 3))


def test_views_share_memory(xp: Any) -> None:
    host = np.arange(24.0).reshape(2, 3, 4)
    x = xp.asarray(host.copy())
    spread = np.broadcast_to
    pairs = [
        (x[1, ..., ::2], host[1, ..., ::2]), (x.T, host.T), (x.reshape(6, 4), host.reshape(6, 4)),
        (x[:, None], host[:, None]),
        (x.transpose(2, 0, 1).swapaxes(0, 1), host.transpose(2, 0, 1).swapaxes(0, 1)),
        (np.moveaxis(x, 0, 2), np.moveaxis(host, 0, 2)),
        (np.flip(x, 1), np.flip(host, 1)), (np.split(x, 2, 2)[1], np.split(host, 2, 2)[1]),
        (x[..., 0].reshape(6), host[..., 0].reshape(6)),
        (np.diagonal(x, 0, 1, 2), np.diagonal(host, 0, 1, 2)),
        (spread(x[0], (2, 3, 4)), spread(host[0], (2, 3, 4))),
    ]  # fmt: skip
    for view, wanted in pairs:
        same(view, wanted)
        assert view.strides == wanted.strides and np.may_share_memory(view, x)
    x[0, 1:, :2] = -1.0
    x[:, 2] += 5
    host[0, 1:, :2] = -1
    host[:, 2] += 5
    same(x, host)
    with pytest.raises(ValueError, match="read-only"):
        np.broadcast_to(x[0], (2, 3, 4))[0] = 1
    with pytest.raises(IndexError, match="out of bounds"):
        x[5]


def test_overlapping_memory_is_read_before_it_is_written(xp: Any) -> None:
    host = np.arange(8.0)
    x = xp.asarray(host.copy())
    x[1:] += x[:-1]
    host[1:] += host[:-1].copy()
    same(x, host)


def test_indices(xp: Any) -> None:
    host = np.arange(24.0).reshape(4, 6)
    x = xp.asarray(host.copy())
    rows, columns = np.array([[3, 0], [-1, 1]]), np.array([5, 2])
    before = sum(tail.counts.values())
    same(x[xp.asarray(rows)], host[rows])
    same(x[:, xp.asarray(columns)], host[:, columns])
    same(x[xp.asarray(rows), xp.asarray(columns)], host[rows, columns])
    same(
        np.take_along_axis(x, xp.asarray(rows[:, :1].repeat(2, 0)), 1),
        np.take_along_axis(host, rows[:, :1].repeat(2, 0), 1),
    )
    same(x[x > 7], host[host > 7])
    x[xp.asarray(columns) - 2] = 9.0
    host[columns - 2] = 9
    x[x > 12] = 0.0
    host[host > 12] = 0
    for target, index in ((x, xp.asarray([0, 0, 3])), (host, np.array([0, 0, 3]))):
        np.add.at(target, index, 1.5)
    same(x, host)
    assert sum(tail.counts.values()) == before


def test_an_index_out_of_range_is_told_at_the_next_look(xp: Any) -> None:
    x = xp.asarray(np.arange(3.0))
    taken = x[xp.asarray([0, 7])]
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension with size 3"):
        taken.to_host()
    assert x.tolist() == [0, 1, 2]  # the device goes on


def test_what_has_no_kernel_is_computed_on_the_host(xp: Any) -> None:
    host = np.array([[4.0, 1.0], [2.0, 3.0]])
    before = dict(ut.cuda.host_functions())
    same(np.linalg.eigvals(xp.asarray(host)), np.linalg.eigvals(host))
    values = xp.asarray(host.copy())
    values.sort(axis=0)
    same(values, np.sort(host, axis=0))
    assert ut.cuda.host_functions()["eigvals"] == before.get("eigvals", 0) + 1
    try:
        ut.cuda.set_host_functions("error")
        with pytest.raises(NotImplementedError, match=r"eigvals has no kernel on cuda.*set_host_functions"):
            np.linalg.eigvals(xp.asarray(host))
    finally:
        ut.cuda.set_host_functions("allow")
    with pytest.raises(ValueError, match="'allow', 'warn' or 'error'"):
        ut.cuda.set_host_functions("never")


def test_numpy_does_not_get_at_the_elements(xp: Any) -> None:
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        np.asarray(xp.zeros(2))
    assert pickle.loads(pickle.dumps(xp.asarray([1.5, 2.5]))).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float16, np.complex64])
def test_numbers_are_written_by_a_kernel(xp: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = xp.asarray(np.full((4, 5), 7).astype(dtype))
    host = np.full((4, 5), 7).astype(dtype)
    monkeypatch.setattr(xp, "asarray", None)  # nothing is copied from the host
    for value in (True, 0, 3):
        for index in ((slice(None), slice(1, 3)), (1,), (slice(0, 0),), (slice(None, None, 2), slice(None, None, -2))):
            host[index] = there[index] = value
            np.testing.assert_array_equal(there.to_host(), host)


@pytest.mark.parametrize("dtype", [float, np.float32, np.int64, np.bool_, np.complex64])
def test_unit_matrices_and_triangles_are_made_there(xp: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "sent", None)  # nothing is copied from the host
    for rows, columns in ((0, 0), (0, 3), (3, 0), (1, 1), (3, None), (2, 5), (5, 2)):
        for k in (-6, -2, -1, 0, 1, 2, 6):
            same(xp.eye(rows, columns, k, dtype), np.eye(rows, columns, k, dtype))
            same(xp.tri(rows, columns, k, dtype), np.tri(rows, columns, k, dtype))
    same(xp.identity(3, dtype), np.identity(3, dtype))
    assert xp.eye(3, 2, order="F").flags.f_contiguous


def test_memory_is_counted_and_handed_out_lowest_first(xp: Any) -> None:
    gc.collect()
    before = ut.cuda.memory_allocated()
    first = [xp.zeros(1000) for _ in range(4)]
    assert ut.cuda.memory_allocated() - before == 4 * 8192
    places = [a.address for a in first]
    del first[2], first[0]
    again = [xp.zeros(1000), xp.zeros(1000)]
    assert [a.address for a in again] == sorted([places[0], places[2]])
    view = first[0][10:]
    del first, again
    assert ut.cuda.memory_allocated() - before == 8192
    del view
    assert ut.cuda.memory_allocated() == before <= ut.cuda.max_memory_allocated() <= ut.cuda.max_memory_reserved()


@pytest.mark.parametrize("name", ["amax", "max"])
def test_gradients_of_extrema_need_a_mask_and_themselves(name: str) -> None:
    x = ut.randn(64, 1024, device="cuda", requires_grad=True)
    largest = getattr(x, name)(*([1] if name == "amax" else [])).sum()
    before = ut.cuda.memory_allocated()
    ut.cuda.reset_peak_memory_stats()
    largest.backward()
    assert ut.cuda.max_memory_allocated() - before < 1.5 * x.nbytes


def test_large_blocks_are_cut_off_and_joined_again(xp: Any) -> None:
    from undertow import _cuda

    gc.collect()
    ut.cuda.empty_cache()
    with ut.cuda.stream(ut.cuda.Stream()):
        start = ut.cuda.memory_allocated()
        ones = [xp.zeros(1 << 17) for _ in range(16)]  # a segment of 16 megabytes
        places = [a.address for a in ones]
        reserved = ut.cuda.memory_reserved()
        assert places == [places[0] + (k << 20) for k in range(16)]
        del ones[::2], ones
        fours = [xp.zeros(1 << 19) for _ in range(4)]
        assert [a.address for a in fours] == places[::4]
        fours[1] = fours[2] = None
        between = [xp.zeros(1 << 17) for _ in range(8)]
        assert [a.address for a in between] == places[4:12]
        assert ut.cuda.memory_allocated() - start == 16 << 20 and ut.cuda.memory_reserved() == reserved
        del fours, between[3]
        blocks = {address: (size, free) for address, size, _, free in _cuda.memory_blocks()}
        assert blocks[places[0]] == (4 << 20, True) and blocks[places[7]] == (1 << 20, True)
        del between
        assert [a.address for a in [xp.zeros(1 << 17) for _ in range(16)]] == places
        ut.cuda.empty_cache()
        assert ut.cuda.memory_reserved() == reserved - (16 << 20)


def test_sizes_that_change_do_not_keep_memory_each(xp: Any) -> None:
    """What is reserved stays near what was in use at most: it was three times that, with a list for each size."""
    rng = np.random.default_rng(0)
    gc.collect()
    ut.cuda.empty_cache()
    with ut.cuda.stream(ut.cuda.Stream()):
        reserved, used, most = ut.cuda.memory_reserved(), ut.cuda.memory_allocated(), 0
        held: list[Any] = []
        for _ in range(20_000):
            if held and rng.random() < 0.5:
                held.pop(int(rng.integers(len(held))))
            else:
                held.append(xp.empty(int(2 ** rng.uniform(16, 19)), np.float32))
                most = max(most, ut.cuda.memory_allocated() - used)
            del held[40:]
        assert ut.cuda.memory_reserved() - reserved < 1.7 * most


def test_memory_that_runs_out(xp: Any) -> None:
    from undertow import _cuda

    gc.collect()
    ut.cuda.empty_cache()
    kept = xp.zeros(1 << 20)
    del kept  # 8 megabytes that are kept for later, and given back before anything fails
    retries = ut.cuda.memory_stats()["num_alloc_retries"]
    _cuda.set_memory_limit(ut.cuda.memory_reserved() + (8 << 20))
    try:
        larger = xp.zeros((1 << 21) - 64)
        assert ut.cuda.memory_stats()["num_alloc_retries"] == retries + 1
        with pytest.raises(OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate \d+ bytes"):
            xp.zeros(1 << 23)
        _cuda.set_memory_limit(ut.cuda.memory_reserved() + (1 << 20))
        with ut.cuda.stream(ut.cuda.Stream()):
            assert xp.zeros(1 << 17).size  # a megabyte is there, although a whole segment is not
        del larger
    finally:
        _cuda.set_memory_limit(0)
    assert xp.zeros(1 << 18).sum().item() == 0
    ut.cuda.empty_cache()


def test_operands_whose_rows_lie_apart() -> None:
    """Rows of 16 bytes and more are taken 16 bytes at a time, whatever lies between them; other rows are not."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((24, 10, 70))
    for dtype in (np.float32, np.float16):
        host = base.astype(dtype)
        there = ut.tensor(host, device="cuda")
        for columns, start in ((64, 0), (64, 6), (63, 0), (48, 16)):
            turned = there[:, :, start : start + columns].transpose(0, 1)
            wanted = host[:, :, start : start + columns].transpose(1, 0, 2)
            np.testing.assert_array_equal(turned.contiguous().cpu().numpy(), wanted)
            np.testing.assert_array_equal(turned.to(ut.float32).cpu().numpy(), wanted.astype(np.float32))
            single = ut.tensor(host[0, 0, :1], device="cuda")
            np.testing.assert_array_equal((turned * single).cpu().numpy(), wanted * host[0, 0, 0])
            copy = there.clone()
            copy[:, :, start : start + columns].transpose(0, 1)[...] = turned.contiguous()
            np.testing.assert_array_equal(copy.cpu().numpy(), host)
