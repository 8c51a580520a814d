"""Pieces: which part of a tensor a process has.

A tensor is divided in the order of its elements, row by row: process k of n has the k-th of n stretches of the same
length, but for the last ones, which may be shorter or empty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from undertow.tensor import Tensor


class Stretch(NamedTuple):
    """Elements from `start` to `stop` of a tensor of that shape, counted row by row."""

    shape: tuple[int, ...]
    start: int
    stop: int


def stretch_of(shape: tuple[int, ...], rank: int, size: int) -> Stretch:
    """What process `rank` of `size` has."""
    total, step = math.prod(shape), step_of(shape, size)
    return Stretch(shape, min(rank * step, total), min((rank + 1) * step, total))


def step_of(shape: tuple[int, ...], size: int) -> int:
    return -(-math.prod(shape) // size)


class Piece(NamedTuple):
    """The elements that this process has of a tensor: flat, and which ones they are."""

    tensor: Tensor
    stretch: Stretch
