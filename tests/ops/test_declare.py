"""Declaring operations: what is saved, which paths are compiled, and what a wrong declaration says."""

from __future__ import annotations

import functools
import pydoc
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.rows import rows
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import ArrayNamespace, cpu
from undertow.modes import current, no_grad, set_state
from undertow.ops.declare import (
    REGISTRY,
    Joint,
    adapter,
    composite,
    core_plan,
    nondifferentiable,
    primitive,
    variadic,
    view,
)
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE, LINEAR, LOOP
from undertow.tensor import LEAF, Tensor


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    """Forget the operations that a test declares."""
    before = dict(REGISTRY)
    yield
    for name in REGISTRY.keys() - before.keys():
        for place in (ArrayNamespace, recorded):
            if name in vars(place):
                delattr(place, name)
    REGISTRY.clear()
    REGISTRY.update(before)


def leaf(values: Any, requires_grad: bool = True) -> Tensor:
    return Tensor(np.asarray(values, dtype=float), cpu, LEAF if requires_grad else None)


def declare(forward: Callable[..., Any], vjp: Any, name: str = "tested", **options: Any) -> Any:
    return primitive(name, forward, vjp, **{"jvp": LINEAR, "batch": LOOP, **options})


def scaled_sum(**options: Any) -> Any:
    """input * factor + other, where only the rule of `input` needs anything."""
    return declare(
        lambda xp, input, other, factor=2.0: input * factor + other,
        {"input": lambda xp, g, factor: g * factor, "other": lambda xp, g: g},
        **options,
    )


def gradient(output: Tensor, *inputs: Tensor) -> list[Any]:
    seed = Tensor(np.ones(output.shape), cpu)
    return [None if g is None else g._array.tolist() for g in grad(output, inputs, seed, allow_unused=True)]


# ---- names decide what is saved


def test_a_rule_gets_what_it_names() -> None:
    seen: dict[str, Any] = {}

    def rule(xp: Any, g: Any, input: Any, out: Any, input_shape: Any, input_dtype: Any, factor: Any) -> Any:
        seen.update(input=input, out=out, shape=input_shape, dtype=input_dtype, factor=factor)
        return g * factor

    function = declare(lambda xp, input, factor: input * factor, {"input": rule})
    x = leaf([1.0, 2.0])
    assert gradient(function(x, 3.0), x) == [[3.0, 3.0]]
    assert seen["input"] is x._array and seen["out"].tolist() == [3.0, 6.0]
    assert (seen["shape"], seen["dtype"], seen["factor"]) == ((2,), np.dtype("float64"), 3.0)


def test_nothing_else_is_saved() -> None:
    out = scaled_sum()(leaf([1.0]), leaf([1.0]))
    assert out.grad_fn.saved == () and out.grad_fn.params == (2.0,)


def test_saved_values_under_public_names() -> None:
    function = declare(
        lambda xp, input, index, dim=0: input * 1.0,
        {"input": lambda xp, g, index, out, input_shape, dim: g, "index": None},
    )
    node = function(leaf([1.0]), leaf([2.0], False), dim=-1).grad_fn
    assert node._saved_index._array.tolist() == [2.0] and node._saved_result._array.tolist() == [1.0]
    assert node._saved_self_sym_sizes == (1,) and node._saved_dim == -1
    with pytest.raises(AttributeError, match="_saved_other"):
        node._saved_other


def test_a_product_saves_only_what_its_gradient_needs() -> None:
    x, y, constant = leaf([2.0]), leaf([3.0]), leaf([5.0], False)
    assert ops.mul(x, constant).grad_fn._saved_self is None
    assert ops.mul(x, constant).grad_fn._saved_other is constant
    assert ops.mul(constant, x).grad_fn._saved_other is None
    both = ops.mul(x, y).grad_fn
    assert both._saved_self is x and both._saved_other is y


def test_a_joint_rule_saves_for_all() -> None:
    def rule(xp: Any, g: Any, needs: tuple[bool, ...], input: Any, other: Any) -> list[Any]:
        asked.append(needs)
        return [g * other if needs[0] else None, g * input if needs[1] else None]

    asked: list[tuple[bool, ...]] = []
    function = declare(lambda xp, input, other: input * other, Joint(("input", "other"), rule))
    x, y = leaf([2.0]), leaf([3.0])
    assert gradient(function(x, y), x, y) == [[3.0], [2.0]]
    assert gradient(function(x, y), y) == [[2.0]]
    assert gradient(function(x, leaf([3.0], False)), x) == [[3.0]]
    assert asked == [(True, True), (False, True), (True, False)]


def test_only_needed_rules_run() -> None:
    ran = []

    def rule(name: str) -> Callable[..., Any]:
        return lambda xp, g: ran.append(name) or g

    function = declare(lambda xp, input, other: input + other, {"input": rule("input"), "other": rule("other")})
    x, y = leaf([2.0]), leaf([3.0])
    out = function(x, y)
    grad(out, y, Tensor(np.ones(1), cpu))
    assert ran == ["other"]
    grad(function(x, leaf([3.0], False)), x, Tensor(np.ones(1), cpu))
    assert ran == ["other", "input"]


def test_a_rule_may_be_a_partial() -> None:
    def scale(factor: float, xp: Any, g: Any) -> Any:
        return g * factor

    function = declare(lambda xp, input: input * 3.0, {"input": functools.partial(scale, 3.0)})
    x = leaf([1.0])
    assert gradient(function(x), x) == [[3.0]]


# ---- wrong declarations


def test_a_name_that_nothing_has() -> None:
    """Found by the first call: checking all rules of all operations would lengthen every import."""
    function = declare(lambda xp, input: input, {"input": lambda xp, g, weight: g})
    with pytest.raises(TypeError, match="tested: a rule uses 'weight', which is neither input, output nor parameter"):
        function(leaf([1.0]))


def test_a_shape_of_something_that_is_no_input() -> None:
    function = declare(lambda xp, input, factor: input, {"input": lambda xp, g, factor_shape: g})
    with pytest.raises(TypeError, match="tested: a rule uses 'factor_shape'"):
        function(leaf([1.0]), 2.0)


@rows("name", sorted(REGISTRY))
def test_rules_name_what_there_is(name: str) -> None:
    if REGISTRY[name].kind != "composite":
        REGISTRY[name].check_rules()


def test_a_rule_for_an_input_that_forward_lacks() -> None:
    with pytest.raises(TypeError, match=r"tested: vjp names \['other'\], which forward does not take"):
        declare(lambda xp, input: input, {"input": lambda xp, g: g, "other": lambda xp, g: g})


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match=r"tested: a declaration has no option \['promotes'\]"):
        declare(lambda xp, input: input, {"input": lambda xp, g: g}, promotes="same")


def test_forwards_take_by_position_what_programs_give_by_name() -> None:
    """The plain path, the compiled core and blocks call them with all arguments; rules may leave out defaults."""

    def forward(xp: Any, input: Any, *, factor: float, offset: float = 1.0) -> Any:
        return input * factor + offset

    function = declare(forward, {"input": lambda xp, g, factor: g * factor})
    array = np.array([1.0, 2.0])
    np.testing.assert_array_equal(function.op.forward(cpu, array, 3.0, 2.0), [5.0, 8.0])
    np.testing.assert_array_equal(function.op.forward(cpu, array, factor=3.0), [4.0, 7.0])
    np.testing.assert_array_equal(function.op.compute(cpu, {"input": array, "factor": 3.0}), [4.0, 7.0])
    np.testing.assert_array_equal(function(Tensor(array, cpu), factor=3.0)._array, [4.0, 7.0])
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        function(Tensor(array, cpu), 3.0)


def test_a_name_is_declared_once() -> None:
    scaled_sum()
    with pytest.raises(TypeError, match="the operation 'tested' is declared twice"):
        scaled_sum()
    with pytest.raises(TypeError, match="the operation 'sin' is declared twice"):
        scaled_sum(name="sin")


# ---- calling


def test_arguments_by_place_name_and_numpy_spelling() -> None:
    function = declare(
        lambda xp, input, dim=None, keepdim=False: xp.sum(input, axis=dim, keepdims=keepdim),
        {"input": lambda xp, g, input_shape: xp.broadcast_to(g, input_shape)},
    )
    x = leaf([[1.0, 2.0]])
    assert function(x, 1)._array.tolist() == function(x, dim=1)._array.tolist() == [3.0]
    assert function(x, axis=1, keepdims=True)._array.tolist() == [[3.0]]
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        function(x, axes=1)


def test_numpy_spellings_of_required_dimensions() -> None:
    x, index = leaf([[1.0, 2.0]]), Tensor(np.array([[1]]), cpu)
    assert ops.cumsum(x, axis=1)._array.tolist() == [[1.0, 3.0]]
    assert ops.gather(x, axis=1, index=index)._array.tolist() == [[2.0]]
    with pytest.raises(TypeError, match=r"cumsum\(\) missing 1 required positional argument: 'dim'"):
        ops.cumsum(x)
    with pytest.raises(TypeError, match=r"gather\(\) missing 1 required positional argument: 'index'"):
        ops.gather(x, axis=1)


def test_keyword_only_parameters() -> None:
    function = declare(lambda xp, input, *, factor=2.0: input * factor, {"input": lambda xp, g, factor: g * factor})
    assert function(leaf([1.0]), factor=4.0)._array.tolist() == [4.0]
    with pytest.raises(TypeError, match="positional argument"):
        function(leaf([1.0]), 4.0)


def test_keyword_only_inputs_are_arrays_in_forward() -> None:
    function = declare(
        lambda xp, input, *, weight: xp.multiply(input, weight),
        {"input": lambda xp, g, weight: g * weight, "weight": lambda xp, g, input: g * input},
    )
    x, w = leaf([2.0]), leaf([3.0])
    assert gradient(function(x, weight=w), x, w) == [[3.0], [2.0]]


def test_a_parameter_may_have_the_name_of_the_operation() -> None:
    caught = []
    function = declare(lambda xp, input, tested: input * tested, {"input": lambda xp, g, tested: g * tested})
    with intercepting(lambda f, args: caught.append((f, args))):
        function(leaf([1.0]), 2.0)
    assert caught[0][0] is function and caught[0][1][1] == 2.0


class intercepting:
    """Hand every operation to `intercept` inside."""

    def __init__(self, intercept: Any) -> None:
        self.intercept = intercept

    def __enter__(self) -> None:
        self.outer = current()
        set_state(self.outer.replace(intercept=self.intercept))

    def __exit__(self, *exc: object) -> None:
        set_state(self.outer)


def test_an_interceptor_sees_the_call_as_it_was_meant() -> None:
    caught: list[Any] = []
    x = leaf([[1.0, 2.0]])
    with intercepting(lambda f, args: caught.append(f.op.by_name(args))):
        ops.cumsum(x, axis=1)
        ops.stack([x, x], dim=1)
        ops.add(x, 2.0, alpha=3)
    assert caught[0]["input"] is x and caught[0]["dim"] == 1
    assert caught[1] == {"tensors": [x, x], "dim": 1}
    assert caught[2] == {"input": x, "other": 2.0, "alpha": 3}


def test_arrays_and_numbers_become_tensors() -> None:
    out = scaled_sum()(np.array([1.0]), 3)
    assert isinstance(out, Tensor) and out._array.tolist() == [5.0] and not out.requires_grad
    with pytest.raises(TypeError, match=r"tested\(\): argument 'other' must be Tensor, not str"):
        ops_tested(np.array([1.0]), "three")


def ops_tested(*args: Any) -> Any:
    return REGISTRY["tested"].function(*args)


def test_results_are_arrays_even_of_no_dimensions() -> None:
    function = declare(lambda xp, input: xp.sum(input), {"input": lambda xp, g: g})
    assert type(function(leaf([1.0, 2.0]))._array) is np.ndarray


def test_nothing_is_recorded_without_need() -> None:
    function = scaled_sum()
    assert function(leaf([1.0], False), leaf([1.0], False)).grad_fn is None
    with no_grad():
        assert function(leaf([1.0]), leaf([1.0])).grad_fn is None


def test_the_function_and_node_carry_their_names() -> None:
    function = scaled_sum(name="scaled_sum_of")
    assert function.__name__ == "scaled_sum_of" and function.op is REGISTRY["scaled_sum_of"]
    node = function(leaf([1.0]), leaf([1.0])).grad_fn
    assert node.name() == "ScaledSumOfBackward0" and type(node) is function.op.node_class
    assert scaled_sum(node="OtherBackward1")(leaf([1.0]), leaf([1.0])).grad_fn.name() == "OtherBackward1"


# ---- the path for Python numbers


def test_a_number_takes_a_path_of_its_own() -> None:
    function = scaled_sum(number="other", number_node="TestedBackward1")
    x = leaf([1.0])
    for number in (3, 3.0):
        out = function(x, number)
        assert out.grad_fn.name() == "TestedBackward1" and gradient(out, x) == [[2.0]]
    assert function(x, leaf([3.0])).grad_fn.name() == "TestedBackward0"
    assert function(x, 3.0).grad_fn.next_functions[1] == (None, 0)


def test_a_number_is_saved_as_a_value() -> None:
    x = leaf([1.0, 2.0])
    out = ops.mul(x, 3.0)
    assert out.grad_fn.saved == () and out.grad_fn._saved_other == 3.0
    assert gradient(out, x) == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [("float32", 2.0, "float32"), ("int32", 2, "int32"), ("int32", 2.5, "float32"), ("uint8", 2, "uint8")],
)
def test_a_number_yields_to_the_tensor_in_promotion(dtype: str, number: Any, expected: str) -> None:
    x = Tensor(np.ones(2, dtype), cpu)
    assert ops.mul(x, number)._array.dtype == expected


def test_a_bool_or_complex_number_is_a_tensor() -> None:
    x = leaf([1.0])
    assert ops.mul(x, True)._array.tolist() == [1.0]
    assert ops.mul(x, 2j)._array.tolist() == [2j]


# ---- promotion


def test_promotion_of_operands() -> None:
    same, as_float = scaled_sum(name="same", promote="same"), scaled_sum(name="as_float", promote="float")
    integers, single = Tensor(np.ones(2, "int64"), cpu), Tensor(np.ones(2, "float32"), cpu)
    assert same(integers, single)._array.dtype == "float32"
    assert as_float(integers, integers)._array.dtype == "float32"
    assert as_float(single, leaf([1.0, 1.0]))._array.dtype == "float64"


# ---- optional inputs


def optional_product() -> Any:
    return declare(
        lambda xp, input, weight=None: input * 1.0 if weight is None else input * weight,
        {
            "input": lambda xp, g, weight, weight_shape: g if weight_shape is None else g * weight,
            "weight": lambda xp, g, input: g * input,
        },
        optional=("weight",),
    )


def test_an_optional_input_may_be_missing() -> None:
    function = optional_product()
    x, w = leaf([2.0]), leaf([3.0])
    for out in (function(x), function(x, None), function(x, weight=None)):
        assert out.grad_fn.next_functions[1] == (None, 0) and out.grad_fn._saved_weight is None
        assert gradient(out, x) == [[1.0]]
    assert gradient(function(x, w), x, w) == [[3.0], [2.0]]
    assert function(leaf([2.0], False)).grad_fn is None


def test_a_required_input_may_not_be_missing() -> None:
    with pytest.raises(TypeError, match=r"argument 'other' must be Tensor, not NoneType"):
        scaled_sum()(leaf([1.0]), None)


# ---- several outputs


def test_several_outputs_and_a_gradient_for_each() -> None:
    received: list[Any] = []

    def rule(xp: Any, g: Any) -> Any:
        received.append([None if x is None else x.tolist() for x in g])
        return sum(x * k for k, x in zip((1.0, 2.0), g, strict=True) if x is not None)

    function = declare(lambda xp, input: (input * 1.0, input * 2.0), {"input": rule}, outputs=("one", "two"))
    x = leaf([1.0])
    one, two = function(x)
    assert (one.output_nr, two.output_nr) == (0, 1) and one.grad_fn is two.grad_fn
    assert gradient(two, x) == [[2.0]]
    one, two = function(x)
    assert gradient(ops.add(one, two), x) == [[3.0]]
    assert received == [[None, [1.0]], [[1.0], [1.0]]]


def test_the_only_differentiable_output_speaks_for_itself() -> None:
    function = declare(
        lambda xp, input: (xp.max(input), xp.argmax(input)),
        {"input": lambda xp, g, indices, input_shape: xp.where(xp.arange(input_shape[0]) == indices, g, 0.0)},
        outputs=("values", "indices"),
        nondifferentiable=("indices",),
    )
    x = leaf([1.0, 5.0, 2.0])
    values, indices = function(x)
    assert values.requires_grad and not indices.requires_grad and indices.grad_fn is None
    assert type(values._array) is type(indices._array) is np.ndarray
    assert gradient(values, x) == [[0.0, 1.0, 0.0]]


def test_a_list_of_outputs() -> None:
    def rule(xp: Any, g: Any, count: int) -> Any:
        assert len(g) == count
        return sum(x * k for k, x in enumerate(g, 1) if x is not None)

    function = declare(
        lambda xp, input, count: [input * k for k in range(1, count + 1)], {"input": rule}, outputs="list"
    )
    x = leaf([1.0])
    first, _, third = function(x, 3)
    assert gradient(ops.add(first, third), x) == [[4.0]]
    assert len(function(leaf([1.0], False), 2)) == 2


def test_an_output_of_integers_has_no_gradient() -> None:
    function = declare(lambda xp, input, dtype: input.astype(dtype), {"input": lambda xp, g: g}, check_output=True)
    assert function(leaf([1.0]), "int64").grad_fn is None
    assert function(leaf([1.0]), "float32").grad_fn is not None


# ---- kinds of operations


def test_a_view_shares_memory_and_can_be_replayed() -> None:
    function = view("tested", lambda xp, input, start: input[start:], {"input": lambda xp, g: g}, batch=LOOP)
    x = leaf([1.0, 2.0, 3.0])
    shown = function(x, 1)
    assert np.shares_memory(shown._array, x._array) and shown._is_view() and shown._base is x
    assert shown._extra.view.replay(leaf([7.0, 8.0, 9.0]))._array.tolist() == [8.0, 9.0]
    assert REGISTRY["tested"].jvp is LINEAR


def test_an_operation_without_derivative() -> None:
    function = nondifferentiable("tested", lambda xp, input: xp.sign(input), inputs=("input",))
    out = function(leaf([2.0]))
    assert out._array.tolist() == [1.0] and not out.requires_grad


def test_a_composite_is_its_parts() -> None:
    @composite
    def tested(input: Any) -> Any:
        return ops.mul(input, input)

    x = leaf([3.0])
    assert gradient(tested(x), x) == [[6.0]]
    assert REGISTRY["tested"].kind == "composite" and REGISTRY["tested"].function is tested


def test_an_operation_on_a_list() -> None:
    function = variadic(
        "tested",
        lambda xp, tensors, factor=1.0: factor * sum(tensors),
        vjp=lambda xp, g, needs, shapes, factor: [g * factor if n else None for n in needs],
        jvp=LINEAR,
        batch=LOOP,
    )
    x, y = leaf([1.0]), leaf([2.0])
    out = function([x, 4.0, y], factor=2.0)
    assert out._array.tolist() == [14.0] and gradient(out, x, y) == [[2.0], [2.0]]
    assert out.grad_fn.saved == ()
    with pytest.raises(RuntimeError, match=r"tested\(\): expected a non-empty list of Tensors"):
        function([])


def test_a_wrong_name_in_the_rule_of_a_list() -> None:
    with pytest.raises(TypeError, match=r"tested: the rule uses \['weight'\]"):
        variadic("tested", lambda xp, tensors: tensors[0], lambda xp, g, needs, weight: [g], jvp=LINEAR, batch=LOOP)


# ---- rules in both modes


def test_rules_find_declared_operations_in_both_namespaces() -> None:
    """A kernel that NumPy lacks is declared, and then used by another operation's rule."""
    halve = declare(lambda xp, input: input / 2, {"input": lambda xp, g: xp.tested_halve(g)}, name="tested_halve")
    function = declare(
        lambda xp, input: input * input / 4,
        {"input": lambda xp, g, input: xp.tested_halve(g * input)},
        batch=ELEMENTWISE,
    )
    x = leaf([3.0])
    seed = Tensor(np.ones(1), cpu)
    (first,) = grad(function(x), x, seed, create_graph=True)
    (second,) = grad(first, x, seed)
    assert first._array.tolist() == [1.5] and second._array.tolist() == [0.5]
    assert recorded.tested_halve is halve and cpu.tested_halve(np.ones(1)).tolist() == [0.5]


def test_an_adapter_speaks_for_numpy() -> None:
    @adapter("tested_adapter")
    def double(x: Any) -> Any:
        return ops.mul(x, 2.0)

    assert recorded.tested_adapter is double
    del recorded.tested_adapter
    with pytest.raises(AttributeError, match="no recorded operation is named 'tested_adapter'"):
        recorded.tested_adapter


# ---- what help says


def test_help_says_what_the_declaration_says() -> None:
    assert (
        "Differentiable in input and other. "
        "Recorded as MulBackward0, which keeps other and input for the backward pass."
    ) in ops.mul.__doc__
    assert "keeps out for" in ops.exp.__doc__
    assert "keeps no tensor" in ops.add.__doc__
    assert "has no gradient." in ops.isnan.__doc__
    assert "no doc" not in pydoc.render_doc(ops.sin)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_tracebacks_show_where_it_happened(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(core_plan, "core", None)

    def broken(xp: Any, g: Any) -> Any:
        raise ZeroDivisionError("in the rule")

    def fails(xp: Any, input: Any) -> Any:
        raise ZeroDivisionError("in forward")

    function = declare(lambda xp, input: input * 1.0, {"input": broken})
    with pytest.raises(ZeroDivisionError) as caught:
        gradient(function(x := leaf([1.0])), x)
    lines = "".join(traceback.format_tb(caught.tb))
    assert "in broken" in lines
    assert core_plan.core is not None or "rule(xp, grad" in lines
    with pytest.raises(ZeroDivisionError) as caught:
        declare(fails, {"input": lambda xp, g: g}, name="tested_too")(leaf([1.0]))
    lines = "".join(traceback.format_tb(caught.tb))
    assert "in fails" in lines
    assert core_plan.core is not None or "form.forward, xp, *arrays" in lines
