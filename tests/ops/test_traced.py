"""Every operation, and its gradient, as a graph that `make_fx` traced: run with other values, it gives what they give.

A result that the trace did not see being computed would be that of the trace's own values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from undertow.fx.experimental.proxy_tensor import make_fx

import undertow as ut
from tests.ops.systems import Case, all_cases, every, is_float, leaf
from undertow.autograd.backward import grad
from undertow.tensor import Tensor

#: operations whose gradients look at values, so that tracing them is refused
REFUSED = {"grid_sample"}


def first_cases() -> list[Case]:
    first: dict[str, Case] = {}
    for case in all_cases():
        first.setdefault(case.sample.op, case)
    return list(first.values())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def with_gradients(case: Case) -> Callable[..., list[Any]]:
    """The results of a row that are tensors, and its gradients."""

    def function(*leaves: Tensor) -> list[Any]:
        results = [r for r in case.call(list(leaves)) if isinstance(r, Tensor)]
        roots = [r for r in results if r.requires_grad]
        if not roots:
            return results
        seeds = [ut.ones_like(r) for r in roots]
        found = grad(roots, case.chosen(leaves), seeds, allow_unused=True)
        return [*results, *[g for g in found if g is not None]]

    return function


def other_values(case: Case) -> list[Any]:
    rng = case.rng("other inputs")
    made = [np.asarray(spec.make(rng, case.complex)) for spec in case.specs]
    # numbers that are no values, like indices and lengths, stay
    return [new if is_float(new) else old for new, old in zip(made, case.arrays, strict=True)]


def leaves_of(case: Case, arrays: list[Any]) -> list[Tensor]:
    return [leaf(a, k in case.differentiable) for k, a in enumerate(arrays)]


@every([c for c in first_cases() if c.specs])
def test_a_traced_operation_gives_what_other_values_give(case: Case) -> None:
    function = with_gradients(case)
    if case.sample.op in REFUSED:
        with pytest.raises(NotImplementedError, match="looks at values"):
            make_fx(function)(*leaves_of(case, case.arrays))
        function = ut.no_grad()(function)
    traced = make_fx(function)(*leaves_of(case, case.arrays))
    got = traced(*leaves_of(case, other_values(case)))
    expected = function(*leaves_of(case, other_values(case)))
    assert len(got) == len(expected)
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(a._array, b._array, rtol=1e-6, atol=1e-9, err_msg=f"result {k}\n{traced.graph}")
