"""Options given as NumPy's scalars (`np.log(2)`): the same as Python numbers, which do not decide dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, flatten
from undertow import ops


def as_scalar(value: Any) -> Any:
    return {float: np.float64, int: np.int64}.get(type(value), lambda v: v)(value)


def has_number(case: Case) -> bool:
    return any([type(v) in (float, int) for v in (*case.sample.args, *case.sample.kwargs.values())])


CASES = [c for c in cases() if has_number(c) and c.sample.call is None and not c.complex]


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
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
