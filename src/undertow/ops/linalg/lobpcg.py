"""lobpcg: some eigenvalues of symmetric matrices, the largest or the smallest.

PyTorch's iterates, because its matrices may be sparse; here all eigenvalues of a dense matrix are computed, and the
ones that were asked for returned. What steers an iteration (X, niter, tol, method, ...) is accepted, and not needed.
"""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.linalg.cholesky import linalg_cholesky
from undertow.ops.linalg.eigen import linalg_eigh
from undertow.ops.linalg.inverse_and_solve import linalg_solve
from undertow.ops.shape.flip_roll import flip
from undertow.ops.views.dimensions import adjoint
from undertow.ops.views.slices import slice_


def _number_wanted(A: Array, k: int | None, X: Any) -> int:
    rows = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    if not 0 < 3 * k <= rows:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller than 3 x the number of "
            f"requested eigenpairs (={k})"
        )
    return k


def reduced(A: Array, B: Array) -> tuple[Any, Any]:
    """The symmetric matrix with the eigenvalues of A x = lambda B x, and what turns its vectors into x."""
    solve = linalg_solve
    L = linalg_cholesky((B + adjoint(B)) / 2)
    half = solve(L, A)
    return adjoint(solve(L, adjoint(half))), lambda V: solve(adjoint(L), V)


@composite
def lobpcg(
    A: Array,
    k: int | None = None,
    B: Array | None = None,
    X: Array | None = None,
    n: int | None = None,
    iK: Any = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Array, Array]:
    """The k largest (or smallest) eigenvalues of a symmetric A, best first, and their eigenvectors, as columns.

    B     a positive-definite matrix: then of the generalised problem A x = lambda B x
    X, n  how many eigenvalues, if `k` is not given: the columns of X, or n

    The other arguments (`iK`, `niter`, `tol`, `method`, `tracker`, `ortho_iparams`, `ortho_fparams`, `ortho_bparams`)
    guide an iteration in PyTorch; here they have no effect.

    >>> import undertow as ut
    >>> ut.lobpcg(ut.diag(ut.tensor([1.0, 5.0, 3.0])), k=1)[0]
    tensor([5.])
    """
    A = as_operand("lobpcg", "A", A)
    k = _number_wanted(A, k, X)
    A = (A + adjoint(A)) / 2
    restore = lambda V: V
    if B is not None:
        A, restore = reduced(A, B)
        A = (A + adjoint(A)) / 2
    values, vectors = linalg_eigh(A)
    if largest is None or largest:
        values, vectors = flip(values, (-1,)), flip(vectors, (-1,))
    values, vectors = [slice_(t, -1, 0, k) for t in (values, vectors)]
    return values, restore(vectors)
