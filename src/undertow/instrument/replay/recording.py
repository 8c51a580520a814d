"""What a watched backward pass was: its graph, and when each node ran, on which thread, with which gradients."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from threading import current_thread, get_ident
from time import perf_counter_ns
from typing import Any

from undertow.autograd.saved_tensors.ledger import saved_values
from undertow.backend import DeviceArray, cpu
from undertow.backend.interface import Array
from undertow.backend.sparse.protocol import AnySparse
from undertow.engine.tasks import GraphRoot, current_task
from undertow.engine.watch import Watch
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.node import Node, space_of
from undertow.instrument.memory import Allocations, Maker
from undertow.instrument.nodes import place_of
from undertow.instrument.replay import facts
from undertow.instrument.replay.paths import paths_of
from undertow.tensor import Tensor

BINS = 24
#: beyond this many elements a gradient is looked at in samples
MANY = 1_000_000


class Names:
    """Texts by number: most nodes share theirs with others."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def list(self) -> list[str]:
        return list(self.numbers)


class PassRecording(Watch):
    """One pass. The graph is read when its first node is about to run, because afterwards saved tensors are gone."""

    def __init__(self, watched: Mapping[int, str], parameters: Mapping[int, str]) -> None:
        self.watched, self.parameters = watched, parameters
        self.numbers: dict[Node, int] = {}
        self.names = Names()
        self.columns: dict[str, list[Any]] = {}
        self.edges: list[int] = []
        self.threads: dict[int, int] = {}
        self.thread_names: list[str] = []
        self.begun: dict[int, int] = {}
        self.allocations = Allocations()
        self.begin = 0
        self.end = 0
        self.error = ""

    # ---- while it runs

    def before(self, node: Node, grads: list[Any]) -> None:
        if not self.columns:
            self.read_graph()
        thread = get_ident()
        if thread not in self.threads:
            self.threads[thread] = len(self.thread_names)
            self.thread_names.append(current_thread().name)
        self.begun[thread] = perf_counter_ns()

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        end, thread = perf_counter_ns(), get_ident()
        number = self.numbers.get(node)
        if number is None:  # of a graph that was made while this pass ran
            return
        self.set(number, begin=self.begun[thread], end=end, thread=self.threads[thread])
        values = [_array(g) for g in grads]
        made = [_array(r) for r in results]
        self.set(number, gradient=_statistics(values), origin=_is_origin(values, made))
        if isinstance(node, AccumulateGrad):
            made = [_array(node.variable.grad)]
        self.allocations.note(made, Maker(node.name(), *place_of(node), ""), end, grads)
        self.end = max(self.end, end)

    def failed(self, node: Node, error: BaseException) -> None:
        number = self.numbers.get(node)
        if number is not None:
            begin = self.begun.get(get_ident(), perf_counter_ns())
            self.set(number, begin=begin, failed=1, thread=self.threads.get(get_ident(), 0))
        self.error = f"{type(error).__name__}: {error}"
        self.end = perf_counter_ns()

    def set(self, number: int, **values: Any) -> None:
        for name, value in values.items():
            self.columns[name][number] = value

    # ---- the graph

    def read_graph(self) -> None:
        task = current_task()
        assert task is not None and task.root is not None, "a node runs in a pass"
        nodes = reachable(task.root)
        self.numbers = {node: k for k, node in enumerate(nodes)}
        count = len(nodes)
        # leaves last in their order, but where their consumers are in the page: see paths.py
        paths = paths_of(nodes, self.watched, self.parameters)
        name = self.names
        lines = facts.Lines()
        self.columns = {
            "title": [name(facts.title_of(node)) for node in nodes],
            "path": [name(path) for path in paths],
            "line": [name(lines.of(node)[0]) for node in nodes],
            "source": [name(lines.of(node)[1]) for node in nodes],
            "shape": [name(facts.shape_of(node)) for node in nodes],
            "dtype": [name(facts.dtype_of(node)) for node in nodes],
            "formula": [name(facts.formulas_of(node)) for node in nodes],
            "leaf": [name(self.leaf_name(node)) for node in nodes],
            "saved": [facts.saved_by(node) for node in nodes],
            "hooks": [facts.hooks_on(node) for node in nodes],
            "sequence": [min(node.sequence_nr, 2**53 - 1) for node in nodes],
            "device": [name(str(space_of(node, 0).device)) for node in nodes],
            **{empty: [None] * count for empty in ("begin", "end", "thread", "gradient", "origin", "failed")},
        }
        for node, number in self.numbers.items():
            for index, edge in enumerate(node.next_edges):
                if edge is not None:
                    self.edges += [number, self.numbers[edge[0]], index]
        self.allocations.start()
        self.begin = perf_counter_ns()
        for node in nodes:
            for saved in saved_values(node):
                if saved.kind != "packed":
                    self.allocations.note(
                        saved.value, Maker(f"saved by {node.name()}", *place_of(node), ""), self.begin
                    )

    def leaf_name(self, node: Node) -> str:
        if not isinstance(node, AccumulateGrad):
            return ""
        return self.parameters.get(id(node.variable), "")

    # ---- afterwards

    def close(self) -> None:
        """The pass is over: let go of the graph."""
        self.allocations.stop()
        self.numbers.clear()

    def as_dict(self) -> dict[str, Any]:
        """What the page is given; times in microseconds since the pass began."""
        busy = Busy(self.columns.get("begin", []), self.columns.get("end", []), self.begin)

        def time(ns: int | None) -> float | None:
            return None if ns is None else round(busy.time(ns) / 1000, 3)

        columns = dict(self.columns)
        for name in ("begin", "end"):
            columns[name] = [time(value) for value in self.columns.get(name, [])]
        memory = [[time(when), alive] for when, alive in self.allocations.curve()]
        return {
            "nodes": columns, "edges": self.edges, "names": self.names.list(), "threads": self.thread_names,
            "memory": memory, "duration": time(self.end) or 0.0, "error": self.error,
        }  # fmt: skip


class Busy:
    """A clock that stands still while no node runs: what looking at gradients takes is no part of the pass."""

    LEAST = 200  # nanoseconds that are left of a pause

    def __init__(self, begins: list[int | None], ends: list[int | None], start: int) -> None:
        ran = sorted([(b, e) for b, e in zip(begins, ends, strict=True) if b is not None and e is not None])
        self.starts, self.saved = [start], [0]  # from each of these times on, so many nanoseconds have been left out
        free = start
        for begin, end in ran:
            pause = begin - free - self.LEAST
            if pause > 0:
                self.starts.append(begin)
                self.saved.append(self.saved[-1] + pause)
            free = max(free, end)
        self.start = start

    def time(self, ns: int) -> int:
        place = bisect_right(self.starts, ns) - 1
        if place < 0:
            return 0
        shown = ns - self.start - self.saved[place]
        if place + 1 < len(self.starts):  # in a pause, no further than to where the next node begins
            shown = min(shown, self.starts[place + 1] - self.start - self.saved[place + 1])
        return shown


def reachable(root: Node) -> list[Node]:
    """Every node below the root of a pass, in the order they were recorded, leaves last."""
    seen: dict[Node, None] = {}
    # the root of a pass is the only output's node, or a GraphRoot above several, which stands for nothing
    stack = [edge[0] for edge in root.next_edges if edge is not None] if isinstance(root, GraphRoot) else [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend([edge[0] for edge in node.next_edges if edge is not None])
    return sorted(seen, key=lambda node: node.sequence_nr)


# ---- gradients


def _array(value: Any) -> Any:
    return value._array if isinstance(value, Tensor) else value


def _numbers(array: Array) -> Any:
    """The values as real numbers, at most MANY of them; None for what has none."""
    if array is None or isinstance(array, AnySparse) or not hasattr(array, "dtype") or array.dtype.kind not in "fc":
        return None
    flat = cpu.asarray(array.to_host() if isinstance(array, DeviceArray) else array).ravel()
    if flat.size > MANY:
        flat = flat[:: flat.size // MANY + 1]
    return abs(flat) if flat.dtype.kind == "c" else flat


def _statistics(grads: list[Any]) -> list[Any] | None:
    """Norm, least, greatest, number of nan, number of inf, histogram: of the gradients that came in."""
    parts = [part for part in map(_numbers, grads) if part is not None and part.size]
    if not parts:
        return None
    values = cpu.concatenate([part.astype("float64") for part in parts])
    finite = values[cpu.isfinite(values)]
    nans = int((values != values).sum())
    infinite = values.size - finite.size - nans
    if not finite.size:
        return [None, None, None, nans, infinite, []]
    low, high = float(finite.min()), float(finite.max())
    norm = float((finite * finite).sum()) ** 0.5
    if not high - low < float("inf"):
        return [None, low, high, nans, infinite, []]
    places = ((finite - low) * (BINS / (high - low or 1.0))).astype("int64")
    counts = cpu.bincount(places.clip(0, BINS - 1), minlength=BINS)
    return [norm, low, high, nans, infinite, counts.tolist()]


def _is_origin(grads: list[Any], results: list[Any]) -> int:
    """Whether the node returned nan although it was given none."""
    return int(_has_nan(results) and not _has_nan(grads))


def _has_nan(arrays: list[Any]) -> bool:
    return any([bool((part != part).any()) for part in map(_numbers, arrays) if part is not None])
