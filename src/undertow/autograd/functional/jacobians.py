"""Jacobian and Hessian matrices, row by row, all rows at once (vectorize), or column by column (forward mode)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.autograd import forward_ad
from undertow.autograd.alias import differentiable_alias
from undertow.autograd.functional.arguments import (
    INDEPENDENT_JACOBIAN,
    Tensors,
    as_tensors,
    check_first_gradients,
    check_outputs,
    copies,
    finished,
    grad_or_none,
    prepared,
    unpacked,
)
from undertow.autograd.functional.products import OUTPUTS, check_scalar
from undertow.autograd.functional.recording import recording
from undertow.autograd.functional.sparse.jacobians import Wanted, sparse_hessian, sparse_jacobian
from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.autograd.vmap import vmap
from undertow.backend.interface import Array
from undertow.long_loops import long_loop
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

STRATEGIES = ("forward-mode", "reverse-mode")


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str | None = None,
    *,
    chunk_size: int | None = None,
    sparsity: Array | None = None,
    verify: bool = True,
    triplets: bool = False,
) -> Any:
    """The Jacobian of `func` at `inputs`: of shape (*output.shape, *input.shape), in a tuple for each tuple involved.

    create_graph  let the Jacobian be differentiated
    strict        raise if an output does not depend on an input, instead of returning zeros
    vectorize     compute all rows (or columns) at once, by vmap
    strategy      "reverse-mode" takes a pass for each element of the outputs, "forward-mode" for each of the inputs;
                  None is reverse mode, or with a sparsity whichever takes fewer passes
    chunk_size    with vectorize: how many rows (columns) to compute at a time

    sparsity      where the Jacobian, as a matrix with a row for each element of all outputs and a column for each of
                  all inputs, may have entries: a matrix (dense, or a sparse array of SciPy), a pair (rows, columns),
                  or what `sparsity_pattern` found; "detect" calls that. Then rows (columns) without a common place
                  share a pass, and the result is a matrix, a sparse array of SciPy
    verify        raise if there are entries outside of the pattern; takes one pass more
    triplets      return (rows, columns, values) as tensors instead of a sparse array, with history if create_graph

    >>> import undertow as ut
    >>> jacobian(lambda x: x.sum(), ut.ones(2))
    tensor([1., 1.])
    >>> jacobian(lambda x: x[1:] * x[:-1], ut.tensor([1.0, 2.0, 3.0]), sparsity=ut.eye(2, 3) + ut.eye(3)[1:]).toarray()
    array([[2., 1., 0.],
           [0., 3., 2.]], dtype=float32)
    """
    if strategy is not None and strategy not in STRATEGIES:
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    several, given = as_tensors(inputs, "inputs", "jacobian")
    if strict and (vectorize or strategy == "forward-mode"):
        other = "`vectorize=True`" if vectorize else '`strategy="forward-mode"`'
        raise RuntimeError(
            f"jacobian: `strict=True` and {other} are not supported together. Please either set `strict=False` or "
            "leave the other out."
        )
    if sparsity is not None:
        wanted = _wanted("jacobian", create_graph, strict, vectorize, strategy, chunk_size, verify, triplets)
        return sparse_jacobian(func, given, several, sparsity, wanted)
    if strategy == "forward-mode":
        several_outputs, rows = _forward(func, given, create_graph, vectorize, chunk_size)
    else:
        several_outputs, rows = _reverse(func, given, create_graph, strict, vectorize, chunk_size)
    rows = finished(rows, create_graph)
    return unpacked(tuple([unpacked(row, several) for row in rows]), several_outputs)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
    *,
    chunk_size: int | None = None,
    sparsity: Any = None,
    verify: bool = True,
    triplets: bool = False,
) -> Any:
    """The Hessian of a function that returns a single element: the Jacobian of its gradient, for each pair of inputs.

    outer_jacobian_strategy  "reverse-mode" or "forward-mode" for the outer derivative; the inner one is reverse mode
    The other arguments are those of `jacobian`. The symmetry of the matrix saves passes, so that a `sparsity` may leave
    out one of two entries that mirror each other.

    func              a function of tensors, of one element
    strict            raise if an output does not depend on an input
    vectorize         rows together, by vmap
    verify, triplets  of a `sparsity`, as `jacobian` takes them

    >>> import undertow as ut
    >>> hessian(lambda x: (x**3).sum(), ut.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    several, given = as_tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in STRATEGIES:
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def scalar(*points: Tensor) -> Tensor:
        result = func(*points)
        several_outputs, outputs = as_tensors(result, OUTPUTS, "hessian")
        check_outputs(outputs, strict)
        check_scalar(outputs, several_outputs, "hessian")
        return REGISTRY["reshape"].function(outputs[0], ())

    def gradient(*points: Tensor) -> Tensors:
        if outer_jacobian_strategy == "forward-mode":
            points = tuple([_requiring_grad(p) for p in points])
        found: Tensors = jacobian(scalar, points, create_graph=True)
        check_first_gradients(found, strict, INDEPENDENT_JACOBIAN)
        return found

    if sparsity is not None:
        wanted = _wanted(
            "hessian", create_graph, strict, vectorize, outer_jacobian_strategy, chunk_size, verify, triplets
        )
        return sparse_hessian(gradient, given, several, sparsity, wanted)
    found = jacobian(gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy, chunk_size=chunk_size)
    return unpacked(tuple([unpacked(row, several) for row in found]), several)


def _wanted(api: str, create_graph: bool, strict: bool, *rest: Any) -> Wanted:
    """How a sparse matrix is wanted, checked."""
    wanted = Wanted(create_graph, *rest)
    if strict:
        raise RuntimeError(
            f"{api}: `strict=True` and `sparsity` are not supported together: `verify` checks a pattern."
        )
    if create_graph and not wanted.triplets:
        raise RuntimeError(
            f"{api}: a sparse array cannot be differentiated, which `create_graph=True` asks for. Use `triplets=True`, "
            "whose values are a tensor."
        )
    return wanted


def _requiring_grad(tensor: Tensor) -> Tensor:
    return tensor if get_requires_grad(tensor) else differentiable_alias(tensor)


# ---- reverse mode


def _reverse(
    func: Callable[..., Any], given: Tensors, create_graph: bool, strict: bool, vectorize: bool, chunk_size: int | None
) -> tuple[bool, tuple[Tensors, ...]]:
    with recording():
        points = prepared(given, create_graph, leaves=True)
        several_outputs, outputs = as_tensors(func(*points), OUTPUTS, "jacobian")
        check_outputs(outputs, strict)
        if vectorize:
            return several_outputs, _all_rows(outputs, points, create_graph, chunk_size)
        rows = [_rows(nr, output, points, create_graph, strict) for nr, output in enumerate(outputs)]
        return several_outputs, tuple(rows)


def _rows(nr: int, output: Tensor, points: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """The Jacobian of one output with respect to each input, a reverse pass for each row."""
    if not output._array.size:
        return tuple([_zeros((*output.shape, *p.shape), p) for p in points])
    basis: Any = standard_basis((output,), (output._array.size,))[0]
    rows = []
    for k in long_loop(range(output._array.size), output._array.size, "jacobian"):
        seed = REGISTRY["reshape"].function(basis[k], output.shape)
        found = grad_or_none((output,), points, (seed,), create_graph, retain_graph=True)
        rows.append(
            [_checked(nr, i, g, p, create_graph, strict) for i, (g, p) in enumerate(zip(found, points, strict=True))]
        )
    return tuple([
        REGISTRY["reshape"].function(REGISTRY["stack"].function(list(column)), (*output.shape, *p.shape))
        for column, p in zip(zip(*rows, strict=True), points, strict=True)
    ])  # fmt: skip


def _checked(nr: int, index: int, row: Tensor, point: Tensor, create_graph: bool, strict: bool) -> Tensor:
    if row is None:
        if strict:
            raise RuntimeError(
                f"Output {nr} of the user-provided function is independent of input {index}. This is not allowed in "
                "strict mode."
            )
        return REGISTRY["zeros_like"].function(point)
    if strict and create_graph and not get_requires_grad(row):
        raise RuntimeError(
            f"The jacobian of the user-provided function is independent of input {nr}. This is not allowed in strict "
            "mode when create_graph=True."
        )
    return row


def _all_rows(outputs: Tensors, points: Tensors, create_graph: bool, chunk_size: int | None) -> tuple[Tensors, ...]:
    """One reverse pass for the rows of all outputs, which share the rows of an identity matrix among them."""
    sizes = tuple([o._array.size for o in outputs])
    if not sum(sizes):
        return tuple([tuple([_zeros((*o.shape, *p.shape), p) for p in points]) for o in outputs])

    def one(*seeds: Tensor) -> Tensors:
        shaped = [REGISTRY["reshape"].function(s, o.shape) for s, o in zip(seeds, outputs, strict=True)]
        found = grad_or_none(outputs, points, shaped, create_graph, retain_graph=True)
        return tuple(
            [REGISTRY["zeros_like"].function(p) if g is None else g for g, p in zip(found, points, strict=True)]
        )

    found = vmap(one, chunk_size=chunk_size)(*standard_basis(outputs, sizes))
    columns = [
        _split(rows, sizes, [(*o.shape, *p.shape) for o in outputs]) for rows, p in zip(found, points, strict=True)
    ]
    return tuple(zip(*columns, strict=True))


def _split(rows: Tensor, sizes: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The rows that belong to each of several tensors, in their shapes."""
    parts = REGISTRY["split"].function(rows, list(sizes), 0)
    return [REGISTRY["reshape"].function(part, shape) for part, shape in zip(parts, shapes, strict=True)]


# ---- forward mode


def _forward(
    func: Callable[..., Any], given: Tensors, create_graph: bool, vectorize: bool, chunk_size: int | None
) -> tuple[bool, tuple[Tensors, ...]]:
    """One forward pass for the columns of all inputs, or one for each column."""
    points = prepared(given, create_graph, leaves=False)
    sizes = tuple([p._array.size for p in points])
    known: list[Any] = []
    called_once = vectorize and chunk_size is None

    def push(*directions: Tensor) -> Tensors:
        with forward_ad.own_level():
            tangents = [REGISTRY["reshape"].function(d, p.shape) for d, p in zip(directions, points, strict=True)]
            shown = points if called_once else copies(points)
            duals = [forward_ad.make_dual(p, t) for p, t in zip(shown, tangents, strict=True)]
            several_outputs, outputs = as_tensors(func(*duals), OUTPUTS, "jacobian")
            pairs = [forward_ad.unpack_dual(o) for o in outputs]
            known[:] = [several_outputs, [tuple(p.primal.shape) for p in pairs]]
            return tuple([REGISTRY["zeros_like"].function(p) if t is None else t for p, t in pairs])

    basis: Any = standard_basis(points, sizes)
    if vectorize:
        columns = vmap(push, chunk_size=chunk_size)(*basis)
    else:
        pushed = [push(*[b[k] for b in basis]) for k in long_loop(range(sum(sizes)), sum(sizes), "jacobian")]
        columns = tuple([REGISTRY["stack"].function(list(c)) for c in zip(*pushed, strict=True)])
    several_outputs, shapes = known
    rows = []
    for column, shape in zip(columns, shapes, strict=True):
        moved = REGISTRY["movedim"].function(column, 0, -1)
        parts = REGISTRY["split"].function(moved, list(sizes), -1)
        rows.append(tuple([
            REGISTRY["reshape"].function(part, (*shape, *p.shape)) for part, p in zip(parts, points, strict=True)
        ]))  # fmt: skip
    return several_outputs, tuple(rows)


# ---- the directions


def standard_basis(tensors: Sequence[Tensor], sizes: Sequence[int]) -> Tensors:
    """An identity matrix, its columns shared out among the tensors, with their dtypes.

    sizes  how many elements each tensor has

    >>> import undertow as ut
    >>> standard_basis((ut.zeros(1), ut.zeros(1)), (1, 1))
    (tensor([[1.],
            [0.]]), tensor([[0.],
            [1.]]))
    """
    total = sum(sizes)
    start, chunks = 0, []
    for tensor, size in zip(tensors, sizes, strict=True):
        xp = tensor._xp
        chunks.append(Tensor(xp.eye(total, size, -start, dtype=tensor._array.dtype), xp))
        start += size
    return tuple(chunks)


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return Tensor(like._xp.zeros(shape, like._array.dtype), like._xp)
