"""One row per way of using a sparse tensor. The same call runs on PyTorch and on undertow: see tests/sparse/.

A row starts from dense arrays, so that finite differences can check it, and may end in a dense or a sparse tensor.
These operations take or give sparse tensors, which the rows of the other modules cannot describe, so SAMPLES is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.samples import Array, Sample, constant, normal

SAMPLES: list[Sample] = []

PLACES = [[0, 2, 2, 0], [1, 0, 3, 1]]  # of a 3 x 4 matrix, one of them twice
ROWS = [2, 0, 2]  # of a 3 x 4 matrix, one of them twice


@dataclass(frozen=True)
class SparseRow:
    """call(m, *tensors) -> a tensor, with m one of the two libraries.

    op         the operation of undertow that the row is about
    holes      some elements of an input get no gradient by design (zeros, which the sparse tensor has not; padding),
               so finite differences do not apply
    reference  whether PyTorch can do it, too
    real       it is for real numbers only
    """

    op: str
    inputs: tuple[Array, ...]
    call: Callable[..., Any]
    holes: bool = False
    reference: bool = True
    real: bool = False
    note: str = ""

    @property
    def id(self) -> str:
        return self.op + (f"-{self.note}" if self.note else "")


def coo(m: Any, values: Any, places: Any = PLACES, size: Any = (3, 4)) -> Any:
    """A sparse tensor on differentiable values."""
    return m.sparse_coo_tensor(m.tensor(places), values, size)


def rows(m: Any, values: Any) -> Any:
    """A hybrid one: three rows of a 3 x 4 matrix."""
    return m.sparse_coo_tensor(m.tensor([ROWS]), values, (3, 4))


def pattern(m: Any, like: Any) -> Any:
    """A coalesced sparse tensor without history."""
    return m.sparse_coo_tensor(m.tensor([[0, 1, 2], [1, 2, 0]]), m.ones(3, dtype=like.dtype), (3, 4)).coalesce()


def csr(m: Any, values: Any) -> Any:
    """A 3 x 4 matrix by rows, the second of which is empty."""
    return m.sparse_csr_tensor(m.tensor([0, 1, 1, 4]), m.tensor([1, 0, 2, 3]), values, (3, 4))


def csc(m: Any, values: Any) -> Any:
    return m.sparse_csc_tensor(m.tensor([0, 1, 1, 3, 4]), m.tensor([1, 0, 2, 2]), values, (3, 4))


def bsr(m: Any, values: Any) -> Any:
    """A 4 x 6 matrix of three blocks."""
    return m.sparse_bsr_tensor(m.tensor([0, 1, 3]), m.tensor([1, 0, 1]), values, (4, 6))


def bsc(m: Any, values: Any) -> Any:
    return m.sparse_bsc_tensor(m.tensor([0, 2, 3]), m.tensor([0, 1, 0]), values, (4, 6))


def over_values(name: str, make: Any, dim: int) -> Any:
    return lambda m, v: getattr(m.sparse, name)(make(m, v), dim).to_dense()


FOUR = (normal(4),)
BLOCKS = (normal(3, 2, 3),)
HOLES = constant([[0.0, 1.5, 0.0, -2.0], [0.0, 0.0, 0.0, 0.0], [0.7, 0.0, 0.0, 0.3]])

SPARSE_ROWS: list[SparseRow] = [
    # from indices and values, and back
    SparseRow("sparse_coo_tensor", FOUR, lambda m, v: coo(m, v).to_dense()),
    SparseRow("sparse_coo_tensor", FOUR, coo, note="sparse"),
    SparseRow("sparse_coo_tensor", (normal(3, 4),), lambda m, v: rows(m, v).to_dense(), note="hybrid"),
    SparseRow("sparse_coo_tensor", (normal(0),), lambda m, v: coo(m, v, [[], []]).to_dense(), note="empty"),
    SparseRow("coalesce", FOUR, lambda m, v: coo(m, v).coalesce().to_dense()),
    SparseRow("values", FOUR, lambda m, v: coo(m, v).coalesce().values()),
    SparseRow("values", (normal(3, 4),), lambda m, v: rows(m, v).coalesce().values() ** 2, note="hybrid"),
    SparseRow("indices", FOUR, lambda m, v: coo(m, v).coalesce().indices() * coo(m, v).coalesce().values()),
    SparseRow("to_dense", (HOLES,), lambda m, x: x.to_sparse().to_dense(), holes=True),
    SparseRow("to_dense", (HOLES,), lambda m, x: x.to_sparse().to_dense(masked_grad=False), holes=True,
              note="unmasked"),
    SparseRow("to_dense", (normal(3, 4),), lambda m, x: x.to_sparse().to_dense(), note="full"),
    SparseRow("to_sparse", (HOLES,), lambda m, x: x.to_sparse(), holes=True),
    SparseRow("to_sparse", (normal(3, 4),), lambda m, x: x.to_sparse(), note="full"),
    SparseRow("to_sparse", (HOLES,), lambda m, x: x.to_sparse(1).to_dense(), holes=True, note="rows"),
    SparseRow("to_sparse", (normal(3, 4),), lambda m, x: x.to_sparse(1).to_dense(), note="full-rows"),
    SparseRow("sparse_mask", (normal(3, 4),), lambda m, x: x.sparse_mask(pattern(m, x)).to_dense()),
    SparseRow("sparse_mask", FOUR, lambda m, v: coo(m, v).coalesce().sparse_mask(pattern(m, v)).to_dense(),
              note="sparse"),
    # sums and products that other tensors have, too
    SparseRow("add", (normal(4), normal(4)), lambda m, v, w: (coo(m, v) + coo(m, w)).to_dense()),
    SparseRow("add", (normal(4), normal(3, 4)), lambda m, v, x: x + coo(m, v), note="dense"),
    SparseRow("add", (normal(4), normal(3, 4)), lambda m, v, x: m.add(x, coo(m, v), alpha=2), note="alpha"),
    SparseRow("add", (normal(4), normal(3, 4)), lambda m, v, x: coo(m, v) + x, reference=False, note="reversed"),
    SparseRow("sub", (normal(4), normal(3, 4)), lambda m, v, x: x - coo(m, v)),
    SparseRow("neg", FOUR, lambda m, v: (-coo(m, v)).to_dense()),
    SparseRow("mul", FOUR, lambda m, v: (coo(m, v) * 2.5).to_dense(), note="number"),
    SparseRow("mul", (normal(4), normal()), lambda m, v, c: (coo(m, v) * c).to_dense(), note="scalar"),
    SparseRow("mul", (normal(4), normal(3, 4)), lambda m, v, x: (coo(m, v) * x).to_dense(), note="dense"),
    SparseRow("mul", (normal(4), normal(4)), lambda m, v, w: (coo(m, v) * coo(m, w)).to_dense(), note="sparse"),
    SparseRow("true_divide", FOUR, lambda m, v: (coo(m, v) / 4.0).to_dense()),
    SparseRow("pow", FOUR, lambda m, v: (coo(m, v) ** 3).to_dense()),
    SparseRow("square", FOUR, lambda m, v: coo(m, v).square().to_dense()),
    SparseRow("clone", FOUR, lambda m, v: coo(m, v).clone().to_dense()),
    SparseRow("t", FOUR, lambda m, v: coo(m, v).t().to_dense()),
    SparseRow("transpose", FOUR, lambda m, v: coo(m, v).transpose(0, 1).to_dense()),
    SparseRow("sum", FOUR, lambda m, v: coo(m, v).sum()),
    SparseRow("permute", FOUR, lambda m, v: coo(m, v).permute(1, 0).to_dense()),
    # matrices
    SparseRow("mm", (normal(4), normal(4, 2)), lambda m, v, b: coo(m, v) @ b),
    SparseRow("mm", (normal(4), normal(2, 3)), lambda m, v, b: b @ coo(m, v), note="right"),
    SparseRow("mm", (normal(4), normal(4)), lambda m, v, w: (coo(m, v) @ coo(m, w).t()).to_dense(), note="both"),
    SparseRow("mv", (normal(4), normal(4)), lambda m, v, b: coo(m, v) @ b),
    SparseRow("addmm", (normal(3, 2), normal(4), normal(4, 2)), lambda m, c, v, b: m.addmm(c, coo(m, v), b)),
    SparseRow("sparse_mm", (normal(4), normal(4, 2)), lambda m, v, b: m.sparse.mm(coo(m, v), b)),
    SparseRow("sparse_mm", (normal(4), normal(2, 3)), lambda m, v, b: m.sparse.mm(b, coo(m, v)), note="right"),
    SparseRow("sparse_mm", (normal(4), normal(4)), lambda m, v, w: m.sparse.mm(coo(m, v), coo(m, w).t()).to_dense(),
              note="both"),
    SparseRow("sparse_addmm", (normal(3, 2), normal(4), normal(4, 2)),
              lambda m, c, v, b: m.sparse.addmm(c, coo(m, v), b, beta=0.5, alpha=2.0)),
    SparseRow("sparse_sum", FOUR, lambda m, v: m.sparse.sum(coo(m, v))),
    SparseRow("sparse_sum", FOUR, lambda m, v: m.sparse.sum(coo(m, v), 0).to_dense(), note="dim"),
    SparseRow("sparse_sum", FOUR, lambda m, v: m.sparse.sum(coo(m, v), (0, 1)), note="dims"),
    SparseRow("sparse_sum", (normal(3, 4),), lambda m, v: m.sparse.sum(rows(m, v), 1).to_dense(), note="hybrid"),
    SparseRow("sparse_sum", (normal(3, 4),), lambda m, v: m.sparse.sum(rows(m, v), 0), note="hybrid-rows"),
    # compressed layouts
    SparseRow("sparse_csr_tensor", FOUR, lambda m, v: csr(m, v).to_dense()),
    SparseRow("sparse_csr_tensor", FOUR, csr, note="sparse"),
    SparseRow("sparse_csr_tensor", (normal(4, 2),), lambda m, v: m.sparse_csr_tensor(
        m.tensor([0, 1, 1, 4]), m.tensor([1, 0, 2, 3]), v, (3, 4, 2)).to_dense(), note="hybrid"),
    SparseRow("sparse_csr_tensor", (normal(2, 2),), lambda m, v: m.sparse_csr_tensor(
        m.tensor([[0, 1, 2], [0, 0, 2]]), m.tensor([[1, 0], [0, 2]]), v, (2, 2, 3)).to_dense(),
              reference=False, note="batch"),
    SparseRow("sparse_csc_tensor", FOUR, lambda m, v: csc(m, v).to_dense(), reference=False),
    SparseRow("sparse_bsr_tensor", BLOCKS, lambda m, v: bsr(m, v).to_dense(), reference=False),
    SparseRow("sparse_bsc_tensor", BLOCKS, lambda m, v: bsc(m, v).to_dense(), reference=False),
    SparseRow("sparse_compressed_tensor", FOUR, lambda m, v: m.sparse_compressed_tensor(
        m.tensor([0, 1, 4]), m.tensor([1, 0, 2, 3]), v, (2, 4), layout=m.sparse_csr).to_dense()),
    SparseRow("values", FOUR, lambda m, v: csr(m, v).values(), note="csr"),
    SparseRow("values", BLOCKS, lambda m, v: bsc(m, v).values(), reference=False, note="bsc"),
    SparseRow("to_dense", FOUR, lambda m, v: csr(m, v).to_dense(masked_grad=False), note="csr-unmasked"),
    SparseRow("to_sparse_csr", (HOLES,), lambda m, x: x.to_sparse_csr(), holes=True),
    SparseRow("to_sparse_csr", (normal(3, 4),), lambda m, x: x.to_sparse_csr(), note="full"),
    SparseRow("to_sparse_csr", FOUR, lambda m, v: coo(m, v).coalesce().to_sparse_csr().to_dense(), note="coo"),
    SparseRow("to_sparse_csr", FOUR, lambda m, v: csc(m, v).to_sparse_csr().to_dense(), reference=False, note="csc"),
    SparseRow("to_sparse_csr", BLOCKS, lambda m, v: bsr(m, v).to_sparse_csr().to_dense(), reference=False, note="bsr"),
    SparseRow("to_sparse_csc", (normal(3, 4),), lambda m, x: x.to_sparse_csc().to_dense(), reference=False),
    SparseRow("to_sparse_csc", FOUR, lambda m, v: csr(m, v).to_sparse_csc().to_dense(), reference=False, note="csr"),
    SparseRow("to_sparse_bsr", (normal(4, 6),), lambda m, x: x.to_sparse_bsr((2, 3)).to_dense(), reference=False),
    SparseRow("to_sparse_bsr", BLOCKS, lambda m, v: bsc(m, v).to_sparse_bsr((2, 3)).to_dense(), reference=False,
              note="bsc"),
    SparseRow("to_sparse_bsc", (normal(4, 6),), lambda m, x: x.to_sparse_bsc((2, 3)).to_dense(), reference=False),
    SparseRow("to_sparse", FOUR, lambda m, v: csr(m, v).to_sparse().to_dense(), note="csr"),
    SparseRow("to_sparse", BLOCKS, lambda m, v: bsr(m, v).to_sparse().to_dense(), reference=False, note="bsr"),
    SparseRow("sparse_mask", (normal(3, 4),), lambda m, x: x.sparse_mask(csr(m, m.ones(4, dtype=x.dtype))).to_dense(),
              reference=False, note="csr"),
    SparseRow("add", (normal(4), normal(4)), lambda m, v, w: (csr(m, v) + csr(m, w)).to_dense(), note="csr"),
    SparseRow("add", (normal(4), normal(4)), lambda m, v, w: (csr(m, v) + csc(m, w).to_sparse_csr()).to_dense(),
              reference=False, note="csr-places"),
    SparseRow("add", (normal(4), normal(3, 4)), lambda m, v, x: x + csr(m, v), note="csr-dense"),
    SparseRow("sub", (normal(4), normal(3, 4)), lambda m, v, x: x - csr(m, v), reference=False, note="csr"),
    SparseRow("mul", FOUR, lambda m, v: (csr(m, v) * 2.5).to_dense(), note="csr-number"),
    SparseRow("mul", (normal(4), normal()), lambda m, v, c: (csr(m, v) * c).to_dense(), reference=False,
              note="csr-scalar"),
    SparseRow("mul", (normal(4), normal(3, 4)), lambda m, v, x: (csr(m, v) * x).to_dense(), reference=False,
              note="csr-dense"),
    SparseRow("mul", (normal(4), normal(4)), lambda m, v, w: (csr(m, v) * csr(m, w)).to_dense(), note="csr"),
    SparseRow("true_divide", FOUR, lambda m, v: (csr(m, v) / 4.0).to_dense(), reference=False, note="csr"),
    SparseRow("neg", FOUR, lambda m, v: (-csr(m, v)).to_dense(), note="csr"),
    SparseRow("pow", FOUR, lambda m, v: (csr(m, v) ** 3).to_dense(), reference=False, note="csr"),
    SparseRow("clone", FOUR, lambda m, v: csr(m, v).clone().to_dense(), note="csr"),
    SparseRow("t", FOUR, lambda m, v: csr(m, v).t().to_dense(), note="csr"),
    SparseRow("t", BLOCKS, lambda m, v: bsr(m, v).t().to_dense(), reference=False, note="bsr"),
    SparseRow("sum", FOUR, lambda m, v: csr(m, v).sum(), note="csr"),
    SparseRow("mm", (normal(4), normal(4, 2)), lambda m, v, b: csr(m, v) @ b, note="csr"),
    SparseRow("mm", (normal(4), normal(2, 3)), lambda m, v, b: b @ csr(m, v), note="csr-right"),
    SparseRow("mm", (normal(4), normal(4)), lambda m, v, w: (csr(m, v) @ csr(m, w).t()).to_dense(), reference=False,
              note="csr-both"),
    SparseRow("mm", (normal(3, 2, 3), normal(6, 2)), lambda m, v, b: bsr(m, v) @ b, reference=False, note="bsr"),
    SparseRow("mv", (normal(4), normal(4)), lambda m, v, b: csr(m, v) @ b, note="csr"),
    SparseRow("addmm", (normal(3, 2), normal(4), normal(4, 2)), lambda m, c, v, b: m.addmm(c, csr(m, v), b),
              note="csr"),
    SparseRow("sparse_mm", (normal(4), normal(4, 2)), lambda m, v, b: m.sparse.mm(csr(m, v), b), note="csr"),
    SparseRow("sparse_mm", (normal(4), normal(4)), lambda m, v, w: m.sparse.mm(csr(m, v), csr(m, w).t()).to_dense(),
              reference=False, note="csr-both"),
    SparseRow("sparse_addmm", (normal(3, 2), normal(4), normal(4, 2)),
              lambda m, c, v, b: m.sparse.addmm(c, csr(m, v), b, beta=0.5, alpha=2.0), note="csr"),
    SparseRow("sparse_sum", FOUR, lambda m, v: m.sparse.sum(csr(m, v), 0).to_dense(), reference=False, note="csr"),
    SparseRow("sampled_addmm", (normal(4), normal(3, 2), normal(2, 4)), lambda m, v, a, b: m.sparse.sampled_addmm(
        csr(m, v), a, b, beta=0.5, alpha=2.0).to_dense()),
    SparseRow("sampled_addmm", (normal(4), normal(3, 2), normal(2, 4)), lambda m, v, a, b: m.sparse.sampled_addmm(
        coo(m, v), a, b).to_dense(), reference=False, note="coo"),
    SparseRow("_convert_indices_from_csr_to_coo", FOUR, lambda m, v: coo(m, v, m._convert_indices_from_csr_to_coo(
        m.tensor([0, 1, 1, 4]), m.tensor([1, 0, 2, 3])).tolist()).to_dense()),
    SparseRow("_convert_indices_from_coo_to_csr", FOUR, lambda m, v: m.sparse_csr_tensor(
        m._convert_indices_from_coo_to_csr(m.tensor([0, 2, 2, 2]), 3), m.tensor([1, 0, 2, 3]), v, (3, 4)).to_dense()),
    # over the values there are
    *[SparseRow(f"sparse_{name}", FOUR, over_values(name, coo, dim), real=True, reference=dim >= 0, note=str(dim))
      for name in ("softmax", "log_softmax") for dim in (0, 1, -1)],  # PyTorch's gradient is wrong for negative ones
    *[SparseRow(f"sparse_{name}", (normal(3, 4),), over_values(name, rows, dim), real=True, note=f"hybrid {dim}")
      for name in ("softmax", "log_softmax") for dim in (0, 1)],
    SparseRow("sparse_spdiags", (normal(3, 4),), lambda m, d: m.sparse.spdiags(
        d, m.tensor([0, 2, -1]), (3, 4)).to_dense(), holes=True, reference=False),
    # gradients that are sparse, for dense tensors
    SparseRow("embedding", (normal(5, 2),), lambda m, w: embedding(m, w, [[1, 3], [1, 0]])),
    SparseRow("embedding", (normal(5, 2),), lambda m, w: embedding(m, w, [1, 3, 1], 3), holes=True, note="padding"),
    SparseRow("gather", (normal(3, 4),), lambda m, x: m.gather(x, 1, m.tensor([[0, 0], [3, 1]]), sparse_grad=True)),
    SparseRow("gather", (normal(),), lambda m, x: m.gather(x, 0, m.tensor([0, 0]), sparse_grad=True), note="scalar"),
    SparseRow("index_select", (normal(3, 4),),
              lambda m, x: m.index_select(x, 0, m.tensor(ROWS), sparse_grad=True), reference=False),
    SparseRow("index_select", (normal(3, 4),),
              lambda m, x: m.index_select(x, -1, m.tensor(ROWS), sparse_grad=True), reference=False, note="columns"),
]  # fmt: skip


def embedding(m: Any, weight: Any, indices: Any, padding_idx: int = -1) -> Any:
    return m.embedding(weight, m.tensor(indices), padding_idx, False, True)


#: operations that only these rows describe
SPARSE_OPERATIONS = (
    "_coalesce", "_gather_places", "_kept_places", "_sampled_mm", "_slice_places", "_sparse_addmm", "_sparse_coo",
    "_sparse_mask", "_sparse_sparse_matmul", "_sparse_sum", "_sparse_sum_backward",
    "_sparse_values", "_to_dense", "_to_sparse", "_to_sparse_dim", "_values_at", "coalesce", "indices",
    "sparse_addmm", "sparse_coo_tensor", "sparse_mask", "sparse_mm", "sparse_sum", "to_dense", "to_sparse", "values",
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_sparse_compressed", "_to_form",
    "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr",
    "sparse_softmax", "sparse_log_softmax", "sparse_spdiags", "_with_values", "sampled_addmm",
    "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor",
    "sparse_csc_tensor", "sparse_csr_tensor", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_csc", "to_sparse_csr",
)  # fmt: skip
