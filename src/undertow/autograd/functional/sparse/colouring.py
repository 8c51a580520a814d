"""Colouring the lines of a sparse matrix, so that one product with a vector computes all lines of a colour.

Lines (rows or columns) that have no entry in the same place may share a colour: the sum of such lines still shows every
entry of each of them. A matrix with three diagonals needs three colours, whatever its size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Lines = list[list[int]]


def lines_of(first: Sequence[int], second: Sequence[int], count: int) -> Lines:
    """For each of `count` lines, the places of its entries; `first` has the line of each entry, `second` its place."""
    lines: Lines = [[] for _ in range(count)]
    for line, place in zip(first, second, strict=True):
        lines[line].append(place)
    return lines


def colour_lines(lines: Lines, places: int) -> list[int]:
    """A colour for each line, such that lines of one colour have no place in common.

    Greedy, in two orders: as they come, which suits bands and blocks, and those with the most neighbours first.
    """
    counts = _counts(lines, places)
    fewest = max(counts, default=0)  # lines with an entry in the same place all need different colours
    found = _greedy(lines, places, range(len(lines)))
    if max(found, default=-1) < fewest:
        return found
    neighbours = [sum([counts[p] for p in line]) for line in lines]
    other = _greedy(lines, places, sorted(range(len(lines)), key=lambda k: -neighbours[k]))
    return min(found, other, key=max)


def _counts(lines: Lines, places: int) -> list[int]:
    counts = [0] * places
    for line in lines:
        for place in line:
            counts[place] += 1
    return counts


def _greedy(lines: Lines, places: int, order: Sequence[int]) -> list[int]:
    """Each line gets the first colour that none of its places has seen. Sets of colours are the bits of integers."""
    colours = [0] * len(lines)
    seen = [0] * places
    for k in order:
        taken = 0
        for place in lines[k]:
            taken |= seen[place]
        bit = ~taken & (taken + 1)
        for place in lines[k]:
            seen[place] |= bit
        colours[k] = bit.bit_length() - 1
    return colours


def star_colours(neighbours: Lines) -> list[int]:
    """A colour for each line of a symmetric matrix, such that every entry shows in its line or in its mirror image's.

    Lines next to each other differ, and no path over four of them has two colours only. `neighbours`: for each line the
    places of its entries, its own perhaps among them.
    """
    colours = [-1] * len(neighbours)
    uses: list[int] = []
    for k in sorted(range(len(neighbours)), key=lambda k: -len(neighbours[k])):
        taken = _taken_around(k, neighbours, colours, uses)
        colour = next(c for c in range(len(taken) + 1) if c not in taken)
        if colour == len(uses):
            uses.append(0)
        uses[colour] += 1
        colours[k] = colour
    return colours


def _taken_around(k: int, neighbours: Lines, colours: list[int], uses: list[int]) -> set[int]:
    """The colours that would put line k next to its own colour, or on a path of four lines with two colours."""
    around = [near for near in neighbours[k] if colours[near] >= 0]
    taken = {colours[near] for near in around}
    times = Counter([colours[near] for near in around])
    for near in around:
        colour = colours[near]
        if uses[colour] == 1:  # no path has it twice
            continue
        for far in neighbours[near]:
            other = colours[far]
            if far != near and other not in taken and (
                times[colour] > 1 or _has_another(far, colour, near, neighbours, colours)
            ):  # fmt: skip
                taken.add(other)
    return taken


def _has_another(far: int, colour: int, near: int, neighbours: Lines, colours: list[int]) -> bool:
    """Whether a line has a neighbour of that colour besides `near`."""
    return any([colours[n] == colour and n != near for n in neighbours[far]])
