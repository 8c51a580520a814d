"""Sparse Jacobians and Hessians: one pass for each colour of their lines, and a product that checks the pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from undertow.autograd.functional.arguments import Tensors, finished, unpacked
from undertow.autograd.functional.rows_and_columns import Columns, Rows, size_of
from undertow.autograd.functional.sparse.colouring import colour_lines, lines_of, star_colours
from undertow.autograd.functional.sparse.patterns import SparsityPattern, read_pattern, sparsity_pattern
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.errors import UndertowError
from undertow.interop.scipy.sparse import sparse_array
from undertow.ops.create.to_dtype_and_device import to
from undertow.tensor import Tensor


class SparsityError(UndertowError, RuntimeError):
    """A Jacobian has entries where its sparsity pattern has none.

    >>> import undertow as ut
    >>> issubclass(ut.autograd.functional.SparsityError, RuntimeError)
    True
    """


class Plan(NamedTuple):
    """How to compute the entries of a pattern.

    forward     by columns, in forward mode; else by rows
    colours     the colour of each column (row)
    line, place the column and row (row and column) of each entry
    read        in which product, and where in it, to read each entry
    """

    forward: bool
    colours: Any
    line: Any
    place: Any
    read: tuple[Any, Any]

    @property
    def passes(self) -> int:
        return int(self.colours.max()) + 1 if len(self.colours) else 0


class Wanted(NamedTuple):
    """How a caller wants a sparse matrix computed, and in what form. See `jacobian`."""

    create_graph: bool
    vectorize: bool
    strategy: str | None
    chunk_size: int | None
    verify: bool
    triplets: bool


# ---- colours


def plan_rows_or_columns(pattern: SparsityPattern, strategy: str | None) -> Plan:
    """By rows or by columns, whichever takes fewer passes, unless the caller has chosen."""
    if strategy is not None:
        return _plan(pattern, strategy)
    return min(_plan(pattern, "reverse-mode"), _plan(pattern, "forward-mode"), key=lambda plan: plan.passes)


def _plan(pattern: SparsityPattern, strategy: str) -> Plan:
    if strategy not in pattern.plans:
        rows, cols, shape = pattern
        forward = strategy == "forward-mode"
        pattern.plans[strategy] = _coloured(True, cols, rows, shape[::-1]) if forward else _coloured(False, *pattern)
    return pattern.plans[strategy]


def _coloured(forward: bool, line: Array, place: Array, shape: tuple[int, ...]) -> Plan:
    colours = cpu.asarray(colour_lines(lines_of(line.tolist(), place.tolist(), shape[0]), shape[1]), "int64")
    return Plan(forward, colours, line, place, (colours[line], place))


def plan_symmetric(pattern: SparsityPattern, strategy: str | None) -> Plan:
    """An entry is read from its own line if it is alone in its colour there, else from its mirror image's."""
    key = "symmetric", strategy
    if key not in pattern.plans:
        pattern.plans[key] = _star_coloured(pattern, strategy == "forward-mode")
    return pattern.plans[key]


def _star_coloured(pattern: SparsityPattern, forward: bool) -> Plan:
    line, place, shape = pattern
    colours = cpu.asarray(star_colours(lines_of(line.tolist(), place.tolist(), shape[0])), "int64")
    cell = place * (len(colours) + 1) + colours[line]  # what falls into the same place of the same product
    _, which, times = cpu.unique(cell, return_inverse=True, return_counts=True)
    alone = times[which] == 1
    read = cpu.where(alone, colours[line], colours[place]), cpu.where(alone, place, line)
    return Plan(forward, colours, line, place, read)


# ---- entries


def sparse_jacobian(func: Callable[..., Any], given: Tensors, several: bool, sparsity: Any, wanted: Wanted) -> Any:
    """A matrix for each pair of output and input, nested as the dense ones are."""
    rows = Rows(func, given, wanted.create_graph)
    pattern = pattern_for(func, given, sparsity, (size_of(rows.seeded), size_of(given)))
    plan = plan_rows_or_columns(pattern, wanted.strategy)
    entries = Entries(pattern, _values(func, rows, plan, wanted), plan.forward, wanted)
    blocks = entries.blocks(rows.seeded, given)
    return unpacked(tuple([unpacked(row, several) for row in blocks]), rows.several)


def sparse_hessian(gradient: Callable[..., Any], given: Tensors, several: bool, sparsity: Any, wanted: Wanted) -> Any:
    """A matrix for each pair of inputs, of a function that computes the gradient."""
    rows = Rows(gradient, given, wanted.create_graph)
    pattern = with_mirror_images(pattern_for(gradient, given, sparsity, (size_of(given), size_of(given))))
    plan = plan_symmetric(pattern, wanted.strategy)
    entries = Entries(pattern, _values(gradient, rows, plan, wanted), plan.forward, wanted)
    blocks = entries.blocks(given, given)
    return unpacked(tuple([unpacked(row, several) for row in blocks]), several)


def with_mirror_images(pattern: SparsityPattern) -> SparsityPattern:
    if "mirrored" not in pattern.plans:
        rows, cols, shape = pattern
        both = SparsityPattern(cpu.concatenate([rows, cols]), cpu.concatenate([cols, rows]), shape)
        pattern.plans["mirrored"] = both
    return pattern.plans["mirrored"]


def pattern_for(func: Callable[..., Any], given: Tensors, sparsity: Any, shape: tuple[int, int]) -> SparsityPattern:
    if isinstance(sparsity, str):
        if sparsity != "detect":
            raise ValueError(f"sparsity: expected a pattern or 'detect', got {sparsity!r}")
        return sparsity_pattern(func, given)
    return read_pattern(sparsity, shape)


def _values(func: Callable[..., Any], rows: Rows, plan: Plan, wanted: Wanted) -> Tensor:
    """The entries of the matrix, in the order of the pattern."""
    lines: Rows | Columns = Columns(func, rows.landing, wanted.create_graph) if plan.forward else rows
    if not plan.passes:
        return Tensor(cpu.zeros(0), cpu)
    seeds = seeds_of(plan, wanted.verify)
    products: Any = lines.products(seeds, wanted.vectorize, wanted.chunk_size)
    if wanted.verify:
        check_entries(plan, products._array, seeds[-1], precision_of((*rows.seeded, *rows.landing)))
    values: Tensor = products[plan.read]
    return values


def seeds_of(plan: Plan, verify: bool) -> Array:
    """A vector for each colour, and one of random numbers, to multiply the matrix with."""
    seeds = cpu.zeros((plan.passes + verify, len(plan.colours)))
    seeds[plan.colours, cpu.arange(len(plan.colours))] = 1
    if verify:
        random = Random(0)
        seeds[-1] = [random.choice((-1, 1)) * random.randint(2**19, 2**21) / 2**20 for _ in plan.colours]
    return seeds


def precision_of(tensors: Sequence[Tensor]) -> float:
    """The largest rounding error of a number of size one."""
    return max([float(cpu.finfo(t.dtype).eps) for t in tensors])


def check_entries(plan: Plan, products: Array, weights: Array, epsilon: float) -> None:
    """Raise unless nothing is outside of the pattern, as far as one random product and all the others can tell."""
    compressed, product, values = products[:-1], products[-1], products[plan.read]
    inside = cpu.zeros(compressed.shape, bool)
    inside[plan.colours[plan.line], plan.place] = True
    sizes = abs(compressed)
    noise = 100 * epsilon * float(sizes[cpu.isfinite(sizes)].max(initial=0))
    stray = ~(sizes <= noise) & ~inside
    expected, scale = cpu.zeros_like(product), cpu.zeros(product.shape)
    cpu.add.at(expected, plan.place, weights[plan.line].astype(products.dtype) * values)
    cpu.add.at(scale, plan.place, abs(weights[plan.line] * values))
    known = cpu.isfinite(scale)  # what is infinite, or no number, cannot be compared
    wrong = ~(abs(product[known] - expected[known]) <= epsilon**0.5 * scale[known] + noise)
    places = cpu.union1d(cpu.nonzero(stray.any(0))[0], cpu.nonzero(known)[0][wrong])
    if len(places):
        what = "rows" if plan.forward else "columns"
        raise SparsityError(
            f"the sparsity pattern is wrong: the matrix has entries outside of it in {len(places)} {what}, the first "
            f"of them {places[0]}. Give a pattern that has all entries ('detect' finds one), or leave sparsity out."
        )


# ---- results


class Entries(NamedTuple):
    """The entries of the matrix of all outputs and all inputs, and what the caller wants of them."""

    pattern: SparsityPattern
    values: Any
    forward: bool
    wanted: Wanted

    def blocks(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[tuple[Any, ...], ...]:
        """A matrix for each output and each input."""
        columns = with_starts(inputs)
        return tuple([tuple([self.block(*row, *column) for column in columns]) for row in with_starts(outputs)])

    def block(self, top: int, output: Tensor, left: int, point: Tensor) -> Any:
        height, width = output._array.size, point._array.size
        rows, cols, inside = part_of(self.pattern, top, left, (height, width))
        values = self.values if inside is None else self.values[inside]
        values = to(values, output.dtype if self.forward else point.dtype)
        if self.wanted.triplets:
            return Tensor(rows, cpu), Tensor(cols, cpu), finished(values, self.wanted.create_graph)
        return sparse_array(rows, cols, values._array, (height, width))


def part_of(pattern: SparsityPattern, top: int, left: int, size: tuple[int, int]) -> tuple[Any, Any, Any]:
    """The rows and columns of the entries in a block, counted from its corner, and which ones they are (None: all)."""
    rows, cols, shape = pattern
    if size == shape:
        return rows, cols, None
    inside = (rows >= top) & (rows < top + size[0]) & (cols >= left) & (cols < left + size[1])
    return rows[inside] - top, cols[inside] - left, inside


def with_starts(tensors: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Each tensor with the number of elements before it."""
    starts, total = [], 0
    for tensor in tensors:
        starts.append((total, tensor))
        total += tensor._array.size
    return starts
