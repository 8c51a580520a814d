"""One tensor of a module, by its name, for another one: a parameter, a buffer, or a plain attribute."""

from __future__ import annotations

from typing import Any

from undertow.nn.module import Module
from undertow.tensor import Tensor

#: in the place of a tensor where there is none
_MISSING = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor (None, or `_MISSING`, which leaves none) in the place of another, and return that.

    allow_missing  there need not be another; `_MISSING` is returned then

    >>> import undertow as ut
    >>> from undertow.nn.utils._named_member_accessor import swap_tensor
    >>> layer = ut.nn.Linear(1, 1)
    >>> before = swap_tensor(layer, "bias", ut.ones(1))
    >>> layer.bias, before.requires_grad
    (tensor([1.]), True)
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of undertow.nn.Module")
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of undertow.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    for members in (module._parameters, module._buffers):
        if name in members:
            before = members[name]
            if tensor is _MISSING:
                del members[name]
            else:
                members[name] = tensor
            return before
    return _swap_attribute(module, name, tensor, allow_missing)


def _swap_attribute(module: Module, name: str, tensor: Any, allow_missing: bool) -> Any:
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of undertow.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before
