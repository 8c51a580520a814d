"""Products of a Jacobian with many vectors: with rows of weights (reverse mode) or with directions (forward mode).

All inputs count as one long vector, and all outputs too. `seeded` are the tensors that a vector has an element for,
`landing` those that its product has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.autograd import forward_ad
from undertow.autograd.functional.arguments import Tensors, as_tensors, grad_or_none, prepared
from undertow.autograd.functional.products import OUTPUTS
from undertow.autograd.functional.recording import recording
from undertow.autograd.vmap import vmap
from undertow.backend.interface import Array
from undertow.long_loops import long_loop
from undertow.ops import REGISTRY
from undertow.tensor import Tensor


def size_of(tensors: Sequence[Tensor]) -> int:
    return sum([t._array.size for t in tensors])


class Rows:
    """Products from the left, a reverse pass for each vector; the function runs once."""

    def __init__(self, func: Callable[..., Any], given: Tensors, create_graph: bool) -> None:
        self.create_graph = create_graph
        with recording():
            self.landing = prepared(given, create_graph, leaves=True)
            self.several, self.seeded = as_tensors(func(*self.landing), OUTPUTS, "jacobian")

    def along(self, *seeds: Tensor) -> Tensor:
        with recording():
            found = grad_or_none(self.seeded, self.landing, seeds, self.create_graph, retain_graph=True)
        return joined([_zeros_like(p) if g is None else g for g, p in zip(found, self.landing, strict=True)])

    def products(self, seeds: Array, vectorize: bool, chunk_size: int | None = None) -> Tensor:
        return _all(self.along, shaped(seeds, self.seeded), vectorize, chunk_size)


class Columns:
    """Products from the right, a forward pass for each vector."""

    def __init__(self, func: Callable[..., Any], given: Tensors, create_graph: bool) -> None:
        self.func = func
        self.seeded = prepared(given, create_graph, leaves=False)

    def along(self, *directions: Tensor) -> Tensor:
        with forward_ad.own_level():
            duals = [forward_ad.make_dual(p, d) for p, d in zip(self.seeded, directions, strict=True)]
            _, outputs = as_tensors(self.func(*duals), OUTPUTS, "jacobian")
            pairs = [forward_ad.unpack_dual(o) for o in outputs]
            return joined([_zeros_like(p) if t is None else t for p, t in pairs])

    def products(self, seeds: Array, vectorize: bool, chunk_size: int | None = None) -> Tensor:
        return _all(self.along, shaped(seeds, self.seeded), vectorize, chunk_size)


def shaped(seeds: Array, tensors: Sequence[Tensor]) -> list[Tensor]:
    """An array with a vector in each row, shared out among the tensors in their shapes; real ones get the real part."""
    start, parts = 0, []
    for tensor in tensors:
        array, xp = tensor._array, tensor._xp
        part = seeds[:, start : start + array.size].reshape(-1, *array.shape)
        parts.append(Tensor(xp.asarray(part if array.dtype.kind == "c" else part.real, array.dtype), xp))
        start += array.size
    return parts


def _all(product: Callable[..., Tensor], seeds: Sequence[Any], vectorize: bool, chunk_size: int | None) -> Tensor:
    """The product with every vector, in rows."""
    if vectorize:
        return vmap(product, chunk_size=chunk_size)(*seeds)
    count = len(seeds[0])
    found = [product(*[s[k] for s in seeds]) for k in long_loop(range(count), count, "jacobian")]
    return REGISTRY["stack"].function(found)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    flat = [REGISTRY["reshape"].function(t, (-1,)) for t in tensors]
    return flat[0] if len(flat) == 1 else REGISTRY["cat"].function(flat)


def _zeros_like(tensor: Tensor) -> Tensor:
    return REGISTRY["zeros_like"].function(tensor)
