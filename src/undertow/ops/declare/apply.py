"""The life of an operation: operands, promotion, forward, record, wrap.

    function(*args)  ->  apply(form, arguments, state)
                             operands     the arguments' arrays, on one device
                             promotion    to one dtype
                             forward      the declared function, on arrays
                             record       a Node with edges, and what the rules will need (record.py)
                             wrap         the result(s) as tensors

Every operation is called this way: with tensors, with a number, views, those with several outputs. What changes a
tensor in place calls it too, and then writes the result into the tensor's memory (inplace/forms.py). This is what the
compiled core is compared with: it does the usual case of the same (csrc/call/), and comes here for all others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.dtypes import NARROW
from undertow.backend.interface import DType, Namespace
from undertow.backend.memory_order import arranged
from undertow.backend.silence import quietly
from undertow.errors import NoValuesError
from undertow.graph.node import OutputEdge
from undertow.modes import current
from undertow.ops.arguments.half_precision import check_mixture, introduce, is_narrow, rounded, stays, wide, wide_dtype
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
from undertow.ops.declare.form import Form
from undertow.ops.declare.record import record
from undertow.tensor import Tensor, counter_of
from undertow.tensor.subclasses import class_of
from undertow.tensor.tensor import SUBCLASSES
from undertow.tensor.torch_function import FUNCTIONS_ASK, NOBODY, answer, asks_itself
from undertow.tensor.views import attach_view

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.graph.edges import Edge
    from undertow.graph.node import Node
    from undertow.modes import State
    from undertow.ops.declare.op import Op

new = object.__new__

# ---- from a declaration to a function


def build(op: Op) -> None:
    """Put the op's function on it."""

    def unusual(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = op.bind(args, kwargs)
        had_scalars = has_scalars(args) or has_scalars(kwargs.values())
        if had_scalars and not has_scalars(bound) and current().intercept is None:
            return call_again(op, bound)
        return call(op, bound)

    function = function_of(op, unusual)
    op.function = describe(op, function, core_plan.compile_operation(op, function), op.signature)


def function_of(op: Op, unusual: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """The function that a program calls, in Python; `describe` says as what it is known.

    unusual  what is called where the binder may have something to do: names, NumPy's scalars, too few arguments
    """

    @asks_itself
    def function(*args: Any, **kwargs: Any) -> Any:
        if FUNCTIONS_ASK and (found := answer(function.public, args, kwargs)) is not NOBODY:
            return found
        form = op.form
        usual = form.usual.get(len(args))
        if usual is None or kwargs or not isinstance(args[0], Tensor):
            return unusual(args, kwargs)
        defaults, others = usual
        for k, kinds in others:
            if type(args[k]) not in kinds:
                return unusual(args, kwargs)
        args += defaults
        state = current()
        if state.intercept is not None:
            return state.intercept(op.function, args)
        return apply(form, args, state)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "undertow"
    return function


def has_scalars(values: Iterable[Any]) -> bool:
    return any([isinstance(value, cpu.generic) for value in values])


def describe(op: Op, function: Any, compiled: Any, signature: Callable[[], inspect.Signature]) -> Any:
    """Say how the function is called, and what `help` shows; of a C object that is made when it is first asked for.

    compiled  what programs have: the function, or a C object before it
    """
    function.public = compiled
    if compiled is function:
        function.__signature__, function.__doc__ = signature(), op.derivatives()
    else:
        function.make_signature, function.make_documentation = signature, op.documentation
    return compiled


def call(op: Op, args: tuple[Any, ...], run: Callable[..., Any] | None = None) -> Any:
    """The operation on all its arguments, in their order: by the interceptor, if there is one, or by `run` (apply)."""
    state = current()
    if state.intercept is not None:
        return state.intercept(op.function, args)
    return (run or apply)(op.form, args, state)


# ---- a call


def apply(form: Form, arguments: Any, state: State) -> Any:
    """The operation on all its arguments, in the order of its signature."""
    if form.number is not None and type(arguments[form.number_place]) in (float, int):
        form = form.number

    # operands: the tensors' arrays, on one device
    arrays, alike = list(arguments), True
    try:
        tensor = arguments[form.first]
        xp = tensor._xp
        arrays[form.first] = first = tensor._array
        for k, has_its_dtype in form.others:
            tensor = arguments[k]
            arrays[k] = array = tensor._array
            if tensor._xp is not xp or (has_its_dtype and array.dtype is not first.dtype):
                alike = False
        for k in form.optional:
            if arguments[k] is not None:
                arrays[k] = arguments[k]._array
    except AttributeError as error:
        return apply_to_others(form, arguments, state, error)

    # promotion: to one dtype; half precision is computed in float32
    if not alike:
        xp = unify(form, arguments, arrays)
    if form.dtype is not None and arguments[form.dtype] is not None:
        arrays[form.dtype] = introduce(arguments[form.dtype])
    is_wide = alike and form.speaks_for_all and first.itemsize != 2
    half = widen(form, xp, arrays) if form.widens and not is_wide else None

    # forward
    try:
        out = (form.in_silence if xp is cpu else quietly)(form.forward, xp, *arrays)
    except NoValuesError:
        out = xp.outcome_of(form.op.name, form.forward, arrays)  # on the meta device
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        return apply_after_failure(form, arguments, state, error)
    if form.settled is not None and out.dtype is not arrays[form.settled].dtype and settle(form, arguments, arrays):
        out, half = forward_again(form, xp, arrays, half)
    if form.moves_to is not None:
        xp = arguments[form.moves_to]
    if type(out) is not xp.ndarray and not form.several:
        out = xp.asarray(out)
    is_right = half is None and type(out) is xp.ndarray
    if is_right and form.is_arranged:
        is_right = out.flags.c_contiguous and (form.in_rows or out.ndim < 2 or lies_as_operands(form, arguments))
    if not is_right:
        out = finished(form, xp, arguments, out, half)

    # record, wrap
    node = record(form, arguments, arrays, xp, out, state) if state.grad_enabled and form.edges else None
    if form.several:
        return wrap_several(form, arguments, xp, out, node, state)
    result: Any = new(class_of(arguments) if SUBCLASSES else Tensor)  # and four stores: half the time of Tensor(...)
    result._array = out
    result._xp = xp
    result._edge = node
    result._extra = state.extra
    if form.is_view:
        attach_view(result, arguments[form.first], form.op.function, form.params_of(arguments), state)
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
    if state.intercept is not None or form.op.form is not form:
        return apply(form, found, state)
    return call_again(form.op, found)


def call_again(op: Op, args: Any) -> Any:
    """The operation on tensors and numbers that were something else: compiled if it can be, with the same digits."""
    named = dict(zip(op.ordered, args, strict=True))
    by_name = {n: named.pop(n) for n in op.keyword_only}
    return op.function(*named.values(), **{n: v for n, v in by_name.items() if v is not op.defaults.get(n, NOBODY)})


def apply_after_failure(form: Form, arguments: Any, state: State, error: Exception) -> Any:
    """Raise what became of the forward, in PyTorch's words; or the operation done otherwise, if there is a way.

    Somebody else may have been in the silence that is kept; or an integer does not fit into the dtype as it is.
    """
    if isinstance(error, RuntimeError):
        if "already entered" in str(error):
            form = copy(form)
            form.in_silence = quietly
            return apply(form, arguments, state)
        del error  # whose traceback will have this frame: the two would keep each other, and the operands
        raise
    explain_failure(form, arguments, error)
    dtype = arguments[form.first]._array.dtype
    fitting = numbers_that_fit(form, arguments, dtype) if isinstance(error, OverflowError) else None
    if fitting is None:
        del error
        raise
    return apply(form, fitting, state)


def numbers_that_fit(form: Form, arguments: Any, dtype: DType) -> list[Any] | None:
    """The arguments with integers wrapped around into a narrow dtype, if there are any beyond it.

    As in PyTorch: the other operand of `x + 300` is wrapped around, whatever it is; a limit or an exponent only if it
    is negative, and the dtype unsigned.
    """
    if not form.elementwise or dtype.kind not in "iu":
        return None
    span = 1 << 8 * dtype.itemsize
    lowest = -span // 2 if dtype.kind == "i" else 0
    allowed = range(-(1 << 63), 1 << 63) if form.numbers == ("other",) else range(lowest or 1 - span, lowest + span)
    fitting = [(v - lowest) % span + lowest if type(v) is int and v in allowed else v for v in arguments]
    if all([new == old for new, old in zip(fitting, arguments, strict=True) if type(old) is int]):
        raise RuntimeError(
            f"value cannot be converted to type {dtype} without overflow: {form.name} was given a Python number "
            "outside that type's range. Convert the tensor to a wider dtype first."
        ) from None
    return fitting


def explain_failure(form: Form, arguments: Any, error: Exception) -> None:
    """Raise PyTorch's error in the place of NumPy's, if there is one."""
    if not form.elementwise:
        return
    given = [arguments[k] for k in form.in_order]
    explain(error, form.name, tuple([None if t is None else t._array for t in given]))


# ---- dtypes and devices


def unify(form: Form, arguments: Any, arrays: list[Array]) -> Namespace:
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


def settle(form: Form, arguments: Any, arrays: list[Array]) -> bool:
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


def widen(form: Form, xp: Namespace, arrays: list[Array]) -> DType | None:
    """Half precision in float32 (see arguments/half_precision.py), and what the result has to be rounded to."""
    places, asked = form.inputs, None if form.dtype is None else arrays[form.dtype]
    if asked is None:
        for k in places:
            if arrays[k] is not None and arrays[k].dtype.itemsize == 2:
                break
        else:
            return None  # as almost always
    narrow = [k for k in places if is_narrow(arrays[k])]
    if not narrow and wide_dtype(asked) is asked:
        return None
    if xp.half_forwards and asked is None and stays(xp.half_forwards, form.op, [arrays[k] for k in places]):
        return None
    if narrow:
        check_mixture(form.op, xp, form.op.by_name(arrays), form.input_names)
    leading = (form.edges or form.inputs)[0]  # decides of the dtype where the operation does not promote
    half = NARROW.get(asked) if asked is not None else arrays[leading].dtype if leading in narrow else None
    for k in narrow:
        arrays[k] = wide(arrays[k])
    if form.dtype is not None:
        arrays[form.dtype] = wide_dtype(asked)
    return half


def forward_again(form: Form, xp: Namespace, arrays: list[Array], half: DType | None) -> tuple[Any, DType | None]:
    """The forward on operands that were cast when its result was seen, and what that has to be rounded to."""
    if half is None and form.widens:
        half = widen(form, xp, arrays)  # they were cast to the default dtype, which may be of half precision
    return forward_of(form, xp, arrays), half


def forward_of(form: Form, xp: Namespace, arguments: Any) -> Any:
    try:
        return quietly(form.forward, xp, *arguments)
    except NoValuesError:
        return xp.outcome_of(form.name, form.forward, arguments)  # on the meta device


def lies_as_operands(form: Form, arguments: Any) -> bool:
    """Whether the elements of a result should lie row by row because those of all operands do."""
    for k in form.in_order:  # a list for all() takes twice as long
        tensor = arguments[k]
        if tensor is not None and not tensor._array.flags.c_contiguous:
            return False
    return form.order[0] != "columns"


def finished(form: Form, xp: Namespace, arguments: Any, out: Array, half: DType | None) -> Any:
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


# ---- the result


def wrap_several(
    form: Form, arguments: Any, xp: Namespace, out: Array, node: Node | None, state: State
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
        attach_view(results, arguments[form.first], form.op.function, form.params_of(arguments), state)
    return results


def output_edge(form: Form, node: Node | None, nr: int) -> Edge | None:
    return None if node is None or nr in form.constant else OutputEdge((node, nr))


def watch_constants(form: Form, node: Node, results: tuple[Tensor, ...]) -> None:
    """No edge leads from an output without gradient (indices) to the node that saved it: it must know its counter."""
    for nr, _, slot, _ in form.kept_outputs:
        if nr in form.constant and getattr(node, slot) is not None:
            node.watch_output(nr, counter_of(results[nr]))
