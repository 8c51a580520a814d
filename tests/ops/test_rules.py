"""Evaluating jvp and batching rules: the corners that sample rows do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.batching import apply_batch
from tests.ops.test_declare import clean_registry, declare, leaf
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import cpu
from undertow.ops.declare import REGISTRY, Joint, nondifferentiable, variadic
from undertow.ops.declare.rules import BILINEAR, ELEMENTWISE, LINEAR, LOOP, REDUCTION
from undertow.ops.declare.rules.apply_jvp import apply_jvp
from undertow.tensor import Tensor

__all__ = ["clean_registry"]  # a fixture: this module declares operations too


PASS_ON = dict.fromkeys(("input", "other"), lambda xp, g: g)


def tensor(values: Any, dtype: str = "float64") -> Tensor:
    return Tensor(np.asarray(values, dtype=dtype), cpu)


def jvp(name: str, tangents: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    op = REGISTRY[name]
    return jvp_of(op, op.by_name(op.bind(args, kwargs)), tangents)


def jvp_of(op: Any, values: dict[str, Any], tangents: dict[str, Any]) -> Any:
    """The tangent, with tensors for arrays."""
    return apply_jvp(op, as_tensors(values), as_tensors(tangents))


def as_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_tensors(v) for name, v in value.items()}
    if isinstance(value, list):
        return [as_tensors(v) for v in value]
    return Tensor(value, cpu) if isinstance(value, np.ndarray) else value


def largest() -> Any:
    """(values, indices) along the last dimension."""
    return declare(
        lambda xp, input: (xp.max(input, axis=-1), xp.argmax(input, axis=-1)),
        {"input": lambda xp, g: g},
        jvp={"input": lambda xp, t, indices: xp.take(t, indices)},
        outputs=("values", "indices"),
        nondifferentiable=("indices",),
    ).op


def joined() -> Any:
    return variadic(
        "tested",
        lambda xp, tensors, scale=1.0: xp.concatenate(tensors) * scale,
        lambda xp, g, needs: [g for _ in needs],
        jvp=LINEAR,
        batch=LOOP,
    ).op


# ---- jvp


def test_without_tangents_there_is_none() -> None:
    x = np.ones(3)
    assert jvp("mul", {}, x, x) is None
    assert jvp("mul", {"input": None}, x, x) is None
    assert jvp_of(largest(), {"input": x}, {}) == (None, None)


def test_missing_tangents_count_as_zero() -> None:
    x, t = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    assert jvp("add", {"other": t}, x, x, alpha=2).tolist() == [20.0, 40.0]
    assert jvp("mul", {"input": t}, x, x).tolist() == [10.0, 40.0]
    assert jvp("true_divide", {"input": t}, x, x).tolist() == [10.0, 10.0]


def test_a_tangent_has_the_shape_and_dtype_of_the_output() -> None:
    column, row = np.ones((2, 1), "float32"), np.ones(3)
    for name in ("add", "mul", "true_divide"):
        tangent = jvp(name, {"input": np.ones((2, 1), "float32")}, column, row)
        assert tangent.shape == (2, 3) and tangent._array.dtype == "float64"


def test_a_complex_tangent_of_a_real_output_is_its_real_part() -> None:
    z = np.array([3 + 4j])
    assert jvp("abs", {"input": np.array([1.0 + 0j])}, z).tolist() == [0.6]
    assert jvp("abs", {"input": np.array([1j])}, z).tolist() == [0.8]


def test_indices_have_no_tangent() -> None:
    x, t = np.array([1.0, 3.0, 2.0]), np.array([10.0, 30.0, 20.0])
    values, indices = jvp_of(largest(), {"input": x}, {"input": t})
    assert values.tolist() == 30.0 and indices is None


def test_an_output_of_integers_has_no_tangent() -> None:
    op = declare(lambda xp, input: input.astype("int64"), {"input": lambda xp, g: g}, check_output=True).op
    assert jvp_of(op, {"input": np.ones(2)}, {"input": np.ones(2)}) is None


def test_an_operation_without_derivative_has_no_tangent() -> None:
    t = np.ones(2)
    op = nondifferentiable("tested", lambda xp, input: xp.floor(input), inputs=("input",)).op
    assert jvp_of(op, {"input": t}, {"input": t}) is None


def test_an_input_without_derivative_has_no_influence() -> None:
    op = declare(lambda xp, input, weight: input * weight, {"input": lambda xp, g: g, "weight": None}).op
    values = {"input": np.ones(2), "weight": np.array([3.0, 4.0])}
    assert jvp_of(op, values, {"weight": np.ones(2)}) is None
    both = jvp_of(op, values, {"input": np.ones(2), "weight": np.ones(2)})
    assert both.tolist() == [3.0, 4.0]


def test_python_numbers() -> None:
    t = np.array([1.0])
    assert jvp("mul", {"input": t}, np.array([5.0]), 3.0).tolist() == [3.0]
    assert jvp("mul", {"other": t}, 3.0, np.array([5.0])).tolist() == [3.0]
    assert jvp("sub", {"other": t}, 3, np.array([5.0])).tolist() == [-1.0]


def test_an_input_outside_the_rules_contributes_nothing() -> None:
    rules = {"input": lambda xp, g: 0 * g, "other": lambda xp, g: g}
    op = declare(lambda xp, input, other: other * 1.0, rules, jvp={"other": lambda xp, t: t}).op
    values = {"input": np.ones(2), "other": np.ones(2)}
    assert jvp_of(op, values, {"input": np.ones(2)}).tolist() == [0.0, 0.0]


def test_a_single_function_gets_the_tangents_that_exist() -> None:
    def rule(xp: Any, tangents: dict[str, Any], input: Any, other_shape: Any, out: Any) -> Any:
        seen.append((sorted(tangents), other_shape, out.tolist()))
        return sum(tangents.values())

    seen: list[Any] = []
    op = declare(lambda xp, input, other: input + other, PASS_ON, jvp=rule).op
    values = {"input": np.ones(2), "other": np.ones(2)}
    assert jvp_of(op, values, {"other": np.ones(2)}).tolist() == [1.0, 1.0]
    assert seen == [(["other"], (2,), [2.0, 2.0])]


def test_an_elementwise_jvp_from_a_joint_rule() -> None:
    def rule(xp: Any, g: Any, needs: tuple[bool, ...], input: Any, other: Any) -> list[Any]:
        return [g * xp.conj(other) if needs[0] else None, g * xp.conj(input) if needs[1] else None]

    op = declare(lambda xp, input, other: input * other, Joint(("input", "other"), rule), jvp=ELEMENTWISE).op
    values = {"input": np.array([2.0 + 1j]), "other": np.array([3.0 - 1j])}
    tangent = jvp_of(op, values, {"other": np.array([1j])})
    assert tangent.tolist() == [1j * (2 + 1j)]


def test_lists_of_tensors() -> None:
    a, b, t = np.array([1.0]), np.array([2.0]), np.array([5.0])
    assert jvp_of(joined(), {"tensors": [a, b], "scale": 2.0}, {"tensors": [None, t]}).tolist() == [
        0,
        10,
    ]
    forward = lambda xp, tensors: tensors[0] * tensors[1]
    product = variadic("tested_product", forward, lambda xp, g, needs: [g, g], jvp=BILINEAR, batch=LOOP).op
    assert jvp_of(product, {"tensors": [a, b]}, {"tensors": [t, t]}).tolist() == [15.0]


def test_without_a_rule_there_is_an_error() -> None:
    op = declare(lambda xp, input: input * 1.0, {"input": lambda xp, g: g}, jvp=None).op
    with pytest.raises(NotImplementedError, match="Trying to use forward AD with tested that does not support it"):
        jvp_of(op, {"input": np.ones(1)}, {"input": np.ones(1)})


def test_a_name_that_nothing_has() -> None:
    op = declare(lambda xp, input: input * 1.0, {"input": lambda xp, g: g}, jvp={"input": lambda xp, t, weight: t}).op
    with pytest.raises(TypeError, match="tested: its jvp rule uses 'weight'"):
        jvp_of(op, {"input": np.ones(1)}, {"input": np.ones(1)})


def test_a_recorded_tangent_can_be_differentiated() -> None:
    x, t = leaf([0.5]), leaf([2.0])
    op = REGISTRY["sin"]
    tangent = apply_jvp(op, {"input": x}, {"input": t})
    of_x, of_t = grad(tangent, (x, t), tensor([1.0]))
    np.testing.assert_allclose(of_x._array, -2 * np.sin(0.5))
    np.testing.assert_allclose(of_t._array, np.cos(0.5))


# ---- batching


def test_nothing_batched_is_an_ordinary_call() -> None:
    out, dim = apply_batch(REGISTRY["sin"], [tensor([0.0])], [None])
    assert out._array.tolist() == [0.0] and dim is None
    outputs, dims = apply_batch(largest(), [tensor([2.0, 1.0])], [None])
    assert outputs[0]._array.tolist() == 2.0 and dims == (None, None)


def test_negative_batch_dimensions() -> None:
    x = np.arange(6.0).reshape(2, 3)
    out, dim = apply_batch(REGISTRY["add"], [tensor(x), tensor([10.0, 20.0])], [-1, None])
    assert dim == 0 and out._array.tolist() == (x.T + [10, 20]).tolist()


def test_ranks_are_aligned_behind_the_batch() -> None:
    scalars, matrix = tensor([1.0, 2.0]), tensor(np.zeros((3, 2)))
    out, dim = apply_batch(REGISTRY["add"], [scalars, matrix], [0, None])
    assert dim == 0 and out._array.shape == (2, 3, 2) and out._array[1, 0, 0] == 2


def test_a_batch_of_scalars_promotes_like_a_scalar() -> None:
    doubles, single = tensor([1.0, 2.0]), tensor([1.0], "float32")
    out, _ = apply_batch(REGISTRY["mul"], [doubles, single], [0, None])
    assert out._array.dtype == ops.mul(tensor(1.0), single)._array.dtype == "float32"
    out, _ = apply_batch(REGISTRY["mul"], [tensor([[1.0]]), single], [0, None])
    assert out._array.dtype == "float64"


@pytest.mark.parametrize("dim", [2, -3, (0, 2)])
def test_dimensions_are_those_of_an_example(dim: Any) -> None:
    op = reduction(REDUCTION)
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\]"):
        apply_batch(op, [tensor(np.zeros((4, 2, 3)))], [0], {"dim": dim})


def reduction(batch: Any) -> Any:
    return declare(
        lambda xp, input, dim=None, keepdim=False: xp.sum(input, axis=dim, keepdims=keepdim),
        {"input": lambda xp, g: g},
        batch=batch,
    ).op


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1), (-1,)], ids=str)
def test_reductions(dim: Any, keepdim: bool) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    out, where = apply_batch(reduction(REDUCTION), [tensor(x)], [1], {"dim": dim, "keepdim": keepdim})
    expected = np.stack([x[:, k].sum(axis=dim, keepdims=keepdim) for k in range(3)])
    assert where == 0 and out._array.shape == expected.shape and out._array.tolist() == expected.tolist()


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_reductions_of_scalars(dim: Any, keepdim: bool) -> None:
    out, where = apply_batch(reduction(REDUCTION), [tensor([1.0, 2.0])], [0], {"dim": dim, "keepdim": keepdim})
    assert where == 0 and out._array.tolist() == [1.0, 2.0]


def test_a_reduction_needs_a_dimension() -> None:
    op = declare(lambda xp, input: input, {"input": lambda xp, g: g}, batch=REDUCTION).op
    with pytest.raises(TypeError, match="tested: batch=REDUCTION needs a parameter `dim`"):
        apply_batch(op, [tensor([1.0])], [0])


@pytest.mark.parametrize("rule", [LOOP, None])
def test_loops_stack_every_output(rule: Any) -> None:
    forward = lambda xp, input, other: (input + other, other)
    op = declare(forward, PASS_ON, outputs=("sum", "other"), batch=rule).op
    x = np.arange(6.0).reshape(2, 3)
    (total, other), dims = apply_batch(op, [tensor(x), tensor([1.0, 1.0])], [1, None])
    assert dims == (0, 0) and total._array.tolist() == (x.T + 1).tolist()
    assert other._array.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("rule", [LOOP, ELEMENTWISE])
def test_a_batch_of_nothing(rule: Any) -> None:
    op = declare(lambda xp, input, other: input * other, PASS_ON, batch=rule).op
    out, dim = apply_batch(op, [tensor(np.zeros((2, 0))), tensor([1.0, 1.0])], [1, None])
    assert np.moveaxis(out._array, dim, 0).shape == (0, 2)


def test_lists_with_a_batch() -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array([9.0])
    out, dim = apply_batch(joined(), [[tensor(x), tensor(y)], 10.0], [[0, None], None])
    assert dim == 0 and out._array.tolist() == [[0, 10, 90], [20, 30, 90], [40, 50, 90]]


def test_an_own_rule_gets_arguments_in_the_order_of_the_signature() -> None:
    def rule(call: Any, args: list[Any], in_dims: list[Any]) -> tuple[Any, int]:
        seen.append((args[1:], in_dims))
        return call(*args), 1

    seen: list[Any] = []
    op = declare(
        lambda xp, input, factor, *, shift=0.0: input * factor + shift, {"input": lambda xp, g: g}, batch=rule
    ).op
    out, dim = apply_batch(op, [tensor([[1.0, 2.0]]), 2.0], [1, None], {"shift": 1.0})
    assert dim == 1 and out._array.tolist() == [[3.0, 5.0]]
    assert seen == [([2.0, 1.0], [1, None, None])]


def test_batched_calls_are_recorded() -> None:
    x = leaf(np.arange(6.0).reshape(2, 3))
    out, dim = apply_batch(REGISTRY["mul"], [x, x], [1, 1])
    (gradient,) = grad(out, x, tensor(np.ones((3, 2))))
    assert dim == 0 and gradient._array.tolist() == (2 * x._array).tolist()


def test_linear_is_not_a_batching_rule() -> None:
    op = declare(lambda xp, input: input, {"input": lambda xp, g: g}, batch=LINEAR).op
    with pytest.raises(TypeError, match="tested: batch=LINEAR is no batching rule"):
        apply_batch(op, [tensor([1.0])], [0])
