"""Where a derivative does not exist, or is infinite: the value PyTorch chooses."""

from __future__ import annotations

import math
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import cpu
from undertow.tensor import LEAF, Tensor

inf, nan = math.inf, math.nan

#: operation, arguments (a list is a tensor that requires grad), gradient for each list
KINKS: list[tuple[str, tuple[Any, ...], list[list[Any]]]] = [
    ("abs", ([0.0, -0.0, nan],), [[0, 0, 0]]),
    ("abs", ([0j, 3 + 4j],), [[0, 0.6 + 0.8j]]),
    ("sgn", ([0.0, 2.0],), [[0, 0]]),
    ("sgn", ([0j, 2j],), [[0, 0.5]]),
    ("sqrt", ([0.0, 4.0],), [[inf, 0.25]]),
    ("rsqrt", ([0.0, 4.0],), [[-inf, -0.0625]]),
    ("reciprocal", ([0.0, 2.0],), [[-inf, -0.25]]),
    ("log", ([0.0, 2.0],), [[inf, 0.5]]),
    ("asin", ([1.0, -1.0],), [[inf, inf]]),
    ("acos", ([1.0, -1.0],), [[-inf, -inf]]),
    ("acosh", ([1.0],), [[inf]]),
    ("atanh", ([1.0, -1.0],), [[inf, inf]]),
    ("sinc", ([0.0],), [[0]]),
    ("logit", ([-0.5, 0.0, -0.0, 1.0, 1.5],), [[nan, inf, inf, inf, nan]]),
    ("logit", ([0.05, 0.1, 0.9, 0.95], 0.1), [[0, 1 / 0.09, 1 / 0.09, 0]]),
    ("round", ([0.5, 1.5],), [[0, 0]]),
    ("frac", ([1.0, -1.0],), [[1, 1]]),
    ("nan_to_num", ([nan, inf, -inf, 1.0],), [[0, 0, 0, 1]]),
    ("pow", ([0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]), [[-inf, 0, 1], [-inf, 0, 0]]),
    ("pow", ([0.0, 0.0], 0.5), [[inf, inf]]),
    ("pow", ([nan, 1e-310, -1e-310, inf], [0.0, 0.0, 0.0, 0.0]), [[0, 0, 0, 0], [nan, -713.8013788281542, nan, inf]]),
    ("pow", ([0.0, nan], 0), [[0, 0]]),
    ("pow", (0.0, [-1.0, 0.0, 1.0]), [[-inf, 0, 0]]),
    ("pow", (-2.0, [2.0]), [[nan]]),
    ("xlogy", ([0.0, 0.0, 0.0, 2.0], [0.0, -1.0, 3.0, 0.0]), [[0, 0, math.log(3), -inf], [nan, 0, 0, inf]]),
    ("hypot", ([0.0, 0.0], [0.0, 2.0]), [[nan, 0], [nan, 1]]),
    ("atan2", ([0.0, 0.0, 1.0], [0.0, 2.0, 0.0]), [[0, 0.5, 0], [0, 0, -1]]),
    ("maximum", ([1.0, 2.0, nan], [1.0, 1.0, 1.0]), [[0.5, 1, 1], [0.5, 0, 1]]),
    ("minimum", ([1.0, 2.0, nan], [1.0, 1.0, 1.0]), [[0.5, 0, 1], [0.5, 1, 1]]),
    ("fmax", ([1.0, nan, 1.0, nan], [1.0, 1.0, nan, nan]), [[1, 0, 1, 1], [0, 1, 0, 0]]),
    ("fmin", ([1.0, nan, 1.0, nan], [1.0, 1.0, nan, nan]), [[1, 0, 1, 1], [0, 1, 0, 0]]),
    ("clamp", ([0.0, 1.0, nan], 0, 1), [[1, 1, 0]]),
    ("clamp", ([0.0, 1.0, 2.0], [1.0, 1.0, 3.0], [2.0, 1.0, 1.0]), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    ("clamp_min", ([0.0, 1.0], [1.0, 1.0]), [[0, 1], [1, 0]]),
    ("clamp_max", ([2.0, 1.0], [1.0, 1.0]), [[0, 1], [1, 0]]),
    ("copysign", ([0.0, -0.0, 2.0], [-1.0, 1.0, -0.0]), [[0, 0, -1], [0, 0, 0]]),
    ("remainder", ([4.0], [2.0]), [[1], [-2]]),
    ("fmod", ([-4.0], [2.0]), [[1], [2]]),
    ("angle", ([0.0, -1.0],), [[0, 0]]),
    ("angle", ([0j, 2j],), [[0, -0.5]]),
]  # fmt: skip


def gradients(op: str, args: tuple[Any, ...]) -> list[Any]:
    leaves = [Tensor(np.array(a), cpu, LEAF) if isinstance(a, list) else a for a in args]
    with np.errstate(all="ignore"):
        out = getattr(ops, op)(*leaves)
    seed = Tensor(np.ones_like(out._array), cpu)
    return [g._array.tolist() for g in grad([out], [x for x in leaves if isinstance(x, Tensor)], [seed])]


@pytest.mark.parametrize(("op", "args", "expected"), KINKS, ids=[f"{k[0]}-{i}" for i, k in enumerate(KINKS)])
def test_gradient_at_a_kink(op: str, args: tuple[Any, ...], expected: list[list[Any]]) -> None:
    for got, wanted in zip(gradients(op, args), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-14, err_msg=op)


@pytest.mark.parametrize(("op", "args", "expected"), KINKS, ids=[f"{k[0]}-{i}" for i, k in enumerate(KINKS)])
def test_it_is_the_one_pytorch_chooses(
    torch: ModuleType, op: str, args: tuple[Any, ...], expected: list[list[Any]]
) -> None:
    leaves = [torch.tensor(np.array(a), requires_grad=True) if isinstance(a, list) else a for a in args]
    out = getattr(torch, op)(*leaves)
    inputs = [x for x in leaves if isinstance(x, torch.Tensor)]
    for got, wanted in zip(torch.autograd.grad(out, inputs, torch.ones_like(out)), expected, strict=True):
        np.testing.assert_allclose(got.numpy(force=True), wanted, rtol=1e-14, err_msg=op)


#: values at special points
VALUES: list[tuple[str, list[float], list[float]]] = [
    ("sign", [nan, -0.0, -2.0, inf], [0, 0, -1, 1]),
    ("sgn", [nan, -0.0, -2.0, inf], [0, 0, -1, 1]),
    ("angle", [-0.0, 0.0, -1.0, nan], [0, 0, math.pi, nan]),
]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("op", "values", "expected"), VALUES, ids=[v[0] for v in VALUES])
def test_values_at_special_points(
    torch: ModuleType, op: str, values: list[float], expected: list[float], dtype: str
) -> None:
    wanted = np.array(expected, dtype)
    for out in (
        getattr(ops, op)(Tensor(np.array(values, dtype), cpu))._array,
        getattr(torch, op)(torch.tensor(values, dtype=getattr(torch, dtype))).numpy(),
    ):
        np.testing.assert_array_equal(out, wanted)
        assert not np.signbit(out[out == 0]).any()


@pytest.mark.parametrize("name", ["hardtanh", "relu6", "hardswish", "hardsigmoid", "softshrink", "hardshrink"])
def test_activations_with_corners_at_nan(torch: ModuleType, name: str) -> None:
    """Of a single number, because PyTorch's vectors of some dtypes differ."""
    ours, theirs = Tensor(np.array(nan), cpu, LEAF), torch.tensor(nan, dtype=torch.float64, requires_grad=True)
    out, wanted = getattr(ops, name)(ours), getattr(torch.nn.functional, name)(theirs)
    assert np.isnan(out._array) and wanted.isnan()
    assert grad([out], [ours])[0]._array == torch.autograd.grad(wanted, theirs)[0].item()


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_losses_with_corners_at_nan(torch: ModuleType, beta: float) -> None:
    def slopes(lib: Any) -> list[float]:
        x = lib.tensor([nan, 1.0], requires_grad=True)
        losses = [lib.nn.functional.smooth_l1_loss(x, lib.zeros(2), beta=beta, reduction="sum")]
        losses += [lib.nn.functional.huber_loss(x, lib.zeros(2), delta=beta, reduction="sum")] if beta else []
        return [g.item() for loss in losses for g in lib.autograd.grad(loss, x, create_graph=True)[0]]

    np.testing.assert_array_equal(slopes(ut), slopes(torch))


def test_a_power_of_zero_has_a_finite_second_derivative_where_there_is_one() -> None:
    x = Tensor(np.array([0.0, 1.0]), cpu, LEAF)
    (first,) = grad([ops.pow(x, 3)], [x], [Tensor(np.ones(2), cpu)], create_graph=True)
    (second,) = grad([first], [x], [Tensor(np.ones(2), cpu)])
    assert second._array.tolist() == [0, 6]


def second_derivatives_of_power(base: float, exponent: float) -> list[float]:
    """By base twice, by base and exponent, by exponent and base, by exponent twice."""
    x, e = (Tensor(np.array(v), cpu, LEAF) for v in (base, exponent))
    slopes = grad([ops.pow(x, e)], [x, e], create_graph=True)
    return [g._array.item() for slope in slopes for g in grad([slope], [x, e], retain_graph=True)]


def test_mixed_derivatives_of_a_power_at_exponent_zero() -> None:
    """PyTorch has zero for the derivative of the slope by the exponent there, which is 1 / base."""
    assert np.allclose(second_derivatives_of_power(2.0, 0.0), [0, 0.5, 0.5, math.log(2) ** 2])


def test_second_derivatives_of_a_power_of_zero_are_numbers() -> None:
    assert second_derivatives_of_power(0.0, 2.0) == [2, 0, 0, 0]
    assert second_derivatives_of_power(0.0, 0.0)[0] == 0
    assert second_derivatives_of_power(0.0, 2.5)[3] == 0


def test_the_modulus_of_polar_coordinates_may_be_negative_or_zero() -> None:
    """PyTorch takes the direction from the result, which is wrong or lost there."""
    size = Tensor(np.array([-2.0, 0.0]), cpu, LEAF)
    angle = Tensor(np.array([0.3, 0.3]), cpu)
    seed = Tensor(np.array([1 + 0j, 1j]), cpu)
    (found,) = grad([ops.polar(size, angle)], [size], [seed])
    np.testing.assert_allclose(found._array, [math.cos(0.3), math.sin(0.3)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sigmoid_reaches_its_limits_without_a_warning(dtype: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = ops.sigmoid(np.array([-inf, -1000, 0, 1000, inf, nan], dtype))
    assert out.dtype == dtype
    np.testing.assert_array_equal(out._array, [0, 0, 0.5, 1, 1, nan])


def test_sigmoid_keeps_small_values() -> None:
    np.testing.assert_allclose(ops.sigmoid(np.array([-700.0]))._array, [math.exp(-700)], rtol=1e-14)


def test_xlogy_of_zero_makes_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = ops.xlogy(np.array([0.0, 0.0]), np.array([0.0, nan]))
    np.testing.assert_array_equal(out._array, [0, nan])


@pytest.mark.parametrize("op", ["heaviside", "floor_divide"])
def test_steps_that_pytorch_does_not_differentiate(op: str) -> None:
    x = Tensor(np.array([-1.5, 2.5]), cpu, LEAF)
    out = getattr(ops, op)(x, Tensor(np.array([2.0, 2.0]), cpu))
    assert type(out._edge[0]).__name__ == "NotImplemented"
    with pytest.raises(NotImplementedError, match=f"the derivative for '{op}' is not implemented"):
        grad([out], [x], [Tensor(np.ones(2), cpu)])
