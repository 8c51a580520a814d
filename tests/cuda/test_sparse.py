"""Sparse tensors on the (emulated) GPU: every row of tests/samples/sparse.py, and layers with sparse gradients."""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.samples.sparse import SPARSE_ROWS, SparseRow

CASES = [(row, complex_) for row in SPARSE_ROWS for complex_ in (False, True) if not (complex_ and row.real)]


def outcome(row: SparseRow, complex_: bool, device: str) -> list[Any]:
    """The result and the gradients of a row on a device."""
    rng = np.random.default_rng(zlib.crc32(row.id.encode()))
    with ut.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = [ut.tensor(spec.make(rng, complex_), requires_grad=True) for spec in row.inputs]
        result = row.call(ut, *inputs)
        whole = result if result.layout == ut.strided else result.to_dense(masked_grad=False)
        grads = ut.autograd.grad((whole * whole.detach()).abs().sum(), inputs, allow_unused=True)
    return [result, *grads]


@rows("row, complex_", CASES, ids=[f"{r.id}{'-complex' * c}" for r, c in CASES], together=10)
def test_rows_give_what_they_give_on_the_cpu(row: SparseRow, complex_: bool) -> None:
    found, wanted = outcome(row, complex_, "cuda"), outcome(row, complex_, "cpu")
    for there, here in zip(found, wanted, strict=True):
        assert (there is None) == (here is None)
        if there is None:
            continue
        assert there.device.type == "cuda"
        assert (there.layout, there.dtype, there.shape) == (here.layout, here.dtype, here.shape)
        there, here = [x.detach() if x.layout == ut.strided else x.detach().to_dense() for x in (there.cpu(), here)]
        np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layout", [ut.sparse_coo, ut.sparse_csr, ut.sparse_csc])
def test_sparse_tensors_go_to_a_gpu_and_come_back(layout: Any) -> None:
    here = ut.tensor([[0.0, 5.0, 0.0], [6.0, 0.0, 7.0]]).to_sparse(layout=layout)
    there = here.to("cuda")
    assert (there.device.type, there.layout, there._nnz()) == ("cuda", layout, 3)
    assert there.values().device.type == "cuda"
    assert there.cpu().to_dense().tolist() == here.to_dense().tolist()
    assert "device='cuda:0', size=(2, 3)" in " ".join(repr(there).split())


@pytest.mark.parametrize("optimizer", [ut.optim.SGD, ut.optim.SparseAdam, ut.optim.Adagrad])
def test_an_embedding_with_sparse_gradients_learns_what_it_learns_on_the_cpu(optimizer: Any) -> None:
    def trained(device: str) -> list[Any]:
        ut.manual_seed(0)
        table = ut.nn.Embedding(10, 3, sparse=True).to(device)
        steps = optimizer(list(table.parameters()), lr=0.1)
        for words in ([1, 2, 1], [4, 4, 9, 0], [2]):
            steps.zero_grad()
            table(ut.tensor(words, device=device)).pow(2).sum().backward()
            assert table.weight.grad.is_sparse
            steps.step()
        return table.weight.tolist()

    np.testing.assert_allclose(trained("cuda"), trained("cpu"), rtol=1e-6)


def test_a_sparse_gradient_crosses_streams() -> None:
    leaf = ut.ones(4, 2, device="cuda", requires_grad=True)
    table = leaf * 2
    first = ut.nn.functional.embedding(ut.tensor([0], device="cuda"), table, sparse=True).sum()
    side = ut.cuda.Stream()
    side.wait_stream(ut.cuda.current_stream())
    with ut.cuda.stream(side):
        rest = ut.nn.functional.embedding(ut.tensor([1, 3, 1], device="cuda"), table, sparse=True).sum()
    ut.cuda.current_stream().wait_stream(side)
    (first + rest).backward()
    assert leaf.grad.to_dense().tolist() == [[2, 2], [4, 4], [0, 0], [2, 2]]


def test_a_sparse_matrix_times_a_matrix_waits_for_nothing() -> None:
    matrix = ut.eye(3, device="cuda").to_sparse().coalesce()
    x = ut.ones(3, 2, device="cuda", requires_grad=True)
    (matrix @ x).sum().backward()
    before = dict(ut.cuda.host_functions())
    (matrix @ x).sum().backward()
    assert x.grad.tolist() == [[2, 2]] * 3
    assert ut.cuda.host_functions() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int64])
def test_equal_places_are_added_up_where_they_lie(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    places = np.stack([rng.integers(0, 3, 600), rng.integers(0, 4, 600)])
    values = rng.integers(-9, 9, (600, 200)).astype(dtype)
    here = ut.sparse_coo_tensor(ut.tensor(places), ut.tensor(values), (3, 4, 200)).coalesce()
    given = ut.tensor(places, device="cuda"), ut.tensor(values, device="cuda")
    there = ut.sparse_coo_tensor(*given, (3, 4, 200))
    ut.cuda.synchronize()
    ut.cuda.reset_peak_memory_stats()
    before = ut.cuda.memory_allocated()
    found = there.coalesce()
    assert ut.cuda.max_memory_allocated() - before < values.nbytes // 4
    assert found.indices().tolist() == here.indices().tolist()
    np.testing.assert_array_equal(found.values().cpu().numpy(), here.values().numpy())


def test_a_step_of_a_sparse_gradient_needs_one_copy_of_it() -> None:
    table, words = ut.nn.Embedding(500, 64, sparse=True).to("cuda"), ut.arange(400, device="cuda") % 300
    steps = ut.optim.SGD(table.parameters(), lr=0.1)
    for _ in range(2):
        steps.zero_grad()
        table(words).sum().backward()
        ut.cuda.synchronize()
        ut.cuda.reset_peak_memory_stats()
        before = ut.cuda.memory_allocated()
        steps.step()
    assert ut.cuda.max_memory_allocated() - before < 1.3 * words.numel() * 64 * 4
