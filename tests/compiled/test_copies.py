"""Copies of large arrays, whose elements lie in any order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.threads import each_with
from tests.rows import rows
from undertow.backend import large_arrays
from undertow.backend.large_arrays import copied
from undertow.compiled import core
from undertow.ops.declare import apply

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")


_threads = each_with(1, 3)


def numbers(*shape: int, dtype: str = "f") -> Any:
    found = np.arange(np.prod(shape)).reshape(shape)
    return (found % 251).astype(dtype) if dtype in "?bBe" else found.astype(dtype)


def check(array: Any) -> None:
    assert array.size >= large_arrays.LARGE
    for order in ("C", "K"):
        found, expected = copied(array, order), array.copy(order=order)
        assert found.dtype == expected.dtype and found.strides == expected.strides
        np.testing.assert_array_equal(found, expected)
        assert found.flags.writeable and not np.shares_memory(found, array)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "every second": lambda x: x[..., ::2],
    "every second row": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, :, ::-1],
    "a part": lambda x: x[1:, 3:-2, 5:-1],
    "expanded": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "one number": lambda x: np.broadcast_to(x[0, 0, 0], x.shape),
}


@rows("view", VIEWS)
@rows("dtype", ["?", "e", "f", "d", "D"])
def test_orders(dtype: str, view: str) -> None:
    for order in permutations(range(3)):
        check(VIEWS[view](numbers(21, 52, 66, dtype=dtype)).transpose(order))


@pytest.mark.parametrize("shape", [(256, 257), (40_000, 3), (3, 40_000), (16, 4096), (300, 301), (4, 5, 6, 7, 8, 9)])
def test_turned(shape: tuple[int, ...]) -> None:
    for dtype in "fdB":
        check(numbers(*shape, dtype=dtype).T)
        check(numbers(2, *shape, dtype=dtype)[1].T)


def test_unusual_memory() -> None:
    check(numbers(300, 300).astype(">f4").T)
    check(np.zeros(400_001, "u1")[1:].view("f4"))
    check(np.array([("a", 1)] * 40_000, [("name", "U1"), ("number", "i4")]))


def test_tensors() -> None:
    x = numbers(300, 200)
    for view in (lambda t: t.T, lambda t: t[::2], lambda t: t.reshape(20, 60, 50).permute(2, 0, 1)):
        tensor = view(ut.tensor(x))
        made = tensor.contiguous()
        assert made.is_contiguous()
        np.testing.assert_array_equal(made.numpy(), tensor.numpy())
        np.testing.assert_array_equal(tensor.clone().numpy(), tensor.numpy())
    images = ut.tensor(numbers(4, 8, 40, 40))
    last = images.contiguous(memory_format=ut.channels_last)
    assert last.stride() == (8 * 1600, 1, 8 * 40, 8)
    np.testing.assert_array_equal(last.numpy(), images.numpy())


@pytest.mark.parametrize("dtype", ["?", "f", "d", "F"])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_joined(dim: int, dtype: str) -> None:
    arrays = [numbers(40, 50, 20, dtype=dtype), 1 - numbers(40, 50, 20).astype(dtype), numbers(40, 50, 20, dtype=dtype)]
    tensors = [ut.tensor(a) for a in arrays]
    np.testing.assert_array_equal(ut.cat(tensors, dim).numpy(), np.concatenate(arrays, dim))
    np.testing.assert_array_equal(ut.stack(tensors, dim).numpy(), np.stack(arrays, dim))


# ---- casts


def special(dtype: str) -> Any:
    """Numbers of all sizes, and what is none."""
    rng = np.random.default_rng(5)
    found = rng.standard_normal(40_000) * 10.0 ** rng.integers(-9, 6, 40_000)
    found[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 65520, 65519.9, 6e-8]
    return found.astype(dtype)


@rows("to", ["f", "d", "e", "bfloat16"])
@rows("source", ["?", "B", "b", "h", "i", "l", "e", "f", "d", "bfloat16"])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_casts(source: str, to: str) -> None:
    narrow = pytest.importorskip("ml_dtypes").bfloat16
    given, wanted = [np.dtype(narrow if name == "bfloat16" else name) for name in (source, to)]
    x = special("d").astype(given) if given.kind in "fV" else numbers(200, 200, dtype=source).reshape(-1)
    for array in (x, x.reshape(200, 200).T, x.reshape(200, 200)[:, ::-1]):
        found, expected = large_arrays.cast(array, wanted), array.astype(wanted)
        assert found.dtype == wanted and found.strides == expected.strides
        np.testing.assert_array_equal(found.astype("d"), expected.astype("d"))
        np.testing.assert_array_equal(np.signbit(found.astype("d")), np.signbit(expected.astype("d")))


def test_casts_that_overflow() -> None:
    large = np.full(50_000, 1e300)
    assert np.isinf(large_arrays.cast(large, np.dtype("f"))).all()
    for dtype in (ut.float16, ut.bfloat16):
        for size in (10, 50_000):
            assert ut.full((size,), 3.4e38).to(dtype)[0] == np.inf


def test_every_half_is_cast_alike_wherever_it_lies() -> None:
    half = np.arange(1 << 16, dtype="u2").view("e")
    half = half[~np.isnan(half)]
    with np.errstate(all="ignore"):
        between = (half[1:].astype("f") + half[:-1].astype("f")) / 2  # half way: to the even one
        wide = np.concatenate([between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(9e9))])
        wide = wide[~np.isnan(wide)]
        narrow = wide.astype("e")
    for start in (0, 1, 15):
        found = core.converted(half[start:], np.dtype("f"))
        np.testing.assert_array_equal(found.view("i4"), half[start:].astype("f").view("i4"))
        found = core.converted(wide[start:], np.dtype("e"))
        np.testing.assert_array_equal(found.view("i2"), narrow[start:].view("i2"))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100])
def test_half_precision_is_cast_here_at_any_size(count: int) -> None:
    narrowest = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    x = (np.random.default_rng(0).standard_normal((count, 3)) * 1e3).astype("f")
    for given in (x, np.asfortranarray(x), np.array(x[0, 0])):
        narrow, bfloat16 = core.converted(given, np.dtype("e")), core.converted(given, narrowest)
        np.testing.assert_array_equal(narrow, given.astype("e"))
        np.testing.assert_array_equal(core.converted(narrow, np.dtype("f")), given.astype("e").astype("f"))
        np.testing.assert_array_equal(core.converted(bfloat16, np.dtype("f")), bfloat16.astype("f"))
        assert narrow.strides == tuple(s // 2 for s in given.strides)
        assert core.converted(given, np.dtype("d")) is None  # NumPy is as quick
    assert core.converted(x[::2], np.dtype("e")) is None or count == 1


@pytest.mark.parametrize("dtype", [ut.float16, ut.bfloat16])
def test_casts_of_half_precision_are_recorded_by_the_core(dtype: ut.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ut.ones(3, 4, requires_grad=True)
    x.to(dtype).float()
    monkeypatch.setattr(apply, "apply", None)
    y = x.to(dtype)
    y.float().backward(ut.full((3, 4), 2.0))
    assert y.grad_fn.name() == "ToCopyBackward0"
    assert (x.grad == 2).all()
