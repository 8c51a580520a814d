"""An infinite element or a nan goes where PyTorch lets it go: to what is made of it, and to nothing else; bytes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.torch

MODES = [
    ("nearest", None), ("nearest-exact", None), ("area", None), ("bilinear", False), ("bilinear", True),
    ("bicubic", False), ("bicubic", True),
]  # fmt: skip


def image(sizes: tuple[int, ...]) -> Any:
    x = np.random.default_rng(0).normal(size=(2, 3, *sizes))
    x.flat[[5, 20, x.size - 1]] = np.nan, np.inf, -np.inf
    return x


def with_gradient(L: Any, call: Any, x: Any) -> list[Any]:
    x = L.tensor(x, requires_grad=True)
    result = call(L.nn.functional, x)
    g = np.ones(tuple(result.shape))
    g.flat[0] = np.nan
    return [result.detach().numpy(), L.autograd.grad(result, x, L.tensor(g))[0].numpy()]


def compare(torch: ModuleType, call: Any, x: Any) -> None:
    with np.errstate(invalid="ignore"):
        for mine, theirs in zip(with_gradient(ut, call, x), with_gradient(torch, call, x), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("mode", "align"), MODES, ids=lambda v: str(v))
@pytest.mark.parametrize("size", [(5, 7), (20, 13), (9, 4)])
def test_interpolate(torch: ModuleType, mode: str, align: bool | None, size: tuple[int, int]) -> None:
    compare(torch, lambda F, x: F.interpolate(x, size, mode=mode, align_corners=align), image((9, 11)))


def test_interpolate_to_the_same_size(torch: ModuleType) -> None:
    for mode in ("nearest", "bilinear", "area"):
        compare(torch, lambda F, x, mode=mode: F.interpolate(x, (9, 11), mode=mode), image((9, 11)))


def test_antialias_reads_nothing_with_weight_zero() -> None:
    x = ut.zeros(1, 1, 1, 9)
    x[..., 0] = float("nan")
    small = ut.nn.functional.interpolate(x, (1, 3), mode="bilinear", antialias=True)
    assert small.isnan().flatten().tolist() == [True, False, False]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 4, 7, 12])
def test_adaptive_means(torch: ModuleType, dims: int, count: int) -> None:
    compare(torch, lambda F, x: getattr(F, f"adaptive_avg_pool{dims}d")(x, count), image((7, 8, 9)[:dims]))


def loss_of_logits(L: Any, x: float, y: float, **options: Any) -> list[float]:
    x, y = L.full((3,), x, dtype=L.float64), L.full((3,), y, dtype=L.float64)
    result: list[float] = L.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none", **options).tolist()
    return result


@pytest.mark.parametrize("x", [np.inf, 800.0, -800.0])
@pytest.mark.parametrize("y", [0.0, 0.25, 1.0, 1.5])
def test_binary_cross_entropy_of_infinite_logits(torch: ModuleType, x: float, y: float) -> None:
    assert loss_of_logits(ut, x, y) == pytest.approx(loss_of_logits(torch, x, y), nan_ok=True)


def test_a_logit_of_minus_infinity_is_infinitely_wrong() -> None:
    assert loss_of_logits(ut, -np.inf, 1.0) == [np.inf] * 3  # PyTorch: nan


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_images_of_bytes_are_copied(torch: ModuleType, mode: str) -> None:
    x = np.arange(60, dtype=np.uint8).reshape(1, 3, 4, 5)
    for size in ((3, 3), (9, 2)):
        mine, theirs = [L.nn.functional.interpolate(L.tensor(x), size, mode=mode) for L in (ut, torch)]
        assert mine.dtype == ut.uint8 and mine.tolist() == theirs.tolist()
    with pytest.raises(NotImplementedError, match="not implemented for 'Byte'"):
        ut.nn.functional.interpolate(ut.tensor(x), (3, 3), mode="bilinear")
