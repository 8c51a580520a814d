"""Factorisations that report what failed instead of raising, and eigenvalues by iteration."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, constant, normal

DEFINITE = [[3.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.5]]


def factor_of_square(library: Any, A: Any) -> Any:
    """Of a matrix that is positive-definite, whatever A is."""
    return library.linalg.cholesky_ex(A @ A.mH + 2 * library.eye(3, dtype=A.dtype))


SAMPLES = [
    *[Sample(f"linalg_{name}", constant(DEFINITE), *more, complex=name != "lu_factor_ex", gradgrad=False, note=note,
             reference=lambda torch, *args, name=name: getattr(torch.linalg, name)(*args))
      for name, more, note in (("inv_ex", (), ""), ("solve_ex", (normal(3, 2),), ""), ("lu_factor_ex", (), ""))],
    Sample("linalg_cholesky_ex", normal(3, 3), complex=True, call=factor_of_square, reference=factor_of_square),
    Sample("lobpcg", constant(DEFINITE), 1, note="largest", call=lambda L, A, k: L.lobpcg(A, k)[0], reference=False),
    Sample("lobpcg", constant(DEFINITE), constant(DEFINITE[::-1]), note="generalised", reference=False,
           call=lambda L, A, B: L.lobpcg(A, 1, B @ B.mT, largest=False)[0]),
]  # fmt: skip
