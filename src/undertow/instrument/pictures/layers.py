"""A layered layout for small graphs: longest paths give the layers, medians of neighbours the order within them.

An edge over several layers goes through a place in each of them, so that it passes between nodes instead of over them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

GAP, BETWEEN, HEIGHT, BEND = 18.0, 34.0, 36.0, 8.0


class Placed:
    """Where everything is: centres of nodes, points of edges, and the size of the whole."""

    def __init__(self, widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> None:
        self.count = len(widths)
        self.widths = list(widths)
        self.ranks = ranks_of(self.count, edges)
        self.paths: list[list[int]] = []
        self.up: list[list[int]] = [[] for _ in widths]
        self.down: list[list[int]] = [[] for _ in widths]
        for above, below in edges:
            self.paths.append(self.path(above, below))
        self.layers: list[list[int]] = [[] for _ in range(max(self.ranks, default=-1) + 1)]
        for place, rank in enumerate(self.ranks):
            self.layers[rank].append(place)
        self.order()
        self.x = [0.0] * len(self.ranks)
        self.align()

    def path(self, above: int, below: int) -> list[int]:
        """The places that an edge goes through; those between its ends are made for it."""
        places = [above]
        for rank in range(self.ranks[above] + 1, self.ranks[below]):
            places.append(len(self.ranks))
            self.ranks.append(rank)
            self.widths.append(BEND)
            self.up.append([])
            self.down.append([])
        places.append(below)
        for one, other in itertools.pairwise(places):
            self.down[one].append(other)
            self.up[other].append(one)
        return places

    def order(self) -> None:
        """Sort each layer by the medians of its neighbours, downwards and upwards in turn."""
        where = {place: k for layer in self.layers for k, place in enumerate(layer)}
        for sweep in range(8):
            neighbours = self.up if sweep % 2 == 0 else self.down
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                layer.sort(key=lambda place: median([where[n] for n in neighbours[place]], where[place]))
                for k, place in enumerate(layer):
                    where[place] = k

    def align(self) -> None:
        """Give each place the mean of its neighbours' positions, as far as there is room beside the others."""
        for layer in self.layers:
            self.pack(layer, [float(k) for k in range(len(layer))])
        for sweep in range(10):
            neighbours = self.up if sweep % 2 == 0 else self.down
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                wishes = [mean([self.x[n] for n in neighbours[place]], self.x[place]) for place in layer]
                self.pack(layer, wishes)
        left = min([self.x[p] - self.widths[p] / 2 for p in range(self.count)], default=0.0) - GAP
        self.x = [x - left for x in self.x]

    def pack(self, layer: list[int], wishes: list[float]) -> None:
        """Positions as near to the wishes as they can be in this order: once from the left, once from the right."""
        from_left, edge = [], float("-inf")
        for place, wish in zip(layer, wishes, strict=True):
            at = max(wish, edge + self.widths[place] / 2)
            edge = at + self.widths[place] / 2 + GAP
            from_left.append(at)
        from_right, edge = [0.0] * len(layer), float("inf")
        for k in range(len(layer) - 1, -1, -1):
            place = layer[k]
            at = min(wishes[k], edge - self.widths[place] / 2)
            edge = at - self.widths[place] / 2 - GAP
            from_right[k] = at
        for place, one, other in zip(layer, from_left, from_right, strict=True):
            self.x[place] = (one + other) / 2  # both keep their distances, and so does the middle

    def centre(self, place: int) -> tuple[float, float]:
        return self.x[place], GAP + HEIGHT / 2 + self.ranks[place] * (HEIGHT + BETWEEN)

    def points(self, number: int) -> list[tuple[float, float]]:
        """The points of an edge, from the lower side of one node to the upper side of the other."""
        places = self.paths[number]
        found = [self.centre(place) for place in places]
        found[0] = found[0][0], found[0][1] + HEIGHT / 2
        found[-1] = found[-1][0], found[-1][1] - HEIGHT / 2
        return found

    @property
    def size(self) -> tuple[float, float]:
        right = max([self.x[p] + self.widths[p] / 2 for p in range(self.count)], default=0.0)
        return right + GAP, 2 * GAP + len(self.layers) * (HEIGHT + BETWEEN) - BETWEEN


def ranks_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node from above; but what has nothing above it is next to what it leads to."""
    ranks, waiting = [0] * count, [0] * count
    down: list[list[int]] = [[] for _ in range(count)]
    for above, below in edges:
        down[above].append(below)
        waiting[below] += 1
    ready = [k for k in range(count) if not waiting[k]]
    for k in ready:
        for below in down[k]:
            ranks[below] = max(ranks[below], ranks[k] + 1)
            waiting[below] -= 1
            if not waiting[below]:
                ready.append(below)
    return ranks


def median(values: list[int], otherwise: float) -> float:
    values.sort()
    return otherwise if not values else (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
