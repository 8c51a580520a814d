"""Memory that streams and copies of GPUs ask about: `pin_memory`, `is_pinned`, `record_stream`. Methods of tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, namespace_of
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def _pages() -> Any:
    namespace_of("cuda")  # RuntimeError with the reason, where there is no GPU
    return import_module("undertow.backend.cuda.pinned")


def pin_memory(self: Tensor, device: Device | str | int | None = None) -> Tensor:
    """The tensor in pinned memory of the host, from which `to("cuda", non_blocking=True)` copies beside the program.

    It needs a GPU, whose driver gives that memory. A tensor that is pinned is returned as it is.
    """
    if self._xp is not cpu:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    if self.requires_grad:
        raise RuntimeError("cannot pin a tensor that requires grad: pin tensor.detach(), or before requires_grad_()")
    array = _pages().pinned(self._array)
    return self if array is self._array else Tensor(array, cpu, None)


def is_pinned(self: Tensor, device: Device | str | int | None = None) -> bool:
    """Whether the tensor is in pinned memory of the host.

    >>> import undertow as ut
    >>> ut.ones(1).is_pinned()
    False
    """
    pages = sys.modules.get("undertow.backend.cuda.pinned")  # nothing is, before a GPU was used
    return pages is not None and self._xp is cpu and bool(pages.is_pinned(self._array))


def record_stream(self: Tensor, stream: Any) -> None:
    """Say that a stream works with this tensor, whose memory belongs to another, and is to be left alone until then.

    Without it, memory is handed out again on the stream it was made on as soon as nobody has the tensor any more.
    """
    stream.keep(self._array)


#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Callable[..., Any]] = {
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
    "record_stream": record_stream,
}
