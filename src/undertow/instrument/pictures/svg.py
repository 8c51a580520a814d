"""Graphs as pictures: by Graphviz where it is installed, by a layout of our own elsewhere."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from undertow.instrument.pictures.dot import dot_text
from undertow.instrument.pictures.graph import MOST_NODES, Graph, read_graph
from undertow.instrument.pictures.layers import HEIGHT, Placed

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def to_svg(
    outputs: Tensor,
    path: str | os.PathLike[str] | None = None,
    names: Any = None,
    engine: str | None = None,
    most_nodes: int = MOST_NODES,
) -> str:
    """The graph of `outputs` as an SVG picture, which is returned and, if `path` is given, written.

    outputs     a tensor, a node, or a sequence of them
    names       of leaves: a module, or a mapping from names to tensors
    engine      "graphviz", "own", or None: Graphviz if its program `dot` is there
    most_nodes  a graph with more is an error

    >>> import undertow as ut
    >>> x = ut.ones(3, requires_grad=True)
    >>> ut.instrument.to_svg((x * 2).sum(), engine="own")[:4]
    '<svg'
    """
    if engine not in (None, "graphviz", "own"):
        raise ValueError(f"engine must be 'graphviz', 'own' or None, got {engine!r}")
    graph = read_graph(outputs, names, most_nodes)
    program = None if engine == "own" else shutil.which("dot")
    if engine == "graphviz" and program is None:
        raise RuntimeError(
            "to_svg(engine='graphviz') needs Graphviz's program `dot` on the PATH; engine='own' does not"
        )
    text = svg_text(graph) if program is None else drawn_by(program, graph)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text


def drawn_by(program: str, graph: Graph) -> str:
    done = subprocess.run([program, "-Tsvg"], input=dot_text(graph), capture_output=True, text=True, check=True)
    return done.stdout[done.stdout.index("<svg") :]


STYLE = """text{font:12px system-ui,sans-serif;fill:#16202a;text-anchor:middle}.f{font-size:10px;fill:#5a6672}
rect{fill:#eef2f6;stroke:#8d99a6}.l{fill:#cfe8d8;stroke:#2a7f62}polyline{fill:none;stroke:#8d99a6}"""


def svg_text(graph: Graph) -> str:
    """The picture, by our own layout."""
    widths = [max(60.0, 7.4 * max(len(node.title), 0.85 * len(node.shape)) + 16) for node in graph.nodes]
    placed = Placed(widths, graph.edges)
    width, height = placed.size
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img"><style>{STYLE}</style>'
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8d99a6"/></marker></defs>'
    ]
    for k in range(len(graph.edges)):
        points = " ".join([f"{x:.1f},{y:.1f}" for x, y in placed.points(k)])
        parts.append(f'<polyline points="{points}" marker-end="url(#a)"/>')
    for k, node in enumerate(graph.nodes):
        x, y = placed.centre(k)
        kind = ' class="l"' if node.is_leaf else ""
        tooltip = f"<title>{html.escape(node.line)}</title>" if node.line else ""
        parts.append(
            f'<g>{tooltip}<rect{kind} x="{x - widths[k] / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{widths[k]:.1f}" '
            f'height="{HEIGHT:.0f}" rx="3"/><text x="{x:.1f}" y="{y - 2:.1f}">{html.escape(node.title)}</text>'
            f'<text class="f" x="{x:.1f}" y="{y + 12:.1f}">{html.escape(node.shape)}</text></g>'
        )
    return "".join([*parts, "</svg>"])
