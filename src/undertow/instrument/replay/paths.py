"""In which module each node of a graph belongs, as a path like `encoder.layers.1`: the page folds the graph by it.

Where the modules were watched while they ran, the path is known. Otherwise it is found from the names of parameters: a
node that uses `encoder.weight` is in `encoder`, and the nodes recorded between two such nodes are in what the paths of
both have in common. Where no model is known, functions of the program take the place of modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.node import Node
from undertow.instrument.nodes import place_of
from undertow.instrument.replay.facts import inner


def names_of_parameters(model: Any) -> dict[int, str]:
    """By the identity of the parameter; of those that are shared, the first name."""
    found: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), name)
    return found


def paths_of(nodes: Sequence[Node], watched: Mapping[int, str], names: Mapping[int, str]) -> list[str]:
    """The path of each node.

    nodes    in the order they were recorded
    watched  sequence number -> path, of the nodes whose operation was seen
    names    identity of a parameter -> its name
    """
    known = [known_path(node, watched, names) for node in nodes]
    if all(path is None for path in known):
        return [path_by_function(node) for node in nodes]
    filled: list[str] = []
    following = next_known(nodes, known)
    before = ""
    for k, node in enumerate(nodes):
        path = known[k]
        if path is None:
            path = "" if isinstance(node, AccumulateGrad) else common(before, following[k])
        elif not isinstance(node, AccumulateGrad):
            before = path
        filled.append(path)
    return filled


def known_path(node: Node, watched: Mapping[int, str], names: Mapping[int, str]) -> str | None:
    if isinstance(node, AccumulateGrad):
        name = names.get(id(node.variable))
        return None if name is None else name.rpartition(".")[0]
    if node.sequence_nr in watched:
        return watched[node.sequence_nr]
    for edge in node.next_edges:
        if edge is not None and isinstance(edge[0], AccumulateGrad) and id(edge[0].variable) in names:
            return names[id(edge[0].variable)].rpartition(".")[0]
    return None


def next_known(nodes: Sequence[Node], known: Sequence[str | None]) -> list[str]:
    found, path = [], ""
    for node, own in zip(reversed(nodes), reversed(known), strict=True):
        if own is not None and not isinstance(node, AccumulateGrad):
            path = own
        found.append(path)
    return found[::-1]


def common(one: str, other: str) -> str:
    """What two paths begin with.

    >>> common("encoder.layers.0.linear1", "encoder.layers.0.linear2")
    'encoder.layers.0'
    """
    parts = []
    for a, b in zip(one.split("."), other.split("."), strict=False):
        if a != b:
            break
        parts.append(a)
    return ".".join(parts)


def path_by_function(node: Node) -> str:
    """The function of the program that recorded a node."""
    code, _ = place_of(inner(node))
    return "" if code is None else code.co_qualname.replace(".<locals>", "").replace("<module>", "program")
