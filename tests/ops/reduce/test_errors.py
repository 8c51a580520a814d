"""Wrong calls of reductions, covariance and differences fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.ops.wrong_calls import WrongCall, check, every, long

CALLS: list[WrongCall] = [
    ("Either lengths or offsets must be defined", lambda lib, F: lib.segment_reduce(lib.ones(3), "sum")),
    ("reduce argument must be either sum, prod, mean, amax or amin, got foo",
     lambda lib, F: lib.segment_reduce(lib.ones(3), "foo", lengths=lib.tensor([3]))),
    ("Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe",
     lambda lib, F: lib.segment_reduce(lib.ones(3), "sum", lengths=lib.tensor([2]))),
    ("is not expandable to size", lambda lib, F: lib.ones(2, 3).sum_to_size(3, 3)),
    ("input tensor should have at least 2 dimensions", lambda lib, F: lib.histogramdd(lib.ones(3), bins=[2])),
    ("expected input to have two or fewer dimensions", lambda lib, F: lib.cov(lib.ones(2, 2, 2))),
    ("bool dtype is not supported", lambda lib, F: lib.cov(lib.ones(2, 2) > 0)),
    ("to have the same numel", lambda lib, F: lib.cov(lib.ones(3, 5), fweights=long(lib, 4))),
    ("fweights to have integral dtype", lambda lib, F: lib.cov(lib.ones(3, 5), fweights=lib.ones(5))),
    ("aweights to have floating point dtype", lambda lib, F: lib.cov(lib.ones(3, 5), aweights=long(lib, 5))),
    ("aweights cannot be negative", lambda lib, F: lib.cov(lib.ones(3, 5), aweights=-lib.ones(5))),
    ("pdist only supports 2D tensors, got: 3D", lambda lib, F: F.pdist(lib.ones(2, 2, 2))),
    ("non-negative p values", lambda lib, F: F.pdist(lib.ones(2, 2), -1)),
    ("at least edge_order+1", lambda lib, F: lib.gradient(lib.ones(1))),
    ("only supports edge_order=1 and edge_order=2", lambda lib, F: lib.gradient(lib.ones(4), edge_order=3)),
    ("but got a list of length 3", lambda lib, F: lib.gradient(lib.ones(4, 4), spacing=(1.0, 2.0, 3.0))),
    ("Dimension out of range", lambda lib, F: lib.gradient(lib.ones(4), dim=3)),
]  # fmt: skip


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)
