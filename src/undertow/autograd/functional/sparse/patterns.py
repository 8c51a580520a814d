"""Sparsity patterns: where a Jacobian may have entries. Read from what a caller gives, or found by probing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from undertow.autograd.functional.arguments import Tensors, as_tensors
from undertow.autograd.functional.rows_and_columns import Columns, Rows, size_of
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.interop.scipy.sparse import coordinates, is_sparse
from undertow.long_loops import long_loop
from undertow.tensor import Tensor

#: how many lines of a Jacobian are probed at a time
CHUNK = 256


class SparsityPattern:
    """Where a matrix may have entries: their rows and columns, each pair once, by rows; and its shape.

    plans       what was found out about the pattern, so that it is found out once
    rows, cols  integers, one of each for every entry

    >>> import undertow as ut
    >>> pattern = ut.autograd.functional.sparsity_pattern(ut.sin, ut.ones(3))
    >>> pattern.shape, len(pattern.rows)
    ((3, 3), 3)
    """

    __slots__ = ("cols", "plans", "rows", "shape")

    def __init__(self, rows: Array, cols: Array, shape: tuple[int, int]) -> None:
        for numbers, size, what in ((rows, shape[0], "rows"), (cols, shape[1], "columns")):
            if len(numbers) and (numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= size):
                raise IndexError(f"sparsity: the {what} must be whole numbers from 0 to {size - 1}")
        if len(rows) != len(cols):
            raise ValueError(f"sparsity: {len(rows)} rows and {len(cols)} columns were given; each entry has both")
        width = max(shape[1], 1)
        places = cpu.unique(cpu.asarray(rows, "int64") * width + cpu.asarray(cols, "int64"))
        self.rows, self.cols, self.shape = places // width, places % width, shape
        self.plans: dict[Any, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter((self.rows, self.cols, self.shape))

    def __repr__(self) -> str:
        return f"SparsityPattern(shape={self.shape}, entries={len(self.rows)})"


# ---- given


def read_pattern(sparsity: Any, shape: tuple[int, int]) -> SparsityPattern:
    """A pattern as callers give it: a matrix, dense or of SciPy, whose nonzeros count, or a pair (rows, columns)."""
    given: tuple[int, ...] = shape
    if isinstance(sparsity, SparsityPattern):
        rows, cols, given = sparsity
    elif is_sparse(sparsity):
        rows, cols, given = coordinates(sparsity)
    elif isinstance(sparsity, tuple) and len(sparsity) == 2:
        rows, cols = [cpu.asarray(_array(part)) for part in sparsity]
    else:
        matrix = cpu.asarray(_array(sparsity))
        if matrix.ndim != 2:
            raise ValueError(
                "sparsity: expected a matrix, a SciPy sparse array, a pair (rows, columns) or 'detect', got "
                f"{sparsity!r}"[:300]
            )
        (rows, cols), given = cpu.nonzero(matrix), matrix.shape
    if tuple(given) != shape:
        raise ValueError(
            f"sparsity has shape {tuple(given)}, but the Jacobian has {shape}: a row for each element of the outputs, "
            "a column for each element of the inputs"
        )
    return sparsity if isinstance(sparsity, SparsityPattern) else SparsityPattern(rows, cols, shape)


def _array(value: Array) -> Array:
    return value._array if isinstance(value, Tensor) else value


# ---- found by probing


def sparsity_pattern(
    func: Callable[..., Any], inputs: Any, samples: int = 2, *, chunk_size: int = CHUNK
) -> SparsityPattern:
    """Where the Jacobian of `func` has entries at `inputs`, or at one of `samples` random points nearby.

    It costs as much as the dense Jacobian at each of the points, in passes, but only `chunk_size` lines are held in
    memory at a time. The pattern can be used for `jacobian(..., sparsity=)` again and again, and its lines are coloured
    once. It is exact at the points that were probed. Elsewhere a branch that was not taken there may add entries;
    `jacobian` notices (see `verify`).

    >>> import undertow as ut
    >>> rows, cols, shape = sparsity_pattern(lambda x: x[1:] * x[:-1], ut.zeros(3))
    >>> list(zip(rows.tolist(), cols.tolist()))
    [(0, 0), (0, 1), (1, 1), (1, 2)]
    """
    _, given = as_tensors(inputs, "inputs", "sparsity_pattern")
    random = Random(0)
    points = [given] + [tuple([_nearby(t, random) for t in given]) for _ in range(samples)]
    found = [_probed(func, point, chunk_size) for point in points]
    rows, cols = (cpu.concatenate([getattr(f, part) for f in found]) for part in ("rows", "cols"))
    return SparsityPattern(rows, cols, found[0].shape)


def _nearby(tensor: Tensor, random: Random) -> Tensor:
    """Another point, also for zeros: a tenth of one plus the size away."""
    xp, array = tensor._xp, tensor._array
    steps = xp.asarray([random.uniform(-0.1, 0.1) for _ in range(array.size)], array.dtype).reshape(array.shape)
    return Tensor(array + steps * (1 + abs(array)), xp)


def _probed(func: Callable[..., Any], given: Tensors, chunk_size: int) -> SparsityPattern:
    """The nonzeros of the Jacobian at one point, by rows or by columns, whichever are fewer."""
    by_rows = Rows(func, given, False)
    shape = size_of(by_rows.seeded), size_of(given)
    lines: Rows | Columns = by_rows if shape[0] <= shape[1] else Columns(func, given, False)
    first, second = [], []
    starts = range(0, size_of(lines.seeded), chunk_size)
    for start in long_loop(starts, len(starts), "sparsity pattern"):
        stop = min(start + chunk_size, size_of(lines.seeded))
        basis = cpu.eye(stop - start, size_of(lines.seeded), start)
        for seeds in (basis, basis * 1j) if any([t.dtype.kind == "c" for t in lines.seeded]) else (basis,):
            line, place = cpu.nonzero(lines.products(seeds, vectorize=True)._array)  # also what is not a number
            first.append(line + start)
            second.append(place)
    pattern = [cpu.concatenate(part) if part else cpu.zeros(0, "int64") for part in (first, second)]
    rows, cols = pattern if lines is by_rows else pattern[::-1]
    return SparsityPattern(rows, cols, shape)
