"""The graph of a model as TensorBoard draws it: operations in the boxes of their modules, in the order they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.autograd.saved_tensors.ledger import nodes_below
from undertow.graph.accumulate import AccumulateGrad
from undertow.instrument.replay import facts
from undertow.instrument.replay.paths import names_of_parameters, paths_of
from undertow.instrument.replay.watching import Watching
from undertow.modes import enable_grad
from undertow.pytree import flatten
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.node import Node


def graph_nodes(model: Any, input: Any) -> list[tuple[str, str, list[str], list[int]]]:
    """Name, operation, inputs and shape of each node of the graph that calling a model records."""
    arguments = tuple(input) if isinstance(input, tuple | list) else () if input is None else (input,)
    with enable_grad(), Watching(None) as watching:
        results = [each for each in flatten(model(*arguments))[0] if isinstance(each, Tensor)]
    outputs = [each for each in results if each.requires_grad]
    if not outputs:
        raise RuntimeError(
            "add_graph: nothing that the model returns requires grad, so there is no graph to show: its parameters, or "
            "the input, have to require grad"
        )
    nodes = nodes_below(outputs)
    names = names_of_parameters(model)
    paths = paths_of(nodes, watching.watched, names)
    called: dict[Any, str] = {}
    for k, (node, path) in enumerate(zip(nodes, paths, strict=True)):
        is_leaf = isinstance(node, AccumulateGrad)
        title = names.get(id(node.variable), f"input_{k}") if is_leaf else f"{facts.title_of(node)}_{k}"
        own = title.rpartition(".")[2] if is_leaf else title.replace("Backward0", "")
        called[node] = "/".join([*[part for part in path.split(".") if part], own])
    found = []
    for node in nodes:
        kind = "Parameter" if isinstance(node, AccumulateGrad) else facts.title_of(node).removesuffix("Backward0")
        inputs = [called[edge[0]] for edge in node.next_edges if edge is not None]
        found.append((called[node], kind, inputs, shape_of(node)))
    return found


def shape_of(node: Node) -> list[int]:
    if isinstance(node, AccumulateGrad):
        return list(node.variable.shape)
    return list(node._input_metadata[0].shape)
