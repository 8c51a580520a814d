"""Pictures made of characters: a curve, and images side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

#: from dark to bright
SHADES = " .:-=+*#%@"


def curve(values: Sequence[float], columns: int, rows: int) -> list[str]:
    """Numbers one after the other, none negative, on a logarithmic scale; each column is the mean of its part of them.

    >>> print("\\n".join(curve([8.0, 4.0, 2.0, 1.0], columns=4, rows=4)))
       8.00 |*
            | *
            |  *
       1.00 |   *
    """
    columns = min(columns, len(values))
    ends = [len(values) * k // columns for k in range(columns + 1)]
    means = [max(sum(values[a:b]) / (b - a), 1e-9) for a, b in pairwise(ends)]
    top, low = max(means), min(means)
    scale = (rows - 1) / math.log(top / low) if low < top else 0.0
    lines = [round(math.log(top / mean) * scale) for mean in means]
    labels = {0: f"{top:7.2f}", rows - 1: f"{low:7.2f}"}
    drawn = ["".join("*" if line == row else " " for line in lines).rstrip() for row in range(rows)]
    return [f"{labels.get(row, ''):7} |{text}".rstrip() for row, text in enumerate(drawn)]


def images_beside(images: Any, titles: Sequence[str]) -> list[str]:
    """Images (count x height x width, bright is 1) side by side, each under its title; a point is two characters."""
    shades = (images.clamp(0, 1) * (len(SHADES) - 1)).round().int()
    width = 2 * images.shape[-1]
    rows = ["  ".join(f"{title:<{width}}" for title in titles)]
    for line in shades.transpose(0, 1).tolist():
        rows.append("  ".join("".join(2 * SHADES[shade] for shade in part) for part in line))
    return [row.rstrip() for row in rows]
