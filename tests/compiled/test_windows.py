"""Kernels of convolution, pooling and added rows compute what the formulas in NumPy say; and refuse what they must."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.backend import cpu, kernels
from undertow.compiled import core
from undertow.ops.index import index_arrays
from undertow.ops.network import pool_kernels
from undertow.ops.network.conv_kernels import convolve, convolve_transposed, convolve_weight
from undertow.ops.network.sliding_windows import Sizes, window_counts

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

TOLERANCE = {"f": 3e-6, "d": 1e-14}


def normal(seed: int, *shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_close(found: Any, expected: Any, dtype: str, terms: int = 1) -> None:
    assert found.dtype == expected.dtype == dtype
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale * max(1, terms**0.5))


def by_numpy(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arguments: Any) -> Any:
    with monkeypatch.context() as changed:
        changed.setattr(kernels, "core", None)
        return function(cpu, *arguments)


# ------------------------------------------------------------------ convolution


class Windows:
    """A convolution of a random kind: any number of dimensions, stride, padding, dilation, groups."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.dtype, self.dims = choose.choice("fd"), choose.choice([1, 2, 2, 3])
        self.groups = choose.choice([1, 1, 2, 3])
        self.examples = choose.choice([1, 2, 5, 40])
        few, many = [1, 2, 3, 4, 5, 6, 7, 13], [6, 8, 15, 16, 24, 31, 32, 33, 48, 70]  # results side by side in vectors
        self.channels = choose.choice([1, 2, 3, 5] if seed % 3 else [6, 16, 33]) * self.groups
        self.outputs = choose.choice(few if seed % 3 else many) * self.groups
        self.kernel = self.some(choose, [1, 2, 3, 4])
        self.stride = self.some(choose, [1, 1, 2, 3])
        self.padding = self.some(choose, [0, 0, 1, 2, 3])
        self.dilation = self.some(choose, [1, 1, 2, 3])
        longest = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        sizes = [1, 2, 3, 5, 7, 12] if self.dims > 1 else [1, 9, 40, 700]
        self.sizes = tuple([max(choose.choice(sizes), n - 2 * p) for n, p in zip(longest, self.padding, strict=True)])
        self.sizes = tuple([max(1, n) for n in self.sizes])
        self.counts = window_counts(self.sizes, self.kernel, self.stride, self.padding, self.dilation)

    def some(self, choose: random.Random, values: list[int]) -> Sizes:
        return tuple([choose.choice(values) for _ in range(self.dims)])

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """x, weight, bias and y."""
        weight = (self.outputs, self.channels // self.groups, *self.kernel)
        shapes = (self.examples, self.channels, *self.sizes), weight, (self.outputs,)
        y = (self.examples, self.outputs, *self.counts)
        return tuple([normal(k, *shape, dtype=self.dtype) for k, shape in enumerate((*shapes, y))])  # type: ignore

    def rest(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups


@rows("seed", range(200))
def test_convolution(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    w = Windows(seed)
    x, weight, bias, y = w.arrays()
    cases = [
        (core.convolve, convolve, (x, weight, bias if seed % 2 else None)),
        (core.convolve_transposed, convolve_transposed, (y, weight, None, w.sizes)),
        (core.convolve_weight, convolve_weight, (x, y, w.kernel)),
    ]
    for compiled, plain, arguments in cases:
        found = compiled(*arguments, *w.rest())
        assert_close(found, by_numpy(monkeypatch, plain, *arguments, *w.rest()), w.dtype, x.size // w.channels)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("channels", [1, 16, 40])
def test_convolution_of_more_than_a_stretch(channels: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = normal(1, 3, channels, 50, 61, dtype=dtype), normal(2, 20, channels, 3, 5, dtype=dtype)
    rest = ((1, 1), (1, 2), (1, 1), 1)
    y = core.convolve(x, weight, None, *rest)
    assert_close(y, by_numpy(monkeypatch, convolve, x, weight, None, *rest), dtype, 15 * channels)
    found = core.convolve_transposed(y, weight, None, (50, 61), *rest)
    expected = by_numpy(monkeypatch, convolve_transposed, y, weight, None, (50, 61), *rest)
    assert_close(found, expected, dtype, 300)
    found = core.convolve_weight(x, y, (3, 5), *rest)
    assert_close(found, by_numpy(monkeypatch, convolve_weight, x, y, (3, 5), *rest), dtype, 10000)


def test_transposed_beyond_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    y, weight, bias = normal(1, 2, 3, 4, dtype="d"), normal(2, 3, 2, 2, dtype="d"), normal(3, 2, dtype="d")
    for size in range(11, 20):  # the last places have no window, and get the bias alone
        rest = ((size,), (3,), (0,), (1,), 1)
        found = core.convolve_transposed(y, weight, bias, *rest)
        assert_close(found, by_numpy(monkeypatch, convolve_transposed, y, weight, bias, *rest), "d")


def test_numbers_that_are_not_finite_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = ((1, 1), (1, 1), (1, 1), 1)
    x, weight = normal(1, 1, 1, 5, 5), normal(2, 1, 1, 3, 3)
    x[0, 0, 2, 2] = np.inf
    found = core.convolve(x, weight, None, *rest)
    expected = by_numpy(monkeypatch, convolve, x, weight, None, *rest)
    assert np.isfinite(found).tolist() == np.isfinite(expected).tolist()  # where windows see it, and nowhere else
    assert core.convolve_weight(x, normal(3, 1, 1, 5, 5), (3, 3), *rest) is None
    weight[0, 0, 0, 0] = np.nan
    assert core.convolve(x, weight, None, *rest) is None
    assert core.convolve_transposed(x, weight, None, (5, 5), *rest) is None


def test_what_convolution_refuses() -> None:
    x, weight, bias = normal(1, 2, 4, 5, 5), normal(2, 6, 4, 3, 3), normal(3, 6)
    one, none = (1, 1), (0, 0)
    assert core.convolve(x, weight, bias, one, none, one, 1) is not None
    for arguments in [
        (x.astype("d"), weight, bias, one, none, one, 1),
        (x.astype("e"), weight.astype("e"), None, one, none, one, 1),
        (x, weight, bias[:5].copy(), one, none, one, 1),
        (x.transpose(0, 1, 3, 2), weight, bias, one, none, one, 1),
        (x[:0], weight, bias, one, none, one, 1),
        (x[:, :3].copy(), weight, bias, one, none, one, 1),
        (x, weight, bias, one, none, one, 4),
        (x, weight, bias, one, none, one, 0),
        (x, weight, bias, one, none, one, 2**70),
        (x, weight, bias, (1,), none, one, 1),
        (x, weight, bias, (0, 1), none, one, 1),
        (x, weight, bias, one, (-1, 0), one, 1),
        (x, weight, bias, one, none, (3, 1), 1),  # larger than the input
        (x[0], weight[0], None, one, none, one, 1),
        (x, weight, bias, one, none, one),
    ]:
        assert core.convolve(*arguments) is None
    assert core.convolve_transposed(x, weight, None, (7, 7), one, none, one, 1) is None
    assert core.convolve_transposed(x, weight[:4].copy(), None, (6, 7), one, none, one, 1) is None  # too small
    assert core.convolve_weight(x, normal(4, 2, 6, 3, 4), (3, 3), one, none, one, 1) is None
    assert core.convolve_weight(x, normal(4, 1, 6, 3, 3), (3, 3), one, none, one, 1) is None


def test_arrays_of_other_kinds_are_convolved_all_the_same() -> None:
    x, weight = normal(1, 2, 3, 6, 5, dtype="d"), normal(2, 4, 3, 2, 2, dtype="d")
    expected = ut.conv2d(ut.tensor(x), ut.tensor(weight)).numpy()
    turned = ut.tensor(x.transpose(0, 2, 3, 1).copy()).permute(0, 3, 1, 2)
    np.testing.assert_allclose(ut.conv2d(turned, ut.tensor(weight)).numpy(), expected, atol=1e-14)
    assert ut.conv2d(turned, ut.tensor(weight)).is_contiguous(memory_format=ut.channels_last)
    rounded = ut.conv2d(ut.tensor(x).half(), ut.tensor(weight).half())
    assert rounded.dtype == ut.float16
    np.testing.assert_allclose(rounded.numpy(), expected, atol=0.05)


# ------------------------------------------------------------------ pooling


def image(seed: int, dtype: str, *shape: int) -> Any:
    """Numbers with ties, some of them nan or -inf."""
    x = np.round(normal(seed, *shape, dtype=dtype) * 2)
    spoil = np.random.default_rng(seed).random(shape)
    if seed % 3 == 0:
        x[spoil < 0.1] = np.nan
    if seed % 4 == 0:
        x[spoil > 0.5] = -np.inf
    return x


@rows("seed", range(120))
def test_pooling(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    dims, dtype = choose.choice([2, 2, 3]), choose.choice("fd")
    some = lambda values: tuple([choose.choice(values) for _ in range(dims)])
    kernel, stride, dilation = some([1, 2, 3, 3]), some([1, 2, 3, 4]), some([1, 1, 1, 2])
    padding = tuple([choose.randint(0, k // 2) for k in kernel])
    sizes = tuple([max(n, d * (k - 1) + 1) for n, k, d in zip(some([3, 6, 11, 24]), kernel, dilation, strict=True)])
    x = image(seed, dtype, 2, 3, *sizes)
    arguments = (x, kernel, stride, padding, dilation, choose.random() < 0.5)
    values, indices = pool_kernels.largest(cpu, *arguments)
    for mine, theirs in zip((values, indices), by_numpy(monkeypatch, pool_kernels.largest, *arguments), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    g = normal(seed + 1, *values.shape, dtype=dtype)
    found = core.max_pool_gradient(g, indices, sizes)
    assert_close(found, by_numpy(monkeypatch, pool_kernels.put_back, g, indices, sizes), dtype)


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_whole_windows(stride: int, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without padding, of any number beside each other."""
    for width in [*range(side, 30), 64]:
        for x in (image(width, "f", 2, 7, width), image(width, "d", 2, 7, width)):
            arguments = (x, (side, side), (stride, stride), (0, 0), (1, 1), False)
            expected = by_numpy(monkeypatch, pool_kernels.largest, *arguments)
            for mine, theirs in zip(pool_kernels.largest(cpu, *arguments), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)


@rows("seed", range(80))
def test_means(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    dims, dtype = choose.choice([2, 2, 3]), choose.choice("fd")
    some = lambda values: tuple([choose.choice(values) for _ in range(dims)])
    kernel, stride = some([1, 2, 3, 5]), some([1, 2, 3])
    padding = tuple([choose.randint(0, k // 2) for k in kernel])
    sizes = tuple([max(n, k) for n, k in zip(some([3, 6, 11, 24]), kernel, strict=True)])
    windows = (
        kernel,
        stride,
        padding,
        choose.random() < 0.5,
        choose.random() < 0.5,
        choose.choice([None, None, 3, -2]),
    )
    x = normal(seed, 3, *sizes, dtype=dtype)
    out = pool_kernels.mean_of_windows(cpu, x, *windows)
    assert_close(out, by_numpy(monkeypatch, pool_kernels.mean_of_windows, x, *windows), dtype, 10)
    g = normal(seed, *out.shape, dtype=dtype)
    found = pool_kernels.spread_means(cpu, g, sizes, *windows)
    assert_close(found, by_numpy(monkeypatch, pool_kernels.spread_means, g, sizes, *windows), dtype, 10)


@pytest.mark.parametrize("seed", range(30))
def test_adaptive_largest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    dims, dtype = choose.choice([2, 3]), choose.choice("fd")
    sizes, counts = [tuple([choose.choice([1, 2, 3, 7]) for _ in range(dims)]) for _ in "ab"]
    x = image(seed, dtype, 2, *sizes)
    expected = by_numpy(monkeypatch, pool_kernels.adaptive_largest, x, counts)
    for mine, theirs in zip(core.adaptive_max_pool(x, counts), expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_what_pooling_refuses() -> None:
    x, two, none = normal(1, 2, 4, 4), (2, 2), (0, 0)
    assert core.max_pool(x, two, two, none, (1, 1), two) is not None
    assert core.max_pool(x.astype("e"), two, two, none, (1, 1), two) is None
    assert core.max_pool(x.astype(int), two, two, none, (1, 1), two) is None
    assert core.max_pool(x.T, two, two, none, (1, 1), two) is None
    assert core.max_pool(x, two, two, none, (1, 1), (0, 2)) is None
    assert core.max_pool(x, (2,) * 4, (2,) * 4, (0,) * 4, (1,) * 4, (2,) * 4) is None
    assert core.max_pool(x[0, 0], two, two, none, (1, 1), two) is None
    assert core.adaptive_max_pool(x, (0, 2)) is None
    assert core.avg_pool(x, two, two, two, (-1, 0), True, 0) is None
    assert core.avg_pool_gradient(x, (0, 8), two, two, none, True, 0) is None
    g, indices = normal(1, 2, 2, 2), np.zeros((2, 2, 2), np.int64)
    assert core.max_pool_gradient(g, indices, (4, 4)) is not None
    assert core.max_pool_gradient(g, indices.astype(np.int32), (4, 4)) is None
    assert core.max_pool_gradient(g, indices[:1], (4, 4)) is None
    for outside in (-1, 16):
        indices[1, 1, 1] = outside
        assert core.max_pool_gradient(g, indices, (4, 4)) is None


# ------------------------------------------------------------------ rows


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("width", [1, 3, 64, 100])
def test_added_rows(width: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.random.default_rng(1).integers(0, 7, 200)
    out, rows = normal(1, 7, width, dtype=dtype), normal(2, 200, width, dtype=dtype)
    expected = by_numpy(monkeypatch, index_arrays.add_rows, out.copy(), index, rows)
    assert core.add_rows(out, index, rows) is True
    assert_close(out, expected, dtype, 200)


def test_which_rows_are_not_added() -> None:
    out, index, rows = normal(1, 4, 3), np.array([0, 3]), normal(2, 2, 3)
    before = out.copy()
    fixed = out.copy()
    fixed.flags.writeable = False
    for arguments in [
        (out, np.array([0, 4]), rows), (out, np.array([0, -1]), rows), (out, index.astype(np.int32), rows),
        (out, index, rows.astype("d")), (out, index, rows[:1]), (out, index, rows.T), (fixed, index, rows),
        (out.T, index, rows), (out[0, 0], index, rows),
    ]:  # fmt: skip
        assert core.add_rows(*arguments) is None
    assert (out == before).all()


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_embeddings(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    index, g = ut.tensor([[1, 3, 1], [0, 1, 4]]), ut.tensor(normal(1, 2, 3, 80, dtype="d"))

    def gradient() -> Any:
        table = ut.tensor(normal(2, 6, 80, dtype="d"), requires_grad=True)
        ut.embedding(table, index, 4, False, sparse).backward(g)
        found = table.grad.detach()
        table.detach().sub_(found, alpha=0.5)
        return (found.to_dense() if sparse else found).numpy(), table.detach().numpy()

    with_core = gradient()
    monkeypatch.setattr(kernels, "core", None)
    for mine, theirs in zip(with_core, gradient(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-14)


# ------------------------------------------------------------------ all together


def network(dtype: Any) -> list[Any]:
    """Outputs and derivatives, once and twice, of layers of all the kinds."""
    draw = lambda k, *shape: ut.tensor(normal(k, *shape, dtype="d"), dtype=dtype, requires_grad=True)
    leaves = [draw(1, 3, 2, 9, 8), draw(2, 6, 2, 3, 3), draw(3, 6), draw(4, 6, 1, 2, 2), draw(5, 6, 2, 3, 3)]
    x, weight, bias, deep, back = leaves
    h = ut.max_pool2d(ut.conv2d(x, weight, bias, padding=1), 2)
    h = ut.avg_pool2d(ut.tanh(ut.conv2d(h, deep, padding=1, groups=6)), 2, 1)
    h = ut.adaptive_max_pool2d(ut.conv_transpose2d(h, back, stride=2, padding=1), (3, 2))
    first = ut.autograd.grad((h * h).sum(), leaves, create_graph=True)
    second = ut.autograd.grad(sum((g * g).sum() for g in first), leaves)
    return [t.detach().numpy() for t in (h, *first, *second)]


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
def test_networks_agree(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_core = network(dtype)
    monkeypatch.setattr(kernels, "core", None)
    for mine, theirs in zip(with_core, network(dtype), strict=True):
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=(2e-5 if dtype is ut.float32 else 1e-12) * scale)


def test_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    class Spy:
        def __getattr__(self, name: str) -> Any:
            used.append(name)
            return getattr(core, name)

    x, weight = ut.randn(2, 3, 8, 8, requires_grad=True), ut.randn(4, 3, 3, 3, requires_grad=True)
    pointwise = ut.randn(4, 3, 1, 1)
    monkeypatch.setattr(kernels, "core", Spy())
    ut.max_pool2d(ut.conv2d(x, weight), 2).sum().backward()
    assert used == ["convolve", "max_pool", "max_pool_gradient", "convolve_transposed", "convolve_weight"]
    used.clear()
    ut.conv2d(x, pointwise)  # a product of matrices
    assert used == []


def test_in_threads() -> None:
    x, weight = normal(1, 4, 8, 20, 20), normal(2, 9, 8, 3, 3)
    rest = ((1, 1), (1, 1), (1, 1), 1)
    expected = core.convolve(x, weight, None, *rest).tobytes()
    found: list[bool] = []
    run = lambda: found.extend([core.convolve(x, weight, None, *rest).tobytes() == expected for _ in range(20)])
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_references_are_counted() -> None:
    x, weight, bias, index = normal(1, 2, 2, 6, 6), normal(2, 3, 2, 3, 3), normal(3, 3), np.array([0, 1])
    rest = ((1, 1), (1, 1), (1, 1), 1)
    spoiled = np.full_like(weight, np.nan)
    pair, out = ((2, 2), (2, 2), (0, 0)), normal(4, 2, 3, 6, 6)
    calls = [
        lambda: core.convolve(x, weight, bias, *rest), lambda: core.convolve(x, spoiled, bias, *rest),
        lambda: core.convolve_transposed(out, weight, None, (6, 6), *rest),
        lambda: core.convolve_weight(x, out, (3, 3), *rest),
        lambda: core.max_pool_gradient(*core.max_pool(x, *pair, (1, 1), (3, 3)), (6, 6)),
        lambda: core.avg_pool_gradient(core.avg_pool(x, (3, 3), *pair, True, 0), (6, 6), *pair, True, 0),
        lambda: core.adaptive_max_pool(x, (2, 3)), lambda: core.add_rows(x, index, x * 0),
    ]  # fmt: skip
    held = (x, weight, bias, index, spoiled, out, *rest, *pair)
    for call in calls:
        call()
        before = [sys.getrefcount(v) for v in held]
        for _ in range(100):
            call()
        assert [sys.getrefcount(v) for v in held] == before
