"""Making modules."""

from __future__ import annotations

import inspect
from typing import Any

from undertow.nn.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters hold anything: for those that are loaded anyway.

    module_cls       the class; it takes an argument `device`
    *args, **kwargs  what it is called with

    >>> import undertow as ut
    >>> ut.nn.utils.skip_init(ut.nn.Linear, 3, 2).weight.shape
    undertow.Size([2, 3])
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    return module_cls(*args, **kwargs).to_empty(device=kwargs.get("device") or "cpu")
