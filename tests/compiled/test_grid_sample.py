"""Images at the points of a grid: the kernels against the formulas that run without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiled.threads import each_with
from undertow.backend import cpu, kernels
from undertow.compiled import core
from undertow.ops.network.grid_sample import PADDINGS, _sampled, _sampled_gradients

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

threads = each_with(1, 3)

#: shapes of images and of points
SHAPES = [((2, 3, 5, 7), (4, 6)), ((1, 1, 1, 1), (1, 3)), ((3, 2, 1, 6), (9, 20)), ((2, 4, 16, 9), (1, 130))]


def arrays(shapes: Any, dtype: str) -> tuple[Any, Any, Any]:
    rng, (images, points) = np.random.default_rng(6), shapes
    grid = rng.uniform(-2.5, 2.5, (images[0], *points, 2))
    grid.flat[: len(grid.flat) // 2] /= 2.5
    made = rng.standard_normal(images), grid, rng.standard_normal((*images[:2], *points))
    return tuple([array.astype(dtype) for array in made])  # type: ignore[return-value]


def without(monkeypatch: pytest.MonkeyPatch, function: Any, *arguments: Any) -> Any:
    with monkeypatch.context() as patch:
        for name in ("grid_sample", "grid_sample_gradients"):
            patch.setattr(kernels, name, lambda *arguments: None)
        return function(cpu, *arguments)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
def test_values_and_gradients(padding: str, align_corners: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerance = {"f": 2e-5, "d": 1e-13}[dtype]
    for shapes in SHAPES:
        image, grid, g = arrays(shapes, dtype)
        rest = PADDINGS.index(padding), align_corners
        found = core.grid_sample(image, grid, *rest)
        assert found.dtype == dtype
        expected = without(monkeypatch, _sampled, image, grid, padding, align_corners)
        np.testing.assert_allclose(found, expected, tolerance, tolerance)
        for needs in ((True, True), (False, True), (True, False)):
            both = core.grid_sample_gradients(image, grid, *rest, g, needs)
            slow = without(monkeypatch, _sampled_gradients, g, needs, image, grid, padding, align_corners)
            for one, other, is_needed in zip(both, slow, needs, strict=True):
                assert (one is None) == (not is_needed)
                if is_needed:
                    np.testing.assert_allclose(one, other, 10 * tolerance, 10 * tolerance)


@pytest.mark.parametrize("padding", PADDINGS)
def test_what_is_not_finite(padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element outside is not read: infinity times nothing would be NaN. A point that is nowhere stays so."""
    image, grid, _ = arrays(SHAPES[0], "d")
    image[:, :, 0, 0] = np.inf
    grid[0, 0, 0] = np.nan
    grid[0, 0, 1] = np.inf
    with np.errstate(invalid="ignore"):
        found = core.grid_sample(image, grid, PADDINGS.index(padding), False)
        expected = without(monkeypatch, _sampled, image, grid, padding, False)
    np.testing.assert_allclose(found, expected, 1e-13)


def test_threads_change_nothing() -> None:
    image, grid, g = arrays(((5, 3, 40, 40), (50, 50)), "f")
    found = [
        core.grid_sample(image, grid, 0, False),
        *core.grid_sample_gradients(image, grid, 0, False, g, (True, True)),
    ]
    core.set_threads(1)
    alone = [
        core.grid_sample(image, grid, 0, False),
        *core.grid_sample_gradients(image, grid, 0, False, g, (True, True)),
    ]
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_refused() -> None:
    image, grid, g = arrays(SHAPES[0], "f")
    for wrong in (image.astype("d"), image[0], image[:1], image[:, :, ::2], image[:0], image.astype(int)):
        assert core.grid_sample(wrong, grid, 0, False) is None
    assert core.grid_sample(image, grid[..., :1].copy(), 0, False) is None
    assert core.grid_sample(image, grid, 3, False) is None
    assert core.grid_sample_gradients(image, grid, 0, False, g[:1], (True, True)) is None
    assert core.grid_sample_gradients(image, grid, 0, False, g, True) is None
