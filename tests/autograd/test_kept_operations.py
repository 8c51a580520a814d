"""Every operation inside a checkpoint that keeps all results: the gradients are those of the plain call."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, assert_same, cases, every, leaf
from undertow.autograd.backward import grad
from undertow.autograd.checkpoint import checkpoint, create_selective_checkpoint_contexts
from undertow.tensor import Tensor

CASES = [case for case in cases() if case.differentiable]
KEEP_ALL = functools.partial(create_selective_checkpoint_contexts, lambda ctx, op, *args: True)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@every(CASES)
def test_results_that_are_kept_give_the_same_gradients(case: Case) -> None:
    leaves = [leaf(array, k in case.differentiable) for k, array in enumerate(case.arrays)]
    ut.manual_seed(0)  # some operations draw numbers
    results = checkpoint(lambda *values: case.call(values), *leaves, use_reentrant=False, context_fn=KEEP_ALL)
    outputs = [r for r in results if isinstance(r, Tensor) and r._edge is not None]
    if not outputs:
        return
    seeds = [leaf(cotangent, False) for cotangent in case.cotangents]
    found = grad(outputs, case.chosen(leaves), seeds, allow_unused=True)
    ut.manual_seed(0)
    for mine, plain in zip(found, case.gradient_at(case.arrays, case.cotangents), strict=True):
        assert (mine is None) == (plain is None)
        if plain is not None:
            assert_same(as_array(mine), plain, 0, 0, "with kept results")
