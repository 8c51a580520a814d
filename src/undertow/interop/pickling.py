"""copy, deepcopy and pickle.

All three give leaves: history belongs to the process and the moment that recorded it. What goes along, as in PyTorch:

              data              requires_grad    grad      attributes of a subclass
    copy      shared            yes              no        shared
    deepcopy  copied            yes              copied    copied
    pickle    copied            yes              no        pickled
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from undertow.backend import dtypes, namespace_of
from undertow.backend.interface import Array
from undertow.modes import no_grad
from undertow.tensor import LEAF, Tensor, extra_of, share_memory
from undertow.tensor.tensor import requires_grad


def rebuild(cls: type[Tensor], array: Array, device: str, tracked: bool) -> Tensor:
    """A tensor of the class around an array; `__init__` of a subclass is not called."""
    tensor = object.__new__(cls)
    dtypes.is_storable(array.dtype)  # bfloat16 may not have been used here before
    Tensor.__init__(tensor, array, namespace_of(device), LEAF if tracked else None)
    return tensor


def like(tensor: Tensor, array: Array) -> Tensor:
    """A leaf of the same class around another array."""
    return rebuild(type(tensor), array, str(tensor._xp.device), requires_grad(tensor))


def attributes(tensor: Tensor) -> dict[str, Any] | None:
    """What a subclass or a user put on the tensor; a plain Tensor has nothing."""
    return getattr(tensor, "__dict__", None) or None


def reduce_ex(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """`__reduce_ex__`: how pickle writes a tensor."""
    arguments = type(self), self._array, str(self._xp.device), requires_grad(self)
    return rebuild, arguments, attributes(self)


def shallow_copy(self: Tensor) -> Tensor:
    """`__copy__`: a leaf on the same memory."""
    alias = like(self, self._array)
    share_memory(self, alias)
    if attributes(self):
        alias.__dict__.update(self.__dict__)
    return alias


def deep_copy(self: Tensor, memo: dict[Any, Any]) -> Tensor:
    """`__deepcopy__`. Tensors that share memory (views of one base) share memory among the copies, too."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
            "moment: this one was computed, and its history cannot be copied. Use tensor.detach().clone()."
        )
    memory, array = copy_memory(self, memo)
    copied = memo[id(self)] = like(self, array)
    share_memory(memory, copied)
    extra = self._extra
    if extra is not None and extra.grad is not None:
        extra_of(copied).grad = deepcopy(extra.grad, memo)
    if attributes(self):
        copied.__dict__.update(deepcopy(self.__dict__, memo))
    return copied


def copy_memory(tensor: Tensor, memo: dict[Any, Any]) -> tuple[Tensor, Any]:
    """A copy of the memory behind the tensor, made once per memo, and the tensor's part of it."""
    view = None if tensor._extra is None else tensor._extra.view
    source = tensor if view is None else view.base
    key = "memory of a tensor", id(source._array)
    memory = memo.get(key)
    if memory is None:
        memory = memo[key] = Tensor(source._array.copy(order="K"), source._xp)
    if view is None:
        return memory, memory._array
    with no_grad():
        return memory, view.replay(memory)._array


METHODS = {"__copy__": shallow_copy, "__deepcopy__": deep_copy, "__reduce_ex__": reduce_ex}
