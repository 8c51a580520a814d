"""The life of an operation: operands, promotion, forward, record, wrap.

    function(*args)  ->  apply(form, arguments, state)
                             operands     the arguments' arrays, on one device
                             promotion    to one dtype
                             forward      the declared function, on arrays
                             record       a Node with edges, and what the rules will need
                             wrap         the result(s) as tensors

Every operation is called this way: with tensors, with a number, views, those with several outputs. What changes a
tensor in place calls it too, and then writes the result into the tensor's memory (inplace/forms.py). This is what the
compiled core is compared with: it does the usual case of the same (csrc/call/), and comes here for all others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import ref

from undertow.backend import cpu
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.memory_order import arranged
from undertow.backend.silence import quietly
from undertow.errors import NoValuesError
from undertow.graph.accumulate import leaf_edge, resolve_leaves
from undertow.graph.history import recorded_edge
from undertow.graph.node import OutputEdge, extra_on, next_sequence_nr
from undertow.graph.user_lines import is_site_recording_enabled, user_frame
from undertow.modes import current
from undertow.ops.arguments.half_precision import introduce, is_narrow, rounded, stays, wide, wide_dtype, widened
from undertow.ops.arguments.operands import (
    ForeignOperandError,
    as_operands,
    explain,
    float_array,
    promote,
    promote_number,
    same_device,
)
from undertow.ops.declare import core_plan
from undertow.ops.declare.form import DTYPE, FIXED, ITSELF, SHAPE, Form
from undertow.own_files import OWN_FILES
from undertow.tensor import LEAF, Tensor, counter_of, extra_of, version_of
from undertow.tensor.subclasses import class_of
from undertow.tensor.tensor import SUBCLASSES
from undertow.tensor.views import attach_view

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.graph.node import Node
    from undertow.modes import State
    from undertow.ops.declare.op import Op

new = object.__new__
getframe = sys._getframe

# ---- from a declaration to a function


def build(op: Op) -> None:
    """Put the op's function on it."""
    function = function_of(op)
    compiled = core_plan.compile_operation(op, function)
    op.function = core_plan.describe(op, function, compiled, op.signature)


def function_of(op: Op) -> Any:
    """The function that a program calls, in Python."""
    bind = op.bind
    count = -1 if op.params or op.number else len(op.ordered)  # of a call in which there is nothing to bind

    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count:
            args = bind(args, kwargs)
        state = current()
        if state.intercept is not None:
            return state.intercept(op.function, args)
        return apply(op.form, args, state)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "undertow"
    return function


# ---- a call


def apply(form: Form, arguments: Any, state: State) -> Any:
    """The operation on all its arguments, in the order of its signature."""
    if form.number_place is not None and type(arguments[form.number_place]) in (float, int):
        form = form.number  # type: ignore[assignment]

    # operands: the tensors' arrays, on one device
    arrays = list(arguments)
    alike = True
    try:
        tensor = arguments[form.first]
        xp = tensor._xp
        arrays[form.first] = first = tensor._array
        for k, promoted in form.others:
            tensor = arguments[k]
            arrays[k] = array = tensor._array
            if tensor._xp is not xp or (promoted and array.dtype is not first.dtype):
                alike = False
        for k in form.optional:
            if arguments[k] is not None:
                arrays[k] = arguments[k]._array
    except AttributeError as error:
        return apply_to_others(form, arguments, state, error)

    # promotion: to one dtype; half precision is computed in float32
    if not alike:
        xp = unify(form, arguments, arrays)
    half = None
    if form.dtype is not None and arguments[form.dtype] is not None:
        arrays[form.dtype] = introduce(arguments[form.dtype])
    if form.widens:
        half = widen(form, xp, arrays)

    # forward
    try:
        out = quietly(form.forward, xp, *arrays)
    except NoValuesError:
        out = xp.outcome_of(form.op.name, form.forward, arrays)  # on the meta device
    except (OverflowError, TypeError, ValueError) as error:
        explain_failure(form, arguments, error)
        raise
    if form.settled is not None and out.dtype is not arrays[form.settled].dtype and settle(form, arguments, arrays):
        half = half or widen_again(form, arrays)
        out = forward_again(form, xp, arrays)
    if form.moves_to is not None:
        xp = arguments[form.moves_to]
    if form.is_arranged or form.several or half is not None or type(out) is not xp.ndarray:
        out = finished(form, xp, arguments, out, half)

    # record
    node = record(form, arguments, arrays, xp, out, state) if state.grad_enabled and form.edges else None

    # wrap
    if form.several:
        return wrap_several(form, arguments, xp, out, node, state)
    kind = class_of(arguments) if SUBCLASSES else Tensor
    result: Any = new(kind)  # and four stores: half the time of Tensor(...)
    result._array = out
    result._xp = xp
    result._edge = node
    result._extra = state.extra
    if form.is_view:
        attach(form, result, arguments, state)
    return result


def apply_to_others(form: Form, arguments: Any, state: State, missing: AttributeError) -> Any:
    """The operation on what is no tensor: a number or an array becomes one, other classes may know what to do.

    missing  what the plain path met: an argument without an array
    """
    places, found = [form.places[i] for i in form.input_names], list(arguments)
    given = tuple([arguments[k] for k in places])
    try:
        tensors = as_operands(form.name, tuple(form.input_names), given, form.op.optional)
    except ForeignOperandError as error:
        return error.answer(form.name, (), dict(zip(form.op.ordered, arguments, strict=True)))
    if all([tensor is value for tensor, value in zip(tensors, given, strict=True)]):
        raise missing  # all are tensors, and one has lost its array
    for k, tensor in zip(places, tensors, strict=True):
        found[k] = tensor
    return apply(form, found, state)


def explain_failure(form: Form, arguments: Any, error: Exception) -> None:
    """Raise PyTorch's error in the place of NumPy's, if there is one."""
    if not form.elementwise:
        return
    given = [arguments[k] for k in form.in_order]
    explain(error, form.name, tuple([None if t is None else t._array for t in given]))


# ---- dtypes and devices


def unify(form: Form, arguments: Any, arrays: list[Any]) -> Namespace:
    """Bring the operands to PyTorch's common dtype, if the operation promotes; the namespace of their device."""
    xp = arguments[form.first]._xp
    if any([arguments[k]._xp is not xp for k in form.required]):
        xp = same_device(form.name, tuple([arguments[k] for k in form.required]))
    dtype = arrays[form.first].dtype
    if any([arrays[k].dtype is not dtype for k in form.promoted]):
        promoted = promote(tuple([arguments[k] for k in form.promoted]), form.policy)  # type: ignore[arg-type]
        for k, array in zip(form.promoted, promoted, strict=True):
            arrays[k] = array
    return xp


def settle(form: Form, arguments: Any, arrays: list[Any]) -> bool:
    """Where the result has another dtype than the operand: whether that had to be cast, and it is."""
    k: Any = form.settled
    if form.numbers:
        number = arguments[form.places[form.numbers[0]]]
        arrays[k] = promote_number(arrays[k], number, form.policy)  # type: ignore[arg-type]
        return True
    if arrays[k].dtype.kind in "fc":
        return False
    for i in form.taking_part:
        arrays[i] = float_array(arrays[i])
    return True


def widen(form: Form, xp: Namespace, arrays: list[Any]) -> DType | None:
    """Half precision in float32 (see arguments/half_precision.py), and what the result has to be rounded to."""
    places = form.inputs
    of_two_bytes = [k for k in places if arrays[k] is not None and arrays[k].dtype.itemsize == 2]
    if form.dtype is None and not of_two_bytes:
        return None  # as almost always
    asked = None if form.dtype is None else wide_dtype(arrays[form.dtype])
    if not any([is_narrow(arrays[k]) for k in places]) and (form.dtype is None or asked is arrays[form.dtype]):
        return None
    if xp.half_forwards and asked is None and stays(xp.half_forwards, form.op, [arrays[k] for k in places]):
        return None
    given = dict(zip(form.op.ordered, arrays, strict=True))
    leading = (form.edge_names or form.input_names)[0]
    half, *found = widened(form.op, xp, given, form.input_names, leading)
    for k, array in zip(places, found, strict=True):
        arrays[k] = array
    if form.dtype is not None:
        arrays[form.dtype] = asked
    return half


def widen_again(form: Form, arrays: list[Any]) -> DType | None:
    """Widen what was cast to a default dtype of half precision; that dtype, if there was any."""
    narrow = [k for k in form.taking_part if form.widens and is_narrow(arrays[k])]
    dtype = arrays[narrow[0]].dtype if narrow else None
    for k in narrow:
        arrays[k] = wide(arrays[k])
    return dtype


def forward_again(form: Form, xp: Namespace, arrays: list[Any]) -> Any:
    """The forward on operands that were cast when its result was seen."""
    try:
        return quietly(form.forward, xp, *arrays)
    except NoValuesError:
        return xp.outcome_of(form.op.name, form.forward, arrays)


def finished(form: Form, xp: Namespace, arguments: Any, out: Any, half: DType | None) -> Any:
    """The result, or several, as arrays of the device; rounded; in the order in memory that the declaration names."""
    results = tuple([a if type(a) is xp.ndarray else xp.asarray(a) for a in (out if form.several else (out,))])
    if half is not None:
        results = rounded(results, half, [form.output_nr(n) for n in form.op.exact])
    if form.is_arranged:
        given = [arguments[k] for k in form.in_order]
        operands = [t._array for t in given if t is not None and type(t._array) is xp.ndarray]
        last = len(form.order) - 1
        results = tuple(
            [
                arranged(form.order[min(nr, last)], operands, a) if type(a) is xp.ndarray else a  # a sparse one stays
                for nr, a in enumerate(results)
            ]
        )
    return results if form.several else results[0]


# ---- recording it


def record(form: Form, arguments: Any, arrays: list[Any], xp: Namespace, out: Any, state: State) -> Node | None:
    """The Node of the operation, which keeps what its rules will need; None if no input has a history."""
    edges, wanted, leaves = [], False, False
    for k in form.edges:
        tensor = arguments[k]
        edge = None if tensor is None else tensor._edge
        if tensor is not None and tensor._extra is not None and tensor._extra.view is not None:
            edge = recorded_edge(tensor)
        if edge is not None:
            wanted = True
            if edge is LEAF:
                leaves = True
        edges.append(edge)
    if not wanted or (form.check_output and out.dtype.kind not in "fcV"):
        return None
    node = new(form.node_class)
    node.sequence_nr = next_sequence_nr()
    for k, _, slot, version, users in form.kept_inputs:
        tensor = arguments[k]
        if users and not is_needed(users, edges):
            tensor = None
        setattr(node, slot, tensor)
        if tensor is not None:
            # the version is 0 unless somebody changed the tensor, or shares its memory
            setattr(node, version, 0 if tensor._extra is None else version_of(tensor))
    for nr, _, slot, users in form.kept_outputs:
        value = out[nr] if form.several else out
        setattr(node, slot, value if not users or is_needed(users, edges) else None)
    if leaves or form.numbers:
        set_edges(form, node, arguments, edges, xp)
    else:
        node.recorded_edges = tuple(edges)
    node.params = values_of(form, arguments, arrays) if form.values else ()
    if form.several:
        node._shapes = [a.shape for a in out]
        node._dtypes = [a.dtype for a in out]
    else:
        node.shape = out.shape
        node.dtype = out.dtype
    node.extra = None if xp is cpu else extra_on(xp)
    if is_site_recording_enabled():
        frame = getframe(3)  # of whoever called the function, past it, apply and this
        if OWN_FILES[frame.f_code.co_filename]:
            frame = user_frame(frame)
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


def set_edges(form: Form, node: Node, arguments: Any, edges: list[Any], xp: Namespace) -> None:
    """The edges, with what leads to leaves (see Note [Edges to leaves]), and None for a number."""
    standing = False
    for n, k in enumerate(form.edges):
        if edges[n] is LEAF:
            leaf = arguments[k]
            edges[n] = edge_to_leaf(leaf, node)
            standing = standing or edges[n] is leaf
    if form.numbers:
        edges = [None if k < 0 else edges[form.edges.index(k)] for k in form.all_edges]
    node.recorded_edges = edges if standing else tuple(edges)
    if standing and xp is not cpu:
        resolve_leaves(node, edges)  # a node on a device keeps the stream that is current now


def edge_to_leaf(leaf: Tensor, node: Node) -> Any:
    """The leaf's AccumulateGrad node, or the leaf itself, which may stand for that in one node at a time."""
    extra = leaf._extra or extra_of(leaf)
    made = None if extra.accumulate is None else extra.accumulate()
    if made is not None:
        return made
    user = None if extra.used_by is None else extra.used_by()
    if user is not None and user is not node:
        return leaf_edge(leaf)
    extra.used_by = ref(node)
    return leaf


def values_of(form: Form, arguments: Any, arrays: list[Any]) -> tuple[Any, ...]:
    """The plain values that rules use; see Value in plans.py."""
    found = []
    for kind, k, fixed in form.values:
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
    return bool(matrix.ndim == 2 and matrix.strides[0] == matrix.itemsize != matrix.strides[1])


# ---- the result


def wrap_several(
    form: Form, arguments: Any, xp: Namespace, out: Any, node: Node | None, state: State
) -> tuple[Tensor, ...]:
    if SUBCLASSES:
        results = tuple([new(class_of(arguments)) for _ in out])
        for nr, (result, array) in enumerate(zip(results, out, strict=True)):
            Tensor.__init__(result, array, xp, output_edge(form, node, nr))
    else:
        results = tuple([Tensor(a, xp, output_edge(form, node, nr)) for nr, a in enumerate(out)])
    if node is None:
        for tensor in results:
            tensor._extra = state.extra
    else:
        watch_constants(form, node, results)
    if form.is_view:
        attach(form, results, arguments, state)
    return results


def output_edge(form: Form, node: Node | None, nr: int) -> Edge | None:
    return None if node is None or nr in form.constant else OutputEdge((node, nr))


def watch_constants(form: Form, node: Node, results: tuple[Tensor, ...]) -> None:
    """No edge leads from an output without gradient (indices) to the node that saved it: it must know its counter."""
    for nr, _, slot, _ in form.kept_outputs:
        if nr in form.constant and getattr(node, slot) is not None:
            node.watch_output(nr, counter_of(results[nr]))


def attach(form: Form, result: Any, arguments: Any, state: State) -> None:
    """Note of which tensor the result is a view, and how it was taken."""
    params = tuple([arguments[k] for k in form.params])
    attach_view(result, arguments[form.first], form.op.function, params, state)
