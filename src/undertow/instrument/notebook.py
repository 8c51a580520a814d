"""How tensors, nodes and modules look in a notebook.

`_repr_html_` is put on Tensor and Node where IPython is loaded before undertow, as in every notebook, or by
`%load_ext undertow`; modules have it always.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from undertow.autograd.saved_tensors.ledger import nodes_below, readable
from undertow.graph.node import Node, site_of
from undertow.instrument.pictures.graph import read_graph
from undertow.instrument.pictures.svg import svg_text
from undertow.instrument.replay import facts
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.nn.module import Module

#: rows and columns of a matrix that are shown, and nodes of a graph
MOST_ROWS, MOST_COLUMNS, MOST_NODES = 12, 10, 60


def attach() -> None:
    """Let notebooks show tensors and nodes by the functions below."""
    Tensor._repr_html_ = tensor_html  # type: ignore[attr-defined]
    Node._repr_html_ = node_html  # type: ignore[attr-defined]


def tensor_html(tensor: Tensor) -> str:
    """A vector or a matrix as a table; anything else as it is printed."""
    facts_ = [f"{tensor.dtype} {list(tensor.shape)}", str(tensor.device)] + ["requires grad"] * tensor.requires_grad
    if tensor.grad_fn is not None:
        facts_.append(html.escape(tensor.grad_fn.name()))
    head = f"<div>tensor: {', '.join(facts_)}</div>"
    plain = tensor.layout is not None and not tensor.is_sparse and tensor.device.type == "cpu"
    if not plain or tensor.ndim not in (1, 2) or not tensor.numel():
        return f"{head}<pre>{html.escape(repr(tensor))}</pre>"
    rows = tensor.detach()
    rows = rows.reshape(1, -1) if tensor.ndim == 1 else rows
    shown = rows[:MOST_ROWS, :MOST_COLUMNS].tolist()
    more = rows.shape[1] > MOST_COLUMNS
    cells = ["<tr>" + "".join([f"<td>{number(v)}</td>" for v in row]) + "<td>…</td>" * more + "</tr>" for row in shown]
    if rows.shape[0] > MOST_ROWS:
        cells.append("<tr>" + "<td>⋮</td>" * (len(shown[0]) + more) + "</tr>")
    return f"{head}<table>{''.join(cells)}</table>"


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def node_html(node: Node) -> str:
    """What a node is, and a picture of what is below it."""
    saved = [f"{name} {shape} {dtype}" for name, shape, dtype, *_ in facts.saved_by(node)]
    rows = [
        ("gradient", f"{facts.shape_of(node)} {facts.dtype_of(node)}"),
        ("recorded at", site_of(node) or ""),
        ("saved", ", ".join(saved)),
        ("rules", facts.formulas_of(node)),
    ]
    cells = "".join([f"<tr><th>{k}</th><td><pre>{html.escape(v)}</pre></td></tr>" for k, v in rows if v])
    picture = svg_text(read_graph(node)) if len(nodes_below(node)) <= MOST_NODES else ""
    return f"<div><b>{html.escape(facts.title_of(node))}</b></div><table>{cells}</table>{picture}"


def module_html(module: Module, name: str = "") -> str:
    """The tree of a module, to be opened and closed, with the parameters of each part."""
    title = f"{name}: " if name else ""
    own = dict(module.named_parameters(recurse=False))
    total = sum(p.numel() for p in module.parameters() if not is_lazy(p))
    size = sum(p.numel() * p.element_size() for p in module.parameters() if not is_lazy(p))
    words = f"<b>{html.escape(title + type(module).__name__)}</b>({html.escape(module.extra_repr())})"
    words += f" <small>{total:,} parameters, {readable(size)}</small>" if total else ""
    inside = [f"<div>{html.escape(k)} <small>{list(p.shape)}</small></div>" for k, p in own.items() if not is_lazy(p)]
    inside += [module_html(part, key) for key, part in module.named_children()]
    if not inside:
        return f"<div style='margin-left:1.2em'>{words}</div>"
    is_open = " open" if not name else ""
    return f"<details style='margin-left:1.2em'{is_open}><summary>{words}</summary>{''.join(inside)}</details>"


def is_lazy(parameter: Any) -> bool:
    return hasattr(parameter, "materialize")
