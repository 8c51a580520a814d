"""Sobol sequences: numbers that fill the unit cube evenly. Points, scrambled or not, are those of PyTorch."""

from __future__ import annotations

from typing import Any

from undertow import ops
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.interop.scipy.sobol import direction_numbers
from undertow.ops.random.generator import Generator


class SobolEngine:
    """Draws the points of a Sobol sequence in `dimension` dimensions, in order.

    >>> SobolEngine(2).draw(4).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]

    scramble  whether digits are mixed at random; `seed` says how, or the default generator does
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate: Any = ops.as_tensor(direction_numbers(dimension, self.MAXBIT))
        self.shift: Any = ops.zeros(dimension, dtype=dtypes.int64)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def _scramble(self) -> None:
        """Multiply the digits of direction numbers with random matrices, modulo 2, and choose where points begin."""
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        digits = ops.randint(2, (self.dimension, self.MAXBIT), generator=generator)
        self.shift = (digits << ops.arange(self.MAXBIT)).sum(-1)
        matrices = ops.randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=generator).tril()
        matrices.diagonal(0, -2, -1).fill_(1)
        places = ops.arange(self.MAXBIT - 1, -1, -1)
        highest_first = (self.sobolstate.unsqueeze(-1) >> places) & 1
        mixed = ops.einsum("dpq,djq->djp", matrices.double(), highest_first.double()).long() % 2
        self.sobolstate = (mixed << places).sum(-1)

    def draw(self, n: int = 1, out: Any = None, dtype: DType = None) -> Any:
        """The next `n` points, of shape (n, dimension)."""
        numbers = self._advance(n)
        result = (numbers.double() / 2**self.MAXBIT).to(dtype or dtypes.default_dtype())
        if out is not None:
            return out.resize_as_(result).copy_(result)
        return result

    def draw_base2(self, m: int, out: Any = None, dtype: DType = None) -> Any:
        """The next 2**m points; with those before they must be a power of 2."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points "
                f"have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do "
                "this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out `n` points."""
        self._advance(n)
        return self

    def reset(self) -> SobolEngine:
        """Begin anew."""
        self.quasi, self.num_generated = self.shift.clone(), 0
        return self

    def _advance(self, n: int) -> Any:
        """The next `n` points as integers: each differs from the one before by one direction number, by Gray code."""
        points = []
        for k in range(self.num_generated, self.num_generated + n):
            if k:
                lowest_zero = (~(k - 1) & k).bit_length() - 1
                self.quasi = self.quasi ^ self.sobolstate[:, lowest_zero]
            points.append(self.quasi)
        self.num_generated += n
        return ops.stack(points) if points else self.shift.new_empty((0, self.dimension))

    def __repr__(self) -> str:
        facts = [f"dimension={self.dimension}", *["scramble=True"] * self.scramble]
        return f"SobolEngine({', '.join(facts + [f'seed={self.seed}'] * (self.seed is not None))})"
