"""Graphs as text: a tree from the outputs down, in which a node that is reached twice is written once, then named."""

from __future__ import annotations

from typing import Any

from undertow.instrument.pictures.graph import Graph, children_of, read_graph, several


def to_text(outputs: Any, names: Any = None, most_nodes: int = 10_000) -> str:
    """The graph of `outputs`, to be printed; where paths meet again, a number in parentheses stands for what is above.

    outputs     a tensor, a node, or a sequence of them
    names       of leaves: a module, or a mapping from names to tensors
    most_nodes  a graph with more is an error

    >>> import undertow as ut
    >>> x = ut.ones(3, requires_grad=True)
    >>> y = x.exp()
    >>> print(ut.instrument.to_text((y * y.sin()).sum(), {"x": x}).replace("<doctest", "#"))  # doctest: +ELLIPSIS
    SumBackward0 []  ...
    └─ MulBackward0 [3]  ...
       ├─ ExpBackward0 [3]  (1)  ...
       │  └─ x [3] leaf
       └─ SinBackward0 [3]  ...
          └─ (1) ExpBackward0
    """
    return text_of(read_graph(outputs, names, most_nodes))


def text_of(graph: Graph) -> str:
    below = children_of(graph)
    shared = several([number for _, number in graph.edges])
    marks: dict[int, int] = {}
    lines: list[str] = []
    # a stack instead of a recursion: graphs are deeper than Python's
    stack = [(number, "", "", "") for number in reversed(graph.roots)]
    while stack:
        number, before, branch, beneath = stack.pop()
        node = graph.nodes[number]
        if number in marks:
            lines.append(f"{before}{branch}({marks[number]}) {node.title}")
            continue
        mark = ""
        if number in shared and not node.is_leaf:
            marks[number] = len(marks) + 1
            mark = f"  ({marks[number]})"
        leaf = " leaf" if node.is_leaf and node.title != "leaf" else ""
        lines.append(f"{before}{branch}{node.title} {node.shape}{leaf}{mark}" + (f"  {node.line}" if node.line else ""))
        following = below[number]
        for k in range(len(following) - 1, -1, -1):
            last = k == len(following) - 1
            stack.append((following[k], before + beneath, "└─ " if last else "├─ ", "   " if last else "│  "))
    return "\n".join(lines)
