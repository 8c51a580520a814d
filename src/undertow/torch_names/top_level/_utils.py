"""Names of PyTorch's `torch._utils` that programs use: lists of tensors as one vector, and back; devices by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from undertow import ops
from undertow.tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Any:
    """One vector of all elements.

    >>> import undertow as ut
    >>> from undertow._utils import _flatten_dense_tensors
    >>> _flatten_dense_tensors([ut.ones(2), ut.zeros(1, 1)])
    tensor([1., 1., 0.])
    """
    return ops.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of a vector, in the shapes of the tensors."""
    parts = ops.split(flat, [tensor.numel() for tensor in tensors])
    return tuple([part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)])


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """The tensors in groups of one dtype, each of about so many bytes at most: what is sent as one vector."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault(tensor.dtype, [])
        if group and sum([each.nbytes for each in group]) + tensor.nbytes > size_limit:
            yield group
            group = groups[tensor.dtype] = []
        group.append(tensor)
    yield from [group for group in groups.values() if group]


def _get_available_device_type() -> str | None:
    """The kind of accelerator that there is, or None."""
    return "cuda" if sys.modules["undertow"].cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """What programs ask about a kind of device: `torch.cuda`."""
    found = getattr(sys.modules["undertow"], device_type, None)
    if found is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return found
