"""Products of two operands: matrices, vectors, stacks of matrices.

Shapes and dtypes are checked where the product is computed, in `forward`; every rule is again one of these products,
so BLAS does the work in all derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import cpu, large_arrays
from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.coo import SparseConversionError
from undertow.backend.sparse.kernels import product
from undertow.compiled import shortcut, twin
from undertow.modes import current
from undertow.ops.arguments.operands import ForeignOperandError, as_operand
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import BILINEAR
from undertow.ops.declare.rules.batch_in_front import batch_stacks, in_front
from undertow.ops.linalg.checks import check_bmm, check_dot, check_matmul, check_mm, check_mv
from undertow.ops.linalg.einsum_and_tensordot import einsum_batched
from undertow.ops.pointwise.arithmetic import mul
from undertow.tensor import Tensor

# ---- two operands


@twin
def multiply_matrices(xp: Namespace, input: Array, mat2: Array) -> Array:
    # .dot takes a third of the time of matmul on small matrices, and accepts more than two matrices
    if input.dtype is not mat2.dtype or input.ndim != 2 or mat2.ndim != 2 or input.shape[1] != mat2.shape[0]:
        check_mm(input, mat2)
    if xp is cpu and mat2.size > 4096 and mat2.strides[0] == mat2.itemsize:
        return times_transposed(xp, input, mat2.T)
    try:
        return large_arrays.dot(input, mat2)
    except SparseConversionError:  # NumPy's dot knows nothing of sparse arrays
        return product(input, mat2)


def times_transposed(xp: Namespace, input: Array, weight: Array) -> Array:
    """input @ weight.T. For few rows and many, the product the other way round takes two thirds of the time.

    With more rows the copy that turns it back costs as much, and more than the product for a large vocabulary.
    """
    if xp is cpu and weight.size > 4096 and input.ndim == 2 and weight.ndim == 2:
        count = input.shape[0]
        if 2 * count <= weight.shape[0] and count * weight.size > 200_000 and count * input.itemsize <= 128:
            found = large_arrays.own_product(input, weight.T)
            return xp.ascontiguousarray(weight.dot(input.T).T) if found is None else found
    return large_arrays.dot(input, weight.T)


def _multiply_vector(xp: Namespace, input: Array, vec: Array) -> Array:
    check_mv(input, vec)
    return input.dot(vec)


def _multiply_vectors(xp: Namespace, input: Array, tensor: Array) -> Array:
    check_dot(input, tensor)
    return input.dot(tensor)


def multiply_batches(xp: Namespace, input: Array, mat2: Array) -> Array:
    check_bmm(input, mat2)
    return xp.matmul(input, mat2)


def _batched_by(equation: str) -> Callable[..., tuple[Any, int]]:
    """The batching rule of a product that is the einsum `equation` of its two operands."""
    return lambda call, args, in_dims: (einsum_batched(equation, args, in_dims), 0)


def _batch_mv(call: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> tuple[Any, Any]:
    """Many vectors by one matrix are a product of two matrices."""
    (matrix, vectors), (of_matrix, of_vectors) = args, in_dims
    if of_matrix is None and vectors.ndim == matrix.ndim == 2 and vectors.shape[1 - of_vectors] == matrix.shape[1]:
        return mm(in_front(vectors, of_vectors), recorded.t(matrix)), 0
    return _batched_by("ij,j->i")(call, args, in_dims)


mm = primitive(
    "mm",
    forward=multiply_matrices,
    vjp={
        # a gradient is laid out as its matrix is, so that a leaf behind a transposition can keep it
        "input": lambda xp, g, mat2, input_by_columns: (
            xp.t(xp.mm(xp.conj(mat2), xp.t(g))) if input_by_columns else xp.mm(g, xp.t(xp.conj(mat2)))
        ),
        "mat2": lambda xp, g, input, mat2_by_columns: (
            xp.t(xp.mm(xp.t(g), xp.conj(input))) if mat2_by_columns else xp.mm(xp.t(xp.conj(input)), g)
        ),
    },
    jvp=BILINEAR,
    batch=_batched_by("ij,jk->ik"),
    variants="function method foreach",
    autocast="lower",
)

mv = primitive(
    "mv",
    forward=_multiply_vector,
    vjp={
        "input": lambda xp, g, vec: xp.outer(g, xp.conj(vec)),
        "vec": lambda xp, g, input: xp.mv(xp.t(xp.conj(input)), g),
    },
    jvp=BILINEAR,
    batch=_batch_mv,
    variants="function method",
    autocast="lower",
)

dot = primitive(
    "dot",
    forward=_multiply_vectors,
    vjp={
        "input": lambda xp, g, tensor: g * xp.conj(tensor),
        "tensor": lambda xp, g, input: g * xp.conj(input),
    },
    jvp=BILINEAR,
    batch=_batched_by("i,i->"),
    variants="function method",
    autocast="lower",
    same_in_numpy=True,
)


@composite(variants="function method", out=True)
def outer(input: Array, vec2: Array) -> Array:
    """The products of every element of one vector with every element of another.

    input, vec2  vectors of n and m elements; the result is (n, m)

    >>> import undertow as ut
    >>> ut.outer(ut.tensor([1.0, 2.0]), ut.ones(2))
    tensor([[1., 1.],
            [2., 2.]])
    """
    input, vec2 = as_operand("outer", "input", input), as_operand("outer", "vec2", vec2)
    for vector, name in ((input, "self"), (vec2, "vec2")):
        if vector.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {vector.ndim}-D")
    return mul(recorded.unsqueeze(input, 1), vec2)


@composite(variants="function method", out=True)
def ger(input: Array, vec2: Array) -> Array:
    """Another name of `outer`.

    input, vec2  vectors of n and m elements; the result is (n, m)

    >>> import undertow as ut
    >>> ut.ger(ut.ones(2), ut.ones(3)).shape
    undertow.Size([2, 3])
    """
    return outer(input, vec2)


adapter("outer")(outer)

vdot = primitive(
    "vdot",
    forward=lambda xp, input, other: _multiply_vectors(xp, xp.conj(input), other),
    vjp={
        "input": lambda xp, g, other: xp.conj(g) * other,
        "other": lambda xp, g, input: g * input,
    },
    jvp=BILINEAR,
    batch=lambda call, args, in_dims: (einsum_batched("i,i->", (recorded.conj(args[0]), args[1]), in_dims), 0),
    variants="function method",
)

bmm = primitive(
    "bmm",
    forward=multiply_batches,
    vjp={
        "input": lambda xp, g, mat2: xp.bmm(g, xp.swapaxes(xp.conj(mat2), 1, 2)),
        "mat2": lambda xp, g, input: xp.bmm(xp.swapaxes(xp.conj(input), 1, 2), g),
    },
    jvp=BILINEAR,
    batch=_batched_by("aij,ajk->aik"),
    variants="function method",
    autocast="lower",
)

# ---- matmul


def rows(xp: Namespace, x: Array) -> Array:
    """All leading dimensions folded into one."""
    return xp.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _multiply_stacks(xp: Namespace, input: Array, other: Array) -> Array:
    check_matmul(input, other)
    if other.ndim == 2:
        return large_arrays.dot(rows(xp, input), other).reshape(*input.shape[:-1], other.shape[-1])
    return xp.matmul(input, other)


def _stack_input_gradient(xp: Namespace, g: Array, other: Array, input_shape: tuple[int, ...]) -> Array:
    if len(input_shape) == 2 and other.ndim > 2:  # one product over all the stack, not a stack to sum up
        return xp.mm(xp.t(rows(xp, xp.swapaxes(g, -1, -2))), rows(xp, xp.swapaxes(xp.conj(other), -1, -2)))
    return xp.matmul(g, xp.swapaxes(xp.conj(other), -1, -2))


def _stack_other_gradient(xp: Namespace, g: Array, input: Array, other_shape: tuple[int, ...]) -> Array:
    if len(other_shape) == 2:
        return xp.mm(xp.t(rows(xp, xp.conj(input))), rows(xp, g))
    return xp.matmul(xp.swapaxes(xp.conj(input), -1, -2), g)


matmul_stacks = primitive(
    "_matmul_stacks",
    forward=_multiply_stacks,
    vjp={"input": _stack_input_gradient, "other": _stack_other_gradient},
    jvp=BILINEAR,
    batch=batch_stacks,
    node="BmmBackward0",
    autocast="lower",
)


@composite(variants="function method", out=True)
@shortcut(mm, mv, dot)
def matmul(input: Array, other: Array) -> Array:
    """The matrix product; vectors are rows on the left and columns on the right, stacks of matrices broadcast.

    input  (k), or (..., n, k)
    other  (k), or (..., k, m)

    >>> import undertow as ut
    >>> (ut.ones(5, 2, 3) @ ut.ones(3, 4)).shape
    undertow.Size([5, 2, 4])
    """
    # _array tells the rank fastest, and is what it seems to be while nobody transforms
    if not current().transforms and type(input) is Tensor is type(other):
        n, m = input._array.ndim, other._array.ndim
        if n == 2 == m:
            return mm(input, other)
    else:
        try:
            input, other = as_operand("matmul", "input", input), as_operand("matmul", "other", other)
        except ForeignOperandError as error:
            if hasattr(type(error.value), "__array_ufunc__"):  # xarray's labels, whose own product takes no tensor
                raise
            return error.answer("matmul", (), {"input": input, "other": other})
        n, m = input.ndim, other.ndim
    if n == 0 or m == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    if n <= 2 and m <= 2:
        return _small_matmul(input, other)
    if m == 1:
        return recorded.squeeze(matmul_stacks(input, recorded.expand_dims(other, 1)), -1)
    if n == 1:
        return recorded.squeeze(matmul_stacks(recorded.expand_dims(input, 0), other), -2)
    return matmul_stacks(input, other)


adapter("matmul")(matmul)


def _small_matmul(input: Array, other: Array) -> Array:
    if input.ndim == 1:
        if other.ndim == 1:
            return dot(input, other)
        if input.stands_for_many:  # under vmap: fewer steps
            return mv(recorded.t(other), input)
        return recorded.squeeze(mm(recorded.expand_dims(input, 0), other), 0)
    return mm(input, other) if other.ndim == 2 else mv(input, other)
