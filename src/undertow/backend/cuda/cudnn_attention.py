"""Attention in half precision by cuDNN, one engine for the forward pass and one for the gradients.

Where cuDNN does not serve (sizes, layouts, no cuDNN), the kernels of flash.py do. Its gradients of queries are added up
in any order, so `backends.cudnn.deterministic` leaves them to flash.py, too.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import cudnn, device
from undertow.backend.cuda import cudnn_graph as of
from undertow.backend.cuda.cudnn_graph import Graph, Tensor, packed
from undertow.backend.cuda.precision import switches
from undertow.backend.interface import Array

#: sizes of heads and lengths that engines are made for
LARGEST_HEAD, TILE = 128, 64


class Layout(NamedTuple):
    """The shape of a (batches, heads, rows, columns), and its steps in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def turned(self) -> Layout:
        """The same memory with rows and columns exchanged."""
        (b, h, r, c), (x, y, z, w) = self
        return Layout((b, h, c, r), (x, y, w, z))


def layout_of(x: Array) -> Layout:
    return Layout(x.shape, tuple([stride // x.dtype.itemsize for stride in x.strides]))


class Problem(NamedTuple):
    """What an engine is made for: where queries, keys, values and results lie, and for gradients theirs."""

    arrays: tuple[Layout, ...]
    dtype: int
    is_causal: bool
    scale: float


class Found(NamedTuple):
    """An engine, the numbers of the tensors that it is given, in their order, and numbers that it reads."""

    plan: of.Plan
    tensors: tuple[int, ...]
    values: tuple[Tensor, ...]


def serves(query: Array, key: Array, is_causal: bool) -> bool:
    rows, columns, size = query.shape[2], key.shape[2], query.shape[3]
    return (
        size % 8 == 0
        and size <= LARGEST_HEAD
        and rows % TILE == columns % TILE == 0
        and (rows == columns or not is_causal)
        and query.shape[:2] == key.shape[:2]
        and cudnn.library() is not None
    )


def _graph() -> Graph:
    found = cudnn.library()
    assert found is not None
    return Graph(*found)


def _scores(graph: Graph, q: Tensor, k: Tensor, scale: Tensor) -> Tensor:
    return graph.pointwise(of.MUL, graph.product(q, k), scale)


def _hidden(graph: Graph, scores: Tensor, lowest: Tensor) -> Tensor:
    """Scores of which a row sees no column behind its own."""
    row = graph.pointwise(of.INDEX, scores, out=graph.between(scores.shape, of.INT32), axis=2)
    column = graph.pointwise(of.INDEX, scores, out=graph.between(scores.shape, of.INT32), axis=3)
    seen = graph.between(scores.shape, of.BOOLEAN)
    graph.pointwise(of.GREATER_OR_EQUAL, row, column, out=seen, computed=of.BOOLEAN)
    return graph.pointwise(of.SELECT, scores, lowest, seen)


def _numbers(graph: Graph, problem: Problem) -> tuple[Tensor, Tensor]:
    return graph.number(problem.scale), graph.number(-math.inf)


@functools.cache
def forward_engine(problem: Problem) -> Found | None:
    """None: cuDNN has none."""
    try:
        return _forward_engine(_graph(), problem)
    except LookupError:
        return None


def _forward_engine(graph: Graph, problem: Problem) -> Found:
    query, key, value, result = problem.arrays
    q, k, v = (graph.tensor(*x, problem.dtype) for x in (query, key.turned(), value))
    out, rows = graph.tensor(*result, problem.dtype), (*query.shape[:3], 1)
    logs = graph.tensor(rows, packed(rows), of.FLOAT)
    scale, lowest = _numbers(graph, problem)
    scores = _scores(graph, q, k, scale)
    if problem.is_causal:
        scores = _hidden(graph, scores, lowest)
    most = graph.reduced(of.MOST, scores)
    powers = graph.pointwise(of.EXP, graph.pointwise(of.SUB, scores, most))
    total = graph.reduced(of.SUM, powers)
    graph.pointwise(of.ADD, most, graph.pointwise(of.LOG, total), out=logs)
    weights = graph.pointwise(of.DIV, powers, total, out=graph.between(powers.shape, problem.dtype))
    graph.product(weights, v, out)
    values = (scale, lowest) if problem.is_causal else (scale,)
    return Found(graph.plan(), tuple([t.number for t in (q, k, v, out, logs, *values)]), values)


@functools.cache
def backward_engine(problem: Problem) -> Found | None:
    """None: cuDNN has none."""
    try:
        return _backward_engine(_graph(), problem)
    except LookupError:
        return None


def _backward_engine(graph: Graph, problem: Problem) -> Found:
    query, key, value, result, slope, *gradients = problem.arrays
    half = problem.dtype
    q, k, v = (graph.tensor(*x, half) for x in (query, key.turned(), value.turned()))
    out, g = graph.tensor(*result, half), graph.tensor(*slope, half)
    of_q, of_k, of_v = (graph.tensor(*x, half) for x in gradients)
    rows = (*query.shape[:3], 1)
    logs, shares = (graph.tensor(rows, packed(rows), of.FLOAT) for _ in range(2))
    sums = graph.tensor(query.shape, packed(query.shape), of.FLOAT)
    (scale, lowest), one = _numbers(graph, problem), graph.number(1.0)
    graph.pointwise(of.MUL, graph.reduced(of.SUM, graph.pointwise(of.MUL, g, out)), one, out=shares)
    scores = graph.pointwise(of.SUB, _scores(graph, q, k, scale), logs)
    if problem.is_causal:
        scores = _hidden(graph, scores, lowest)
    weights = graph.pointwise(of.EXP, scores)
    turned = Layout(weights.shape, packed(weights.shape)).turned()
    graph.product(graph.reshaped(weights, graph.between(turned.shape, half, turned.strides)), g, of_v)
    slopes = graph.pointwise(of.SUB, graph.product(g, v), shares)
    slopes = graph.pointwise(of.MUL, graph.pointwise(of.MUL, slopes, weights), scale)
    graph.product(graph.reshaped(slopes, graph.between(turned.shape, half, turned.strides)), q, of_k)
    keys = graph.reshaped(k, graph.between(key.shape, of.FLOAT, key.strides))
    graph.pointwise(of.IDENTITY, graph.product(slopes, keys, sums), out=of_q)
    values = (scale, one, lowest) if problem.is_causal else (scale, one)
    tensors = q, k, v, out, g, of_q, of_k, of_v, logs, shares, sums, *values
    return Found(graph.plan(), tuple([t.number for t in tensors]), values)


def _run(found: Found, *arrays: Array) -> None:
    extension = device.extension()
    size = found.plan.workspace
    workspace = extension.empty((size,), np.dtype(np.uint8)) if size else None
    addresses = [ctypes.addressof(t.value) for t in found.values]
    extension.execute_plan(found.plan.engine, found.tensors, (*arrays, *addresses), workspace)


def _problem(arrays: Sequence[Array], is_causal: bool, scale: float) -> Problem:
    number = cudnn.number_of(arrays[0].dtype)
    assert number is not None
    return Problem(tuple([layout_of(x) for x in arrays]), number, is_causal, float(scale))


def attention(q: Array, k: Array, v: Array, out: Array, logs: Array, is_causal: bool, scale: float) -> bool:
    """Write the result, and log(sum(exp(scores))) for every query; whether cuDNN does."""
    if not serves(q, k, is_causal):
        return False
    found = forward_engine(_problem((q, k, v, out), is_causal, scale))
    if found is None:
        return False
    _run(found, q, k, v, out, logs)
    return True


def gradients(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logs: Array,
    into: Sequence[Array],
    is_causal: bool,
    scale: float,
) -> bool:
    """Write the gradients of query, key and value; whether cuDNN does."""
    if switches.deterministic or not serves(q, k, is_causal):
        return False
    found = backward_engine(_problem((q, k, v, out, g, *into), is_causal, scale))
    if found is None:
        return False
    empty = device.extension().empty
    shares, sums = empty(q.shape[:3], dtypes.float32), empty(q.shape, dtypes.float32)
    _run(found, q, k, v, out, g, *into, logs, shares, sums)
    return True
