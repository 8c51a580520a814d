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
from undertow.autograd.interceptors.stack import active, entered
from undertow.autograd.vmap import steps
from undertow.autograd.vmap.level import VmapLevel
from undertow.modes import State, state_variable
from undertow.ops import REGISTRY
from undertow.ops.random.generator import restore, states
from undertow.scopes import Scope


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
    _check_out_dims(out_dims, steps._get_name(func))

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        call = _VmapCall(func, in_dims, out_dims, randomness, args)
        if chunk_size is None or chunk_size >= call.size:
            return call.run(call.leaves, call.size, kwargs)
        return call.run_in_chunks(chunk_size, kwargs)

    return batched


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


class _VmapCall:
    """One call of a vmapped function: its arguments as leaves, with the batch dimension of each."""

    def __init__(self, func: Any, in_dims: Any, out_dims: Any, randomness: str, args: tuple[Any, ...]) -> None:
        self.func, self.out_dims, self.randomness = func, out_dims, randomness
        self.size, self.dims, self.leaves, self.spec = steps._process_batched_inputs(in_dims, args, func)

    def run(self, leaves: Sequence[Any], size: int, kwargs: dict[str, Any]) -> Any:
        level = VmapLevel(len(active().vmaps) + 1, size, self.randomness)
        with Inside(level):
            args = steps._create_batched_inputs(self.dims, leaves, level, self.spec)
            return steps._unwrap_batched(self.func(*args, **kwargs), self.out_dims, level, size, self.func)

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
