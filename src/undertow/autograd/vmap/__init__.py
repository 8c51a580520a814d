"""vmap: a function of one example, called once for a whole batch of them.

>>> import undertow as ut
>>> rows, weights = ut.ones(3, 2), ut.tensor([1.0, 2.0])
>>> ut.vmap(lambda row: row @ weights)(rows)
tensor([3., 3., 3.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from undertow import pytree
from undertow.autograd.batched_tensor import BatchedTensor as BatchedTensor
from undertow.autograd.batched_tensor import VmapError as VmapError
from undertow.autograd.interceptors.stack import active, entered, under
from undertow.autograd.vmap.level import VmapLevel
from undertow.modes import State, state_variable
from undertow.ops import REGISTRY
from undertow.ops.random.generator import restore, states
from undertow.scopes import Scope
from undertow.tensor import Tensor


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function that calls `func` for every example at once, and stacks what it returns.

    in_dims     which dimension of each argument counts the examples: one number for all, or a tuple (and nested
                tuples, lists and dicts, as the arguments are nested); None: the same value for all examples
    out_dims    where that dimension shall be in the outputs
    randomness  what random operations inside do: 'error', 'different' numbers for each example, or the 'same'
    chunk_size  how many examples to compute at a time; None: all

    >>> import undertow as ut
    >>> ut.vmap(ut.dot)(ut.ones(2, 3), ut.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and not (chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    _check_out_dims(out_dims, _name(func))

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, in_dims, out_dims, randomness, args)
        if chunk_size is None or chunk_size >= call.size:
            return call.run(call.leaves, call.size, kwargs)
        return call.run_in_chunks(chunk_size, kwargs)

    return batched


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _check_out_dims(out_dims: Any, name: str) -> None:
    if not all(d is None or (isinstance(d, int) and not isinstance(d, bool)) for d in pytree.flatten(out_dims)[0]):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )


class Inside(Scope):
    """The block that a vmap calls its function in."""

    variable = state_variable

    def __init__(self, level: VmapLevel) -> None:
        self.level = level

    def inside(self, outer: State) -> State:
        return entered(outer, self.level, "vmaps")

    def after(self, inner: State, outer: State) -> State:
        # rather than without the level: the function may have left a mode of its own switched on
        return inner.with_intercept(outer.intercept)


class _Call:
    """One call of a vmapped function: its arguments as leaves, with the batch dimension of each."""

    def __init__(self, func: Any, in_dims: Any, out_dims: Any, randomness: str, args: tuple[Any, ...]) -> None:
        self.func, self.out_dims, self.randomness = func, out_dims, randomness
        self.name = _name(func)
        self.leaves, self.spec = pytree.flatten(args)
        self.dims = self.checked_dims(in_dims, args)
        self.size = self.batch_size()

    def checked_dims(self, in_dims: Any, args: tuple[Any, ...]) -> list[Any]:
        prefix = f"vmap({self.name}, in_dims={in_dims}, ...)(<inputs>): "
        if not isinstance(in_dims, int | tuple):
            raise ValueError(
                f"{prefix}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
                f"inputs, got: {type(in_dims)}."
            )
        if not args:
            raise ValueError(
                f"vmap({self.name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
                "vmap over a function with no inputs. The latter is unsupported."
            )
        dims = pytree.broadcast(in_dims, self.spec)
        if dims is None:
            raise ValueError(
                f"{prefix}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{pytree.flatten(in_dims)[1]} but inputs has structure {self.spec}."
            )
        return [self.checked_dim(prefix, leaf, dim) for leaf, dim in zip(self.leaves, dims, strict=True)]

    def checked_dim(self, prefix: str, leaf: Tensor, dim: Any) -> int | None:
        if dim is None:
            return None
        if not isinstance(dim, int):
            raise ValueError(
                f"{prefix}Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"{prefix}Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -leaf.ndim <= dim < leaf.ndim:
            raise ValueError(
                f"{prefix}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.ndim} "
                f"so expected in_dim to satisfy -{leaf.ndim} <= in_dim < {leaf.ndim}."
            )
        return dim % leaf.ndim

    def batch_size(self) -> int:
        sizes = [leaf.shape[d] for leaf, d in zip(self.leaves, self.dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("vmap: Expected at least one Tensor to vmap over")
        if any(s != sizes[0] for s in sizes):
            raise ValueError(
                "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                f"{sizes} for the mapped dimension"
            )
        return int(sizes[0])

    # ---- running

    def run(self, leaves: Sequence[Any], size: int, kwargs: dict[str, Any]) -> Any:
        level = VmapLevel(len(active().vmaps) + 1, size, self.randomness)
        with Inside(level):
            args = [BatchedTensor(v, d, level) if d is not None else v for v, d in zip(leaves, self.dims, strict=True)]
            outputs = self.func(*self.spec.unflatten(args), **kwargs)
            return self.unwrapped(level, outputs)

    def unwrapped(self, level: VmapLevel, outputs: Any) -> Any:
        leaves, spec = pytree.flatten(outputs)
        dims = pytree.broadcast(self.out_dims, spec)
        if dims is None and isinstance(self.out_dims, tuple) and len(self.out_dims) == 1 and spec.kind is None:
            dims = list(self.out_dims)
        if dims is None:
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={self.out_dims})(<inputs>): out_dims is not compatible with the "
                f"structure of `outputs`. out_dims has structure {pytree.flatten(self.out_dims)[1]} but outputs has "
                f"structure {spec}."
            )
        return spec.unflatten([self.output(level, o, d) for o, d in zip(leaves, dims, strict=True)])

    def output(self, level: VmapLevel, output: Tensor, dim: Any) -> Tensor:
        """An output with all examples, the batch where it was asked for."""
        if dim is None:
            if level.is_batched(output):
                raise ValueError(
                    f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when out_dim is None"
                )
            return output
        if not isinstance(output, Tensor):
            raise ValueError(
                f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type {type(output)}. Did you "
                "mean to set out_dims= to None for output?"
            )
        value, at = level.unwrap(output)
        if at is None:
            value, at = level.front(output), 0
        if not -value.ndim <= dim < value.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-value.ndim}, {value.ndim - 1}], but got {dim})"
            )
        if at == dim % value.ndim:
            return value
        return under(active().without(level), REGISTRY["movedim"].function, value, at, dim)

    def run_in_chunks(self, chunk_size: int, kwargs: dict[str, Any]) -> Any:
        """The outputs of one chunk after the other, joined."""
        from undertow.long_loops import long_loop

        found, spec = [], None
        drawn_from = states() if self.randomness == "same" else None
        starts = range(0, self.size, chunk_size)
        for start in long_loop(starts, len(starts), "vmap"):
            size = min(chunk_size, self.size - start)
            if drawn_from is not None:
                restore(drawn_from)  # so that every chunk draws the same numbers
            leaves = [
                v if d is None else REGISTRY["narrow"].function(v, d, start, size)
                for v, d in zip(self.leaves, self.dims, strict=True)
            ]
            flat, spec = pytree.flatten(self.run(leaves, size, kwargs))
            found.append(flat)
        assert spec is not None
        dims = pytree.broadcast(self.out_dims, spec) or [self.out_dims[0]]
        columns = [list(column) for column in zip(*found, strict=True)]
        joined = [c[0] if d is None else REGISTRY["cat"].function(c, d) for c, d in zip(columns, dims, strict=True)]
        return spec.unflatten(joined)
