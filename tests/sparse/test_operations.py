"""Every row of tests/samples/sparse.py: values, layouts and gradients against PyTorch and finite differences."""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.samples.sparse import SPARSE_OPERATIONS, SPARSE_ROWS, SparseRow
from undertow.autograd.gradcheck import gradcheck
from undertow.modes import current, set_state
from undertow.ops.declare import REGISTRY

CASES = [(row, complex_) for row in SPARSE_ROWS for complex_ in (False, True) if not (complex_ and row.real)]

#: what PyTorch differentiates only for real numbers
REAL_IN_TORCH = {
    "embedding", "sampled_addmm", "sparse_compressed_tensor", "sparse_sum", "to_dense", "to_sparse",
}  # fmt: skip


def each_case(cases: list[tuple[SparseRow, bool]]) -> Any:
    return rows("row, complex_", cases, ids=[f"{r.id}{'-complex' * c}" for r, c in cases], together=10)


def differentiated_by_torch(row: SparseRow, complex_: bool) -> bool:
    real = row.op in REAL_IN_TORCH or "csr" in row.id.lower()
    return row.reference and not (complex_ and real)


each_case_of_torch = each_case([case for case in CASES if differentiated_by_torch(*case)])
each_smooth_case = each_case([(r, c) for r, c in CASES if not r.holes])


def arrays_of(row: SparseRow, complex_: bool) -> list[Any]:
    rng = np.random.default_rng(zlib.crc32(row.id.encode()))
    return [np.asarray(spec.make(rng, complex_)) for spec in row.inputs]


def leaves(m: Any, arrays: list[Any]) -> list[Any]:
    return [m.tensor(a, requires_grad=True) for a in arrays]


def dense(tensor: Any) -> Any:
    return tensor.to_dense().detach().numpy()


def layout(tensor: Any) -> str:
    return str(tensor.layout).partition(".")[2]


def seeds(shape: tuple[int, ...], complex_: bool) -> Any:
    rng = np.random.default_rng(7)
    values = rng.standard_normal(shape)
    return values + 1j * rng.standard_normal(shape) if complex_ else values


def as_dense(tensor: Any) -> Any:
    return tensor if layout(tensor) == "strided" else tensor.to_dense(masked_grad=False)


@each_case_of_torch
def test_values_and_gradients_are_those_of_torch(row: SparseRow, complex_: bool) -> None:
    torch = pytest.importorskip("torch")
    arrays, found = arrays_of(row, complex_), []
    for m in (torch, ut):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that its invariants are not checked
            inputs = leaves(m, arrays)
            result = row.call(m, *inputs)
            seed = m.tensor(seeds(tuple(result.shape), "complex" in str(result.dtype)))
            if result.is_sparse:
                seed = seed.sparse_mask(result.detach().coalesce())
            elif layout(result) != "strided":
                seed = seed.sparse_mask(result.detach())
            grads = m.autograd.grad(result, inputs, seed, allow_unused=True)
        found.append((result, grads))
    (expected, wanted), (got, grads) = found
    assert layout(got) == layout(expected)
    np.testing.assert_allclose(dense(got), dense(expected), rtol=1e-10, atol=1e-12)
    for g, w in zip(grads, wanted, strict=True):
        assert (g is None) == (w is None)
        if w is not None:
            assert layout(g) == layout(w)
            np.testing.assert_allclose(dense(g), dense(w), rtol=1e-10, atol=1e-12)


@pytest.mark.long
@each_smooth_case
def test_gradients_are_those_of_finite_differences(row: SparseRow, complex_: bool) -> None:
    inputs = leaves(ut, arrays_of(row, complex_))
    for x in inputs:  # a sparse gradient of a dense input is right here, but gradcheck complains of it
        x.register_hook(lambda g: None if g is None else g.to_dense())
    assert gradcheck(lambda *xs: as_dense(row.call(ut, *xs)), inputs, masked=False, check_forward_ad=True)


@pytest.mark.long
@each_smooth_case
def test_second_derivatives_are_those_of_finite_differences(row: SparseRow, complex_: bool) -> None:
    inputs = leaves(ut, arrays_of(row, complex_))

    def gradients(*xs: Any) -> tuple[Any, ...]:
        y = as_dense(row.call(ut, *xs))
        found = ut.autograd.grad(y * y, xs, ut.ones_like(y), create_graph=True)
        return tuple(as_dense(g) for g in found)

    for x in inputs:
        x.register_hook(lambda g: None if g is None else g.to_dense())
    assert gradcheck(gradients, inputs)


def test_every_sparse_operation_is_reached() -> None:
    reached: set[str] = set()
    outer = current()

    def catch(function: Any, args: tuple[Any, ...]) -> Any:
        set_state(outer)
        try:
            reached.add(function.op.name)
            return function(**function.op.by_name(args))
        finally:
            set_state(inside)

    inside = outer.replace(intercept=catch)
    for row, complex_ in CASES:
        set_state(inside)
        try:
            inputs = leaves(ut, arrays_of(row, complex_))
            result = as_dense(row.call(ut, *inputs))
            first = ut.autograd.grad(result, inputs, ut.ones_like(result), create_graph=True, allow_unused=True)
            second = [as_dense(g).sum() for g in first if g is not None and g.requires_grad]
            if second:
                ut.autograd.grad(second, inputs, [ut.ones_like(s) for s in second], allow_unused=True)
        finally:
            set_state(outer)
    primitives = {name for name in SPARSE_OPERATIONS if REGISTRY[name].kind != "composite"}
    assert sorted(primitives - reached) == []
    composites = set(SPARSE_OPERATIONS) - primitives
    assert sorted(composites - {row.op for row in SPARSE_ROWS}) == []


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_products_of_a_row_are_reduced(torch: Any, reduce: str) -> None:
    found = []
    for library in (torch, ut):
        rows = library.tensor([[1.0, 0, 2, 2], [0, 0, 0, 0], [0, 3, 4, 0], [1, 1, 0, 0]]).to_sparse_csr()
        rows.requires_grad_()
        other = library.tensor([[1.0, 2], [1, 3], [5, float("nan")], [5.0, 1]], requires_grad=True)
        out = library.sparse.mm(rows, other, reduce)
        (out.nan_to_num() * library.arange(1.0, 9).reshape(4, 2)).sum().backward()
        found.append([t.detach().numpy() for t in (out, rows.grad.to_dense(), other.grad)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_only_rows_are_reduced_and_only_so(L: Any) -> None:
    matrix = L.eye(2)
    with pytest.raises(RuntimeError, match="reduce type of prod has not been enabled"):
        L.sparse.mm(matrix.to_sparse_csr(), matrix, "prod")
    with pytest.raises((RuntimeError, NotImplementedError), match=r"_sparse_mm_reduce|call to_sparse_csr"):
        L.sparse.mm(matrix.to_sparse(), matrix, "mean")
