"""Recording an operation: the Node, its edges, and what its rules will need."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import ref

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.graph.accumulate import leaf_edge, resolve_leaves
from undertow.graph.history import recorded_edge
from undertow.graph.node import extra_on, next_sequence_nr
from undertow.graph.user_lines import SITES_ARE_TAKEN, user_frame
from undertow.ops.declare.form import DTYPE, FIXED, ITSELF, SHAPE, Form
from undertow.own_files import OWN_FILES
from undertow.tensor import LEAF, extra_of, version_of

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.modes import State

new = object.__new__
getframe = sys._getframe


def record(form: Form, arguments: Any, arrays: list[Array], xp: Namespace, out: Array, state: State) -> Node | None:
    """The Node of the operation, which keeps what its rules will need; None if no input has a history."""
    edges, wanted, leaves = [], False, False
    for k in form.edges:
        tensor = arguments[k]
        edge = None
        if tensor is not None:
            edge, extra = tensor._edge, tensor._extra
            if extra is not None and extra.view is not None:
                edge = recorded_edge(tensor)
        if edge is not None:
            wanted = True
            if edge is LEAF:
                leaves = True
        edges.append(edge)
    if not wanted or (form.check_output and out.dtype.kind not in "fcV"):
        return None
    all_wanted = None not in edges
    node = new(form.node_class)
    node.sequence_nr = next_sequence_nr()
    inputs, outputs, values = form.rows
    for k, _, slot, version, users in inputs:
        tensor = arguments[k] if all_wanted or not users or is_needed(users, edges) else None
        setattr(node, slot, tensor)
        if tensor is not None:
            extra = tensor._extra
            is_unchanged = extra is None or (extra.counter is None and extra.view is None)
            setattr(node, version, 0 if is_unchanged else version_of(tensor))
    for nr, _, slot, users in outputs:
        value = out[nr] if form.several else out
        setattr(node, slot, value if all_wanted or not users or is_needed(users, edges) else None)
    if leaves or form.numbers:
        set_edges(form, node, arguments, edges, xp)
    else:
        node.recorded_edges = tuple(edges)
    node.params = values_of(values, arguments, arrays) if values else ()
    if form.several:
        node._shapes = [a.shape for a in out]
        node._dtypes = [a.dtype for a in out]
    else:
        node.shape = out.shape
        node.dtype = out.dtype
    node.extra = None if xp is cpu else extra_on(xp)
    if SITES_ARE_TAKEN[0]:
        frame = getframe(3)  # of whoever called the function, past it, apply and this
        code = frame.f_code
        if OWN_FILES[code.co_filename]:
            frame = user_frame(frame)
            code = frame.f_code
        node.code = code
        node.lasti = frame.f_lasti
    else:
        node.code, node.lasti = None, 0
    if state.record is not None:
        state.record(node, state)
    return node


def is_needed(users: tuple[int, ...], edges: list[Any]) -> bool:
    """Whether one of the inputs whose rules use a value wants a gradient."""
    for n in users:  # noqa: SIM110  (any() of a generator takes three times as long)
        if edges[n] is not None:
            return True
    return False


def set_edges(form: Form, node: Node, arguments: Any, edges: list[Any], xp: Namespace) -> None:
    """The edges, with what leads to leaves (see Note [Edges to leaves]), and None for a number."""
    standing = None
    for n, k in enumerate(form.edges):
        if edges[n] is LEAF:
            leaf = arguments[k]
            extra = leaf._extra or extra_of(leaf)
            edges[n] = None if extra.accumulate is None else extra.accumulate()
            if edges[n] is None:
                user = None if extra.used_by is None else extra.used_by()
                if user is None or user is node:  # the leaf may stand for its node, in one operation at a time
                    edges[n], standing = leaf, standing or ref(node)
                    extra.used_by = standing
                else:
                    edges[n] = leaf_edge(leaf)
    if form.numbers:
        edges = [None if k < 0 else edges[form.edges.index(k)] for k in form.all_edges]
    node.recorded_edges = tuple(edges) if standing is None else edges
    if standing is not None and xp is not cpu:
        resolve_leaves(node, edges)  # a node on a device keeps the stream that is current now


def values_of(values: list[Any], arguments: Any, arrays: list[Array]) -> tuple[Any, ...]:
    """The plain values that rules use; see Value in plans.py."""
    found = []
    for kind, k, fixed in values:
        if kind == ITSELF:
            found.append(arguments[k])
        elif kind == FIXED or arguments[k] is None:
            found.append(fixed)
        elif kind == SHAPE:
            found.append(arrays[k].shape)
        elif kind == DTYPE:
            found.append(arguments[k]._array.dtype)
        else:
            found.append(lies_by_columns(arrays[k]))
    return tuple(found)


def lies_by_columns(matrix: Array) -> bool:
    """Whether the elements of a column lie next to each other in memory, and those of a row do not."""
    strides = matrix.strides
    return bool(len(strides) == 2 and strides[0] == matrix.itemsize != strides[1])
