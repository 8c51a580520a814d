"""Pictures of graphs: as text, for Graphviz, as SVG, in notebooks."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow.instrument.notebook import module_html, node_html, tensor_html
from undertow.instrument.pictures.layers import GAP, Placed


def a_graph() -> tuple[Any, Any]:
    x = ut.ones(3, requires_grad=True)
    y = x.exp()
    return x, (y * y.sin()).sum()


def a_random_graph(seed: int, count: int = 30) -> Any:
    ut.manual_seed(seed)
    values = [ut.ones(2, requires_grad=True) for _ in range(3)]
    for _ in range(count):
        i, j = (int(k) for k in ut.randint(0, len(values), (2,)))
        values.append(values[i] * values[j])
    return ut.stack(values).sum()


# ---- text


def test_text_shows_what_is_shared() -> None:
    x, out = a_graph()
    lines = [line.partition("  test_pictures")[0] for line in ut.instrument.to_text(out, {"x": x}).splitlines()]
    assert lines == [
        "SumBackward0 []",
        "└─ MulBackward0 [3]",
        "   ├─ ExpBackward0 [3]  (1)",
        "   │  └─ x [3] leaf",
        "   └─ SinBackward0 [3]",
        "      └─ (1) ExpBackward0",
    ]


def test_text_of_a_deep_graph_and_of_several_outputs() -> None:
    x = ut.ones(1, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0
    assert len(ut.instrument.to_text([y.sum(), x.exp()]).splitlines()) == 3000 + 1 + 1 + 1 + 1


def test_leaves_are_named_by_a_module() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(2, 2))
    text = ut.instrument.to_text(model(ut.ones(1, 2)).sum(), model)
    assert "0.weight [2, 2] leaf" in text and "0.bias [2] leaf" in text
    with pytest.raises(TypeError, match="names must be a module, or a mapping"):
        ut.instrument.to_text(model(ut.ones(1, 2)).sum(), ["x"])


def test_a_tensor_without_graph_says_so() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        ut.instrument.to_text(ut.ones(2))


# ---- Graphviz


def test_dot_has_every_node_and_edge() -> None:
    x, out = a_graph()
    text = ut.instrument.to_dot(out, {'a "name"': x})
    assert text.count(" -> ") == 5 and text.count("[label=") == 5
    assert '[label="a \\"name\\"\\n[3]", fillcolor="#cfe8d8"]' in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it() -> None:
    picture = ut.instrument.to_svg(a_graph()[1], engine="graphviz")
    assert ET.fromstring(picture).tag.endswith("svg")


# ---- SVG


def test_svg_is_well_formed_and_complete(tmp_path: Path) -> None:
    x, out = a_graph()
    picture = ut.instrument.to_svg(out, tmp_path / "graph.svg", {"<x>": x}, engine="own")
    assert (tmp_path / "graph.svg").read_text() == picture
    tree = ET.fromstring(picture)
    texts = [each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("ExpBackward0") == 1 and "<x>" in texts
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}polyline"))) == 5


def test_graphviz_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert ut.instrument.to_svg(a_graph()[1]).startswith("<svg")
    with pytest.raises(RuntimeError, match="engine='own'"):
        ut.instrument.to_svg(a_graph()[1], engine="graphviz")
    with pytest.raises(ValueError, match="engine must be"):
        ut.instrument.to_svg(a_graph()[1], engine="dagre")


def test_a_graph_that_is_too_large_for_a_picture() -> None:
    with pytest.raises(ValueError, match=r"watch"):
        ut.instrument.to_svg(a_random_graph(0, 600))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_overlaps_in_a_layout(seed: int) -> None:
    from undertow.instrument.pictures.graph import read_graph

    graph = read_graph(a_random_graph(seed))
    widths = [40.0 + 7 * (k % 9) for k in range(len(graph.nodes))]
    placed = Placed(widths, graph.edges)
    for layer in placed.layers:
        ends = [(placed.x[p] - placed.widths[p] / 2, placed.x[p] + placed.widths[p] / 2) for p in layer]
        assert all(right + GAP <= left + 1e-6 for (_, right), (left, _) in itertools.pairwise(ends))
    for k, (above, below) in enumerate(graph.edges):
        points = placed.points(k)
        assert points[0][0] == placed.centre(above)[0] and points[-1][0] == placed.centre(below)[0]
        assert all(a[1] < b[1] for a, b in itertools.pairwise(points))


# ---- notebooks


def test_tensors_as_tables() -> None:
    text = tensor_html(ut.arange(30.0).reshape(15, 2).requires_grad_())
    assert text.count("<tr>") == 13 and "requires grad" in text and "<td>23</td>" in text
    assert "<td>…</td>" in tensor_html(ut.arange(30))
    assert "<pre>" in tensor_html(ut.ones(2, 2, 2)) and "<pre>" in tensor_html(ut.ones(0))
    assert "<pre>" in tensor_html(ut.eye(3).to_sparse())


def test_nodes_with_a_picture() -> None:
    text = node_html(a_graph()[1].grad_fn)
    assert "<svg" in text and "SumBackward0" in text
    assert "<svg" not in node_html(a_random_graph(1, 300).grad_fn)


def test_modules_as_a_tree() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.ReLU(), ut.nn.LazyLinear(4))
    assert model._repr_html_() == module_html(model)
    assert "<details" in model._repr_html_() and "9 parameters" in model._repr_html_()


def test_attached_where_ipython_came_first() -> None:
    program = (
        "import sys, types; sys.modules['IPython'] = types.ModuleType('IPython'); import undertow as ut; "
        "x = ut.ones(2, requires_grad=True); y = x * 2; "
        "print('<table>' in x._repr_html_(), '<svg' in y.grad_fn._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True True", done.stderr
    assert not hasattr(ut.Tensor, "_repr_html_") or "IPython" in sys.modules
