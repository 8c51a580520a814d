"""saved_tensors_report: what a graph keeps alive, counted once, with the lines that saved it."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import numpy as np
import pytest

import undertow as ut

report = ut.autograd.graph.saved_tensors_report


def facts(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted([(row.node, row.argument, row.kind, row.shape, row.bytes) for row in rows], key=str)


def line_of(marker: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        return f"{__file__}:{next(nr for nr, line in enumerate(file, 1) if line.rstrip().endswith(f'# {marker}'))} in"


def test_rows_say_what_is_saved_by_which_line() -> None:
    x = ut.ones(3, 4, requires_grad=True)
    y = x.exp()  # exp
    loss = (y * x).sum()
    found = report(loss)
    assert facts(found.rows) == [
        ("ExpBackward0", "result", "output", (3, 4), 48),
        ("MulBackward0", "other", "input", (3, 4), 48),
        ("MulBackward0", "self", "input", (3, 4), 48),
    ]
    assert line_of("exp") in found.rows[0].line
    assert {row.dtype for row in found.rows} == {"float32"}


def test_a_storage_is_counted_once() -> None:
    x = ut.ones(1000, requires_grad=True)
    y = x.exp()
    found = report((y * x).sum())
    assert found.total_bytes == 8000  # exp's result is also mul's input
    assert found.leaf_bytes == 4000
    assert found.storages == 2
    assert sum(row.counted for row in found.rows) == found.total_bytes


def test_a_small_view_keeps_all_of_its_memory() -> None:
    x = ut.ones(1000, requires_grad=True)
    whole = x * 1
    found = report(whole[:10].sin())
    (row,) = [row for row in found.rows if row.node == "SinBackward0"]
    assert (row.bytes, row.counted) == (40, 4000)


def test_overlapping_views_share_their_memory() -> None:
    whole = ut.ones(1000, requires_grad=True) * 1
    found = report(whole.unfold(0, 3, 1).sin().sum() + whole.exp().sum() + whole.as_strided((5, 5), (1, 2)).sin().sum())
    assert found.total_bytes == 4000 + 4000  # `whole`, and exp's result


def test_views_of_leaves_are_leaf_memory() -> None:
    w = ut.ones(10, 20, requires_grad=True)
    x = ut.ones(5, 20, requires_grad=True) * 1
    found = report((x @ w.T).sum())
    assert (found.leaf_bytes, found.total_bytes) == (800, 1200)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x + 1, []),
        (lambda x: x * 2, []),
        (lambda x: x.sum(), []),
        (lambda x: x.tanh(), [("TanhBackward0", "result")]),
        (lambda x: x[ut.tensor([0, 1])], [("IndexBackward0", "index0")]),
        (lambda x: ut.cat([x, x]), []),
    ],
)
def test_nothing_is_listed_that_is_not_saved(make: Any, expected: list[tuple[str, str]]) -> None:
    found = report(make(ut.ones(4, requires_grad=True)))
    assert [(row.node, row.argument) for row in found.rows] == expected


class Keeping(ut.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.save_for_backward(x, y, None)
        ctx.twice = y.detach() * 2
        ctx.arrays = [np.zeros(3), 5]
        ctx.number = 7
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def test_a_custom_function() -> None:
    found = report(Keeping.apply(ut.ones(4, requires_grad=True)))
    assert facts(found.rows) == [
        ("KeepingBackward", "ctx.arrays", "attribute", (3,), 24),
        ("KeepingBackward", "ctx.twice", "attribute", (4,), 16),
        ("KeepingBackward", "saved_tensors[0]", "input", (4,), 16),
        ("KeepingBackward", "saved_tensors[1]", "output", (4,), 16),
    ]
    assert all(f"{__file__}:" in row.line for row in found.rows)


def test_a_change_through_a_view() -> None:
    x = ut.ones(4, requires_grad=True)
    y = x * 1
    y[:2].mul_(x[2:])  # a slice
    found = report(y)
    assert {(row.node, row.argument) for row in found.rows} == {
        ("CopySlices(MulBackward0)", "self"), ("CopySlices(MulBackward0)", "other")}  # fmt: skip
    assert line_of("a slice") in found.rows[0].line


def test_packed_tensors_count_with_the_size_of_what_they_became() -> None:
    hooks = ut.autograd.graph.saved_tensors_hooks
    x = ut.ones(100, requires_grad=True)
    with hooks(lambda t: (t.device, t.numpy().tobytes()), lambda packed: ut.from_numpy(np.frombuffer(packed[1], "f"))):
        known = x.exp()
    with hooks(lambda t: {"opaque": t}, lambda packed: packed["opaque"]):
        unknown = x.exp()
    with hooks(lambda t: "a file name", lambda packed: x):
        elsewhere = x.exp()
    found = report([known, unknown, elsewhere])
    assert facts(found.rows) == [
        ("ExpBackward0", "result", "packed", None, 0),
        ("ExpBackward0", "result", "packed", None, 400),
        ("ExpBackward0", "result", "packed", None, None),
    ]
    assert (found.total_bytes, found.unknown) == (400, 1)
    assert "1 packed into something of unknown size" in str(found)


def test_nothing_is_unpacked() -> None:
    def unpack(packed: Any) -> Any:
        raise AssertionError("unpacked")

    with ut.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
        y = ut.ones(4, requires_grad=True).exp()
    assert report(y).total_bytes == 16


def test_after_backward_nothing_is_left() -> None:
    x = ut.ones(4, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    found = report(loss)
    assert (found.rows, found.total_bytes, found.freed) == ([], 0, 1)
    assert "1 nodes already freed" in str(found)


def test_it_takes_tensors_edges_nodes_and_several_of_them() -> None:
    x = ut.ones(4, requires_grad=True)
    y, z = x.exp(), x.tanh()
    edge = ut.autograd.graph.get_gradient_edge(y)
    for given in (y, edge, y.grad_fn):
        assert [row.node for row in report(given).rows] == ["ExpBackward0"]
    assert [row.node for row in report([y, z]).rows] == ["ExpBackward0", "TanhBackward0"]
    assert report(x).rows == []
    with pytest.raises(RuntimeError, match="does not require grad"):
        report(ut.ones(2))


def test_it_keeps_nothing_alive() -> None:
    gc.disable()
    x = ut.ones(4, requires_grad=True)
    y = x.exp()
    found, node = report(y), weakref.ref(y.grad_fn)
    del y
    assert node() is None and found.total_bytes == 16


def test_a_deep_graph() -> None:
    x = y = ut.ones(2, requires_grad=True)
    for _ in range(30_000):
        y = y.sin()
    started = time.process_time()
    found = report(y)
    assert len(found.rows) == 30_000 and found.total_bytes == 30_000 * 8
    assert time.process_time() - started < 10
    assert "self x29999" in str(found)  # one line for what one line of the program saved
    del x


def test_the_table_shows_the_largest_first() -> None:
    x = ut.ones(100, 100, requires_grad=True)
    small = x[0].exp()
    text = str(report((x.tanh() * x).sum() + small.sum()))
    lines = text.splitlines()
    assert lines[0].split() == ["node", "saved", "shape", "dtype", "bytes", "kept", "alive", "recorded", "at"]
    assert lines[2].startswith("TanhBackward0") or "(leaf)" in lines[2]
    assert "39.1 KiB" in lines[2] and "400 B" in text
    assert lines[-1].startswith("78.5 KiB kept alive (saved tensors: 4, nodes: ")
    assert "39.1 KiB of it in leaves, which live anyway" in lines[-1]


def test_a_long_table_is_cut() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x
    for k in range(60):
        y = y.reshape(2, *[1] * (k % 50)).sin().reshape(2).cos()
    text = str(report(y))
    assert len(text.splitlines()) < 60 and "... " in text


def test_the_notebook_gets_a_table() -> None:
    class Odd(Keeping):
        pass

    Odd._backward_cls.__name__ = "<Odd>"
    text = report(Odd.apply(ut.ones(4, requires_grad=True)))._repr_html_()
    assert text.startswith("<table><tr><th>node</th>") and text.count("<tr>") == 5
    assert "&lt;Odd&gt;" in text and "kept alive" in text
