"""Products of matrices, stacks and vectors on a GPU, by cuBLAS (csrc/cuda/products.c, light.c)."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import blocks, device, tail
from undertow.backend.interface import Array


def matmul(a: Any, b: Any) -> Any:
    with contextlib.suppress(NotImplementedError, TypeError):
        return device.extension().matmul(a, b)  # two matrices, or stacks, of one dtype
    if not (tail.is_device_array(a) and tail.is_device_array(b)):
        return tail.on_host("matmul", np.matmul, (a, b), {})
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: Input operand does not have enough dimensions")
    if a.ndim == 1:
        return matmul(a[None], b)[..., 0, :] if b.ndim > 1 else matmul(a[None], b[:, None])[0, 0]
    if b.ndim == 1:
        return matmul(a, b[:, None])[..., 0]
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {b.shape[-2]} is different from "
            f"{a.shape[-1]})"
        )
    dtype = a.dtype if a.dtype == b.dtype else np.result_type(a.dtype, b.dtype)
    if dtypes.kind_of(dtype) not in "buifc":
        return tail.on_host("matmul", np.matmul, (a, b), {})
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if not a.size or not b.size:
        return a.namespace.zeros(shape, dtype)
    if dtype.kind in "bui":
        return whole_product(*[a.namespace.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b)])
    if math.prod(a.shape[:-2]) != 1 and math.prod(b.shape[:-2]) != 1:
        a, b = (x.namespace.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    else:
        a, b = (x.reshape(x.shape[-2:]) if math.prod(x.shape[:-2]) == 1 else x for x in (a, b))
    product = device.extension().matmul(a, b)
    return product if product.shape == shape else product.reshape(shape)


# of whole numbers and bools, which cuBLAS has no products of
WHOLE_PRODUCT = r"""
struct P { S *out; const S *a, *b; i64 n, rows, inner, columns; };
KERNEL(whole_product, P) { BEGIN const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    const i64 column = i % p.columns, row = i / p.columns;
    const S *a = p.a + row * p.inner, *b = p.b + row / p.rows * p.inner * p.columns + column;
    S sum = 0;
    for (i64 k = 0; k < p.inner; k++) sum = (S)(sum + a[k] * b[k * p.columns]);
    p.out[i] = sum; }
"""


def whole_product(a: Array, b: Array) -> Array:
    """The product of stacks of the same length."""
    out = device.extension().empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    call = blocks.kernel("whole_product", WHOLE_PRODUCT, a.dtype, False)
    sizes = out.size, a.shape[-2], a.shape[-1], b.shape[-1]
    call(-(-out.size // 128), 128, out, blocks.rows(a), blocks.rows(b), *sizes)
    return out


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """x @ weight.T + bias in one step; None where that is impossible."""
    return device.extension().linear(x, weight, bias)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        try:
            return device.extension().matmul(a, b, out)
        except (NotImplementedError, TypeError):
            return NotImplemented
    if not getattr(a, "ndim", 0) or not getattr(b, "ndim", 0):
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


def tensordot(a: Array, b: Array, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        axes = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [d % a.ndim for d in left], [d % b.ndim for d in right]
    kept_a = [d for d in range(a.ndim) if d not in left]
    kept_b = [d for d in range(b.ndim) if d not in right]
    shape = [*[a.shape[d] for d in kept_a], *[b.shape[d] for d in kept_b]]
    length = math.prod([a.shape[d] for d in left])
    rows = a.transpose(*kept_a, *left).reshape(math.prod([a.shape[d] for d in kept_a]), length)
    columns = b.transpose(*right, *kept_b).reshape(length, math.prod([b.shape[d] for d in kept_b]))
    return matmul(rows, columns).reshape(shape)


def outer(a: Array, b: Array, out: Any = None) -> Any:
    return NotImplemented if out is not None else a.reshape(-1, 1) * b.reshape(1, -1)
