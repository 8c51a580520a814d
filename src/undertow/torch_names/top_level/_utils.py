"""Names of PyTorch's `torch._utils` that programs use: lists of tensors as one vector, and back."""

from __future__ import annotations

from collections.abc import Sequence
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
