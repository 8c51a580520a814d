"""Linear algebra beyond single products: traces, cross and Kronecker products, chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand, require_list
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import BILINEAR, LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.linalg.matmul import matmul
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.pointwise.complex import conj
from undertow.ops.reduce.sums_and_products import sum as sum_of

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- trace


def _trace_of_matrix(xp: Namespace, input: Array) -> Array:
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return xp.trace(input, dtype=dtypes.int64 if input.dtype.kind in "iu" else None)


def _diagonal_matrices(xp: Namespace, input: Array, shape: tuple[int, int]) -> Array:
    """Matrices of `shape` with every element of input along a whole diagonal."""
    input = xp.asarray(input)
    out = xp.zeros((*input.shape, *shape), input.dtype)
    k = xp.arange(min(shape))
    out[..., k, k] = input[..., None]
    return out


def traces(xp: Namespace, x: Array) -> Array:
    return xp.sum(xp.diagonal(x, 0, -2, -1), axis=-1)


trace = primitive(
    "trace",
    forward=_trace_of_matrix,
    vjp={"input": lambda xp, g, input_shape: xp.trace_backward(g, input_shape)},
    jvp=LINEAR,
    batch=lambda call, args, in_dims: (traces(recorded, in_front(args[0], in_dims[0])), 0),
    variants="function method",
    autocast="float32",
    same_in_numpy=True,
)

trace_backward = primitive(
    "trace_backward",
    forward=_diagonal_matrices,
    vjp={"input": lambda xp, g: traces(xp, g)},
    jvp=LINEAR,
    batch=lambda call, args, in_dims: (call(in_front(args[0], in_dims[0]), args[1]), 0),
    variants="",
)

# ---- cross and Kronecker products


#: the three directions, each moved on by one and by two
TURNED = [1, 2, 0], [2, 0, 1]


def _cross_product(xp: Namespace, input: Array, other: Array, *, dim: int = -1) -> Array:
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, input.ndim)
    if input.ndim == 0 or input.shape[axis] != 3 or other.shape[axis] != 3:
        sizes = [x.shape[axis] if x.ndim else 1 for x in (input, other)]
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}")
    first, second = TURNED  # xp.cross takes five times as long for a single vector
    try:
        return input.take(first, axis) * other.take(second, axis) - input.take(second, axis) * other.take(first, axis)
    except ValueError:
        raise RuntimeError(
            f"linalg.cross: the shapes {list(input.shape)} and {list(other.shape)} do not broadcast"
        ) from None


def _batch_cross(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    *operands, dim = args
    ndim = max(x.ndim - (d is not None) for x, d in zip(operands, in_dims, strict=False))
    aligned = [
        recorded.expand_dims(x, 0) if d is None else in_front(x, d) for x, d in zip(operands, in_dims, strict=False)
    ]
    return op(*aligned, wrap_dim(dim, ndim) + 1), 0


linalg_cross = primitive(
    "linalg_cross",
    forward=_cross_product,
    vjp={
        "input": lambda xp, g, other, dim: xp.linalg_cross(xp.conj(other), g, dim=dim),
        "other": lambda xp, g, input, dim: xp.linalg_cross(g, xp.conj(input), dim=dim),
    },
    jvp=BILINEAR,
    batch=_batch_cross,
    promote="same",
)


@composite(variants="function method", out=True)
def cross(input: Array, other: Array, dim: int | None = None) -> Array:
    """The cross product of vectors of three elements along `dim`, by default the first dimension of size 3.

    input, other  broadcast to one shape, which the result has

    >>> import undertow as ut
    >>> ut.cross(ut.tensor([1.0, 0.0, 0.0]), ut.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    input, other = as_operand("cross", "input", input), as_operand("cross", "other", other)
    if dim is None:
        dim = next((k for k, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return linalg_cross(input, other, dim=dim)


@composite(variants="function method", out=True)
def kron(input: Array, other: Array) -> Array:
    """The Kronecker product: every element of `input` times all of `other`, as one larger tensor.

    >>> import undertow as ut
    >>> ut.kron(ut.eye(2), ut.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    undertow.Size([4, 4])
    """
    input, other = as_operand("kron", "input", input), as_operand("kron", "other", other)
    ndim = max(input.ndim, other.ndim)
    a, b = [[1] * (ndim - x.ndim) + list(x.shape) for x in (input, other)]
    left = recorded.reshape(input, tuple([m for n in a for m in (n, 1)]))
    right = recorded.reshape(other, tuple([m for n in b for m in (1, n)]))
    return recorded._unsafe_view(mul(left, right), tuple([n * m for n, m in zip(a, b, strict=True)]))


# ---- chains and powers of matrices


@composite
def linalg_multi_dot(tensors: Sequence[Array]) -> Array:
    """The product of several matrices, multiplied in the order that takes the fewest operations.

    The first and the last may be vectors.

    tensors  two or more matrices; the first may be a row, and the last a column, given as vectors

    >>> import undertow as ut
    >>> ut.linalg.multi_dot([ut.ones(2, 30), ut.ones(30, 3), ut.ones(3)]).shape
    undertow.Size([2])
    """
    require_list("linalg.multi_dot", tensors)
    matrices = [as_operand("multi_dot", f"tensors[{i}]", t) for i, t in enumerate(tensors)]
    if len(matrices) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(matrices)}")
    row, column = matrices[0].ndim == 1, matrices[-1].ndim == 1
    if row:
        matrices[0] = recorded.expand_dims(matrices[0], 0)
    if column:
        matrices[-1] = recorded.expand_dims(matrices[-1], 1)
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {m.ndim}D")
    product = _multiply_chain(matrices)
    dropped = tuple([k for k, drop in ((0, row), (1, column)) if drop])
    return recorded.squeeze(product, dropped) if dropped else product


def _multiply_chain(matrices: list[Any]) -> Array:
    """Matrices multiplied in the cheapest order, which dynamic programming finds."""
    n = len(matrices)
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    cost = {(i, i): (0, i) for i in range(n)}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j] = min(
                (cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Array:
        if i == j:
            return matrices[i]
        k = cost[i, j][1]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, n - 1)


@composite(out=True)
def chain_matmul(*matrices: Any) -> Array:
    """The product of several matrices; `linalg.multi_dot` also takes vectors at the ends.

    >>> import undertow as ut
    >>> ut.chain_matmul(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 7., 10.],
            [15., 22.]])
    """
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        (matrices,) = matrices
    return matrices[0] if len(matrices) == 1 else linalg_multi_dot(matrices)


# ---- inner products


@composite
def linalg_vecdot(x: Array, y: Array, *, dim: int = -1) -> Array:
    """Inner products of vectors along a dimension; the first is conjugated.

    x, y  (..., n), broadcast to one shape

    >>> import undertow as ut
    >>> ut.linalg.vecdot(ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0]))
    tensor(14.)
    """
    return sum_of(conj(x) * y, dim)
