"""Grids: what is refused, and the grid that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

import undertow as ut


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "linear"}, ValueError, "expected mode to be"),
        ({"padding_mode": "wrap"}, ValueError, "expected padding_mode to be"),
        ({"grid": (1, 2, 2, 3)}, RuntimeError, "expected grid to have size 2 in last dimension"),
        ({"grid": (2, 2, 2, 2)}, RuntimeError, "same batch size"),
        ({"grid": (1, 2, 2)}, RuntimeError, "expected 4D or 5D input and grid with same number of dimensions"),
        ({"input": (1, 1, 0, 2)}, RuntimeError, "non-empty spatial dimensions"),
        (
            {"input": (1, 1, 2, 2, 2), "grid": (1, 2, 2, 2, 3), "mode": "bicubic"},
            RuntimeError,
            "only supports 4D input",
        ),
    ],
)
def test_grid_sample_refuses(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"input": (1, 1, 2, 2), "grid": (1, 2, 2, 2), **arguments}
    tensors = [ut.zeros(*given.pop(name)) for name in ("input", "grid")]
    with pytest.raises(error, match=words):
        ut.grid_sample(*tensors, align_corners=False, **given)


@pytest.mark.parametrize(
    ("theta", "size", "error", "words"),
    [
        ((1, 2, 3), (1, 1, 2), NotImplementedError, "only supports 4D and 5D sizes"),
        ((1, 2, 2), (1, 1, 2, 2), ValueError, "Expected a batch of 2D affine matrices of shape Nx2x3"),
        ((1, 2, 3), (1, 1, 0, 2), ValueError, "Expected non-zero, positive output size"),
    ],
)
def test_affine_grid_refuses(theta: Any, size: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ut.affine_grid(ut.zeros(*theta), size, align_corners=False)


def test_the_default_of_align_corners_is_remarked_on() -> None:
    with pytest.warns(UserWarning, match="align_corners"):
        ut.grid_sample(ut.zeros(1, 1, 2, 2), ut.zeros(1, 1, 1, 2))


def test_the_identity_grid_gives_the_image_back() -> None:
    image = ut.randn(2, 3, 4, 5)
    for corners in (True, False):
        grid = ut.affine_grid(ut.eye(2, 3).expand(2, 2, 3), tuple(image.shape), align_corners=corners)
        assert ut.allclose(ut.grid_sample(image, grid, align_corners=corners), image, atol=1e-5)
