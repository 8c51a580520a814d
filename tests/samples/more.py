"""Copies of views, windows and short-time transforms, grids, and other functions made of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, normal, positive, unit


def cloned(name: str) -> Any:
    """The view, then clone: what PyTorch's copying form does under a name of its own."""

    def reference(torch: Any, x: Any, *args: Any) -> Any:
        own = {
            "alias": lambda x: x.view_as(x),
            "slice": lambda x, d, a, b: x.narrow(d, a, b - a),
            "view_as_complex": torch.view_as_complex,
            "view_as_real": torch.view_as_real,
        }.get(name)
        found = own(x, *args) if own else getattr(x, name)(*args)
        return [part.clone() for part in found] if isinstance(found, list | tuple) else found.clone()

    return reference


def written(x: Any, src: Any, *where: Any) -> Any:
    """PyTorch's as_strided_scatter, but for its gradient, which is that of another part of the input."""
    x.as_strided(*where).copy_(src)
    return x


COPIES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("alias", normal(3, 4), ()),
    ("as_strided", normal(3, 4), ((2, 2), (4, 1), 1)),
    ("expand", normal(3, 1), ((3, 4),)),
    ("narrow", normal(3, 4), (1, 1, 2)),
    ("permute", normal(2, 3, 4), ((2, 0, 1),)),
    ("select", normal(3, 4), (0, -1)),
    ("slice", normal(3, 4), (1, 1, 3)),
    ("split", normal(5, 2), (2,)),
    ("split_with_sizes", normal(5, 2), ([1, 4],)),
    ("squeeze", normal(3, 1), (1,)),
    ("t", normal(3, 4), ()),
    ("transpose", normal(3, 4), (0, 1)),
    ("unbind", normal(3, 4), (1,)),
    ("unfold", normal(3, 6), (1, 2, 2)),
    ("unsqueeze", normal(3, 4), (0,)),
    ("view", normal(3, 4), ((4, 3),)),
    ("view_as_complex", normal(3, 2), ()),
]

F = lambda name: lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


def factor_of_square(library: Any, A: Any) -> Any:
    """Of a matrix that is positive-definite, whatever A is."""
    return library.linalg.cholesky_ex(A @ A.mH + 2 * library.eye(3, dtype=A.dtype))


DEFINITE = [[3.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.5]]
PADDINGS = ("zeros", "border", "reflection")
GRID_MODES = [(m, p, c) for m in ("bilinear", "bicubic") for p in PADDINGS for c in (True, False)]
WINDOWS = [(name, n, p) for name in ("bartlett", "hann", "hamming", "blackman", "kaiser")
           for n in (0, 1, 5, 8) for p in (True, False)]  # fmt: skip


def window_of(name: str) -> Any:
    return lambda torch, n, p, dtype: getattr(torch, f"{name}_window")(n, p, dtype=torch.float64)


SAMPLES = [
    *[Sample(f"{name}_copy", x, *args, complex=name != "view_as_complex", reference=cloned(name))
      for name, x, args in COPIES],
    Sample("view_as_real_copy", normal(3), complex_only=True, reference=cloned("view_as_real")),
    Sample("detach", normal(3).without_gradient()),
    Sample("detach_copy", normal(3).without_gradient(), reference=lambda torch, x: x.detach().clone()),
    Sample("as_strided_scatter", normal(3, 4), normal(2, 2), (2, 2), (4, 1), 1,
           reference=lambda torch, x, s, *where: written(x.clone(), s, *where)),
    Sample("negative", normal(3, 4), complex=True),
    Sample("row_stack", [normal(3), normal(2, 3)], reference=lambda torch, ts: torch.vstack(ts)),
    # windows
    *[Sample(f"{name}_window", n, p, kwargs={"dtype": "float64"}, note=f"{n}-{p}", reference=window_of(name))
      for name, n, p in WINDOWS],
    Sample("stft", normal(20), 8, 3, 6, positive(6), kwargs={"return_complex": True}),
    Sample("stft", normal(2, 20), 8, note="batch",
           kwargs={"return_complex": True, "normalized": True, "onesided": False}),
    Sample("stft", normal(2, 20), 8, kwargs={"return_complex": False, "center": False}, note="real"),
    Sample("stft", normal(20), 8, complex_only=True, note="complex"),
    Sample("istft", normal(5, 6), 8, 3, 6, positive(6).without_gradient(), complex_only=True),
    Sample("istft", normal(2, 5, 6), 8, complex_only=True, kwargs={"length": 9, "normalized": True}, note="length"),
    Sample("istft", normal(2, 8, 6), 8, complex_only=True, note="both-sides",
           kwargs={"center": False, "onesided": False}),
    # grids
    Sample("affine_grid", normal(2, 2, 3), (2, 3, 4, 5), kwargs={"align_corners": True}, reference=F("affine_grid")),
    Sample("affine_grid", normal(2, 3, 4), (2, 1, 2, 3, 2), kwargs={"align_corners": False}, reference=F("affine_grid"),
           note="volumes"),
    *[Sample("grid_sample", normal(2, 2, 3, 4), unit(2, 2, 3, 2), m, p, c, reference=F("grid_sample"),
             note=f"{m}-{p}-{c}")
      for m, p, c in GRID_MODES],
    *[Sample("grid_sample", normal(1, 2, 3, 4), constant([[[[1.7, -1.3], [0.3, 2.9], [-5.2, 0.1]]]]), m, p, False,
             reference=F("grid_sample"), note=f"outside-{m}-{p}")
      for m in ("bilinear", "bicubic", "nearest") for p in PADDINGS],
    Sample("grid_sample", normal(2, 2, 3, 2, 4), unit(2, 2, 1, 3, 3), "bilinear", "zeros", True,
           reference=F("grid_sample"), note="volumes"),
    Sample("grid_sample", normal(1, 2, 3, 4), constant([[[[1.0, -1.0], [0.0, 1.0]]]]), "bilinear", "border", True,
           kink=True, gradgrad=False, reference=F("grid_sample"), note="edges"),
    # the rest
    Sample("renorm", normal(3, 4), 2, 0, 1.0, complex=True),
    Sample("renorm", normal(2, 3, 4), 1, -1, 2.0, note="1-norm"),
    Sample("frobenius_norm", normal(3, 4), (0, 1), complex=True,
           reference=lambda torch, x, dim: torch.linalg.vector_norm(x, 2, dim)),
    Sample("nuclear_norm", normal(3, 4), reference=lambda torch, x: torch.linalg.matrix_norm(x, "nuc")),
    Sample("linalg_vecdot", normal(3, 4), normal(4), complex=True,
           reference=lambda torch, x, y: torch.linalg.vecdot(x, y)),
    Sample("linalg_vecdot", normal(3, 4), normal(3, 4), kwargs={"dim": 0}, note="dim",
           reference=lambda torch, x, y, dim: torch.linalg.vecdot(x, y, dim=dim)),
    Sample("lu_solve", normal(3, 2), constant([[2.0, 1.0, 0.5], [0.5, 3.0, 1.0], [0.1, 0.2, 1.5]]),
           constant(np.array([1, 2, 3], np.int32)),
           reference=lambda torch, b, LU, p: torch.linalg.lu_solve(LU, p, b)),
    Sample("linalg_householder_product", normal(4, 3), normal(3), complex=True,
           reference=lambda torch, a, t: torch.linalg.householder_product(a, t)),
    Sample("linalg_householder_product", normal(2, 4, 3), normal(2, 2), note="batch",
           reference=lambda torch, a, t: torch.linalg.householder_product(a, t)),
    *[Sample(f"linalg_{name}", constant(DEFINITE), *more, complex=name != "lu_factor_ex", gradgrad=False, note=note,
             reference=lambda torch, *args, name=name: getattr(torch.linalg, name)(*args))
      for name, more, note in (("inv_ex", (), ""), ("solve_ex", (normal(3, 2),), ""), ("lu_factor_ex", (), ""))],
    Sample("linalg_cholesky_ex", normal(3, 3), complex=True, call=factor_of_square, reference=factor_of_square),
    Sample("lobpcg", constant(DEFINITE), 1, note="largest", call=lambda L, A, k: L.lobpcg(A, k)[0], reference=False),
    Sample("lobpcg", constant(DEFINITE), constant(DEFINITE[::-1]), note="generalised", reference=False,
           call=lambda L, A, B: L.lobpcg(A, 1, B @ B.mT, largest=False)[0]),
    Sample("orgqr", normal(4, 3), normal(3)),
]  # fmt: skip
