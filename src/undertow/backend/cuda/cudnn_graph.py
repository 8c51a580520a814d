"""cuDNN's graphs of operations: what becomes one kernel if cuDNN has an engine for the whole pattern.

A graph is made of descriptors, and an engine is found for it once for each problem; both are kept as long as the
process lives. Tensors between operations are virtual: they never lie in memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

FLOAT, HALF, INT32, BFLOAT16, BOOLEAN = 0, 2, 4, 9, 11

#: cuDNN's numbers of pointwise functions, and of reductions
ADD, MUL, DIV, SUB, EXP, LOG, IDENTITY = 0, 1, 6, 9, 13, 15, 21
GREATER_OR_EQUAL, INDEX, SELECT = 303, 501, 601
SUM, MOST = 0, 3


class Kind(NamedTuple):
    """A type of attributes: cuDNN's number, and that of C."""

    number: int
    of: Any


HANDLE, TYPE, TRUTH, LONG = (
    Kind(0, ctypes.c_void_p),
    Kind(1, ctypes.c_int),
    Kind(2, ctypes.c_bool),
    Kind(3, ctypes.c_int64),
)
REAL, POINTER, MODE = Kind(4, ctypes.c_float), Kind(6, ctypes.c_void_p), Kind(8, ctypes.c_int)
POINTWISE, DESCRIPTOR, REDUCTION = Kind(14, ctypes.c_int), Kind(15, ctypes.c_void_p), Kind(18, ctypes.c_int)


class Tensor(NamedTuple):
    """A tensor of a graph; `value` is the number that it is, if it is one, kept where cuDNN finds it."""

    descriptor: int
    number: int
    shape: tuple[int, ...]
    value: Any = None


class Plan(NamedTuple):
    """An engine for a graph, and how much memory it works with."""

    engine: int
    workspace: int


def packed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([math.prod(shape[d + 1 :]) for d in range(len(shape))])


class Graph:
    """Operations in their order. LookupError: cuDNN does not take one of them, or has no engine for all."""

    def __init__(self, library: Any, handle: int) -> None:
        self.library, self.handle = library, handle
        self.operations: list[int] = []
        self.tensors = 0

    # ---- descriptors

    def check(self, status: int) -> None:
        if status:
            raise LookupError(f"cuDNN refuses a graph: status {status}")

    def made(self, kind: int, *attributes: tuple[int, Kind, Sequence[Any]]) -> int:
        """A descriptor with these attributes."""
        found = self.unfinished(kind)
        for name, of, values in attributes:
            array = (of.of * len(values))(*values)
            count = ctypes.c_int64(len(values))
            self.check(self.library.cudnnBackendSetAttribute(ctypes.c_void_p(found), name, of.number, count, array))
        self.check(self.library.cudnnBackendFinalize(ctypes.c_void_p(found)))
        return found

    def unfinished(self, kind: int) -> int:
        found = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(found)))
        return found.value or 0

    # ---- tensors

    def tensor(self, shape: Sequence[int], strides: Sequence[int], dtype: int) -> Tensor:
        """A tensor in memory."""
        return self._tensor(shape, strides, dtype)

    def between(self, shape: Sequence[int], dtype: int = FLOAT, strides: Sequence[int] | None = None) -> Tensor:
        """A virtual tensor."""
        return self._tensor(shape, packed(shape) if strides is None else strides, dtype, (907, TRUTH, [True]))

    def number(self, value: float) -> Tensor:
        made = self._tensor((1,) * 4, (1,) * 4, FLOAT, (908, TRUTH, [True]))
        return made._replace(value=ctypes.c_float(value))

    def _tensor(self, shape: Sequence[int], strides: Sequence[int], dtype: int, *more: Any) -> Tensor:
        self.tensors += 1
        descriptor = self.made(
            17, (901, TYPE, [dtype]), (902, LONG, shape), (903, LONG, strides), (906, LONG, [self.tensors]),
            (900, LONG, [16]), *more,
        )  # fmt: skip
        return Tensor(descriptor, self.tensors, tuple(shape))

    # ---- operations

    def pointwise(
        self, function: int, x: Tensor, other: Tensor | None = None, third: Tensor | None = None,
        out: Tensor | None = None, computed: int = FLOAT, axis: int | None = None,
    ) -> Tensor:  # fmt: skip
        """A function of each element; the result is virtual unless it is given."""
        out = self.between(x.shape) if out is None else out
        along: list[Any] = [] if axis is None else [(9, LONG, [axis])]
        what = self.made(0, (0, POINTWISE, [function]), (1, TYPE, [computed]), *along)
        operands = zip((751, 752, 758), (x, other, third), strict=True)
        given = [(name, DESCRIPTOR, [t.descriptor]) for name, t in operands if t is not None]
        ones = [(name, REAL, [1.0]) for name in (754, 755)]
        self.operations.append(
            self.made(13, (750, DESCRIPTOR, [what]), *given, (753, DESCRIPTOR, [out.descriptor]), *ones)
        )
        return out

    def product(self, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        out = self.between((*a.shape[:-1], b.shape[-1])) if out is None else out
        what, parts = self.made(18, (1500, TYPE, [FLOAT])), zip((1520, 1521, 1522), (a, b, out), strict=True)
        given = [(name, DESCRIPTOR, [t.descriptor]) for name, t in parts]
        self.operations.append(self.made(19, *given, (1523, DESCRIPTOR, [what])))
        return out

    def reduced(self, function: int, x: Tensor) -> Tensor:
        """Along the last dimension."""
        out = self.between((*x.shape[:-1], 1))
        what = self.made(21, (1601, TYPE, [FLOAT]), (1600, REDUCTION, [function]))
        parts = [(1610, DESCRIPTOR, [x.descriptor]), (1611, DESCRIPTOR, [out.descriptor]), (1612, DESCRIPTOR, [what])]
        self.operations.append(self.made(22, *parts))
        return out

    def reshaped(self, x: Tensor, out: Tensor) -> Tensor:
        self.operations.append(self.made(31, (2200, DESCRIPTOR, [x.descriptor]), (2201, DESCRIPTOR, [out.descriptor])))
        return out

    # ---- engines

    def plan(self) -> Plan:
        """The first engine that cuDNN proposes and that takes the graph."""
        handle = (HANDLE, [self.handle])
        graph = self.made(15, (800, *handle), (801, DESCRIPTOR, self.operations))
        proposals = self.made(4, (201, DESCRIPTOR, [graph]), (200, MODE, [3]))
        engines = (ctypes.c_void_p * 8)(*[self.unfinished(3) for _ in range(8)])
        count = ctypes.c_int64()
        self.check(
            self.library.cudnnBackendGetAttribute(
                ctypes.c_void_p(proposals), 202, DESCRIPTOR.number, ctypes.c_int64(8), ctypes.byref(count), engines
            )
        )
        for engine in engines[: count.value]:
            try:
                found = self.made(5, (400, *handle), (401, DESCRIPTOR, [engine]))
                return Plan(found, self._workspace(found))
            except LookupError:
                continue
        raise LookupError("cuDNN has no engine for a graph")

    def _workspace(self, plan: int) -> int:
        size, count = ctypes.c_int64(), ctypes.c_int64()
        self.check(
            self.library.cudnnBackendGetAttribute(
                ctypes.c_void_p(plan), 402, LONG.number, ctypes.c_int64(1), ctypes.byref(count), ctypes.byref(size)
            )
        )
        return size.value
