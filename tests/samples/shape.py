"""Rows for joining, repeating and moving elements, diagonals, padding and casts."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, constant, integers, normal

x, y3, y4, scalar, vector = normal(3, 4), normal(2, 3, 4), normal(2, 2, 3, 4), normal(), normal(4)


def pad(torch: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.nn.functional.pad(*args, **kwargs)


def method(name: str) -> Any:
    return lambda torch, x, *args: getattr(x, name)(*args)


def aten(name: str) -> Any:
    return lambda torch, *args: getattr(torch.ops.aten, name)(*args)


JOINING = [
    Sample("cat", [x, normal(2, 4)], complex=True),
    Sample("cat", [y3, normal(2, 1, 4)], -2, note="negative"),
    Sample("cat", [x, normal(0), normal(1, 4)], note="empty_vector"),
    Sample("cat", [normal(0), normal(0)], note="nothing"),
    Sample("cat", [x, integers(1, 4)], note="promoted"),
    Sample("cat", [x, constant([[1 + 2j, 3j, 4, -1j]])], note="mixed"),
    Sample("cat", (x,), kwargs={"dim": 1}, note="keyword"),
    Sample("cat", [x, x], kwargs={"axis": 1}, note="axis"),
    Sample("concat", [x, x], 1, complex=True),
    Sample("concatenate", [x, x], 1, complex=True),
    Sample("stack", [x, x], complex=True),
    Sample("stack", [x, x, x], -1, note="last"),
    Sample("stack", [scalar, scalar], note="scalars"),
    Sample("stack", [vector, integers(4)], 1, note="promoted"),
    Sample("stack", [vector, constant([1 + 2j, 3j, 4, -1j])], note="mixed"),
    Sample("hstack", [x, normal(3, 1)], complex=True),
    Sample("hstack", [scalar, vector], note="vectors"),
    Sample("vstack", [x, vector], complex=True),
    Sample("row_stack", [normal(3), normal(2, 3)], reference=lambda torch, ts: torch.vstack(ts)),
    Sample("dstack", [x, x], complex=True),
    Sample("dstack", [vector, vector], note="vectors"),
    Sample("column_stack", [normal(3), x], complex=True),
    Sample("column_stack", [scalar, scalar], note="scalars"),
    Sample("block_diag", x, normal(2, 2), complex=True),
    Sample("block_diag", scalar, vector, x, note="lower"),
    Sample("meshgrid", vector, normal(3), complex=True, kwargs={"indexing": "ij"}),
    Sample("meshgrid", [vector, normal(3), scalar], note="xy", kwargs={"indexing": "xy"}),
    Sample("cartesian_prod", vector, normal(2), normal(3), complex=True),
    Sample("cartesian_prod", vector, note="one"),
    Sample("combinations", vector, complex=True),
    Sample("combinations", vector, 3, True, note="replaced"),
]

REPEATING = [
    Sample("repeat", x, 2, 1, 3, complex=True, reference=method("repeat")),
    Sample("repeat", x, (0, 2), note="none", reference=method("repeat")),
    Sample("repeat", scalar, 2, 3, note="scalar", reference=method("repeat")),
    Sample("repeat", x, kwargs={"repeats": (1, 2)}, note="keyword",
           reference=lambda torch, x, repeats: x.repeat(repeats)),
    Sample("tile", y3, (2, 3), complex=True),
    Sample("tile", vector, 2, 2, note="varargs", reference=method("tile")),
    Sample("repeat_interleave", x, 2, complex=True),
    Sample("repeat_interleave", x, 3, 1, note="dim"),
    Sample("repeat_interleave", x, constant([2, 0, 1]), 0, note="each"),
    Sample("repeat_interleave", x, constant(2), -1, note="tensor"),
    Sample("repeat_interleave", constant([2, 0, 3]), note="indices"),
]  # fmt: skip

MOVING = [
    Sample("flip", y3, (0, -1), complex=True),
    Sample("flip", y3, 1, note="varargs", reference=method("flip")),
    Sample("flip", scalar, (0,), note="scalar"),
    Sample("flip", x, (), note="nothing"),
    Sample("fliplr", x, complex=True),
    Sample("flipud", x, complex=True),
    Sample("roll", x, 2, complex=True),
    Sample("roll", y3, (1, -2), (0, -1), note="dims"),
    Sample("roll", y3, 5, 1, note="dim"),
    Sample("roll", y3, (1, 1), (2, 2), note="twice"),
    Sample("roll", scalar, 1, note="scalar"),
    Sample("rot90", x, complex=True),
    Sample("rot90", y3, 2, (-1, 0), note="twice"),
    Sample("rot90", y3, -1, [1, 2], note="back"),
    Sample("tril", x, complex=True),
    Sample("tril", y3, -1, note="below"),
    Sample("triu", x, complex=True),
    Sample("triu", y3, 1, note="above"),
    Sample("diag", vector, complex=True),
    Sample("diag", vector, -1, note="below"),
    Sample("diag", x, 1, note="of_matrix", complex=True),
    Sample("diagonal_copy", y3, -1, 2, 0, complex=True),
    Sample("diag_embed", x, complex=True),
    Sample("diag_embed", y3, 1, 0, 2, note="dims"),
    Sample("diag_embed", y3, -2, -1, 0, note="swapped"),
    Sample("diagflat", x, complex=True),
    Sample("diagflat", scalar, -2, note="scalar"),
]

PADDING = [
    Sample("pad", y3, (1, 2), reference=pad, complex=True),
    Sample("pad", y3, (1, 0, 2, 1, 0, 3), kwargs={"value": 1.5}, reference=pad, note="value"),
    Sample("pad", y3, (-1, 2, 1, -2), reference=pad, note="cropped"),
    Sample("pad", x, (1, 2), "reflect", reference=pad, complex=True),
    Sample("pad", y3, (2, 0, 1, 2), "reflect", reference=pad, note="plane"),
    Sample("pad", normal(2, 3, 2, 4), (1, 1, 0, 1, 2, 1), "reflect", reference=pad, note="space"),
    Sample("pad", x, (-1, 2), "reflect", reference=pad, note="reflect_cropped"),
    Sample("pad", x, (5, 2), "replicate", reference=pad, complex=True, note="replicate"),
    Sample("pad", y3, (2, 0, 1, 3), "replicate", reference=pad, note="replicate_plane"),
    Sample("pad", normal(2, 3, 2, 4), (1, 1, 0, 1, 2, 1), "replicate", reference=pad, note="replicate_space"),
    Sample("pad", x, (-1, 2), "replicate", reference=pad, note="replicate_cropped"),
    Sample("pad", x, (4, 2), "circular", reference=pad, complex=True, note="circular"),
    Sample("pad", y3, (2, 0, 1, 3), "circular", reference=pad, note="circular_plane"),
    Sample("pad", x, (-1, 2), "circular", reference=pad, note="circular_cropped"),
    Sample("constant_pad_nd", x, (1, 2, -1, 0), 2.0, complex=True),
    Sample("reflection_pad1d", x, (1, 2), reference=aten("reflection_pad1d"), complex=True),
    Sample("reflection_pad2d", y3, (1, 2, 0, 1), reference=aten("reflection_pad2d"), complex=True),
    Sample("reflection_pad3d", y4, (1, 2, 0, 1, 1, 0), reference=aten("reflection_pad3d"), complex=True),
    Sample("replication_pad1d", x, (1, 2), reference=aten("replication_pad1d"), complex=True),
    Sample("replication_pad2d", y3, (1, 2, 0, 1), reference=aten("replication_pad2d"), complex=True),
    Sample("replication_pad3d", y4, (1, 2, 0, 1, 1, 0), reference=aten("replication_pad3d"), complex=True),
    Sample("_pad_with_own", x, (2, 1), "circular",
           reference=lambda torch, x, p, mode: torch.nn.functional.pad(x, p, mode), complex=True),
    Sample("pad_backward", normal(3, 7), (3, 4), (2, 1), "reflect", complex=True,
           reference=lambda torch, g, sizes, p, mode: torch.ops.aten.reflection_pad1d_backward(
               g, torch.zeros(sizes, dtype=g.dtype), p)),
]  # fmt: skip

CASTS = [
    Sample("to_dtype", x, "complex128", note="to_complex", reference=lambda torch, x, d: x.to(torch.complex128)),
    Sample("to_dtype", x, "float64", note="same", reference=lambda torch, x, d: x.to(torch.float64)),
    Sample("to_dtype", x, "int64", note="to_integer", kink=True, reference=lambda torch, x, d: x.to(torch.int64)),
]

SAMPLES = [*JOINING, *REPEATING, *MOVING, *PADDING, *CASTS]
