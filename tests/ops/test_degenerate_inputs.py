"""Inputs without elements or dimensions, crops that leave nothing, values at the edge: what PyTorch makes of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.torch


def empty_index(lib: Any, x: Any) -> Any:
    return lib.gather(x, 0, lib.zeros(0, 3, dtype=lib.uint8)) + 0 * x.sum()


CASES = {
    "replicate the last of all": ((1, 8), lambda lib, x: lib.nn.functional.pad(x, (-9, 10), mode="replicate")),
    "replicate the first of all": ((1, 8), lambda lib, x: lib.nn.functional.pad(x, (10, -8), mode="replicate")),
    "replicate in two": ((1, 4, 4), lambda lib, x: lib.nn.functional.pad(x, (-4, 1, 2, -5), mode="replicate")),
    "gather nothing": ((2, 3), empty_index),
    "normalise nothing": ((0,), lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True)),
    "one score": ((), lambda lib, x: lib.nn.functional.multi_margin_loss(x, lib.tensor(0))),
    "one score, one target": (
        (),
        lambda lib, x: lib.nn.functional.multi_margin_loss(x, lib.tensor([0]), reduction="none"),
    ),
    "one label": ((), lambda lib, x: lib.nn.functional.multilabel_margin_loss(x, lib.tensor(0), reduction="none")),
    "no label": ((), lambda lib, x: lib.nn.functional.multilabel_margin_loss(x, lib.tensor(-1))),
    "mvlgamma below its range": ((3,), lambda lib, x: lib.mvlgamma(x * 0.1 + 0.3, 3)),
    "masked.var": ((3, 4), lambda lib, x: lib.masked.var(x, 1, correction=0.5, mask=x > -1)),
    "masked.std": ((3, 4), lambda lib, x: lib.masked.std(x, 0, False, mask=x < 9)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, torch: ModuleType) -> None:
    shape, function = CASES[name]
    array = np.random.default_rng(3).normal(size=shape)
    found = []
    for library in (ut, torch):
        x = library.tensor(array, requires_grad=True)
        out = function(library, x)
        (out * out).sum().backward()
        found.append((tuple(out.shape), out.detach().numpy(), x.grad.numpy()))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("n, lead", [(0, ()), (2, (0,)), (0, (3,))])
def test_ldl_solve_of_nothing(n: int, lead: tuple[int, ...]) -> None:
    LD, pivots = ut.linalg.ldl_factor(ut.ones(*lead, n, n))
    assert ut.linalg.ldl_solve(LD, pivots, ut.ones(*lead, n, 5)).shape == (*lead, n, 5)


def test_both_ways_to_say_what_to_divide_by() -> None:
    with pytest.raises(ValueError, match="Only one of unbiased and correction"):
        ut.masked.var(ut.ones(3), 0, True, correction=1)


def test_a_crop_that_leaves_nothing() -> None:
    for padding in ((-4, -4), (-9, 1)):
        with pytest.raises(RuntimeError, match="empty dimension"):
            ut.nn.functional.pad(ut.ones(1, 8), padding, mode="replicate")
