"""Attention in one step: softmax(query @ key^T * scale) @ value, which keeps no scores for the backward pass.

On the CPU a block of scores at a time is computed, and is gone before the next one; the backward pass computes them
anew, from the logarithms of the sums of exponentials, one for each query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import arranged
from undertow.backend.threads import kernel_threads
from undertow.ops.declare import Joint, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

#: scores that are computed at a time
BLOCK = 65536


def turned(xp: Namespace, x: Array) -> Array:
    return xp.swapaxes(x, -1, -2)


# ---- blocks of scores, on the CPU


def _has_blocks(xp: Namespace, *arrays: Any) -> bool:
    return xp is cpu and all(x.dtype in (dtypes.float32, dtypes.float64) and x.size for x in arrays)


def blocks(heads: int, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and rows: whole heads if they are small, for all threads at once, else some rows of one."""
    if rows * columns <= BLOCK:
        step = BLOCK * kernel_threads() // (rows * columns)
        for start in range(0, heads, step):
            yield slice(start, min(start + step, heads)), slice(0, rows)
        return
    step = max(16, BLOCK // columns)
    for head in range(heads):
        for start in range(0, rows, step):
            yield slice(head, head + 1), slice(start, min(start + step, rows))


def _stacks(*arrays: Any) -> list[Any]:
    """The leading dimensions as one."""
    return [x.reshape(-1, *x.shape[-2:]) for x in arrays]


def _seen_by(part: slice, columns: int, is_causal: bool) -> slice:
    """The columns that some of these rows see."""
    return slice(0, min(columns, part.stop) if is_causal else columns)


def _softmax_in_place(scores: Array, scale: float, first: int) -> Array:
    """The scores become their softmax; returns log(sum(exp)) of the rows. Row k sees first + k, if that is no -1."""
    found = kernels.softmax_scores(cpu, scores, scale, first)
    if found is not None:
        return found
    _hide_later(scores, scale, first)
    most = _largest_score(cpu, scores)
    scores -= most
    cpu.exp(scores, out=scores)
    total = _total_weight(cpu, scores)
    scores /= total
    return (most + cpu.log(total))[..., 0]


def _largest_score(xp: Namespace, scores: Array) -> Array:
    """Of each row, or 0 if all are -inf: such a query sees nothing, and its weights are zeros."""
    most = xp.max(scores, axis=-1, keepdims=True)
    return xp.where(most == -math.inf, most.dtype.type(0), most)


def _total_weight(xp: Namespace, weights: Array) -> Array:
    """What to divide each row by, so that its sum is 1; a row of zeros stays one."""
    total = xp.sum(weights, axis=-1, keepdims=True)
    return xp.where(xp.equal(total, 0), xp.ones_like(total), total)


def _hide_later(scores: Array, scale: float, first: int) -> None:
    """Multiply by scale; what rows do not see becomes -inf."""
    scores *= scale
    if first >= 0:
        rows, columns = scores.shape[-2:]
        scores[..., ~cpu.tri(rows, columns, first, dtype=dtypes.bool_)] = -math.inf


def _weigh_in_place(scores: Array, scale: float, first: int, logs: Array) -> None:
    """The scores become their softmax, when the logarithms are known."""
    if kernels.weigh_scores(cpu, scores, scale, first, logs) is None:
        _hide_later(scores, scale, first)
        scores -= logs[..., None]
        cpu.exp(scores, out=scores)


def _slope_in_place(slopes: Array, scale: float, weights: Array) -> None:
    """Gradients of weights become those of scores."""
    if kernels.slope_scores(cpu, slopes, scale, weights) is None:
        slopes -= (slopes * weights).sum(-1, keepdims=True)
        slopes *= weights
        slopes *= scale


def _attend(q: Array, k: Array, v: Array, scale: float, first: int) -> tuple[Any, Any]:
    """The result of a block, and the logarithms."""
    scores = cpu.matmul(q, k.swapaxes(-1, -2))
    logs = _softmax_in_place(scores, scale, first)
    return cpu.matmul(scores, v), logs


def _block_gradients(
    g: Array, needs: Sequence[bool], q: Array, k: Array, v: Array, logs: Array, scale: float, first: int
) -> list[Any]:
    """The weights once more, exp(scores - logs), without the maximum: logs are known, so none can overflow."""
    weights = cpu.matmul(q, k.swapaxes(-1, -2))
    _weigh_in_place(weights, scale, first, logs)
    of_v = cpu.matmul(weights.swapaxes(-1, -2), g) if needs[2] else None
    if not (needs[0] or needs[1]):
        return [None, None, of_v]
    slopes = cpu.matmul(g, v.swapaxes(-1, -2))
    _slope_in_place(slopes, scale, weights)
    of_q = cpu.matmul(slopes, k) if needs[0] else None
    return [of_q, cpu.matmul(slopes.swapaxes(-1, -2), q) if needs[1] else None, of_v]


def _is_small(query: Array, key: Array) -> bool:
    of_head = query.shape[-2] * key.shape[-2]
    return bool(query.size // query.shape[-1] * key.shape[-2] <= BLOCK * (kernel_threads() if of_head <= BLOCK else 1))


def _by_blocks(query: Array, key: Array, value: Array, is_causal: bool, scale: float) -> tuple[Any, Any]:
    if _is_small(query, key):
        return _attend(query, key, value, scale, 0 if is_causal else -1)
    q, k, v = _stacks(query, key, value)
    out, logs = cpu.empty((*query.shape[:-1], value.shape[-1]), query.dtype), cpu.empty(query.shape[:-1], query.dtype)
    (to,), log_rows = _stacks(out), logs.reshape(q.shape[:2])
    for heads, part in blocks(len(q), q.shape[1], k.shape[1]):
        seen = _seen_by(part, k.shape[1], is_causal)
        first = part.start if is_causal else -1
        to[heads, part], log_rows[heads, part] = _attend(q[heads, part], k[heads, seen], v[heads, seen], scale, first)
    return out, logs


def _gradients_by_blocks(
    g: Array,
    needs: Sequence[bool],
    query: Array,
    key: Array,
    value: Array,
    logsumexp: Array,
    is_causal: bool,
    scale: float,
) -> list[Any]:
    if _is_small(query, key):
        return _block_gradients(g, needs, query, key, value, logsumexp, scale, 0 if is_causal else -1)
    found = [cpu.zeros(x.shape, x.dtype) if n else None for x, n in zip((query, key, value), needs, strict=True)]
    into: list[Any] = [None if x is None else _stacks(x)[0] for x in found]
    q, k, v, g = _stacks(query, key, value, g)
    logs = logsumexp.reshape(q.shape[:2])
    for heads, part in blocks(len(q), q.shape[1], k.shape[1]):
        seen = _seen_by(part, k.shape[1], is_causal)
        first = part.start if is_causal else -1
        more = _block_gradients(
            g[heads, part], needs, q[heads, part], k[heads, seen], v[heads, seen], logs[heads, part], scale, first
        )
        for place, rows, x in zip(into, (part, seen, seen), more, strict=True):
            if x is not None:
                place[heads, rows] += x
    return found


# ---- the operation


def _attention_forward(
    xp: Namespace, query: Array, key: Array, value: Array, is_causal: bool, scale: float
) -> tuple[Array, Array]:
    """The result, and log(sum(exp(scores))) for every query."""
    if _has_blocks(xp, query, key, value):
        out, logs = _by_blocks(query, key, value, is_causal, scale)
        return arranged("attention", (query, key, value), out), logs
    found: Any = None if xp is cpu else kernels.attention(xp, query, key, value, is_causal, scale)
    if found is not None:
        return found
    scores = xp.matmul(query * scale, turned(xp, key))
    if is_causal:
        scores = xp.where(xp.tril(xp.ones(scores.shape[-2:], dtypes.bool_)), scores, -math.inf)
    most = _largest_score(xp, scores)
    weights = xp.exp(scores - most)
    total = _total_weight(xp, weights)
    out = arranged("attention", (query, key, value), xp.matmul(weights / total, value))
    return out, xp.squeeze(most + xp.log(total), -1)


def _attention_weights(
    xp: Namespace, query: Array, key: Array, logsumexp: Array, is_causal: bool, scale: float
) -> Array:
    """The softmax of the scores, in a form that has derivatives."""
    scores = xp.matmul(query * scale, turned(xp, key))
    if not is_causal:
        return xp._safe_softmax(scores, -1)
    # the logarithms keep the exponentials small, but count as constants: hence the quotient, although the sums are 1
    seen = xp.tril(xp.exp(xp.tril(scores - xp.reshape(logsumexp, (*logsumexp.shape, 1)))))
    return seen / _total_weight(xp, seen)


def _attention_gradients(
    xp: Namespace,
    g: Array,
    needs: tuple[bool, bool, bool],
    query: Array,
    key: Array,
    value: Array,
    result: Array,
    logsumexp: Array,
    is_causal: bool,
    scale: float,
) -> list[Array | None]:
    if _has_blocks(xp, query, key, value, g):
        return _gradients_by_blocks(g, needs, query, key, value, logsumexp, is_causal, scale)
    found: Any = None
    if xp is not cpu and xp is not recorded:
        found = kernels.attention_gradients(xp, g, needs, query, key, value, result, logsumexp, is_causal, scale)
    if found is not None:
        return found
    weights = _attention_weights(xp, query, key, logsumexp, is_causal, scale)
    slopes = _of_scores(xp, xp.matmul(g, turned(xp, value)), weights) * scale
    return [xp.matmul(slopes, key), xp.matmul(turned(xp, slopes), query), xp.matmul(turned(xp, weights), g)]


def _of_scores(xp: Namespace, slopes: Array, weights: Array) -> Array:
    """The gradient of the scores from that of the weights: each row of weights has the sum 1, whatever changes."""
    return weights * (slopes - xp.sum(slopes * weights, axis=-1, keepdims=True))


def _attention_tangent(
    xp: Namespace,
    tangents: Any,
    query: Array,
    key: Array,
    value: Array,
    logsumexp: Array,
    is_causal: bool,
    scale: float,
) -> Array:
    weights, total, scores = _attention_weights(xp, query, key, logsumexp, is_causal, scale), None, None
    if "query" in tangents:
        scores = xp.matmul(tangents["query"] * scale, turned(xp, key))
    if "key" in tangents:
        scores = xp.matmul(query * scale, turned(xp, tangents["key"])) + (0 if scores is None else scores)
    if scores is not None:
        total = xp.matmul(_of_scores(xp, scores, weights), value)
    if "value" in tangents:
        total = xp.matmul(weights, tangents["value"]) + (0 if total is None else total)
    return total


def _batch_attention(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    size = batch_size(args, in_dims)
    stacked = [expanded(x, dim, size) for x, dim in zip(args[:3], in_dims[:3], strict=True)]
    return op(*stacked, *args[3:]), 0


fused_attention = primitive(
    "_fused_attention",
    forward=_attention_forward,
    vjp=Joint(("query", "key", "value"), _attention_gradients),
    jvp=_attention_tangent,
    batch=_batch_attention,
    node="ScaledDotProductFlashAttentionForCpuBackward0",
    outputs=("result", "logsumexp"),
    nondifferentiable=("logsumexp",),
    exact=("logsumexp",),
    autocast="lower",
    order="as_computed",
)


def is_plain_attention(query: Array, key: Array, value: Array) -> bool:
    """Whether fused_attention serves: stacks of matrices that agree in everything, of floating point, none empty."""
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    return (
        len(q) >= 2
        and q[:-2] == k[:-2] == v[:-2]
        and q[-1] == k[-1]
        and k[-2] == v[-2]
        and 0 not in q + k + v
        and dtypes.is_floating(query.dtype)
        and query.dtype == key.dtype == value.dtype
    )
