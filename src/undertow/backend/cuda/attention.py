"""Attention a block of scores at a time: as many as stay in the device's cache between the product and the softmax.

Scores are float32 (or float64), whatever the dtype of queries and keys; weights have that dtype, for the next product.
The backward pass computes them anew, from the logarithms of the sums of exponentials. In half precision, rows of 16 to
128 numbers go to the kernels of flash.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from undertow.backend.cuda import device, flash
from undertow.backend.cuda.blocks import agree, exact, kernel, rows
from undertow.backend.interface import Array, DType

#: scores that are computed at a time
BLOCK = 1 << 24
#: the fewest rows of a part of causal heads: products of fewer take longer than what they save
LONG = 512

# a block for each row of a (heads, rows, columns); row k sees columns up to first + k, unless first is -1
WEIGH = r"""
struct P { S *weights; T *logs; const T *scores; i64 rows, columns, log_rows, from_row, first; double scale; };
KERNEL(weigh, P) { BEGIN
    const i64 head = blockIdx.x / p.rows, row = blockIdx.x - head * p.rows, from = (i64)blockIdx.x * p.columns;
    const i64 seen = p.first >= 0 && p.first + row + 1 < p.columns ? p.first + row + 1 : p.columns;
    const T *x = p.scores + from, scale = (T)p.scale, lowest = (T)float_of(0xff800000u);
    T most = lowest, sum = 0;
#if !ALONE
    if (p.columns <= 16 * blockDim.x) { // a thread keeps its part of the row
        T kept[16];
        for (int k = 0; k < 16; k++) {
            const i64 i = threadIdx.x + k * blockDim.x;
            kept[k] = i < seen ? x[i] * scale : lowest;
            most = Most()(most, kept[k]);
        }
        most = together(most, lowest, Most());
        for (int k = 0; k < 16; k++) { kept[k] = m_exp(kept[k] - most); sum += kept[k]; }
        sum = sum_of(sum);
        const T share = T(1) / sum;
        for (int k = 0; k < 16; k++) {
            const i64 i = threadIdx.x + k * blockDim.x;
            if (i < p.columns) put(p.weights + from, i, kept[k] * share);
        }
        if (threadIdx.x == 0) p.logs[head * p.log_rows + p.from_row + row] = most + m_log(sum);
        return;
    }
#endif
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) most = Most()(most, x[i] * scale);
    most = together(most, lowest, Most());
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) sum += m_exp(x[i] * scale - most);
    sum = sum_of(sum);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x)
        put(p.weights + from, i, i < seen ? m_exp(x[i] * scale - most) / sum : T(0));
    if (threadIdx.x == 0) p.logs[head * p.log_rows + p.from_row + row] = most + m_log(sum); }
"""

# the weights once more, and the gradients of scores from those of weights
SLOPES = r"""
struct P { S *weights, *slopes; const T *scores, *of_weights, *logs; i64 rows, columns, log_rows, from_row, first;
           double scale; };
KERNEL(slopes, P) { BEGIN
    const i64 head = blockIdx.x / p.rows, row = blockIdx.x - head * p.rows, from = (i64)blockIdx.x * p.columns;
    const i64 seen = p.first >= 0 && p.first + row + 1 < p.columns ? p.first + row + 1 : p.columns;
    const T *x = p.scores + from, *g = p.of_weights + from, scale = (T)p.scale;
    const T log = p.logs[head * p.log_rows + p.from_row + row];
    T sum = 0;
#if !ALONE
    if (p.columns <= 16 * blockDim.x) {
        T kept[16], slope[16];
        for (int k = 0; k < 16; k++) {
            const i64 i = threadIdx.x + k * blockDim.x;
            kept[k] = i < seen ? m_exp(x[i] * scale - log) : T(0);
            slope[k] = i < seen ? g[i] : T(0);
            sum += kept[k] * slope[k];
        }
        sum = sum_of(sum);
        for (int k = 0; k < 16; k++) {
            const i64 i = threadIdx.x + k * blockDim.x;
            if (i >= p.columns) break;
            put(p.weights + from, i, kept[k]);
            put(p.slopes + from, i, kept[k] * (slope[k] - sum) * scale);
        }
        return;
    }
#endif
    for (i64 i = threadIdx.x; i < seen; i += blockDim.x) sum += m_exp(x[i] * scale - log) * g[i];
    sum = sum_of(sum);
    for (i64 i = threadIdx.x; i < p.columns; i += blockDim.x) {
        const T weight = i < seen ? m_exp(x[i] * scale - log) : T(0), slope = g[i];
        put(p.weights + from, i, weight);
        put(p.slopes + from, i, i < seen ? weight * (slope - sum) * scale : T(0));
    } }
"""


def _stacks(*arrays: Array) -> list[Any]:
    """The leading dimensions as one."""
    return [rows(x).reshape(-1, *x.shape[-2:]) for x in arrays]


def _blocks(heads: int, count: int, columns: int, is_causal: bool) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and rows, the last first. Of long causal heads up to four parts: the first rows see few keys."""
    step = max(LONG, -(-count // 4)) if is_causal else count
    step = max(1, min(step, max(64, BLOCK // columns // 64 * 64)))
    many = max(1, min(BLOCK // (step * columns), 65535))
    for head in range(0, heads, many):
        for start in reversed(range(0, count, step)):
            yield slice(head, min(head + many, heads)), slice(start, min(start + step, count))


def _serves(*arrays: Array) -> bool:
    return agree(*arrays) and all([x.ndim >= 2 for x in arrays])


def _empty(shape: Sequence[int], dtype: DType) -> Any:
    return device.extension().empty(tuple(shape), dtype)


class Block:
    """Some heads and rows, and the keys that they see."""

    def __init__(self, heads: slice, part: slice, columns: int, is_causal: bool) -> None:
        self.heads, self.part = heads, part
        self.seen = slice(0, min(columns, part.stop) if is_causal else columns)
        self.first = part.start if is_causal else -1
        self.shape = heads.stop - heads.start, part.stop - part.start, self.seen.stop

    def sizes(self, log_rows: int) -> tuple[int, ...]:
        """What kernels are told: rows, columns, rows of the logarithms, the first of them, what the first row sees."""
        return self.shape[1], self.shape[2], log_rows, self.part.start, self.first

    def launch(self) -> tuple[int, int]:
        """Blocks of threads, and threads: each keeps 16 elements of a row, if rows are not very long."""
        return self.shape[0] * self.shape[1], max(32, min(512, 1 << (-(-self.shape[2] // 16) - 1).bit_length()))


def attention(query: Array, key: Array, value: Array, is_causal: bool, scale: float) -> Any:
    """The result, and log(sum(exp(scores))) for every query."""
    if not _serves(query, key, value):
        return None
    if flash.serves(query, key, value, scale):
        return flash.attention(query, key, value, is_causal, scale)
    q, k, v = _stacks(query, key, value)
    multiply, sums = device.extension().multiply_into, exact(query.dtype)
    out, logs = _empty((*query.shape[:-1], value.shape[-1]), query.dtype), _empty(query.shape[:-1], sums)
    to = out.reshape(-1, *out.shape[-2:])
    log_rows = logs.reshape(q.shape[:2])
    for heads, part in _blocks(len(q), q.shape[1], k.shape[1], is_causal):
        block = Block(heads, part, k.shape[1], is_causal)
        scores = _empty(block.shape, sums)
        weights = scores if query.dtype == sums else _empty(block.shape, query.dtype)
        multiply(q[heads, part], k[heads, block.seen].swapaxes(1, 2), scores, False)
        kernel("weigh", WEIGH, query.dtype)(
            *block.launch(), weights, log_rows[heads], scores, *block.sizes(q.shape[1]), float(scale)
        )
        multiply(weights, v[heads, block.seen], to[heads, part], False)
    return out, logs


def attention_gradients(
    g: Array,
    needs: Sequence[bool],
    query: Array,
    key: Array,
    value: Array,
    result: Array,
    logs: Array,
    is_causal: bool,
    scale: float,
) -> Any:
    """The gradients of query, key and value."""
    sums = exact(query.dtype)
    if not _serves(query, key, value, g) or logs.dtype != sums:
        return None
    if flash.serves(query, key, value, scale, g, result):
        found = flash.gradients(g, query, key, value, result, logs, is_causal, scale)
        return [x if needed else None for x, needed in zip(found, needs, strict=True)]
    q, k, v, g = _stacks(query, key, value, g)
    multiply, log_rows = device.extension().multiply_into, rows(logs).reshape(q.shape[:2])
    of_q, of_k, of_v = _empty(q.shape, q.dtype), *[_empty(x.shape, sums) for x in (k, v)]
    see_all = not is_causal or q.shape[1] >= k.shape[1]  # the last rows, with which sums begin
    if not see_all:
        of_k, of_v = [device.extension().zero(x) for x in (of_k, of_v)]
    for heads, part in _blocks(len(q), q.shape[1], k.shape[1], is_causal):
        block = Block(heads, part, k.shape[1], is_causal)
        seen = block.seen
        scores, of_weights = _empty(block.shape, sums), _empty(block.shape, sums)
        multiply(q[heads, part], k[heads, seen].swapaxes(1, 2), scores, False)
        multiply(g[heads, part], v[heads, seen].swapaxes(1, 2), of_weights, False)
        weights, slopes = scores, of_weights  # each element is read before it is written, by the thread that does both
        if q.dtype != sums:
            weights, slopes = _empty(block.shape, q.dtype), _empty(block.shape, q.dtype)
        adds = not see_all or part.stop < q.shape[1]
        kernel("slopes", SLOPES, q.dtype)(
            *block.launch(),
            weights,
            slopes,
            scores,
            of_weights,
            log_rows[heads],
            *block.sizes(q.shape[1]),
            float(scale),
        )
        multiply(slopes, k[heads, seen], of_q[heads, part], False)
        multiply(slopes.swapaxes(1, 2), q[heads, part], of_k[heads, seen], adds)
        multiply(weights.swapaxes(1, 2), g[heads, part], of_v[heads, seen], adds)
    given = zip((of_q, of_k, of_v), (query, key, value), needs, strict=True)
    return [x.astype(like.dtype, copy=False).reshape(like.shape) if n else None for x, like, n in given]


KERNELS: dict[str, Callable[..., Any]] = {"attention": attention, "attention_gradients": attention_gradients}
