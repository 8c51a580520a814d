"""Images of digits: drawn from a small font, moved about, dimmed and covered with noise. Nothing is downloaded."""

from __future__ import annotations

from typing import Any

import undertow as ut
from undertow.data import TensorDataset

FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .###.
"""
#: height and width of a digit
HEIGHT, WIDTH = 7, 5
#: height and width of an image
SIDE = 12


def glyphs() -> Any:
    """The ten digits of the font: one where there is ink, zero elsewhere."""
    rows = [[[float(c == "#") for c in digit] for digit in line.split()] for line in FONT.split("\n") if line]
    return ut.stack([ut.as_tensor(row) for row in rows], dim=1)


def places(size: int, reach: int) -> tuple[int, int]:
    """Where a digit of that size may begin, from the first place to the one behind the last."""
    last = SIDE - size
    return max(0, last // 2 - reach), min(last, last // 2 + reach) + 1


def digits(count: int, seed: int, noise: float = 0.3, reach: int = SIDE) -> TensorDataset:
    """Images (1 x SIDE x SIDE), and what they show. A digit is at most `reach` points away from the middle.

    >>> image, label = digits(100, seed=0)[7]
    >>> image.shape, label.item() in range(10)
    (undertow.Size([1, 12, 12]), True)
    """
    chance = ut.Generator().manual_seed(seed)
    labels = ut.randint(10, (count,), generator=chance)
    images = noise * ut.randn(count, 1, SIDE, SIDE, generator=chance)
    tops, lefts = (ut.randint(*places(size, reach), (count,), generator=chance) for size in (HEIGHT, WIDTH))
    ink = (0.6 + 0.6 * ut.rand(count, 1, 1, generator=chance)) * glyphs()[labels]
    for image, digit, top, left in zip(images[:, 0], ink, tops.tolist(), lefts.tolist(), strict=True):
        image[top : top + HEIGHT, left : left + WIDTH] += digit
    return TensorDataset(images, labels)
