"""Sums of products over named dimensions: einsum, and what is an einsum by another name.

Every product of two arrays becomes one primitive, `_einsum_pair`, which runs as a single (batched) matrix product. Its
derivatives are such products again, and one more label batches it. The functions below only prepare its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from numbers import Integral
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, large_arrays
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import laid_out, nesting
from undertow.ops.arguments.dims import wrap_dim, wrap_dims
from undertow.ops.arguments.operands import as_operand, result_type_of
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import BILINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.reduce.sums_and_products import cast

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- two operands


class Plan:
    """How an equation such as "bij,bjk->bik" runs as a matrix product.

    input_order, other_order  permutations that bring the operands to (batch, own, summed) and (batch, summed, own)
    output_order              the permutation from (batch, input's own, other's own) to the output's labels

    Within each of these groups labels go as in the output, so that its elements lie in memory as PyTorch's do. For the
    same reason `turned`, the equation with the operands exchanged, takes the place of one whose output has all that is
    the other's own in front of the input's.
    """

    def __init__(self, equation: str) -> None:
        operands, output = equation.split("->")
        input, other = operands.split(",")
        batch = [c for c in output if c in input and c in other]
        summed = [c for c in input if c in other and c not in output]
        own, others_own = [c for c in output if c not in other], [c for c in output if c not in input]
        self.batch, self.summed, self.own, self.others_own = len(batch), len(summed), len(own), len(others_own)
        self.input_order = tuple([input.index(c) for c in batch + own + summed])
        self.other_order = tuple([other.index(c) for c in batch + summed + others_own])
        result = batch + own + others_own
        self.output_order = tuple([result.index(c) for c in output])
        behind = own and others_own and output.index(others_own[-1]) < output.index(own[0])
        self.turned = f"{other},{input}->{output}" if behind else None
        self.places = [[labels.find(c) for c in output] for labels in (input, other)]
        self.input_gradient = f"{output},{other}->{input}"
        self.other_gradient = f"{output},{input}->{other}"


plan_of = lru_cache(maxsize=1024)(Plan)


def contract(xp: Namespace, input: Array, other: Array, equation: str) -> Array:
    plan = plan_of(equation)
    if plan.turned is not None and plan.summed:
        return contract(xp, other, input, plan.turned)
    left, right = input.transpose(plan.input_order), other.transpose(plan.other_order)
    batch = left.shape[: plan.batch]
    own = left.shape[plan.batch : plan.batch + plan.own]
    others_own = right.shape[plan.batch + plan.summed :]
    n, m, k = math.prod(own), math.prod(others_own), math.prod(right.shape[plan.batch : plan.batch + plan.summed])
    if plan.summed == 0:
        product = left.reshape(*batch, n, 1) * right.reshape(*batch, 1, m)
        out = product.reshape(batch + own + others_own).transpose(plan.output_order)
        strides = [
            [0 if place < 0 else x.strides[place] for place in places]
            for x, places in zip((input, other), plan.places, strict=True)
        ]
        return laid_out(out, nesting(out.shape, strides))
    if plan.batch == 0:
        product = large_arrays.dot(left.reshape(n, k), right.reshape(k, m))
    else:
        product = xp.matmul(left.reshape(*batch, n, k), right.reshape(*batch, k, m))
    return product.reshape(batch + own + others_own).transpose(plan.output_order)


def _batch_einsum_pair(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input, other, equation = args
    return einsum_batched(equation, (input, other), in_dims), 0


def einsum_batched(equation: str, operands: Sequence[Any], in_dims: InDims) -> Array:
    """einsum_pair of operands of which one or both have a batch dimension more, which comes first in the result."""
    label = next(c for c in map(chr, count(256)) if c not in equation)
    operand_labels, output = equation.split("->")
    labels = [
        part if dim is None else label + part for part, dim in zip(operand_labels.split(","), in_dims, strict=False)
    ]
    input, other = [x if dim is None else in_front(x, dim) for x, dim in zip(operands, in_dims, strict=False)]
    _check_examples(operand_labels.split(","), labels, (input, other))
    return einsum_pair(input, other, f"{labels[0]},{labels[1]}->{label}{output}")


def _check_examples(of_example: Sequence[str], labels: Sequence[str], operands: Sequence[Any]) -> None:
    """Raise unless every example has the dimensions, and the sizes, that the product is made for."""
    shapes = [tuple(x._array.shape) for x in operands]
    batched = [len(label) - len(own) for label, own in zip(labels, of_example, strict=True)]
    examples = [list(shape[start:]) for shape, start in zip(shapes, batched, strict=True)]
    for own, label, shape, example in zip(of_example, labels, shapes, examples, strict=True):
        if len(shape) != len(label):
            raise RuntimeError(f"vmap: expected a {len(own)}D tensor for each example, but got one of size {example}")
    sizes = [dict(zip(label, shape, strict=True)) for label, shape in zip(labels, shapes, strict=True)]
    for label in sizes[0].keys() & sizes[1].keys():
        if sizes[0][label] != sizes[1][label]:
            raise RuntimeError(
                f"size mismatch, got examples of sizes {examples[0]} and {examples[1]}: the sizes that are summed "
                "over must be the same"
            )


# Within an operand no label repeats, and each is also in the other operand or in the output.
einsum_pair = primitive(
    "_einsum_pair",
    forward=contract,
    vjp={
        "input": lambda xp, g, other, equation: xp._einsum_pair(g, xp.conj(other), plan_of(equation).input_gradient),
        "other": lambda xp, g, input, equation: xp._einsum_pair(g, xp.conj(input), plan_of(equation).other_gradient),
    },
    jvp=BILINEAR,
    batch=_batch_einsum_pair,
    node="EinsumBackward0",
    autocast="lower",
    order="as_computed",
)

# ---- any number of operands


@composite
def einsum(*args: Any) -> Array:
    """Sum the products of the operands' elements along dimensions given by labels.

    *args  the labels as one string, then the operands: "ij,jk->ik"; or operands and lists of numbers for their labels,
           in turn

    >>> import undertow as ut
    >>> a, b = ut.ones(2, 3), ut.ones(3, 4)
    >>> ut.einsum("ij,jk->ik", a, b).shape
    undertow.Size([2, 4])

    The equation may use `...`, repeated labels (diagonals) and sizes of one (broadcast), and may leave out the output.
    Operands can also come each with a list of integer labels: `einsum(a, [0, 1], b, [1, 2], [0, 2])`.
    """
    equation, operands = _as_equation(args)
    terms, output = _parse(equation, tuple([x.ndim for x in operands]))
    return evaluate(_of_one_dtype(operands, terms, output), terms, output)


def evaluate(operands: list[Any], terms: Sequence[str], output: str) -> Array:
    """The einsum of operands whose dimensions are labelled by `terms`."""
    sizes = _sizes_of(terms, operands)
    pairs = [_simplify(x, labels, sizes) for x, labels in zip(operands, terms, strict=True)]
    pairs = [_sum_unused(k, pairs, output) for k in range(len(pairs))]
    for step in _contraction_order(pairs, output):
        chosen = [pairs.pop(place) for place in sorted(step, reverse=True)][::-1]
        pairs.append(_multiply(chosen, pairs, output))
    ((result, labels),) = pairs
    return result if labels == output else recorded.transpose(result, tuple([labels.index(c) for c in output]))


def _as_equation(args: tuple[Any, ...]) -> tuple[str, list[Any]]:
    if not args or (isinstance(args[0], str) and len(args) == 1):
        raise ValueError("einsum(): must specify the equation string and at least one operand")
    if not isinstance(args[0], str):
        return _from_sublists(args)
    operands = args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return args[0].replace(" ", ""), [as_operand("einsum", f"operands[{i}]", x) for i, x in enumerate(operands)]


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation and operands."""
    operands = [as_operand("einsum", f"operands[{i}]", x) for i, x in enumerate(args[: len(args) // 2 * 2 : 2])]
    equation = ",".join([_letters(labels) for labels in args[1 : len(args) // 2 * 2 : 2]])
    return equation + ("->" + _letters(args[-1]) if len(args) % 2 else ""), operands


def _letters(labels: Any) -> str:
    if not isinstance(labels, (list, tuple)):
        raise TypeError(f"einsum(): expected a list of subscripts after each operand, got {type(labels).__name__}")
    for label in labels:
        if label is not Ellipsis and not 0 <= label < 52:
            raise ValueError(
                f"einsum(): not within the valid range [0, 52): expected subscript {label} to be within it"
            )
    return "".join("..." if n is Ellipsis else chr(ord("A") + n if n < 26 else ord("a") + n - 26) for n in labels)


@lru_cache(maxsize=1024)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[list[str], str]:
    """The labels of each operand (of so many dimensions) and of the output, with every `...` written out."""
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        problem = "fewer" if len(ranks) < len(terms) else "more"
        raise RuntimeError(f"einsum(): {problem} operands were provided than specified in the equation")
    widths = [_ellipsis_width(k, term, rank) for k, (term, rank) in enumerate(zip(terms, ranks, strict=True))]
    dots = "".join(chr(0x2460 + k) for k in range(max(widths)))
    expanded = [term.replace("...", dots[len(dots) - width :]) for term, width in zip(terms, widths, strict=True)]
    if not arrow:
        letters = "".join(sorted(c for c in set(inputs) if c.isalpha() and inputs.count(c) == 1))
        return expanded, dots + letters
    return expanded, _output_labels(output, dots, expanded)


def _ellipsis_width(number: int, term: str, ndim: int) -> int:
    """How many dimensions `...` stands for in a term (0 if it is not there)."""
    _check_term(term)
    named = len(term.replace("...", ""))
    if named > ndim or ("..." not in term and named != ndim):
        missing = " and no ellipsis was given" if "..." not in term else " even with an empty ellipsis"
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
            f"({ndim}) for operand {number}{missing}"
        )
    return ndim - named


def _check_term(term: str) -> None:
    rest = term.replace("...", "", 1)
    for place, c in enumerate(rest):
        if not (c.isascii() and c.isalpha()):
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {place} in the equation string, subscripts must be in "
                f"[a-zA-Z] (found {c!r} in {term!r})"
            )


def _output_labels(output: str, dots: str, terms: list[str]) -> str:
    _check_term(output)
    for c in output.replace("...", ""):
        if output.count(c) > 1:
            raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
        if not any(c in term for term in terms):
            raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")
    return output.replace("...", dots)


def _of_one_dtype(operands: list[Any], terms: Sequence[str], output: str) -> list[Any]:
    """Operands of different dtypes are promoted if they are only multiplied; products of matrices take one dtype."""
    if len({x.dtype for x in operands}) == 1:
        return operands
    for c in set("".join(terms)) - set(output):
        if sum([c in labels for labels in terms]) > 1:
            _check_dtypes(operands)
    common = result_type_of(tuple(operands))
    return [cast(x, common) for x in operands]


def _check_dtypes(operands: list[Any]) -> None:
    first = operands[0].dtype
    for x in operands[1:]:
        if x.dtype != first:
            names = dtypes.SCALAR_NAMES
            raise RuntimeError(
                f"einsum(): expected scalar type {names[first]} but found {names[x.dtype]}. Convert one of the "
                "operands with .to(dtype)."
            )


def _sizes_of(terms: Sequence[str], operands: list[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for number, (labels, x) in enumerate(zip(terms, operands, strict=True)):
        own: dict[str, int] = {}
        for c, n in zip(labels, x.shape, strict=True):
            if own.setdefault(c, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated for operand {number} but the sizes don't match, "
                    f"{n} != {own[c]}"
                )
            if sizes.setdefault(c, n) == 1:
                sizes[c] = n
            if n not in (1, sizes[c]):
                raise RuntimeError(
                    f"einsum(): subscript {c} has size {n} for operand {number} which does not broadcast with "
                    f"previously seen size {sizes[c]}"
                )
    return sizes


def _simplify(x: Array, labels: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """Take diagonals along repeated labels and drop dimensions of size one that others broadcast."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            x = recorded.diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + c
    for c in labels:
        if x.shape[labels.index(c)] != sizes[c]:
            x = recorded.squeeze(x, labels.index(c))
            labels = labels.replace(c, "")
    return x, labels


def _sum_unused(number: int, pairs: list[tuple[Any, str]], output: str) -> tuple[Any, str]:
    """Sum an operand over the labels that neither the output nor another operand has."""
    x, labels = pairs[number]
    used = output + "".join(other for k, (_, other) in enumerate(pairs) if k != number)
    unused = [k for k, c in enumerate(labels) if c not in used]
    if unused:
        x = recorded.sum(x, axis=tuple(unused))
    return x, "".join(c for c in labels if c in used)


def _contraction_order(pairs: list[tuple[Any, str]], output: str) -> list[tuple[int, ...]]:
    """Which operands to multiply next, as places in the list; each product is put at its end."""
    if len(pairs) < 3:
        return [tuple(range(len(pairs)))]
    return _greedy_order(tuple([term for _, term in pairs]), tuple([tuple(x.shape) for x, _ in pairs]), output)


@lru_cache(maxsize=1024)  # to find it takes longer than small products do
def _greedy_order(terms: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], output: str) -> list[tuple[int, ...]]:
    labels = sorted({c for term in terms for c in term})
    if len(labels) > 52:
        return [tuple(range(len(terms)))]
    letter = dict(zip(labels, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    equation = ",".join("".join(letter[c] for c in term) for term in terms)
    equation += "->" + "".join(letter[c] for c in output)
    arrays = [cpu.broadcast_to(cpu.float32(0), shape) for shape in shapes]
    steps: list[tuple[int, ...]] = cpu.einsum_path(equation, *arrays, optimize="greedy")[0][1:]
    return steps


def _multiply(chosen: list[tuple[Any, str]], waiting: list[tuple[Any, str]], output: str) -> tuple[Any, str]:
    """The product of the chosen operands, summed over the labels that nobody needs any more."""
    while len(chosen) > 1:
        (input, a), (other, b), *chosen = chosen
        if chosen or waiting:
            needed = output + "".join(labels for _, labels in chosen + waiting)
            product = "".join(dict.fromkeys(c for c in a + b if c in needed))
        else:
            product = output
        chosen = [(einsum_pair(input, other, f"{a},{b}->{product}"), product), *chosen]
    return chosen[0]


# ---- einsums with names of their own


@composite(out=True)
def tensordot(a: Array, b: Array, dims: Any = 2) -> Array:
    """Sum products over the last `dims` dimensions of `a` and the first of `b`, or over two lists of dimensions.

    >>> import undertow as ut
    >>> ut.tensordot(ut.ones(2, 3, 4), ut.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    undertow.Size([2, 5])
    """
    a, b = as_operand("tensordot", "a", a), as_operand("tensordot", "b", b)
    if a.dtype != b.dtype:
        raise RuntimeError("tensordot: both inputs should have same dtype")
    dims_a, dims_b = _contracted_dims(a, b, dims)
    labels_a = [chr(256 + k) for k in range(a.ndim)]
    labels_b = [chr(512 + k) for k in range(b.ndim)]
    for i, j in zip(dims_a, dims_b, strict=True):
        labels_b[j] = labels_a[i]
    output = [c for c in labels_a if c not in labels_b] + [c for c in labels_b if c not in labels_a]
    result = evaluate([a, b], ["".join(labels_a), "".join(labels_b)], "".join(output))
    # a sum over a dimension that only one of them has, for the other's of size 1, would make small integers large ones;
    # of other dtypes, only autocast makes others
    return recorded.astype(result, a.dtype) if a.dtype.kind in "bui" and result.dtype != a.dtype else result


def _contracted_dims(a: Array, b: Array, dims: Any) -> tuple[Sequence[int], Sequence[int]]:
    if isinstance(dims, Integral):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = list(range(-dims, 0)), list(range(dims))
    dims_a, dims_b = [[int(d)] if isinstance(d, Integral) else list(d) for d in dims]
    if len(dims_a) != len(dims_b):
        raise RuntimeError("tensordot: both dimension lists should have same length")
    for i, j in zip(dims_a, dims_b, strict=True):
        n, m = a.shape[wrap_dim(i, a.ndim)], b.shape[wrap_dim(j, b.ndim)]
        if n != m and 1 not in (n, m):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {n} in dim {i} and second has size {m} in "
                f"dim {j}"
            )
    return wrap_dims(dims_a, a.ndim), wrap_dims(dims_b, b.ndim)


@composite(variants="function method", out=True)
def inner(input: Array, other: Array) -> Array:
    """Sum products over the last dimension of both; with a 0-d operand, their product.

    input, other  (..., k) and (..., k): the result has the leading dimensions of both

    >>> import undertow as ut
    >>> ut.inner(ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0]))
    tensor(14.)
    """
    input, other = as_operand("inner", "input", input), as_operand("inner", "other", other)
    if input.ndim == 0 or other.ndim == 0:
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))
