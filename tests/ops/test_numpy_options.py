"""Options given as scalars of NumPy's (`np.log(2)`), or as tensors: taken as numbers, which do not decide dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, flatten
from tests.rows import rows
from undertow import ops


def as_scalar(value: Any) -> Any:
    return {float: np.float64, int: np.int64}.get(type(value), lambda v: v)(value)


def has_number(case: Case) -> bool:
    return any([type(v) in (float, int) for v in (*case.sample.args, *case.sample.kwargs.values())])


CASES = [c for c in cases() if has_number(c) and c.sample.call is None and not c.complex]


@rows("case", CASES, ids=[c.id for c in CASES])
def test_scalars_are_taken_as_numbers(case: Case) -> None:
    def call(convert: Any) -> list[Any]:
        arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a.copy() for a in case.arrays]
        args, kwargs = case.fill([ut.from_numpy(a) for a in arrays])
        given = [convert(a) for a in args], {name: convert(a) for name, a in kwargs.items()}
        ut.manual_seed(0)
        with np.errstate(all="ignore"):
            return [as_array(r) for r in flatten(getattr(ops, case.sample.op)(*given[0], **given[1]))]

    for got, expected in zip(call(as_scalar), call(lambda value: value), strict=True):
        if isinstance(expected, np.ndarray):
            assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_changes_in_place_and_gradients_keep_their_dtype() -> None:
    x = ut.randn(3, requires_grad=True)
    loss = ut.nn.functional.softplus(x, beta=np.log(2))
    assert loss.dtype == loss.grad_fn(ut.ones(3)).dtype == ut.float32
    y = ut.ones(3).add_(ut.ones(3), alpha=np.float64(0.5))
    assert (y.dtype, y.tolist()) == (ut.float32, [1.5] * 3)


def test_arrays_without_dimensions_count_as_tensors_without_dimensions() -> None:
    x = ut.ones(2, requires_grad=True)
    for array in (np.array(2.0), np.array(2), np.array(2.0, np.float32)):
        product = x * array
        assert product.dtype == (x * ut.from_numpy(array)).dtype == ut.float32
        assert ut.autograd.grad(product.sum(), x)[0].tolist() == [2, 2]


def with_option(L: Any, x: Any, option: Any) -> list[Any]:
    F = L.nn.functional
    calls = [
        lambda: L.isclose(x, x + 0.1, rtol=option), lambda: L.add(x, x, alpha=option), lambda: L.logit(x, eps=option),
        lambda: F.leaky_relu(-x, option), lambda: F.softplus(x, beta=option), lambda: F.elu(-x, option),
        lambda: F.layer_norm(x, (3,), eps=option), lambda: F.huber_loss(x, 0 * x, delta=option),
        lambda: L.addcmul(x, x, x, value=option), lambda: F.hardshrink(x, option), lambda: L.nan_to_num(x, option),
        lambda: x.std(correction=option),
    ]  # fmt: skip
    results = []
    for call in calls:
        try:
            results.append(call().tolist())
        except TypeError:
            results.append(TypeError)
    return results


@pytest.mark.torch
def test_tensors_as_options(torch: Any) -> None:
    """A tensor without dimensions is taken as a number; others, for which there would be no gradient, are refused."""
    numbers = [0.25, 0.5, 0.75]
    for data, requires_grad in ((0.5, False), (0.5, True), ([0.5], False), ([0.5, 0.5], False)):
        ours, theirs = (
            with_option(L, L.tensor(numbers), L.tensor(data, requires_grad=requires_grad)) for L in (ut, torch)
        )
        if data == 0.5 and not requires_grad:
            assert ours == with_option(ut, ut.tensor(numbers), 0.5)
            for got, expected in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        else:
            assert ours == theirs == [TypeError] * len(ours)
