"""The messages in event files, in the encoding of protocol buffers: numbers of fields, each with a kind and a value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first.

    >>> varint(300)
    b'\\xac\\x02'
    """
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def double(field: int, number: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", number)


def single(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)


def content(field: int, value: bytes | str) -> bytes:
    """Text, bytes, or a message in a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def doubles(field: int, numbers: Sequence[float]) -> bytes:
    return content(field, struct.pack(f"<{len(numbers)}d", *numbers))


# ---- tensorboard's


def event(time: float, step: int | None = None, *, version: str = "", value: bytes = b"", graph: bytes = b"") -> bytes:
    """Event: its time, its step, and one of: the version of the file (the first event), values, a graph."""
    parts = [double(1, time)]
    if step is not None:
        parts.append(whole(2, step))
    if version:
        parts.append(content(3, version))
    if graph:
        parts.append(content(4, graph))
    if value:
        parts.append(content(5, content(1, value)))
    return b"".join(parts)


def scalar(tag: str, number: float) -> bytes:
    return content(1, tag) + single(2, number)


def image(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    picture = whole(1, height) + whole(2, width) + whole(3, channels) + content(4, png)
    return content(1, tag) + content(4, picture)


def histogram(tag: str, facts: Sequence[float], limits: Sequence[float], counts: Sequence[float]) -> bytes:
    """facts: least, greatest, number, sum, sum of squares; limits: where each bucket ends."""
    numbers = b"".join([double(k + 1, number) for k, number in enumerate(facts)])
    return content(1, tag) + content(5, numbers + doubles(6, limits) + doubles(7, counts))


STRING = 7  # the number of the type of texts


def text(tag: str, words: str) -> bytes:
    shape = content(2, content(2, whole(1, 1)))
    tensor = whole(1, STRING) + shape + content(8, words)
    plugin = content(1, content(1, "text"))
    return content(1, f"{tag}/text_summary") + content(8, tensor) + content(9, plugin)


def graph_of(nodes: Sequence[tuple[str, str, Sequence[str], Sequence[Any]]]) -> bytes:
    """GraphDef: nodes with a name (its parts divided by slashes), an operation, inputs and the shape of the output."""
    found = []
    for name, operation, inputs, shape in nodes:
        parts = [content(1, name), content(2, operation), *[content(3, each) for each in inputs]]
        dims = b"".join([content(2, whole(1, size)) for size in shape])
        # an entry of the map `attr`: its key, and its value, a list of one shape
        parts.append(content(5, content(1, "_output_shapes") + content(2, content(1, content(7, dims)))))
        found.append(content(1, b"".join(parts)))
    return b"".join(found) + content(4, whole(1, 22))
