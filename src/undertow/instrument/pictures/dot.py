"""Graphs in Graphviz's language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.instrument.pictures.graph import MOST_NODES, Graph, read_graph

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def to_dot(outputs: Tensor, names: Any = None, most_nodes: int = MOST_NODES) -> str:
    """The graph of `outputs` for Graphviz: gradients flow along the arrows.

    outputs     a tensor, a node, or a sequence of them
    names       of leaves: a module, or a mapping from names to tensors
    most_nodes  a graph with more is an error

    >>> import undertow as ut
    >>> x = ut.ones(3, requires_grad=True)
    >>> print(ut.instrument.to_dot((x * 2).sum(), {"x": x}))  # doctest: +ELLIPSIS
    digraph {
      node [shape=box, style=filled, fillcolor="#eef2f6", fontname="Helvetica", fontsize=11];
      0 [label="MulBackward0\\n[3]", tooltip="..."];
      1 [label="SumBackward0\\n[]", tooltip="..."];
      2 [label="x\\n[3]", fillcolor="#cfe8d8"];
      0 -> 2;
      1 -> 0;
    }
    """
    return dot_text(read_graph(outputs, names, most_nodes))


def dot_text(graph: Graph) -> str:
    lines = ["digraph {", '  node [shape=box, style=filled, fillcolor="#eef2f6", fontname="Helvetica", fontsize=11];']
    for k, node in enumerate(graph.nodes):
        colour = ', fillcolor="#cfe8d8"' if node.is_leaf else ""
        tooltip = f', tooltip="{quoted(node.line)}"' if node.line else ""
        lines.append(f'  {k} [label="{quoted(node.title)}\\n{node.shape}"{colour}{tooltip}];')
    lines += [f"  {above} -> {below};" for above, below in graph.edges]
    return "\n".join([*lines, "}"])


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
