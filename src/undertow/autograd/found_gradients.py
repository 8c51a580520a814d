"""The arrays that a pass found, as the tensors that grad() returns.

A rule may pass on the gradient that it gets, or a view of it, so a result may lie in the memory of a gradient that was
given, or of another result. It then has the same version counter: who changes one of them in place changes all, and a
graph that has saved one of them must know. What is the given gradient, element for element, is returned as that tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from undertow.backend import cpu, namespace_of_array
from undertow.backend.interface import Array
from undertow.backend.sparse.coo import AnySparse
from undertow.refcounts import IN_LIST, IN_VARIABLE
from undertow.tensor import Tensor, share_memory
from undertow.tensor.memory import owner


def as_tensors(found: list[Array | Tensor | None], given: Sequence[Tensor]) -> list[Tensor | None]:
    """`found`, which nobody else holds, in the same order; `given` are the gradients that the pass began with."""
    if all([value is None or isinstance(value, Tensor) for value in found]):
        return found  # the pass was recorded
    arrays: list[Any] = found
    if all([type(a) is cpu.ndarray and a.base is None and getrefcount(a) == IN_LIST for a in arrays]):
        return [Tensor(a, cpu) for a in arrays]  # each has memory of its own, that nothing else knows of
    times: dict[int, int] = {}
    for identity in [id(value) for value in found]:
        times[identity] = times.get(identity, 0) + 1
    elsewhere = [getrefcount(value) - times[id(value)] > IN_VARIABLE for value in found]
    in_memory = {id(owner(seed._xp, seed._array)): seed for seed in given}
    return [_as_tensor(value, held, in_memory) for value, held in zip(found, elsewhere, strict=True)]


def _as_tensor(value: Any, held: bool, in_memory: dict[int, Tensor]) -> Tensor | None:
    """held: by somebody who is no part of the pass, as the tensor is that a hook returns again and again."""
    if value is None or isinstance(value, Tensor):
        return value
    xp = namespace_of_array(value)
    memory = owner(xp, value)
    source = in_memory.get(id(memory))
    if source is not None and source._array is value:
        return source
    if source is None:
        result = Tensor(_copy(value) if held else value, xp)
        in_memory[id(memory)] = result
    else:
        result = Tensor(value, xp)
        share_memory(source, result)
    return result


def _copy(value: Any) -> Array:
    return value.copy() if isinstance(value, AnySparse) else value.copy(order="K")
