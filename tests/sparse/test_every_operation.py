"""Every operation of the library, given something sparse: it is refused, or the result is right.

Few operations are made for sparse tensors; the others must not take one for something else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, all_cases
from undertow.tensor import Tensor

LARGEST = 60  # elements of an input: enough for every row of the tables but a few
REFUSAL = (RuntimeError, TypeError, ValueError, IndexError)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def small_cases() -> list[Case]:
    return [c for c in all_cases() if c.differentiable and all(a.size <= LARGEST for a in c.arrays)]


def with_zeros(array: Any) -> Any:
    """Every second element is zero."""
    changed = array.copy()
    changed.reshape(-1)[::2] = 0
    return changed


def random_like(tensor: Tensor) -> Any:
    rng = np.random.default_rng(0)
    shape = tuple(tensor.shape)
    values = rng.standard_normal(shape)
    return np.asarray(values + (1j * rng.standard_normal(shape) if tensor.is_complex() else 0)).astype(tensor.dtype)


def dense(tensor: Any) -> Any:
    return tensor.detach().to_dense().numpy()


def results(case: Case, leaves: list[Any]) -> list[Any]:
    return [r for r in case.call(leaves) if isinstance(r, Tensor)]


def agree(got: Any, expected: Any) -> bool:
    """Equal where the dense result is finite: 0 * inf is nan, but what is not there is not multiplied."""
    got, expected = dense(got).astype(complex), dense(expected).astype(complex)
    there = np.isfinite(expected)
    return bool(np.allclose(got[there], expected[there], atol=1e-7))


def in_layout(tensor: Any, layout: Any) -> Any:
    """The tensor in a layout; batches of matrices need equally many values for the compressed ones."""
    return tensor if layout is ut.strided else tensor.to_sparse(layout=layout)


def run_with(case: Case, nr: int, layout: Any) -> tuple[Any, list[Any]]:
    """The row with zeros in its input `nr`, as a sparse or a dense tensor."""
    leaves = [ut.tensor(a) for a in case.arrays]
    leaf = ut.tensor(with_zeros(case.arrays[nr]))
    leaves[nr] = leaf = in_layout(leaf, layout).requires_grad_()
    return leaf, results(case, leaves)


def wrong_for_sparse_input(case: Case, nr: int, layout: Any) -> str:
    try:
        leaf, got = run_with(case, nr, layout)
        twin, expected = run_with(case, nr, ut.strided)
    except REFUSAL:
        return ""
    if not all(agree(a, b) for a, b in zip(got, expected, strict=True)):
        return f"{case.id}, input {nr}: value"
    got, expected = ([r for r in found if r.requires_grad] for found in (got, expected))
    if len(got) != len(expected):
        return f"{case.id}, input {nr}: a gradient is lost"
    seeds = [ut.tensor(random_like(r)) for r in expected]
    try:
        (gradient,) = ut.autograd.grad(got, [leaf], seeds, allow_unused=True) if got else (None,)
    except REFUSAL:
        return ""
    (wanted,) = ut.autograd.grad(expected, [twin], seeds, allow_unused=True) if expected else (None,)
    if (gradient is None) != (wanted is None):
        return f"{case.id}, input {nr}: a gradient is lost"
    if gradient is not None and gradient.layout is not ut.strided:  # of what it has no place for, nothing is claimed
        wanted = wanted.sparse_mask(gradient.coalesce() if gradient.is_sparse else gradient)
    return "" if gradient is None or agree(gradient, wanted) else f"{case.id}, input {nr}: gradient"


@pytest.mark.slow
@pytest.mark.parametrize("layout", [ut.sparse_coo, ut.sparse_csr, ut.sparse_csc], ids=str)
def test_a_sparse_input_is_refused_or_right(layout: Any) -> None:
    least = 1 if layout is ut.sparse_coo else 2
    tried = [(c, nr) for c in small_cases() for nr in c.differentiable if c.arrays[nr].ndim >= least]
    assert len(tried) > 1000
    assert [wrong for case, nr in tried if (wrong := wrong_for_sparse_input(case, nr, layout))] == []


def wrong_for_sparse_gradient(case: Case, create_graph: bool, layout: Any) -> str:
    leaves = [ut.tensor(a, requires_grad=nr in case.differentiable) for nr, a in enumerate(case.arrays)]
    outputs = [r for r in results(case, leaves) if r.requires_grad]
    inputs = [leaves[nr] for nr in case.differentiable]
    if not outputs:
        return ""
    seeds = [ut.tensor(with_zeros(random_like(r))) for r in outputs]
    expected = ut.autograd.grad(outputs, inputs, seeds, retain_graph=True, allow_unused=True)
    try:
        sparse = [in_layout(s, layout) for s in seeds]
        got = ut.autograd.grad(outputs, inputs, sparse, create_graph=create_graph, allow_unused=True)
    except REFUSAL:
        return ""
    for nr, (gradient, wanted) in enumerate(zip(got, expected, strict=True)):
        if (gradient is None) != (wanted is None) or (wanted is not None and not agree(gradient, wanted)):
            return f"{case.id}, gradient {nr}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("layout", [ut.sparse_coo, ut.sparse_csr], ids=str)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_sparse_gradient_is_refused_or_right(create_graph: bool, layout: Any) -> None:
    cases = small_cases()
    assert len(cases) > 1000
    assert [wrong for case in cases if (wrong := wrong_for_sparse_gradient(case, create_graph, layout))] == []
