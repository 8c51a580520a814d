"""Every sample row on the meta device: shape, dtype and strides of the CPU's results and gradients, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, cases, every, leaf
from undertow.autograd.backward import grad
from undertow.backend import namespace_of
from undertow.backend.meta import outcomes
from undertow.errors import NoValuesError
from undertow.tensor import LEAF, Tensor

CASES = cases()

#: rows that make a tensor on the CPU, which does not mix with meta
MIXED = {"linalg_cholesky", "linalg_cholesky_ex", "cholesky", "_cholesky_lower"}

#: operations whose kernel on the CPU returns an array without gaps where NumPy's functions return part of a larger one
GAPS = {"conv_transpose3d", "convolution"}

#: operations that may be refused, because what they compute, or how, depends on values
REFUSED = """
    allclose equal cov _to_device embedding_bag linalg_inv_ex linalg_solve_ex linalg_lu_factor linalg_lu_factor_ex lu
    linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lu_solve lu_unpack lu_solve linalg_lstsq linalg_cond
    getitem index _distinct_index one_hot masked_select nonzero argwhere where nonzero_static cholesky_inverse
    segment_reduce _unique2 _unique unique unique_consecutive repeat_interleave bincount quantile nanquantile istft
    as_strided _index_frequency corrcoef
""".split()


def is_allowed(case: Case) -> bool:
    return case.sample.op in REFUSED or "_polynomial_" in case.sample.op


def on_meta(array: Any, requires_grad: bool) -> Tensor:
    space = namespace_of("meta")
    return Tensor(space.take_over(np.asarray(array)), space, LEAF if requires_grad else None)


def steps(array: Any) -> list[int]:
    """The strides that matter."""
    return [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1] if array.size else []


@every([c for c in CASES if c.sample.op not in MIXED])
def test_meta_gives_what_the_cpu_gives_but_values(case: Case) -> None:
    ut.manual_seed(0)
    leaves = [leaf(a, k in case.differentiable) for k, a in enumerate(case.arrays)]
    with np.errstate(all="ignore"):
        plain = case.call(leaves)
    blank = [on_meta(a, k in case.differentiable) for k, a in enumerate(case.arrays)]
    try:
        found = case.call(blank)
    except NoValuesError:
        assert is_allowed(case)
        return
    pairs = [(p, f) for p, f in zip(plain, found, strict=True) if isinstance(p, Tensor)]
    for expected, got in pairs:
        assert got.device.type == ("meta" if blank else "cpu")
        assert (got.shape, got.dtype, got.requires_grad) == (expected.shape, expected.dtype, expected.requires_grad)
        assert steps(got._array) == steps(expected._array) or case.sample.op in GAPS
    roots = [(p, f) for p, f in pairs if p.requires_grad]
    if not roots:
        return
    seeds = [(ut.ones_like(p), ut.ones_like(f)) for p, f in roots]
    ours = grad([f for _, f in roots], case.chosen(blank), [s for _, s in seeds], allow_unused=True)
    theirs = grad([p for p, _ in roots], case.chosen(leaves), [s for s, _ in seeds], allow_unused=True)
    for got, expected in zip(ours, theirs, strict=True):
        assert (got is None) == (expected is None)
        assert got is None or (got.shape, got.dtype, got.device.type) == (expected.shape, expected.dtype, "meta")


@every([c for c in CASES if c.sample.op not in MIXED])
def test_what_stand_ins_tell_is_so(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row as if its arrays were too large to be run: the right shape, or a refusal."""
    ut.manual_seed(0)
    with np.errstate(all="ignore"):
        plain = case.call([leaf(a, False) for a in case.arrays])
    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "RUN_UP_TO", -1)
        patch.setattr(outcomes, "KEPT", 1)
        try:
            found = case.call([on_meta(a, False) for a in case.arrays])
        except (NoValuesError, RuntimeError, ValueError, IndexError):
            return  # options that go with the real sizes may not go with the stand-ins'
    for expected, got in zip(plain, found, strict=True):
        if isinstance(expected, Tensor):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
