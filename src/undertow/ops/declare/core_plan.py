"""Operations with the compiled core: plans (plans.py) of what it must know to do the usual case itself.

The functions called `compile_...` put C objects in the place of Python's functions, which stay behind them for every
other case. A plan is made when such an object is first called, and a formula in it is bound to a namespace: its array
functions become that namespace's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from undertow.backend import blocks, cpu, namespace_of
from undertow.backend.interface import Namespace
from undertow.compiled import core
from undertow.ops.declare import core_binding, formula, plans  # noqa: F401  (the core is bound before it is used)
from undertow.ops.declare.plans import Input, Order, Promotion, Tree
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE

if TYPE_CHECKING:
    from undertow.ops.declare.form import Form
    from undertow.ops.declare.op import Op


# ---- operations


def compile_operation(op: Op, function: Callable[..., Any]) -> Any:
    """The function, or a C object that passes for it and calls it in unusual cases."""
    if core is None or op.moves_to is not None or len(op.ordered) > plans.MOST_ARGUMENTS:
        return function
    made = core.Operation(function, lambda: operation_plan(op))
    _operations[made] = op
    return made


#: the C objects that pass for functions -> what they compute
_operations: dict[Any, Op] = {}


def compile_with_out(op: Op, function: Callable[..., Any]) -> Any:
    """The same for the form of an operation that takes `out`: what it computes is described by the one without."""
    return core.Operation(function, op.function) if is_compiled(op) else function


def is_compiled(op: Op) -> bool:
    return core is not None and type(op.function) is core.Operation


def operation_plan(op: Op) -> plans.OperationPlan | None:
    form = op.form
    if len(form.all_edges) > plans.MOST_EDGES or len(form.kept_outputs) > plans.MOST_SAVED_OUTPUTS:
        return None
    return plans.OperationPlan(
        names=tuple([sys.intern(n) for n in op.ordered]),
        defaults=tuple([(op.defaults[n],) if n in op.defaults else () for n in op.ordered]),
        inputs=tuple([int(input_kind(op, n)) for n in op.ordered]),
        positional=len(op.ordered) - len(op.keyword_only),
        number=-1 if op.number is None else op.ordered.index(op.number),
        is_view=int(form.is_view),
        takes_narrow=int(form.is_view or op.half_precision == "as_is"),
        elementwise=int(op.elementwise),
        widens=int(op.widens),
        in_front=int(op.batch is ELEMENTWISE and not op.random),
        form=form_plan(form),
        number_form=None if form.number is None else form_plan(form.number),
    )


def input_kind(op: Op, name: str) -> Input:
    if name not in op.inputs:
        return Input.PARAMETER
    return Input.TENSOR_OR_NONE if name in op.optional else Input.TENSOR


def form_plan(form: Form, xp: Namespace = cpu) -> plans.FormPlan:
    op = form.op
    any_float = op.promote == "float" and not form.numbers
    return plans.FormPlan(
        forward=bound(op.forward, form.places, xp, op),
        node=form.node_class,
        taking_part=bits(form.taking_part),
        policy=int(Promotion[(op.promote or "none").upper()]),
        settled=-1 if form.settled is None else form.settled,
        any_float=int(any_float),
        check_output=int(form.check_output),
        edges=form.all_edges if form.edges else (),
        saved=tuple(
            [plans.SavedInput(k.argument, k.slot, k.version, user_bits(form, k.name)) for k in form.kept_inputs]
        ),
        values=tuple(form.values),
        outputs=tuple([plans.SavedOutput(k.output, k.slot, user_bits(form, k.name)) for k in form.kept_outputs]),
        several=int(form.several),
        constant=bits(form.constant),
        exact=bits([form.output_nr(n) for n in form.op.exact]),
        order=tuple([int(Order[name.upper()]) for name in form.order]),
    )


def goes_in_blocks(op: Op) -> bool:
    """Whether its functions compute every element from those at its place, and at most add them up afterwards."""
    return (op.elementwise or op.map_reduce) and not op.random


def bits(numbers: Collection[int]) -> int:
    return sum([1 << n for n in numbers])


def user_bits(form: Form, name: str) -> int:
    """The edges, as bits, whose rules need a value."""
    return bits({form.all_edge_names.index(i) for i in form.rules_using[name]})


# ---- operations in place


def compile_in_place(
    op: Op, shown: str, function: Callable[..., Any], check_history: Callable[..., Any], times_alpha: Callable[..., Any]
) -> Any:
    """The in-place form of an operation, or a C object that passes for it."""
    if not is_compiled(op) or op.ordered[0] != "input":
        return function
    return core.InPlace(function, lambda: in_place_plan(op, shown, check_history, times_alpha))


def in_place_plan(op: Op, shown: str, check_history: Any, times_alpha: Any) -> plans.InPlacePlan | None:
    plan = operation_plan(op)
    if plan is None:
        return None
    number = op.form.number
    plan = plan._replace(
        form=all_alike(op.form, plan.form),
        number_form=None if number is None or plan.number_form is None else all_alike(number, plan.number_form),
    )
    direct = op.ufunc is not None and op.params in ([], ["alpha"])
    return plans.InPlacePlan(
        operation=plan,
        shown=shown,
        check_history=check_history,
        times_alpha=times_alpha,
        ufunc=getattr(cpu, op.ufunc) if direct else None,  # type: ignore[arg-type]
        alpha=op.ordered.index("alpha") if direct and op.params else -1,
    )


def all_alike(form: Form, plan: plans.FormPlan) -> plans.FormPlan:
    """A form whose tensors must all have the same dtype, if promotion would make it one."""
    inputs = [form.places[i] for i in form.input_names]
    return plan._replace(taking_part=bits(inputs) if form.policy else 0)


# ---- nodes


def compile_pull(form: Form) -> None:
    """Put a C object in the place of a Node class's method `pull`."""
    if core is not None:
        node = form.node_class
        node.pull = core.Pull(node.pull, lambda: pull_plan(form))


def pull_plan(form: Form) -> plans.PullPlan | None:
    inputs = [plans.Kept(k.name, k.slot, k.version, -1) for k in form.kept_inputs]
    outputs = [plans.Kept(k.name, k.slot, None, k.output) for k in form.kept_outputs]
    kept = (*inputs, *outputs)
    count = 1 + len(kept) + len(form.values)  # the gradient comes first
    if len(kept) > plans.MOST_EDGES or count + 1 > plans.MOST_VALUES or len(form.all_edges) > plans.MOST_EDGES:
        return None
    rules = bound_rules(form, count, cpu)
    return plans.PullPlan(
        node=form.node_class,
        kept=kept,
        value_count=len(form.values),
        rules=rules,
        # in recorded passes Python deals with several outputs
        recorded_rules=rules if form.several else bound_rules(form, count, recorded),
        several=int(form.several),
        only=-1 if form.only_gradient is None else form.only_gradient,
    )


def bound_rules(form: Form, count: int, xp: Namespace) -> plans.Rules:
    """The rules of a node, computed with `xp`; a joint rule finds `needs` behind the `count` values."""
    if form.joint is not None:
        return plans.Rules((None,) * len(form.all_edges), bound_rule(form, "*", form.joint[0], xp, [0, count]))
    rules = zip(form.all_edge_names, form.rules or (), strict=True)
    return plans.Rules(
        tuple([None if rule is None else bound_rule(form, name, rule, xp, [0]) for name, (rule, _) in rules]), None
    )


def bound_rule(form: Form, name: str, rule: Callable[..., Any], xp: Namespace, leading: list[int]) -> Tree:
    places = [*leading, *[k + 1 for k in form.rule_places[name]]]
    names = formula.parameters(rule).names
    return bound(rule, dict(zip(names, places, strict=True)), xp, form.op, is_rule=True)


# ---- the same on a GPU


def device_forms(operation: Any) -> tuple[plans.FormPlan | None, plans.FormPlan | None]:
    """The forms of an operation with the array functions of the GPU; None where there are none."""
    op = _operations.get(operation)
    if op is None:
        return None, None
    xp, form = namespace_of("cuda"), op.form
    return form_plan(form, xp), None if form.number is None else form_plan(form.number, xp)


def device_rules(node_class: Any) -> plans.Rules:
    """The rules of a class of nodes, with the array functions of the GPU."""
    form = node_class.form
    count = 1 + len(form.kept_inputs) + len(form.kept_outputs) + len(form.values)
    return bound_rules(form, count, namespace_of("cuda"))


if core is not None:
    core.bind(device_forms=device_forms, device_rules=device_rules)


# ---- formulas


def bound(
    function: Callable[..., Any], places: Mapping[str, int], xp: Namespace, op: Op | None = None, is_rule: bool = False
) -> Tree:
    """A function's formula on the arguments at `places`, with the array functions of `xp`; or the call of the function.

    op  whose forward, or rule, it is: some are evaluated in blocks if the arrays are large
    """
    arguments = [("argument", place) for place in places.values()]
    tree = whole(function, places, xp) or ("call", None, ("constant", function), ("constant", xp), *arguments)
    if op is None or not goes_in_blocks(op) or xp is not cpu or not 1 <= len(places) <= plans.MOST_ARGUMENTS:
        return tree
    return ("blocks", blocks.in_blocks(function, op.map_reduce, is_rule, op.widens), tree, *arguments)


def whole(function: Callable[..., Any], places: Mapping[str, int], xp: Namespace) -> Tree | None:
    """The formula that a function is, if this namespace has all its functions, and the core can call them.

    A device whose kernels are made from formulas computes it by one of them, if it can (backend/cuda/joined.py).
    """
    tree = formula.read(function)
    if tree is None:
        return None
    kernel: Tree | None = xp.joined(function, tree, places) if hasattr(type(xp), "joined") else None
    try:
        return kernel or formula.bound(tree, places, xp)
    except (AttributeError, NotImplementedError):
        return None
