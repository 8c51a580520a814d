"""PowerSGD: gradients as products of two thin matrices, of which only these are sent.

A gradient M of n x m is replaced by P Qᵀ, with P of n x r and Q of m x r: one step of the power method, started from
the Q of the pass before. What that leaves out is kept, and added to the next gradient (Vogels, Karimireddy and Jaggi,
2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from undertow import ops
from undertow.backend import dtypes
from undertow.distributed.collectives import all_reduce
from undertow.distributed.data_parallel.buckets import GradBucket
from undertow.distributed.process_group import world
from undertow.distributed.reduce_op import ReduceOp
from undertow.distributed.work import Future
from undertow.modes import no_grad
from undertow.ops.random.generator import Generator
from undertow.tensor import Tensor


class PowerSGDState:
    """What the hook remembers from pass to pass.

    matrix_approximation_rank   r, of P and Q
    start_powerSGD_iter         how many passes send whole gradients before
    min_compression_rate        gradients that would not become so many times smaller are sent whole
    use_error_feedback          whether what was left out is added to the next gradient
    warm_start                  whether to start from the Q of the pass before
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        random_seed: int = 0,
    ) -> None:
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.generator = Generator().manual_seed(random_seed)
        self.errors: dict[int, Tensor] = {}
        self.q_memory: dict[int, list[Tensor]] = {}
        self.iter = 0

    def is_worth_it(self, matrix: Tensor) -> bool:
        rows, columns = matrix.shape
        return (rows + columns) * self.matrix_approximation_rank * self.min_compression_rate < rows * columns


def mean_over(group: Any, tensors: list[Tensor]) -> None:
    """Average tensors over the processes, in one message."""
    if tensors:
        flat = ops.cat([t.reshape(-1) for t in tensors])
        all_reduce(flat, ReduceOp.AVG, group)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.reshape(tensor.shape))


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Send a bucket's matrices as products of thin ones, and all else as it is."""
    return compressed(state, bucket, send_matrices)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Send a whole bucket, laid out as one square matrix, as a product of thin ones: quicker, and less exact."""
    return compressed(state, bucket, send_square)


def compressed(
    state: PowerSGDState, bucket: GradBucket, send: Callable[[PowerSGDState, Any, GradBucket], list[slice]]
) -> Future:
    """Send a bucket, and keep what that leaves out; `send` returns the parts that it leaves as they are."""
    group = world() if state.process_group is None else state.process_group
    buffer, key = bucket.buffer(), bucket.index()
    with no_grad():
        if state.iter < state.start_powerSGD_iter:
            mean_over(group, [buffer])
        else:
            if state.use_error_feedback and key in state.errors and state.errors[key].shape == buffer.shape:
                buffer.add_(state.errors[key])
            before = buffer.clone()
            whole = send(state, group, bucket)
            if state.use_error_feedback:
                state.errors[key] = error = before - buffer
                for part in whole:
                    error[part] = 0
    if bucket.is_last():
        state.iter += 1
    return Future(None, buffer)


def send_matrices(state: PowerSGDState, group: Any, bucket: GradBucket) -> list[slice]:
    matrices, rest, whole = [], [], []
    at = 0
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0], -1) if gradient.dim() > 1 else None
        if matrix is not None and state.is_worth_it(matrix):
            matrices.append(matrix)
        else:
            rest.append(gradient)
            whole.append(slice(at, at + gradient.numel()))
        at += gradient.numel()
    mean_over(group, rest)
    approximate(state, group, bucket.index(), matrices)
    return whole


def send_square(state: PowerSGDState, group: Any, bucket: GradBucket) -> list[slice]:
    buffer = bucket.buffer()
    side = math.isqrt(buffer.numel() - 1) + 1
    square = ops.zeros(side * side, dtype=buffer.dtype)
    square[: buffer.numel()] = buffer
    approximate(state, group, bucket.index(), [square.view(side, side)])
    buffer.copy_(square[: buffer.numel()])
    return []


def orthogonal(matrix: Tensor) -> Tensor:
    """A base, with orthogonal columns, of what the columns span."""
    single = matrix.to(dtypes.float32) if matrix.dtype.itemsize < 4 else matrix
    return ops.linalg_qr(single)[0].to(matrix.dtype)


def approximate(state: PowerSGDState, group: Any, key: int, matrices: list[Tensor]) -> None:
    """Put P Qᵀ, averaged over the processes, in the place of every matrix."""
    if not matrices:
        return
    rank = state.matrix_approximation_rank
    kept = state.q_memory.get(key, [])
    fits = [q.shape[0] for q in kept] == [m.shape[1] for m in matrices]
    if not (state.warm_start and fits):
        kept = [ops.randn(m.shape[1], rank, generator=state.generator, dtype=m.dtype) for m in matrices]
    kept = [orthogonal(q) for q in kept]
    thin = [m @ q for m, q in zip(matrices, kept, strict=True)]
    mean_over(group, thin)
    thin = [orthogonal(p) for p in thin]
    kept = [m.t() @ p for m, p in zip(matrices, thin, strict=True)]
    mean_over(group, kept)
    for matrix, p, q in zip(matrices, thin, kept, strict=True):
        matrix.copy_(p @ q.t())
    state.q_memory[key] = kept
