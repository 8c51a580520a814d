"""What a tensor answers to NumPy, to programs for the array API, and to those that share memory with other processes.

Tables of functions, and whatever else few programs need, are loaded when one asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.autograd.interceptors.stack import active
from undertow.backend import cpu
from undertow.backend.interface import Array, DType
from undertow.tensor import Tensor, current_edge

if TYPE_CHECKING:
    from undertow.backend.interface import Device

_loaded = cache(import_module)

SHARED_MEMORY = "undertow.interop.shared_memory"


def array(self: Tensor, dtype: DType | None = None, copy: bool | None = None) -> Array:
    """`__array__`: `np.asarray(tensor)` shares memory."""
    if self._xp is not cpu:
        self._array.__array__()  # raises: only `cpu()` brings elements to the host
    if current_edge(self) is not None:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead. (NumPy asked for "
            "the tensor's array, in which its history would be lost.)"
        )
    if any([level.concerns([self]) for level in active().duals]):
        raise RuntimeError(
            "Can't call numpy() on a Tensor that has a tangent: NumPy asked for the tensor's array, in which it would "
            "be lost. Use tensor.detach().numpy() if the values alone matter."
        )
    if dtype is None or np.dtype(dtype) == self._array.dtype:
        return self._array.copy() if copy else self._array.view()
    if copy is False:
        raise ValueError(f"cannot give a tensor of {self._array.dtype} as {np.dtype(dtype)} without a copy")
    return self._array.astype(dtype)


def array_ufunc(self: Tensor, ufunc: Callable[..., Any], method: str, *inputs: Any, **options: Any) -> Any:
    """`__array_ufunc__`: what NumPy calls for `np.add(t, u)` and for `array + t`."""
    return _loaded("undertow.interop.numpy.protocol").array_ufunc(ufunc, method, *inputs, **options)


def array_function(self: Tensor, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    """`__array_function__`: what NumPy calls for `np.sum(t)`, `np.concatenate([t, u])`, ..."""
    return _loaded("undertow.interop.numpy.protocol").array_function(function, types, args, kwargs)


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """`__array_namespace__`: the functions of the array API standard on tensors."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"undertow offers the array API standard of 2024.12, not of {api_version}")
    return _loaded("undertow.interop.array_api")


def to_device(self: Array, device: Device | str | int, /, *, stream: Any = None) -> Array:
    """The array API's name of `to`.

    stream  None; a stream is an error on the CPU

    >>> import undertow as ut
    >>> ut.ones(2).to_device("cpu")
    tensor([1., 1.])
    """
    if stream is not None:
        raise ValueError("to_device() takes no stream on this device")
    return self.to(device)


def share_memory_(self: Tensor) -> Tensor:
    """Move the tensor, and those that share its memory, to memory that other processes can see.

    A tensor that is then given to another process (an argument of `multiprocessing.Process`, an element of a queue)
    arrives there on the same memory: what one of them writes, all of them read.

    >>> import undertow as ut
    >>> x = ut.zeros(3)
    >>> x.share_memory_().is_shared()
    True
    """
    _loaded(f"{SHARED_MEMORY}.moving").share([self])
    _loaded(f"{SHARED_MEMORY}.sending").register(type(self))
    return self


def is_shared(self: Tensor) -> bool:
    """Whether the tensor lies in memory that other processes can see: see `share_memory_`.

    >>> import undertow as ut
    >>> ut.ones(1).is_shared()
    False
    """
    if self._xp.device.type == "cuda":
        return True  # as in PyTorch: the driver hands it on
    blocks = sys.modules.get(f"{SHARED_MEMORY}.blocks")
    return blocks is not None and blocks.segment_of(self._array) is not None


METHODS: dict[str, Any] = {
    "is_shared": is_shared,
    "share_memory_": share_memory_,
    "__array__": array,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__array_namespace__": array_namespace,
    "to_device": to_device,
}
