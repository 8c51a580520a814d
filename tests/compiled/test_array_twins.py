"""Twins of the functions behind views, reductions, sorting and activations: both give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rows import rows
from undertow.backend import cpu
from undertow.backend.large_arrays import copied
from undertow.compiled import core
from undertow.ops.arguments.dims import restore
from undertow.ops.index.masks import masked_fill_array
from undertow.ops.network.linear import apply_linear
from undertow.ops.pointwise.activations import (
    elu_gradient,
    exponential_linear,
    log_one_plus_exp,
    sigmoid_linear,
    silu_gradient,
)
from undertow.ops.pointwise.arithmetic import difference, negated
from undertow.ops.pointwise.comparison_logic_bits import greater, greater_equal, less, less_equal
from undertow.ops.pointwise.gelu import gaussian_linear
from undertow.ops.pointwise.powers import power
from undertow.ops.pointwise.sigmoid_logit import logistic, sigmoid_gradient
from undertow.ops.pointwise.trigonometric import tanh_gradient
from undertow.ops.pointwise.where_clamp import clamp_to_numbers_rule, clamped_to_numbers
from undertow.ops.reduce.extrema import max_dim, min_dim, scatter_selected
from undertow.ops.reduce.sorting import sort_forward, topk_forward
from undertow.ops.reduce.statistics import var_forward
from undertow.ops.reduce.sums_and_products import mean_forward, sum_dims_forward
from undertow.ops.views.dimensions import (
    expand_array,
    inverse,
    permute_array,
    squeeze_all,
    squeeze_one,
    swap,
    unsqueeze_array,
)
from undertow.ops.views.reshape import view_array
from undertow.ops.views.slices import select_array, select_gradient, slice_array, slice_gradient
from undertow.ops.views.splitting import cut_evenly, unbind_array

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)

from tests.compiled.test_twins import DTYPES, both

rng = np.random.default_rng(5)
nan, inf = np.nan, np.inf


# ------------------------------------------------------------------ views

PLACED = [
    np.arange(24.0).reshape(2, 3, 4),
    np.arange(24.0).reshape(4, 3, 2).T,
    np.arange(48.0, dtype=np.float32).reshape(2, 6, 4)[:, ::2],
    np.arange(6).reshape(2, 3),
    np.ones((1, 3, 1)),
    np.zeros((0, 3)),
    np.array(2.0),
    np.broadcast_to(np.arange(3.0), (2, 3)),
]

VIEWS = [
    *[(select_array, (d, k)) for d in (0, 1, -1, 5, "a") for k in (0, -1, 2, 9, 1.0)],
    *[(slice_array, (d, *bounds)) for d in (0, -1, 4)
      for bounds in ((None, None, 1), (1, 2, 1), (-2, None, 2), (2, 1, 1), (0, 99, 3), (None, -1, 1), (0, 1, 0))],
    *[(swap, dims) for dims in ((0, 1), (-1, 0), (0, 0), (0, 7), (True, 0))],
    *[(permute_array, (dims,)) for dims in ((0, 1, 2), (2, 0, 1), (-1, 0, 1), (1, 0), (0, 0, 1), (), (0,), (0, 1, 9))],
    *[(unsqueeze_array, (d,)) for d in (0, -1, 2, -3, 9)],
    (squeeze_all, ()),
    *[(squeeze_one, (d,)) for d in (0, 1, -1, 8)],
    *[(expand_array, (size,)) for size in ((2, 2, 3, 4), (-1, 3, 4), (2, 3, 5), (2, 3), (4, -1), (-1, 2, 3), (5,))],
    *[(view_array, (size,)) for size in ((24,), (4, 6), (6,), (3, 2), (1,), (), (0,), (3, 1, 1), (7,), (-1,))],
    *[(unbind_array, (d,)) for d in (0, -1, 3)],
    *[(cut_evenly, (size, d)) for size in (1, 2, 0, -1, 100) for d in (0, 1, -1, 9)],
]  # fmt: skip


@rows(("function", "arguments"), VIEWS)
@rows("number", range(len(PLACED)))
def test_views_show_what_numpys_show(function: Any, arguments: Any, number: int) -> None:
    array = PLACED[number]
    if isinstance(both(function, cpu, array, *arguments), Exception):
        return
    found, expected = function(cpu, array, *arguments), function.__wrapped__(cpu, array, *arguments)
    for f, e in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, expected)], strict=True):
        assert (f.strides, f.shape, f.tolist()) == (e.strides, e.shape, e.tolist())
        assert f.flags == e.flags or not f.size
        assert np.shares_memory(f, array) or not f.size


def test_a_view_keeps_its_memory() -> None:
    view = select_array(cpu, np.arange(1000.0).reshape(10, 100), 0, 3)
    assert view[99] == 399
    assert view.base.shape == (1000,)


@pytest.mark.parametrize("dims", [(0, 1, 2), (2, 0, 1), (-1, 0, 1), (1, 0), (0,), ()])
def test_inverse(dims: Any) -> None:
    assert inverse(dims) == inverse.__wrapped__(dims)


@pytest.mark.parametrize("dtype", [*DTYPES, np.int64])
def test_gradients_of_parts(dtype: Any) -> None:
    for dim, index in ((0, 1), (-1, -1), (1, 0), (0, 9), (3, 0)):
        both(select_gradient, cpu, np.ones((3, 4), dtype), (2, 3, 4), dim, index)
        both(select_gradient, cpu, np.ones((2, 3), dtype), (2, 3, 4), dim, index)
    for dim, *bounds in ((0, 1, 2, 1), (1, 0, None, 2), (1, None, 2, 1), (-1, 0, 3, 3)):
        both(slice_gradient, cpu, np.ones((1, 4), dtype), (2, 4), dim, *bounds)
        both(slice_gradient, cpu, np.ones((2, 2), dtype), (2, 4), dim, *bounds)


# ------------------------------------------------------------------ reductions and order


def slices() -> Any:
    for shape in [(4, 8), (2, 3, 4), (5,), (1, 7), (3, 1), (), (0, 3), (3, 0), (80, 90)]:
        for dtype in (*DTYPES, np.float16, np.int64, np.complex64, bool):
            yield np.asarray(rng.integers(-3, 4, shape)).astype(dtype)
    yield np.array([[1.0, nan, 2.0], [nan, nan, 0.0], [inf, -inf, 1.0]])
    yield np.array([[3e38, 3e38], [1, 1]], np.float32)
    yield rng.normal(size=(4, 6))[:, ::2]


ARRAYS = list(slices())


@pytest.mark.parametrize("number", range(len(ARRAYS)))
@pytest.mark.filterwarnings("ignore")
def test_reductions(number: int) -> None:
    array = ARRAYS[number]
    for dim in (0, 1, -1, (0, 1), (1, 0), (0, -1), None, 7, (), [0], 1.5):
        for keepdim in (False, True):
            both(sum_dims_forward, cpu, array, dim, keepdim, tolerance=1e-6)
            both(mean_forward, cpu, array, dim, keepdim, tolerance=1e-6)
            for name in ("var", "std", "var_mean"):
                both(var_forward, cpu, array, dim, 1, keepdim, name, tolerance=1e-6)
                both(var_forward, cpu, array, dim, 0.5, keepdim, name, tolerance=1e-6)


@pytest.mark.parametrize("number", range(len(ARRAYS)))
@pytest.mark.filterwarnings("ignore")
def test_order(number: int) -> None:
    array = ARRAYS[number]
    for dim in (0, 1, -1, 7):
        for flag in (False, True):
            pairs(max_dim.op.forward, array, dim, flag)
            pairs(min_dim.op.forward, array, dim, flag)
            pairs(sort_forward, array, dim, flag)
            for k in (0, 1, 2, 99, -1):
                pairs(topk_forward, array, k, dim, flag, True)


def pairs(function: Any, array: Any, *arguments: Any) -> None:
    """Values and indices are the same."""
    found = both(function, cpu, array, *arguments)
    if not isinstance(found, Exception):
        for f, e in zip(found, function.__wrapped__(cpu, array, *arguments), strict=True):
            np.testing.assert_array_equal(f, e)
            assert np.asarray(f).dtype == np.asarray(e).dtype


def test_scatter_selected_and_restore() -> None:
    for dtype in (*DTYPES, np.int64):
        grad = rng.normal(size=(2, 4)).astype(dtype)
        both(scatter_selected, cpu, grad, rng.integers(0, 3, (2, 4)), (2, 3, 4), 1, False)
        both(scatter_selected, cpu, grad, rng.integers(0, 6, (2, 4)), (2, 6), -1, True)
        both(scatter_selected, cpu, grad, np.full((2, 4), 9), (2, 6), -1, True)
        both(scatter_selected, cpu, grad, rng.integers(0, 6, (2, 4)), (3, 6), -1, True)
        for dim in (1, -1, (0, 1), 0, None, 9):
            both(restore, cpu, grad, (2, 3, 4), dim, False)
            both(restore, cpu, grad, (2, 4), dim, True)


# ------------------------------------------------------------------ activations

SPECIAL = np.array([nan, inf, -inf, 0.0, -0.0, 1e-30, -1e-30, 88, -88, 100, -100, 1000, -1000, 0.1, -0.1])


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16])
@pytest.mark.parametrize("shape", [(4, 8), (600,), (), (0,), "special"])
@pytest.mark.filterwarnings("ignore")
def test_activations(shape: Any, dtype: Any) -> None:
    x = (SPECIAL if shape == "special" else np.asarray(rng.normal(size=shape) * 3)).astype(dtype)
    g = np.asarray(rng.normal(size=x.shape)).astype(dtype)
    close = {np.float32: 3e-6, np.float64: 1e-13, np.float16: 1e-3}[dtype]
    both(logistic, cpu, x, tolerance=close)
    both(sigmoid_gradient, cpu, g, x, tolerance=close)
    both(tanh_gradient, cpu, g, x, tolerance=close)
    both(sigmoid_linear, cpu, x, tolerance=close)
    both(silu_gradient, cpu, g, x, tolerance=close)
    for numbers in ((1.0, 20.0), (2, 1.5), (nan, 1.0)):
        both(log_one_plus_exp, cpu, x, *numbers, tolerance=close)
    for more in ((1.0, 1.0, 1.0), (0.7, 1.05, 2), (1e300, 1.0, 1.0)):
        both(exponential_linear, cpu, x, *more, tolerance=close)
        both(elu_gradient, cpu, g, x, *more, tolerance=close)
    for bounds in ((0.1, None), (None, 0.1), (-0.1, 0.1), (0.1, -0.1), (0, 1), (None, None), (nan, 1.0), (0, 1e300)):
        both(clamped_to_numbers, cpu, x, *bounds)
        if bounds != (None, None):
            both(clamp_to_numbers_rule, cpu, g, x, *bounds)
    for value in (0, -inf, nan, 2.5, True):
        both(masked_fill_array, cpu, x, g > 0, value)


# ------------------------------------------------------------------ elementwise functions that look at dtypes

OPERANDS = [
    *[np.array([0.0, -1.5, 2.0, nan, inf, -inf, -0.0, 3e38], dtype) for dtype in DTYPES],
    rng.normal(size=(2, 4)).T,
    rng.normal(size=(4, 8))[:, ::2].astype(np.float32),
    rng.normal(size=20_000),
    np.zeros((0, 3)),
    np.array(2.5),
    np.arange(6),
    np.array([True, False]),
    np.array([1 + 2j, 3]),
]


@pytest.mark.parametrize("second", [2, 2.0, -1, 0.5, 3, 1 << 70, True, "array", "turned"])
@pytest.mark.parametrize("function", [difference, less, less_equal, greater, greater_equal, power])
def test_functions_of_two(function: Any, second: Any) -> None:
    for first in OPERANDS:
        other = {"array": first[::-1].copy() if first.ndim else first, "turned": first.T}.get(second, second)
        with np.errstate(all="ignore"):
            both(function, cpu, first, other)


def test_functions_of_one() -> None:
    for first in OPERANDS:
        both(negated, cpu, first)
        assert both(copied, first).strides == first.copy("K").strides
        for approximate in ("none", "tanh", "exact"):
            found = outcome_of(lambda f, x=first, how=approximate: f(cpu, x, how), gaussian_linear)
            expected = outcome_of(lambda f, x=first, how=approximate: f(cpu, x, how), gaussian_linear.__wrapped__)
            assert found == expected


def outcome_of(call: Any, function: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            found = call(function)
        except Exception as error:
            return type(error), str(error)
    return found.dtype, found.shape, found.strides, found.tobytes()


@pytest.mark.parametrize("dtype", [*DTYPES, np.complex64, np.int64])
@pytest.mark.parametrize("lead", [(), (0,), (1,), (5,), (2, 3), (2, 0, 3), (90, 2)])
def test_apply_linear(lead: Any, dtype: Any) -> None:
    input, weight, bias = [(rng.normal(size=s) * 5).astype(dtype) for s in ((*lead, 4), (3, 4), (3,))]
    weights = [
        weight,
        weight[:, :3],
        weight.T,
        weight[0],
        weight[::-1],
        np.asfortranarray(weight),
        weight.astype(np.float16 if dtype is not np.complex64 else np.complex128),
    ]
    biases = [None, bias, bias[:2], bias[:1], bias.reshape(1, 3), bias[::-1], bias.astype(np.complex128)]
    for given, other in ((w, b) for w in weights for b in biases):
        both(apply_linear, cpu, input, given, other, tolerance=1e-4 if dtype is np.float32 else 1e-12)
    both(apply_linear, cpu, np.asfortranarray(input), weight, bias, tolerance=1e-4)
