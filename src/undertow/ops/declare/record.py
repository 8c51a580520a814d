"""Recording an operation: the Node, its edges, and what its rules will need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.graph.accumulate import leaf_edge, resolve_leaves
from undertow.graph.history import recorded_edge
from undertow.graph.node import extra_on, next_sequence_nr
from undertow.graph.user_lines import SITES_ARE_TAKEN
from undertow.ops.declare.form import Form
from undertow.own_files import user_frame
from undertow.tensor import LEAF, extra_of, version_of

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.modes import State

new = object.__new__


def record(form: Form, arguments: Any, arrays: list[Array], xp: Namespace, out: Array, state: State) -> Node | None:
    """The Node of the operation, which keeps what its rules will need; None if no input has a history."""
    edges: list[Any] = []
    leaves: tuple[int, ...] = ()
    wanted, all_wanted = False, True
    for k in form.edges:
        tensor = arguments[k]
        edge = None
        if tensor is not None:
            edge, extra = tensor._edge, tensor._extra
            if extra is not None and extra.view is not None:
                edge = recorded_edge(tensor)
        if edge is None:
            all_wanted = False
        else:
            wanted = True
            if edge is LEAF:
                leaves += (len(edges),)
        edges.append(edge)
    if not wanted or (form.check_output and out.dtype.kind not in "fcV"):
        return None
    node = new(form.node_class)
    node.sequence_nr = next_sequence_nr()
    inputs, outputs, values = form.rows
    for k, slot, version, users in inputs:
        tensor = arguments[k] if all_wanted or not users or is_needed(users, edges) else None
        setattr(node, slot, tensor)
        if tensor is not None:
            extra = tensor._extra
            unchanged = extra is None or (extra.counter is None and extra.view is None)
            setattr(node, version, 0 if unchanged else version_of(tensor))
    for nr, slot, users in outputs:
        value = out[nr] if form.several else out
        setattr(node, slot, value if all_wanted or not users or is_needed(users, edges) else None)
    if leaves or form.numbers:
        set_edges(form, node, arguments, edges, leaves, xp)
    else:
        node.recorded_edges = tuple(edges)
    params: tuple[Any, ...] = ()
    for read, k, fixed in values:  # few: a list and a tuple of it would take longer
        params += (arguments[k] if read is None else read(arguments[k], arrays[k], fixed),)
    node.params = params
    if form.several:
        node._shapes = [a.shape for a in out]
        node._dtypes = [a.dtype for a in out]
    else:
        node.shape = out.shape
        node.dtype = out.dtype
    node.extra = None if xp is cpu else extra_on(xp)
    if SITES_ARE_TAKEN[0]:
        frame = user_frame(past=3)  # this, apply and the operation's function
        node.code = frame.f_code
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


def set_edges(form: Form, node: Node, arguments: Any, edges: list[Any], leaves: tuple[int, ...], xp: Namespace) -> None:
    """The edges, with what leads to leaves (see Note [Edges to leaves]), and None for a number."""
    standing = None
    for n in leaves:
        leaf = arguments[form.edges[n]]
        extra = leaf._extra or extra_of(leaf)
        accumulate, used_by = extra.accumulate, extra.used_by
        edge = None if accumulate is None else accumulate()
        if edge is None:
            user = None if used_by is None else used_by()
            if user is None or user is node:  # the leaf may stand for its node, in one operation at a time
                edge = leaf
                extra.used_by = standing = standing or ref(node)
            else:
                edge = leaf_edge(leaf)
        edges[n] = edge
    if form.numbers:
        edges = [None if k < 0 else edges[form.edges.index(k)] for k in form.all_edges]
    node.recorded_edges = tuple(edges) if standing is None else edges
    if standing is not None and xp is not cpu:
        resolve_leaves(node, edges)  # a node on a device keeps the stream that is current now
