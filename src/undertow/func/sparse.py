"""Sparse Jacobians and Hessians of functions of trees: what jacrev, jacfwd and hessian do with a `sparsity`.

Lines that have no entry in the same place share a pass: see autograd/functional/sparse/jacobians.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from undertow.autograd.batched_tensor import BatchedTensor, VmapError
from undertow.autograd.functional.rows_and_columns import joined, shaped, size_of
from undertow.autograd.functional.sparse.jacobians import (
    Plan,
    check_entries,
    part_of,
    pattern_for,
    precision_of,
    seeds_of,
    with_starts,
)
from undertow.autograd.functional.sparse.patterns import SparsityPattern
from undertow.autograd.interceptors.stack import active
from undertow.autograd.tensor_attributes import detached, get_requires_grad
from undertow.autograd.vmap import vmap
from undertow.backend import cpu
from undertow.backend.interface import Array, DType
from undertow.func.complex_jacobians import as_one_complex
from undertow.interop.scipy.sparse import sparse_array
from undertow.ops import REGISTRY
from undertow.ops.create.to_dtype_and_device import to
from undertow.tensor import Tensor


class Sparse(NamedTuple):
    """How a caller wants a sparse matrix. See `jacrev`."""

    sparsity: Any
    verify: bool
    triplets: bool
    chunk_size: int | None
    randomness: str = "error"


class Products(NamedTuple):
    """A Jacobian that can be multiplied with vectors.

    along   the product with one vector: takes a tensor for each of `seeded`, returns one for each of `landing`
    """

    along: Callable[..., Sequence[Tensor]]
    seeded: Sequence[Tensor]
    landing: Sequence[Tensor]

    def values(self, plan: Plan, wanted: Sparse, turned: bool = False) -> Tensor:
        """The entries in the order of the pattern. turned: of products with i times the vectors."""
        if not plan.passes:
            return Tensor(cpu.zeros(0), cpu)
        seeds = seeds_of(plan, wanted.verify)

        def product(*parts: Tensor) -> Tensor:
            return joined(self.along(*parts))

        batched = vmap(product, chunk_size=wanted.chunk_size, randomness=wanted.randomness)
        products = batched(*shaped(seeds * 1j if turned else seeds, self.seeded))
        if wanted.verify:
            epsilon = precision_of((*self.seeded, *self.landing))
            for example in examples_of(products):
                check_entries(plan, example, seeds[-1], epsilon)
        return products[plan.read]


def examples_of(tensor: Tensor) -> Array:
    """The array of a tensor, for each example of all active vmaps."""
    if type(tensor) is not BatchedTensor:
        return tensor._array[None]
    xp: Any = tensor._xp
    examples = xp.moveaxis(examples_of(tensor._value), tensor._dim + 1, 1)
    return examples.reshape(-1, *examples.shape[2:])


# ---- patterns


def pattern_of(
    func: Callable[..., Sequence[Tensor]], points: Sequence[Tensor], outputs: Sequence[Tensor], wanted: Sparse
) -> SparsityPattern:
    """The pattern that was given, or that of a function of the leaves."""
    if isinstance(wanted.sparsity, str):
        if any([type(p) is BatchedTensor for p in points]):
            raise VmapError(
                "vmap: sparsity='detect' looks at the numbers of a Jacobian, which differ from example to example. "
                "Find the pattern outside of vmap, with undertow.autograd.functional.sparsity_pattern."
            )
        points = [detached(p) for p in points]
    shape = size_of(outputs), size_of(points)
    return pattern_for(lambda *leaves: tuple(func(*leaves)), tuple(points), wanted.sparsity, shape)


# ---- results


class Blocks(NamedTuple):
    """The entries of the matrix of all outputs and all inputs, twice if some are complex."""

    pattern: SparsityPattern
    values: Tensor
    turned: Tensor | None
    forward: bool
    triplets: bool

    def rows(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[list[Any]]:
        """For each output, a matrix for each input."""
        columns = with_starts(inputs)
        return [[self.block(*row, *column) for column in columns] for row in with_starts(outputs)]

    def block(self, top: int, output: Tensor, left: int, point: Tensor) -> Any:
        size = output._array.size, point._array.size
        rows, cols, inside = part_of(self.pattern, top, left, size)
        dtype = output.dtype if self.forward else point.dtype
        values, turned = [_part(v, inside, dtype) for v in (self.values, self.turned)]
        if turned is not None:
            values = as_one_complex(values, turned, output, point, "forward" if self.forward else "reverse")
        if self.triplets:
            return Tensor(rows, cpu), Tensor(cols, cpu), values
        check_plain(values)
        return sparse_array(rows, cols, values._array, size)


def _part(values: Tensor | None, inside: Array | None, dtype: DType) -> Any:
    if values is None:
        return None
    part = values if inside is None else values[inside]
    if part.dtype.kind == "c" and dtype.kind != "c":
        part = REGISTRY["real"].function(part)
    return to(part, dtype)


def check_plain(values: Tensor) -> None:
    """Raise unless the numbers alone are all there is to the entries: SciPy would lose the rest."""
    cure = "Use triplets=True, which returns rows, columns and values as tensors."
    if type(values) is BatchedTensor:
        raise VmapError(f"vmap: there are no batches of sparse arrays. {cure}")
    if get_requires_grad(values):
        raise RuntimeError(
            "the entries of a sparse Jacobian require grad, and a sparse array of SciPy cannot be differentiated. "
            f"{cure} Where no derivative of it is wanted, detached() the arguments."
        )
    if any([level.concerns([values]) for level in active().duals]):
        raise RuntimeError(
            f"the entries of a sparse Jacobian have tangents, which a sparse array of SciPy would lose. {cure}"
        )


def blocks_of(products: Products, plan: Plan, pattern: SparsityPattern, wanted: Sparse) -> Blocks:
    values = products.values(plan, wanted)
    is_complex = any([t.dtype.kind == "c" for t in products.seeded])
    turned = products.values(plan, wanted, turned=True) if is_complex else None
    return Blocks(pattern, values, turned, plan.forward, wanted.triplets)
