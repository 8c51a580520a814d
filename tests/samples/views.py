"""Rows for views: extent, order, parts, several outputs, sizes, strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Array, Sample, normal
from undertow.ops.views.as_strided import Geometry


def strided(ut: Any, x: Any, *args: Any) -> Any:
    """as_strided of row-major memory, whatever the layout of the row's input."""
    return ut.ops.as_strided(ut.ops.clone(x, memory_format=ut.contiguous_format), *args)


def transposed_strided(ut: Any, x: Any, *args: Any) -> Any:
    return ut.ops.as_strided(ut.ops.t(ut.ops.clone(x, memory_format=ut.contiguous_format)), *args)


def expanded_strided(ut: Any, x: Any, *args: Any) -> Any:
    return ut.ops.as_strided(ut.ops.expand(ut.ops.clone(x, memory_format=ut.contiguous_format), 3, 4), *args)


def offset_strided(ut: Any, x: Any, *args: Any) -> Any:
    return ut.ops.as_strided(ut.ops.select(ut.ops.clone(x, memory_format=ut.contiguous_format), 0, 1), *args)


def method(name: str) -> Any:
    """Torch's method of that name, or its property."""

    def call(torch: Any, x: Any, *args: Any) -> Any:
        found = getattr(x, name)
        return found(*args) if callable(found) and not isinstance(found, torch.Tensor) else found

    return call


def aten(name: str) -> Any:
    return lambda torch, *args: getattr(torch.ops.aten, name)(*args)


def dimension(*dims: int) -> dict[str, Any]:
    return {"dim": dims[0] if len(dims) == 1 else dims}


x, y3, scalar, empty = normal(3, 4), normal(2, 3, 4), normal(), normal(0, 3)
ones = normal(1, 3, 1)

EXTENT = [
    Sample("broadcast_to", normal(3, 1), (2, 3, 4), complex=True),
    Sample("broadcast_to", x, (3, 4), note="same"),
    Sample("broadcast_to", scalar, (2, 3), note="scalar"),
    Sample("broadcast_to", normal(1, 3), (0, 3), note="empty"),
    Sample("expand", normal(3, 1), 2, -1, 4, complex=True, reference=method("expand")),
    Sample("expand", normal(3, 1), (3, 4), note="tuple", reference=method("expand")),
    Sample("expand_as", normal(3, 1), x.without_gradient(), reference=method("expand_as"), complex=True),
    Sample("broadcast_tensors", normal(3, 1), normal(4), complex=True),
    Sample("alias", x, complex=True, reference=aten("alias")),
]

ORDER = [
    Sample("transpose", y3, 0, -1, complex=True),
    Sample("transpose", scalar, 0, -1, note="scalar"),
    Sample("swapaxes", y3, -1, 1, complex=True),
    Sample("swapdims", y3, 0, 1, complex=True),
    Sample("permute", y3, (2, 0, -2), complex=True),
    Sample("permute", y3, 1, 2, 0, note="varargs", reference=method("permute")),
    Sample("permute", y3, kwargs={"dims": (0, 2, 1)}, note="keyword"),
    Sample("permute", scalar, (), note="scalar"),
    Sample("movedim", y3, 0, -1, complex=True),
    Sample("movedim", y3, (0, 2), (1, 0), note="tuples"),
    Sample("moveaxis", y3, 2, 0, complex=True),
    Sample("t", x, complex=True),
    Sample("t", normal(3), note="vector"),
    Sample("t", scalar, note="scalar"),
    Sample("numpy_T", x, reference=method("T"), complex=True),
    Sample("matrix_transpose", y3, reference=method("mT"), complex=True),
    Sample("matrix_H", x, reference=method("H"), complex=True),
    Sample("adjoint", y3, complex=True),
    Sample("squeeze", ones, complex=True),
    Sample("squeeze", ones, 0, note="dim"),
    Sample("squeeze", ones, -2, note="nothing"),
    Sample("squeeze", ones, (0, -1), note="dims"),
    Sample("squeeze", ones, kwargs={"dim": 2}, note="keyword"),
    Sample("squeeze", scalar, 0, note="scalar"),
    Sample("unsqueeze", x, 1, complex=True),
    Sample("unsqueeze", x, -1, note="behind"),
    Sample("unsqueeze", scalar, 0, note="scalar"),
    Sample("expand_dims", x, 1, reference=lambda torch, x, axis: torch.unsqueeze(x, axis), complex=True),
    Sample("expand_dims", x, (0, 2), note="several", reference=lambda torch, x, axis: x[None, :, None]),
]

PARTS = [
    Sample("select", y3, 1, 2, complex=True),
    Sample("select", y3, -1, -2, note="negative"),
    Sample("select", normal(3), 0, 1, note="to_scalar"),
    Sample("select_backward", normal(2, 4), (2, 3, 4), 1, -1, complex=True, reference=aten("select_backward")),
    Sample("slice", y3, 2, 1, 4, 2, complex=True, reference=aten("slice")),
    Sample("_reversed", y3, 1, complex=True, reference=False),
    Sample("_reversed", y3, -1, note="last", reference=False),
    Sample("slice", y3, -1, None, -1, note="open", reference=lambda torch, x, d, a, b: x[..., a:b]),
    Sample("slice", y3, 0, 5, 9, note="beyond", reference=aten("slice")),
    Sample(
        "slice_backward",
        normal(2, 3, 2),
        (2, 3, 4),
        2,
        1,
        4,
        2,
        complex=True,
        reference=aten("slice_backward"),
    ),
    Sample("narrow", y3, 1, 1, 2, complex=True),
    Sample("narrow", y3, -1, -3, 2, note="negative"),
    Sample("narrow", y3, 0, 2, 0, note="empty"),
    Sample("diagonal", x, complex=True),
    Sample("diagonal", y3, 1, 2, 0, note="offset"),
    Sample("diagonal", y3, -1, -1, 1, note="negative"),
    Sample("diagonal", x, 9, note="empty"),
    Sample(
        "diagonal_backward",
        normal(3, 2),
        (2, 3, 4),
        1,
        0,
        2,
        complex=True,
        reference=aten("diagonal_backward"),
    ),
    Sample("unfold", y3, 2, 3, 1, complex=True, reference=method("unfold")),
    Sample("unfold", y3, 1, 1, 2, note="apart", reference=method("unfold")),
    Sample("unfold", normal(7), -1, 3, 2, note="overlapping", reference=method("unfold")),
    Sample("unfold", scalar, 0, 1, 1, note="scalar", reference=method("unfold")),
    Sample("unfold", normal(3), 0, 0, 1, note="empty", reference=method("unfold")),
    Sample("unfold_backward", normal(2, 3, 3), (2, 7), 1, 3, 2, complex=True, reference=aten("unfold_backward")),
]

SEVERAL = [
    Sample("unbind", y3, complex=True),
    Sample("unbind", y3, -1, note="last"),
    Sample("unbind", y3, kwargs=dimension(1), note="keyword"),
    Sample("split", x, 2, complex=True),
    Sample("split", y3, 3, -1, note="last"),
    Sample("split", x, [1, 0, 2], note="list"),
    Sample("split", empty, 2, note="empty"),
    Sample("split_with_sizes", y3, [1, 2], 1, complex=True),
    Sample("chunk", normal(5, 2), 3, complex=True),
    Sample("chunk", y3, 2, -1, note="last"),
    Sample("chunk", empty, 2, note="empty"),
    Sample("unsafe_split", x, 2, complex=True),
    Sample("unsafe_split", y3, 3, -1, note="last"),
    Sample("unsafe_split_with_sizes", y3, [1, 2], 1, complex=True),
    Sample("unsafe_chunk", normal(5, 2), 3, 0, complex=True),
    Sample("tensor_split", normal(7, 2), 3, complex=True),
    Sample("tensor_split", y3, [1, 3], -1, note="indices"),
    Sample("tensor_split", y3, (2, 1, 9), 2, note="disorder"),
    Sample("hsplit", x, 2, complex=True),
    Sample("hsplit", normal(4), [1], note="vector"),
    Sample("vsplit", x, [2], complex=True),
    Sample("dsplit", y3, 2, complex=True),
]

SIZES = [
    Sample("view", x, 3, 2, -1, complex=True, reference=method("view")),
    Sample("view", x, (3, 1, 4), note="tuple", reference=method("view")),
    Sample("view", scalar, 1, 1, note="scalar", reference=method("view")),
    Sample("view", empty, 3, 0, note="empty", reference=method("view")),
    Sample(
        "view", x, note="dtype", kink=True,
        call=lambda ut, x: ut.ops.view(x, np.dtype(np.int64)),
        reference=lambda torch, x: x.view(torch.int64),
    ),
    Sample("view_as", x, normal(3, 4, 1).without_gradient(), reference=method("view_as"), complex=True),
    Sample("reshape", x, (2, -1), complex=True),
    Sample("reshape", x, 12, note="varargs", reference=method("reshape")),
    Sample("reshape", x, kwargs={"shape": (6, 2)}, note="keyword"),
    Sample("reshape", normal(1), (), note="to_scalar"),
    Sample("reshape", empty, (0, 5), note="empty"),
    Sample(
        "reshape", x, (2, 6), note="copy", complex=True,
        call=lambda ut, x, s: ut.ops.reshape(ut.ops.t(ut.ops.clone(x, memory_format=ut.contiguous_format)), s),
        reference=lambda torch, x, s: x.t().reshape(s),
    ),
    Sample("reshape_as", x, normal(6, 2).without_gradient(), reference=method("reshape_as"), complex=True),
    Sample("flatten", y3, complex=True),
    Sample("flatten", y3, 1, 2, note="some"),
    Sample("flatten", scalar, note="scalar"),
    Sample("unflatten", y3, 2, (2, -1), complex=True),
    Sample("ravel", y3, complex=True),
    Sample("atleast_1d", scalar, complex=True),
    Sample("atleast_2d", scalar, complex=True),
    Sample("atleast_2d", scalar, normal(3), x, note="several"),
    Sample("atleast_3d", normal(3), complex=True),
    Sample("atleast_3d", [scalar, x], note="list"),
    Sample("clone", x, complex=True),
    Sample("clone", scalar, note="scalar"),
    Sample("contiguous", x, reference=method("contiguous")),
    Sample(
        "contiguous", x, note="copy", complex=True,
        call=lambda ut, x: ut.ops.contiguous(ut.ops.t(ut.ops.clone(x, memory_format=ut.contiguous_format))),
        reference=lambda torch, x: x.t().contiguous(),
    ),
]  # fmt: skip


def strides(name: str, call: Any, view: Any, x: Array, *args: Any, **options: Any) -> Sample:
    return Sample(
        "as_strided",
        x,
        *args,
        note=name,
        call=call,
        reference=lambda torch, x, *a: view(x).as_strided(*a),
        **options,
    )


STRIDES = [
    strides("plain", strided, lambda x: x, x, (2, 3), (4, 1), complex=True),
    strides("offset", strided, lambda x: x, x, (2, 2), (3, 1), 2),
    strides("overlapping", strided, lambda x: x, x, (3, 4), (2, 1), complex=True),
    strides("repeated", strided, lambda x: x, x, (3, 2), (0, 5), 1),
    strides("scalar", strided, lambda x: x, x, (), (), 7),
    strides("empty", strided, lambda x: x, x, (0, 2), (9, 9)),
    strides("transposed", transposed_strided, lambda x: x.t(), x, (2, 3), (1, 2), 1),
    strides("expanded", expanded_strided, lambda x: x.expand(3, 4), normal(3, 1), (3, 2), (1, 0)),
    strides("part", offset_strided, lambda x: x[1], x, (3,), (1,)),
    strides("transposed_part", transposed_strided, lambda x: x.t(), x, (2, 2), (5, 2), 3),
    # PyTorch loses the gradient of what lies outside of the view; here it reaches the base
    Sample("as_strided", x, (3, 3), (2, 1), 3, note="outside", call=offset_strided, reference=False),
]

WIDE, WINDOWS = Geometry((3, 4), (4, 1), 0), Geometry((3, 4), (2, 1), 1)
SHOWN_TWICE = Geometry((3, 2), (1, 0), 0)

KERNELS = [
    Sample("as_strided_backward", x, WIDE, WINDOWS, complex=True, reference=False),
    Sample("as_strided_backward", normal(2), SHOWN_TWICE, Geometry((2,), (2,), 0), note="shared", reference=False),
    Sample("_clone_as", x, Geometry((3, 4), (1, 3), 0), complex=True, reference=lambda torch, x, layout: x.clone()),
    Sample("_clone_as", x, None, note="row_major", reference=lambda torch, x, layout: x.clone()),
    Sample("_as_strided_gather", x, WIDE, WINDOWS, complex=True, reference=False),
    Sample(
        "_as_strided_gather",
        normal(3, 2),
        SHOWN_TWICE,
        Geometry((2,), (2,), 0),
        note="shared",
        reference=False,
    ),
]

SAMPLES = [*EXTENT, *ORDER, *PARTS, *SEVERAL, *SIZES, *STRIDES, *KERNELS]
