"""Convolutions by cuDNN: descriptors and algorithms, one set for each problem, kept until there are very many.

They are functions of cuDNN's older interface, which version 9 has. Where there is no cuDNN, or a problem is none
for it, convolution.py computes the same by kernels of ours.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, libraries
from undertow.backend.cuda.precision import switches
from undertow.backend.interface import Array

FORWARD, DATA, FILTER = range(3)
#: what an algorithm may use
MOST_WORKSPACE = 256 << 20
CROSS_CORRELATION, PLAIN_ORDER = 1, 0
#: math types: tensor cores where they serve, tf32 included; none of that
ANY_MATH, FULL_FLOAT32 = 0, 3


class Performance(ctypes.Structure):
    """cudnnConvolution...AlgoPerf_t."""

    _fields_ = [
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("math", ctypes.c_int), ("reserved", ctypes.c_int * 3),
    ]  # fmt: skip


#: plans that are kept; a program whose sizes never repeat would otherwise gather them for ever
MOST_PLANS = 4096


class Plan(NamedTuple):
    """What a call needs: the algorithm, four descriptors of these kinds, and how many bytes of memory it works with."""

    algorithm: int
    descriptors: tuple[int, int, int, int]
    workspace: int
    kinds: tuple[str, ...]


@functools.cache
def library() -> tuple[Any, int] | None:
    """cuDNN and its handle; None where there is none."""
    if device.is_emulated():
        return None
    try:
        path = libraries.find("cudnn")
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), device.extension().start_dnn(path)
    except (RuntimeError, OSError):
        return None


def version() -> int:
    """The version of cuDNN, which must be there."""
    found = library()
    assert found is not None
    found[0].cudnnGetVersion.restype = ctypes.c_size_t
    return int(found[0].cudnnGetVersion())


def number_of(dtype: np.dtype[Any]) -> int | None:
    """cuDNN's number of a dtype."""
    if dtypes.is_bfloat16(dtype):
        return 9
    return {dtypes.float32: 0, dtypes.float64: 1, dtypes.float16: 2}.get(dtype)


def _made(cudnn: Any, kind: str) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _check(getattr(cudnn, f"cudnnCreate{kind}Descriptor")(ctypes.byref(made)))
    return made


def _check(status: int) -> None:
    if status:
        raise LookupError(f"cuDNN has no such convolution: status {status}")


def _ints(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int * len(numbers))(*numbers)


def _tensor(cudnn: Any, shape: Sequence[int], number: int) -> ctypes.c_void_p:
    made = _made(cudnn, "Tensor")
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    _check(cudnn.cudnnSetTensorNdDescriptor(made, number, len(shape), _ints(shape), _ints(strides)))
    return made


def _filter(cudnn: Any, shape: Sequence[int], number: int) -> ctypes.c_void_p:
    made = _made(cudnn, "Filter")
    _check(cudnn.cudnnSetFilterNdDescriptor(made, number, PLAIN_ORDER, len(shape), _ints(shape)))
    return made


class Problem(NamedTuple):
    """One convolution, of x and weights to y: shapes, at least two dimensions of space, and the dtype's number."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    y: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    number: int
    math: int
    deterministic: bool
    benchmark: bool


_plans: dict[tuple[Problem, int], Plan | None] = {}


def plan(problem: Problem, which: int) -> Plan | None:
    """None: cuDNN cannot do it."""
    found, key = library(), (problem, which)
    if found is None:
        return None
    if key not in _plans:
        if len(_plans) >= MOST_PLANS:
            _forget_plans(found[0])
        try:
            _plans[key] = _planned(found[0], ctypes.c_void_p(found[1]), problem, which)
        except LookupError:
            _plans[key] = None
    return _plans[key]


def _forget_plans(cudnn: Any) -> None:
    """Begin anew. What was sent is known by the addresses of descriptors, which others will get: so it goes first."""
    device.extension().forget_graphs()
    for made in _plans.values():
        for kind, descriptor in () if made is None else zip(made.kinds, made.descriptors, strict=True):
            getattr(cudnn, f"cudnnDestroy{kind}Descriptor")(ctypes.c_void_p(descriptor))
    _plans.clear()


def _planned(cudnn: Any, handle: ctypes.c_void_p, problem: Problem, which: int) -> Plan:
    x, y = (_tensor(cudnn, shape, problem.number) for shape in (problem.x, problem.y))
    weight, convolution = _filter(cudnn, problem.weight, problem.number), _made(cudnn, "Convolution")
    computed = 1 if problem.number == 1 else 0
    sizes = [_ints(n) for n in (problem.padding, problem.stride, problem.dilation)]
    _check(cudnn.cudnnSetConvolutionNdDescriptor(convolution, len(problem.stride), *sizes, CROSS_CORRELATION, computed))
    _check(cudnn.cudnnSetConvolutionGroupCount(convolution, problem.groups))
    _check(cudnn.cudnnSetConvolutionMathType(convolution, problem.math))
    name, order, kinds = {
        FORWARD: ("Forward", (x, weight, convolution, y), ("Tensor", "Filter", "Convolution", "Tensor")),
        DATA: ("BackwardData", (weight, y, convolution, x), ("Filter", "Tensor", "Convolution", "Tensor")),
        FILTER: ("BackwardFilter", (x, y, convolution, weight), ("Tensor", "Tensor", "Convolution", "Filter")),
    }[which]
    count, results = ctypes.c_int(), (Performance * 8)()
    find = f"cudnnFindConvolution{name}Algorithm" if problem.benchmark else f"cudnnGetConvolution{name}Algorithm_v7"
    _check(getattr(cudnn, find)(handle, *order, 8, ctypes.byref(count), results))
    for found in results[: count.value]:
        if found.status == 0 and found.memory <= MOST_WORKSPACE and (found.determinism or not problem.deterministic):
            chosen = found.math if problem.math == ANY_MATH else problem.math
            _check(cudnn.cudnnSetConvolutionMathType(convolution, chosen))
            first, second, third, fourth = (int(d.value or 0) for d in order)
            return Plan(found.algorithm, (first, second, third, fourth), int(found.memory), kinds)
    raise LookupError("no algorithm of cuDNN does it in so much memory")


def spread(sizes: Sequence[int], missing: int) -> tuple[int, ...]:
    """At least two dimensions of space: a missing one is the first."""
    return tuple([missing] * (2 - len(sizes)) + [int(n) for n in sizes])


@functools.lru_cache(maxsize=MOST_PLANS)
def in_space(
    x: tuple[int, ...], weight: tuple[int, ...], y: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Any:  # fmt: skip
    """The sizes of a problem, with at least two dimensions of space."""
    shapes = [(*shape[:2], *spread(shape[2:], 1)) for shape in (x, weight, y)]
    return (*shapes, spread(stride, 1), spread(padding, 0), spread(dilation, 1))


def run(
    which: int, x: Sequence[int], weight: Sequence[int], y: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, a: Array, b: Array, out: Callable[[], Array],
) -> Any:  # fmt: skip
    """One of the three convolutions of a problem, on arrays a and b; None where cuDNN does not serve."""
    number = number_of(a.dtype)
    if number is None or library() is None or not math.prod(y) or not math.prod(x):
        return None
    shapes = in_space(tuple(x), tuple(weight), tuple(y), tuple(stride), tuple(padding), tuple(dilation))
    precision = ANY_MATH if switches.convolution_tf32 or number else FULL_FLOAT32
    problem = Problem._make((*shapes, groups, number, precision, switches.deterministic, switches.benchmark))
    found = plan(problem, which)
    if found is None:
        return None
    result = out()
    extension = device.extension()
    workspace = extension.empty((found.workspace,), np.dtype(np.uint8)) if found.workspace else None
    extension.convolution(which, found.algorithm, number == 1, *found.descriptors, a, b, result, workspace)
    return result
