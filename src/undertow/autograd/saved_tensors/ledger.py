"""The ledger of a graph: which tensors backward keeps alive, how large they are, and which line saved them.

>>> import undertow as ut
>>> x = ut.ones(1000, requires_grad=True)
>>> loss = (x.exp() * x).sum()
>>> report = ut.autograd.graph.saved_tensors_report(loss)
>>> sorted([(row.node, row.argument, row.bytes) for row in report.rows])
[('ExpBackward0', 'result', 4000), ('MulBackward0', 'other', 4000), ('MulBackward0', 'self', 4000)]
>>> report.total_bytes, report.leaf_bytes
(8000, 4000)

The report holds text and numbers, nothing of the graph itself, so keeping it keeps no memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from undertow.autograd.gradient_edge import GradientEdge
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.graph.accumulate import AccumulateGrad, gradient_edge
from undertow.graph.copy_slices import CopySlices
from undertow.graph.node import Node, site_of
from undertow.graph.operation_node import DeclaredNode
from undertow.graph.saved import Freed, SavedTensor
from undertow.tensor import Tensor

# ---- what one node saves


class Saved(NamedTuple):
    """One value that a node keeps: a Tensor, an array, or (kind "packed") what a pack hook made of it."""

    argument: str
    kind: str
    value: Any


def saved_values(node: Node) -> Iterator[Saved]:
    """What a node keeps for its backward, without unpacking or copying anything."""
    if isinstance(node, CopySlices):
        yield from saved_values(node.node)
        return
    if type(node._kept) is Freed:
        return
    if isinstance(node, DeclaredNode):
        yield from _compiled_values(node)
    else:
        for index, saved in enumerate(node._kept):
            yield from _opened(saved, f"saved_tensors[{index}]", "input")
    for name, value in getattr(node, "__dict__", {}).items():
        for found in _tensors_in(value):
            yield Saved(f"ctx.{name}", "attribute", found)


def _compiled_values(node: DeclaredNode) -> Iterator[Saved]:
    for argument, (kind, place) in node.saved_names.items():
        if kind == "value":
            for found in _tensors_in(node.params[place]):
                yield Saved(argument, kind, found)
        else:
            yield from _opened(getattr(node, f"saved_{place if kind == 'input' else place[0]}"), argument, kind)


def saved_numbers(node: Node) -> Iterator[tuple[str, complex]]:
    """The numbers among what a compiled node keeps, by argument."""
    for argument, (kind, place) in node.saved_names.items():
        if kind == "value" and isinstance(node.params[place], float | complex):
            yield argument, node.params[place]


def _opened(slot: Any, argument: str, kind: str) -> Iterator[Saved]:
    if isinstance(slot, SavedTensor):
        kind = slot.kind
        slot = slot.data
    if slot is not None:
        yield Saved(argument, kind, slot)


def _tensors_in(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor | cpu.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors_in(item)


# ---- how large it is


def storage_of(array: Array) -> Array:
    """The array that owns the memory which `array` shows."""
    base = array.base
    while hasattr(base, "__array_interface__") or hasattr(base, "__cuda_array_interface__"):
        array, base = base, base.base
    return array


def _memory_of(value: Any) -> list[Any] | None:
    """What takes memory in a saved value, each with its `nbytes` (bytes: themselves); None if that is unknown."""
    if isinstance(value, Tensor):
        return [value._array]
    if isinstance(value, bytes | bytearray):
        return [value]
    if isinstance(value, str | int | float | complex | None) or type(value) is type(cpu.device):
        return []
    if isinstance(value, tuple | list):
        parts = [_memory_of(item) for item in value]
        return None if any(part is None for part in parts) else [memory for part in parts for memory in part or ()]
    return [value] if isinstance(getattr(value, "nbytes", None), int) else None


def _size_of(memory: Any) -> int:
    return len(memory) if isinstance(memory, bytes | bytearray) else int(memory.nbytes)


def _owner(memory: Any) -> Any:
    return storage_of(memory) if hasattr(memory, "base") else memory


class Row(NamedTuple):
    """One saved tensor.

    node       the name of the node that keeps it
    argument   under which name: `self` is read as `grad_fn._saved_self`
    kind       input, output, attribute (of a custom Function's ctx), value, or packed (by a saved-tensor hook)
    shape, dtype   of the tensor; None if it is packed
    bytes      its own size; None if a hook packed it into something of unknown size
    counted    what it adds to the total: the memory behind it, unless an earlier row has counted that already
    is_leaf    whether its memory is that of a leaf of the graph, which the program keeps alive anyway
    line       where the node was recorded
    """

    node: str
    argument: str
    kind: str
    shape: tuple[int, ...] | None
    dtype: str | None
    bytes: int | None
    counted: int
    is_leaf: bool
    line: str | None


class SavedTensorsReport:
    """What `saved_tensors_report` returns: `rows` in the order of the forward pass, and totals.

    >>> import undertow as ut
    >>> x = ut.ones(256, requires_grad=True)
    >>> ut.autograd.graph.saved_tensors_report(x.exp()).total_bytes
    1024
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        #: memory that the graph keeps alive; every storage counted once, also if only part of it is saved
        self.total_bytes = 0
        #: the part of it that belongs to leaves, which the program keeps alive anyway
        self.leaf_bytes = 0
        self.storages = 0
        #: saved tensors that hooks packed into something of unknown size
        self.unknown = 0
        self.nodes = 0
        #: nodes whose saved tensors a backward pass has released
        self.freed = 0

    def __str__(self) -> str:
        return _table(self)

    def __repr__(self) -> str:
        return f"<SavedTensorsReport: {len(self.rows)} saved tensors, {self.total_bytes} bytes>"

    def _repr_html_(self) -> str:
        cells = "".join(_html_row("td", line) for line in _lines(self))
        return f"<table>{_html_row('th', HEADER)}{cells}</table><p>{_escaped(_summary(self))}</p>"


class _Count:
    """Fills a report; knows which storages were counted, and holds them so that no address comes twice."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.report = SavedTensorsReport()
        self.leaves = {id(storage_of(leaf._array)) for leaf in leaves}
        self.counted: dict[int, Any] = {}
        self.lines: dict[Any, str | None] = {}  # most nodes of a deep graph come from few lines

    def add_node(self, node: Node) -> None:
        self.report.nodes += 1
        inner = node.node if isinstance(node, CopySlices) else node
        if type(inner._kept) is Freed:
            self.report.freed += 1
        name = f"CopySlices({inner.name()})" if inner is not node else node.name()
        for saved in saved_values(node):
            self.add(name, self.line(inner), saved)

    def line(self, node: Node) -> str | None:
        site = getattr(node, "code", None), getattr(node, "lasti", None)
        if site not in self.lines:
            self.lines[site] = site_of(node)
        return self.lines[site]

    def add(self, name: str, line: str | None, saved: Saved) -> None:
        packed = saved.kind == "packed"
        memory = _memory_of(saved.value)
        size = None if memory is None else sum(map(_size_of, memory))
        counted = sum(map(self.count, memory or ()))
        shape = None if packed else tuple(saved.value.shape)
        dtype = None if packed else saved.value.dtype.name
        is_leaf = bool(memory) and all([id(_owner(m)) in self.leaves for m in memory or ()])
        self.report.rows.append(Row(name, saved.argument, saved.kind, shape, dtype, size, counted, is_leaf, line))
        self.report.total_bytes += counted
        self.report.leaf_bytes += counted if is_leaf else 0
        self.report.unknown += memory is None

    def count(self, memory: Any) -> int:
        owner = _owner(memory)
        if id(owner) in self.counted:
            return 0
        self.counted[id(owner)] = owner
        self.report.storages += 1
        return _size_of(owner)


def saved_tensors_report(outputs: Any) -> SavedTensorsReport:
    """Which tensors the graph of `outputs` keeps for backward: `print` it, show it in a notebook, or read its `rows`.

    outputs  a tensor, a GradientEdge, a node, or a sequence of them

    Nothing is unpacked: what a saved-tensor hook packed counts with the size of the packed object, where that is known.

    >>> import undertow as ut
    >>> x = ut.ones(256, requires_grad=True)
    >>> ut.autograd.graph.saved_tensors_report(x.tanh().sum()).total_bytes
    1024
    """
    nodes = nodes_below(outputs)
    count = _Count([node.variable for node in nodes if isinstance(node, AccumulateGrad)])
    for node in nodes:
        if not isinstance(node, AccumulateGrad):
            count.add_node(node)
    return count.report


def nodes_below(outputs: Any) -> list[Node]:
    """Every node of the graph, in the order they were recorded, those of leaves last."""
    several = not isinstance(outputs, Tensor | GradientEdge | Node)
    stack = [_node_of(output) for output in (outputs if several else (outputs,))]
    seen = set(stack)
    while stack:
        for edge in stack.pop().next_edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return sorted(seen, key=lambda node: node.sequence_nr)


def _node_of(output: Tensor) -> Node:
    if isinstance(output, Node):
        return output
    edge = output if isinstance(output, GradientEdge) else gradient_edge(output)
    if edge is None:
        raise RuntimeError(
            "saved_tensors_report: the tensor does not require grad, so there is no graph behind it. Pass an output "
            "that was computed from a tensor with requires_grad=True."
        )
    node: Node = edge[0]
    return node


# ---- how it is shown

HEADER = ("node", "saved", "shape", "dtype", "bytes", "kept alive", "recorded at")
SHOWN = 40


def _lines(report: SavedTensorsReport) -> list[tuple[str, ...]]:
    """The rows as text: equal ones (of a loop) joined, those that keep most memory first."""
    groups: dict[Any, list[Row]] = {}
    for row in report.rows:
        groups.setdefault(row._replace(counted=0), []).append(row)
    ordered = sorted(groups.values(), key=lambda rows: -sum(row.counted for row in rows))
    lines = [_line(rows) for rows in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        rest = [row for rows in ordered[SHOWN:] for row in rows]
        lines.append((f"... {len(rest)} more", "", "", "", "", readable(sum(row.counted for row in rest)), ""))
    return lines


def _line(rows: list[Row]) -> tuple[str, ...]:
    row, times = rows[0], f" x{len(rows)}" if len(rows) > 1 else ""
    kept = "unknown" if row.bytes is None else readable(sum(r.counted for r in rows)) + " (leaf)" * row.is_leaf
    what = row.argument + {"packed": " (packed)", "attribute": " (attribute)"}.get(row.kind, "")
    size = "?" if row.bytes is None else readable(row.bytes)
    shape = "?" if row.shape is None else str(list(row.shape))
    return row.node, what + times, shape, row.dtype or "?", size, kept, _relative(row.line)


def _relative(line: str | None) -> str:
    here = os.getcwd() + os.sep
    return "" if line is None else line.removeprefix(here)


def readable(size: int) -> str:
    """A size as a person reads it: 512 B, 3.1 KiB, 12.0 MiB.

    >>> readable(3200)
    '3.1 KiB'
    """
    number, unit = float(size), 0
    while number >= 1024 and unit < 4:
        number, unit = number / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{number:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[unit - 1]}"


def _summary(report: SavedTensorsReport) -> str:
    counts = f"saved tensors: {len(report.rows)}, nodes: {report.nodes}, storages: {report.storages}"
    parts = [f"{readable(report.total_bytes)} kept alive ({counts})"]
    if report.leaf_bytes:
        parts.append(f"{readable(report.leaf_bytes)} of it in leaves, which live anyway")
    if report.unknown:
        parts.append(f"{report.unknown} packed into something of unknown size")
    if report.freed:
        parts.append(f"{report.freed} nodes already freed")
    return "; ".join(parts)


def _table(report: SavedTensorsReport) -> str:
    lines = [HEADER, *_lines(report)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEADER))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:], "", _summary(report)])


def _html_row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escaped(text: str) -> str:
    import html  # here, because only notebooks ask for it

    return html.escape(text)
