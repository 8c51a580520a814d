"""Wrong calls of linear algebra fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.ops.wrong_calls import WrongCall, check, every, long

CALLS: list[WrongCall] = [
    ("linalg.svd: The input tensor A must have at least 2 dimensions", lambda lib, F: lib.linalg.svd(lib.ones(3))),
    ("Expected a floating point or complex tensor as input. Got Long", lambda lib, F: lib.linalg.svd(long(lib, 2, 2))),
    ("input matrix contained non-finite values", lambda lib, F: lib.linalg.svd(lib.full((2, 2), float("nan")))),
    ("`driver=` is only supported on CUDA inputs", lambda lib, F: lib.linalg.svd(lib.eye(2), driver="gesvd")),
    ("must be batches of square matrices, but they are 3 by 4", lambda lib, F: lib.linalg.eigh(lib.ones(3, 4))),
    ("Expected UPLO argument to be 'L' or 'U', but got x", lambda lib, F: lib.linalg.eigh(lib.eye(2), UPLO="x")),
    ("should not contain infs or NaNs", lambda lib, F: lib.linalg.eig(lib.full((2, 2), float("nan")))),
    ("linalg.matrix_norm: Order x not supported", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), "x")),
    ("linalg.matrix_norm: Order 3 not supported", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), 3)),
    ("dims must be different. Got (0, 0)", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), 2, (0, 0))),
    ("dim must be a 2-tuple", lambda lib, F: lib.linalg.matrix_norm(lib.ones(2, 2, 2), 2, (0, 1, 2))),
    ("dtype should be floating point or complex", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), dtype=lib.int32)),
    ("dtype should be real for real", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), dtype=lib.complex64)),
    ("the input must be 1D or 2D. Got 3D", lambda lib, F: lib.linalg.norm(lib.ones(2, 2, 2), 2)),
    ("it must be of length 1 or 2", lambda lib, F: lib.linalg.norm(lib.ones(2, 2, 2), 2, (0, 1, 2))),
    ("The input tensor must have at least 2 dimensions", lambda lib, F: lib.linalg.cond(lib.ones(2))),
    ("linalg.cond(ord=1): A must be batches of square", lambda lib, F: lib.linalg.cond(lib.ones(4, 3), 1)),
    ("linalg.cond got an invalid norm type: 3", lambda lib, F: lib.linalg.cond(lib.eye(2), 3)),
    ("expected a tensor with 2 or more dimensions", lambda lib, F: lib.linalg.pinv(lib.ones(3))),
    ("must have at least 2 dimensions", lambda lib, F: lib.linalg.matrix_rank(lib.ones(3))),
    ("input.size(-2) should match other.size(-2)", lambda lib, F: lib.linalg.lstsq(lib.ones(4, 3), lib.ones(2, 3))),
    ("input must have at least 2 dimensions", lambda lib, F: lib.linalg.lstsq(lib.ones(4), lib.ones(4))),
    ("should be one of (gels, gelsy, gelsd, gelss)",
     lambda lib, F: lib.linalg.lstsq(lib.eye(2), lib.eye(2), driver="x")),
    ("to have the same dtype", lambda lib, F: lib.linalg.lstsq(lib.eye(2), lib.eye(2, dtype=lib.float64))),
    ("Incompatible shapes of A and B for the equation AX = B (3x3 and 4x2)",
     lambda lib, F: lib.linalg.solve_triangular(lib.eye(3), lib.ones(4, 2), upper=True)),
    ("The input tensor B must have at least 2 dim",
     lambda lib, F: lib.linalg.solve_triangular(lib.eye(2), lib.ones(2), upper=True)),
    ("Incompatible matrix sizes for cholesky_solve", lambda lib, F: lib.cholesky_solve(lib.ones(4, 2), lib.eye(3))),
    ("b should have at least 2 dimensions, but has 1", lambda lib, F: lib.cholesky_solve(lib.ones(3), lib.eye(3))),
    ("must be batches of square matrices", lambda lib, F: lib.cholesky_inverse(lib.ones(3, 2))),
    ("The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular",
     lambda lib, F: lib.cholesky_inverse(lib.tensor([[1.0, 0.0], [1.0, 0.0]]))),
    ("U[1,1] is zero and using it on lu_solve would result in a division by zero",
     lambda lib, F: lib.linalg.lu_factor(lib.zeros(2, 2))),
    ("(Batch element 1): U[2,2] is zero",
     lambda lib, F: lib.linalg.lu_factor(lib.stack([lib.eye(2), lib.ones(2, 2)]))),
    ("A must be batches of square matrices", lambda lib, F: lib.matrix_exp(lib.ones(3, 2))),
    ("Expected a floating point or complex tensor", lambda lib, F: lib.matrix_exp(long(lib, 2, 2))),
    ("prod(self.shape[ind:]) == prod(self.shape[:ind])", lambda lib, F: lib.linalg.tensorinv(lib.ones(2, 3, 4))),
    ("Expected a strictly positive integer for 'ind'", lambda lib, F: lib.linalg.tensorinv(lib.eye(2), 0)),
    ("prod(self.shape[other.ndim:])", lambda lib, F: lib.linalg.tensorsolve(lib.ones(2, 3, 4), lib.ones(2, 3))),
    ("N must be greater than 1", lambda lib, F: lib.linalg.vander(lib.ones(3), N=1)),
    ("x must be a one-dimensional tensor", lambda lib, F: lib.vander(lib.ones(3, 2))),
]  # fmt: skip


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)
