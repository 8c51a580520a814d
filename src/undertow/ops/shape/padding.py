"""More room around a tensor: filled with a value, or with the tensor's own elements.

The modes reflect, replicate and circular differ only in which element a place outside takes its value from.
A negative padding crops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.sizes import ints
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.views.dimensions import at


def _by_dim(pad: Sequence[int], ndim: int) -> list[tuple[int, int, int]]:
    """(dim, before, after) for each padded dimension; `pad` starts with the last one."""
    return [(ndim - 1 - k, pad[2 * k], pad[2 * k + 1]) for k in range(len(pad) // 2)]


def _check_pad(pad: Sequence[int], ndim: int) -> None:
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {len(pad)}")
    if len(pad) > 2 * ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding "
            f"length {len(pad)} and input of dimension {ndim}"
        )


# ---- a constant


def _pad_constant(xp: Namespace, input: Array, pad: tuple[int, ...], value: Any = 0) -> Array:
    _check_pad(pad, input.ndim)
    shape, inner, kept = list(input.shape), [slice(None)] * input.ndim, [slice(None)] * input.ndim
    for dim, before, after in _by_dim(pad, input.ndim):
        length = input.shape[dim]
        shape[dim] = length + before + after
        if shape[dim] < 0 or max(-before, 0) + max(-after, 0) > length:
            raise RuntimeError(
                f"The input size {length}, plus negative padding {before} and {after} resulted in a "
                "negative output size, which is invalid: narrow(): length must be non-negative. Check "
                f"dimension {dim} of your input."
            )
        inner[dim] = slice(max(before, 0), shape[dim] - max(after, 0))
        kept[dim] = slice(max(-before, 0), length - max(-after, 0))
    out = xp.full(shape, value, input.dtype)
    out[tuple(inner)] = input[tuple(kept)]
    return out


constant_pad_nd = primitive(
    "constant_pad_nd",
    forward=_pad_constant,
    vjp={"input": lambda xp, g, pad: xp.constant_pad_nd(g, tuple([-n for n in pad]), 0)},
    jvp={"input": lambda xp, t, pad: xp.constant_pad_nd(t, pad, 0)},
    batch=shifted(),
    order="channels",
)


# ---- the tensor's own elements


# the element of `length` ones that is shown at `place`, when `kept` of them are not cropped


def reflect(place: int, length: int, kept: range) -> int:
    return -place if place < 0 else (2 * (length - 1) - place if place >= length else place)


def replicate(place: int, length: int, kept: range) -> int:
    return min(max(place, 0), length - 1)


def circular(place: int, length: int, kept: range) -> int:
    return kept[(place - kept.start) % len(kept)]


def _uncropped(length: int, before: int, after: int) -> range:
    return range(max(-before, 0), length - max(-after, 0))


MODES: dict[str, Callable[[int, int, range], int]] = {
    "reflect": reflect,
    "replicate": replicate,
    "circular": circular,
}


@lru_cache(256)
def sources(mode: str, length: int, before: int, after: int, places: range | None = None) -> tuple[int, ...]:
    """For each place along the padded dimension, or for some, counted from its beginning: the element it shows."""
    kept = _uncropped(length, before, after)
    places = range(before + length + after) if places is None else places
    return tuple([MODES[mode](place - before, length, kept) for place in places])


@lru_cache(256)
def _run(elements: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The first, the last and the step of elements at equal distances; None if there is more or less to say."""
    step = elements[1] - elements[0] if len(elements) > 1 else 1
    equal = len(elements) > 0 and all([b - a == step for a, b in pairwise(elements)])
    return (min(elements), max(elements), step) if equal else None


def _check_own(shape: tuple[int, ...], padding: Sequence[int], mode: str) -> None:
    _check_pad(padding, len(shape))
    for dim, before, after in _by_dim(padding, len(shape)):
        length = shape[dim]
        if mode == "reflect" and max(before, after) >= length:
            raise RuntimeError(
                "Padding size should be less than the corresponding input dimension, but got: padding "
                f"({before}, {after}) at dimension {dim} of input {list(shape)}"
            )
        kept = _uncropped(length, before, after)
        if mode == "circular" and max(before, after) > len(kept) > 0:
            raise RuntimeError(
                "Padding value causes wrapping around more than once: padding "
                f"({before}, {after}) at dimension {dim} of input {list(shape)}"
            )
        repeats_ends = mode == "replicate" and length > 0 and length + before + after > 0
        if not kept and not repeats_ends:
            raise RuntimeError(
                f"Negative padding value is resulting in an empty dimension: padding ({before}, {after}) at "
                f"dimension {dim} of input {list(shape)}"
            )


def _pad_own(xp: Namespace, input: Array, padding: tuple[int, ...], mode: str) -> Array:
    _check_own(input.shape, padding, mode)
    if min(padding, default=0) >= 0:
        return _pad_around(xp, input, padding, mode)
    out = input
    for dim, before, after in _by_dim(padding, input.ndim):
        out = xp.take(out, xp.asarray(sources(mode, input.shape[dim], before, after)), axis=dim)
    return out.copy() if out is input else out


def _pad_around(xp: Namespace, input: Array, padding: tuple[int, ...], mode: str) -> Array:
    """The tensor itself in one step, and what lies around it, dimension by dimension."""
    shape, inside = list(input.shape), [slice(None)] * input.ndim
    for dim, before, after in _by_dim(padding, input.ndim):
        shape[dim] += before + after
        inside[dim] = slice(before, before + input.shape[dim])
    out = xp.empty(tuple(shape), input.dtype)
    out[tuple(inside)] = input
    for dim, before, after in _by_dim(padding, input.ndim):
        for edge in (range(before), range(shape[dim] - after, shape[dim])):
            if edge:
                shown = _shown(xp, out, dim, before, sources(mode, input.shape[dim], before, after, edge))
                out[at(dim, slice(edge.start, edge.stop))] = shown
    return out


def _shown(xp: Namespace, padded: Array, dim: int, before: int, elements: tuple[int, ...]) -> Array:
    """These elements of what is already in the middle."""
    run = _run(elements)
    if run is None or abs(run[2]) != 1:
        return xp.take(padded, xp.asarray(elements) + before, axis=dim)
    part = padded[at(dim, slice(before + run[0], before + run[1] + 1))]
    return part if run[2] == 1 else xp.flip(part, dim)


def _pad_own_gradient(
    xp: Namespace, grad: Array, input_sizes: tuple[int, ...], padding: tuple[int, ...], mode: str
) -> Array:
    for dim, before, after in _by_dim(padding, len(input_sizes)):
        length = input_sizes[dim]
        total = xp.zeros((*grad.shape[:dim], length, *grad.shape[dim + 1 :]), grad.dtype)
        # the tensor itself in one step, and the places on each side of it
        kept = _uncropped(length, before, after)
        inner = range(kept.start + before, kept.stop + before)
        edges = [range(grad.shape[dim])]
        if kept:
            total[at(dim, slice(kept.start, kept.stop))] = grad[at(dim, slice(inner.start, inner.stop))]
            edges = [range(inner.start), range(inner.stop, grad.shape[dim])]
        for edge in edges:
            _add_edge(xp, total, grad, dim, edge, sources(mode, length, before, after, edge))
        grad = total
    return grad


def _add_edge(xp: Namespace, total: Array, grad: Array, dim: int, places: range, shown: tuple[int, ...]) -> None:
    """Add the gradients of these places to those of the elements that are shown there."""
    run = _run(shown)
    if run is not None and abs(run[2]) == 1:
        part = grad[at(dim, slice(places.start, places.stop))]
        total[at(dim, slice(run[0], run[1] + 1))] += part if run[2] == 1 else xp.flip(part, dim)
        return
    for place, source in zip(places, shown, strict=True):
        total[at(dim, source)] += grad[at(dim, place)]


pad_backward = primitive(
    "pad_backward",
    forward=_pad_own_gradient,
    vjp={"grad": lambda xp, g, padding, mode: xp._pad_with_own(g, padding, mode)},
    jvp=LINEAR,
    batch=shifted(sizes=(1,)),
    variants="",
)

pad_with_own = primitive(
    "_pad_with_own",
    forward=_pad_own,
    vjp={"input": lambda xp, g, input_shape, padding, mode: xp.pad_backward(g, input_shape, padding, mode)},
    jvp=LINEAR,
    batch=shifted(),
    node="PadCircularBackward0",
)


def _own_padding(name: str, mode: str, dims: int) -> Any:
    """`reflection_pad2d` and the like, whose nodes carry these names."""
    return primitive(
        f"{name}_pad{dims}d",
        forward=lambda xp, input, padding: _pad_own(xp, input, padding, mode),
        vjp={"input": lambda xp, g, input_shape, padding: xp.pad_backward(g, input_shape, padding, mode)},
        jvp=LINEAR,
        batch=shifted(),
        node=f"{name.capitalize()}Pad{dims}DBackward0",
        variants="",
        order="channels",
        autocast=None if (name, dims) == ("reflection", 3) else "float32",  # PyTorch's list has all but this one
    )


PADDINGS = {
    (mode, dims): _own_padding(name, mode, dims)
    for mode, name in (("reflect", "reflection"), ("replicate", "replication"))
    for dims in (1, 2, 3)
}


@composite
def pad(input: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Array:
    """The tensor with `pad` = (before, after, ...) more elements around it; the last dimension comes first.

    mode    "constant" fills with `value` (0 by default); "reflect", "replicate" and "circular" with the
            tensor's own elements, in the last one to three dimensions of a batch (with or without channels)

    >>> import undertow as ut
    >>> ut.pad(ut.tensor([[1.0, 2.0, 3.0]]), (1, 2), mode="replicate")
    tensor([[1., 1., 2., 3., 3., 3.]])
    """
    amounts = ints((pad,))
    _check_pad(amounts, input.ndim)
    if mode == "constant":
        return constant_pad_nd(input, amounts, 0 if value is None else value)
    if mode not in MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    dims = len(amounts) // 2
    if dims not in (1, 2, 3) or input.ndim not in (dims + 1, dims + 2):
        raise NotImplementedError(
            f"Padding size {len(amounts)} is not supported for {input.ndim}D input tensor. Supported "
            "combinations for non-constant padding: 2D or 3D input with padding size 2, 3D or 4D input "
            "with padding size 4, 4D or 5D input with padding size 6"
        )
    if mode == "circular":
        return pad_with_own(input, amounts, mode)
    return PADDINGS[mode, dims](input, amounts)
