"""How a tensor prints: PyTorch's form, character for character, with `undertow` in the place of `torch`.

Every number of a tensor is shown in one style, chosen from all the numbers that will be shown: as integers with a point
(`1.`), with a fixed number of digits (`1.0000`), or in scientific notation. Large tensors show only their corners.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.public_dtypes import PREFIX
from undertow.backend.sparse.coo import AnySparse
from undertow.scopes import Scope
from undertow.tensor.tensor import LEAF, Tensor, current_edge


class PrintOptions:
    def __init__(self) -> None:
        self.precision = 4
        self.threshold: float = 1000
        self.edgeitems = 3
        self.linewidth = 80
        self.sci_mode: bool | None = None


PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}

options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Choose how tensors print. `sci_mode` returns to automatic unless it is given, the others keep their value.

    precision  digits after the point
    threshold  number of elements above which only the corners are shown
    edgeitems  how many elements the corners have along each dimension
    linewidth  where lines are broken
    profile    "default", "short" or "full", under the values given beside it
    sci_mode   scientific notation: True always, False never, None when the numbers ask for it

    >>> import undertow as ut
    >>> ut.set_printoptions(precision=2)
    >>> ut.tensor([1.12345])
    tensor([1.12])
    >>> ut.set_printoptions(profile="default")
    """
    if profile is not None and profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    chosen = {**PROFILES.get(profile or "", {}), **{k: v for k, v in given.items() if v is not None}}
    for name, value in chosen.items():
        setattr(options, name, value)
    options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The current options, as a dict that `set_printoptions(**...)` takes.

    >>> import undertow as ut
    >>> ut.get_printoptions()["precision"]
    4
    """
    return dict(vars(options))


class _OptionsVariable:
    """The options as a variable; see scopes.py."""

    def get(self) -> dict[str, Any]:
        return get_printoptions()

    def set(self, chosen: dict[str, Any]) -> None:
        set_printoptions(**chosen)


class printoptions(Scope, ContextDecorator):
    """`set_printoptions` until the end of the block.

    **changes  the options of `set_printoptions`, by name

    >>> import undertow as ut
    >>> with ut.printoptions(precision=1):
    ...     print(ut.tensor([1 / 3]))
    tensor([0.3])
    """

    variable = _OptionsVariable()

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def inside(self, outer: dict[str, Any]) -> dict[str, Any]:
        return self.changes


# ---- one number


class Style:
    """How the numbers of one tensor (or of its real or imaginary parts) are written: right-aligned to one width."""

    def __init__(self, shown: Array, xp: Namespace) -> None:
        self.write: Callable[[Any], str] = str
        self.width = 1
        if dtypes.is_floating(shown.dtype):
            self.choose_for_floats(shown, xp)
        else:
            self.width = max([1, *map(len, map(str, shown.ravel().tolist()))])

    def choose_for_floats(self, shown: Array, xp: Namespace) -> None:
        # zeros and non-finite numbers have no say in the style, nor in the width
        values = shown[xp.isfinite(shown) & (shown != 0)].astype(dtypes.float64)
        self.write = write_integer
        if not values.size:
            return
        if options.sci_mode or (options.sci_mode is None and wants_scientific(xp.abs(values))):
            self.write = f"{{:.{options.precision}e}}".format
        elif not (values == xp.ceil(values)).all():
            self.write = f"{{:.{options.precision}f}}".format
        self.width = max(map(len, map(self.write, values.tolist())))

    def __call__(self, value: Any) -> str:
        return self.write(value).rjust(self.width)


def wants_scientific(magnitudes: Array) -> bool:
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high / low > 1000 or high > 1e8 or low < 1e-4


def write_integer(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


class ComplexStyle:
    """A real and an imaginary part, each in its own style."""

    def __init__(self, shown: Array, xp: Namespace) -> None:
        self.real, self.imag = Style(shown.real, xp), Style(shown.imag, xp)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip()
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag + "j"


# ---- the numbers of a tensor


def corners(array: Array, xp: Namespace) -> Array:
    """The elements that a summary shows."""
    edge = options.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * edge:
            ends = [*range(edge), *range(size - edge, size)]
            array = xp.take(array, xp.asarray(ends, dtype=dtypes.int64), axis=axis)
    return array


def write_array(array: Array, xp: Namespace, indent: int) -> str:
    """The brackets and numbers, when the first bracket stands `indent` columns from the left."""
    if not array.size:
        return "[]"
    summarize = array.size > options.threshold
    style = (ComplexStyle if array.dtype.kind == "c" else Style)(corners(array, xp) if summarize else array, xp)
    return write_nested(array, indent, summarize, style)


def write_nested(array: Array, indent: int, summarize: bool, style: Any) -> str:
    if array.ndim == 0:
        return str(style(array.item()))
    if array.ndim == 1:
        return write_row(array, indent, summarize, style)
    edge, size = options.edgeitems, array.shape[0]
    cut = summarize and size > 2 * edge
    shown = [*range(edge), *range(size - edge, size)] if cut else range(size)
    parts = [write_nested(array[i], indent + 1, summarize, style) for i in shown]
    if cut:
        parts.insert(edge, "...")
    between = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return f"[{between.join(parts)}]"


def write_row(row: Array, indent: int, summarize: bool, style: Any) -> str:
    edge = options.edgeitems
    if summarize and not edge:
        parts = ["..."]
    elif summarize and row.shape[0] > 2 * edge:
        parts = [*map(style, row[:edge].tolist()), " ...", *map(style, row[-edge:].tolist())]
    else:
        parts = [*map(style, row.tolist())]
    per_line = max(1, (options.linewidth - indent) // (style.width + 2))
    lines = [", ".join(parts[k : k + per_line]) for k in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# ---- the whole


def tensor_repr(tensor: Tensor, grad_fn: str | None = None, tangent: Array | None = None) -> str:
    """`repr(tensor)`. grad_fn: the name to show instead of the tensor's own; tangent: its forward gradient."""
    prefix = "tensor(" if type(tensor) is Tensor else f"{type(tensor).__name__}("
    if isinstance(tensor._array, AnySparse):
        text, notes = write_sparse(tensor, prefix), [*sparse_notes(tensor), *gradient_notes(tensor, grad_fn)]
    elif tensor._xp.device.type == "meta":
        text, notes = prefix + "...", [*meta_notes(tensor), *gradient_notes(tensor, grad_fn)]
    else:
        text = prefix + write_array(tensor._array, tensor._xp, len(prefix))
        notes = [*data_notes(tensor), *gradient_notes(tensor, grad_fn)]
    if tangent is not None:
        notes.append(f"tangent={tangent}")
    return add_notes(text, notes, len(prefix))


def write_sparse(tensor: Tensor, prefix: str) -> str:
    """The indices and values of a sparse tensor, each as a tensor of its own."""
    texts = []
    for name, array in tensor._array.parts():
        start = f"{name}=tensor("
        text = start + write_array(array, tensor._xp, len(prefix) + len(start))
        texts.append(text + (f", size={array.shape}" if not array.size else "") + ")")
    between = ",\n" + " " * len(prefix)
    if tensor._array.layout == "sparse_coo":  # PyTorch gives the size a line of its own, for this layout
        texts.append(f"{''.join([f'{note}, ' for note in device_note(tensor)])}size={tensor._array.shape}")
    return prefix + between.join(texts)


def sparse_notes(tensor: Tensor) -> Iterator[str]:
    array, default = tensor._array, dtypes.default_dtype()
    if array.layout != "sparse_coo":
        yield from device_note(tensor)
        yield f"size={array.shape}"
    yield f"nnz={array.nnz}"
    if array.dtype not in (default, dtypes.complex_of(default), dtypes.int64, dtypes.bool_):
        yield f"dtype={dtypes.public(array.dtype)}"
    yield f"layout={PREFIX[0]}.{array.layout}"


def device_note(tensor: Tensor) -> Iterator[str]:
    if tensor._xp.device.type != "cpu":
        yield f"device='{tensor._xp.device}'"


def meta_notes(tensor: Tensor) -> Iterator[str]:
    yield f"device='{tensor._xp.device}'"
    yield f"size={tensor._array.shape}"
    if tensor._array.dtype != dtypes.get_default_dtype():
        yield f"dtype=undertow.{tensor._array.dtype.name}"


def data_notes(tensor: Tensor) -> Iterator[str]:
    """What the numbers alone do not show: device, size, dtype."""
    array, default = tensor._array, dtypes.default_dtype()
    yield from device_note(tensor)
    if (array.size == 0 and array.ndim != 1) or (array.size and not options.edgeitems):
        yield f"size={array.shape}"
    evident = (default, dtypes.complex_of(default), dtypes.int64, dtypes.bool_) if array.size else (default,)
    if array.dtype not in evident:
        yield f"dtype={dtypes.public(array.dtype)}"


def gradient_notes(tensor: Tensor, grad_fn: str | None) -> Iterator[str]:
    if grad_fn is None:
        try:
            edge = current_edge(tensor)
        except RuntimeError:  # a view whose base was changed where autograd did not look: it has no history to show
            grad_fn = "Invalid"
        else:
            grad_fn = None if edge is None or edge is LEAF else type(edge[0]).__name__
            if edge is LEAF:
                yield "requires_grad=True"
    if grad_fn is not None:
        yield f"grad_fn=<{grad_fn}>"


def add_notes(text: str, notes: list[str], indent: int) -> str:
    """Append the notes, on a new line where the last one is full."""
    # two columns more than the line has: a quirk of the original, which decides where some lines break
    column = len(text) - text.rfind("\n") + 1
    for note in notes:
        if column + len(note) + 2 > options.linewidth:
            text += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            text += ", " + note
            column += len(note) + 2
    return text + ")"


def tensor_format(tensor: Tensor, spec: str) -> str:
    """`format(tensor, spec)`: of the number for a 0-d tensor, of the text (without spec) for any other."""
    if tensor._array.ndim == 0 and type(tensor) is Tensor:
        return format(tensor._array.item(), spec)
    if spec:
        raise TypeError(f"unsupported format string passed to {type(tensor).__name__}.__format__")
    return str(tensor)
