"""Layers that PyTorch keeps for older programs."""

from __future__ import annotations

from typing import Any

from undertow.graph.user_lines import warn_user
from undertow.nn.layers.losses import NLLLoss
from undertow.nn.module import Module


class Container(Module):
    """A module of the modules that it is given by name; `Module`, `Sequential` and `ModuleDict` are the ones to use.

    **kwargs  the modules, by name

    >>> import warnings
    >>> import undertow as ut
    >>> with warnings.catch_warnings(action="ignore"):
    ...     [name for name, _ in ut.nn.Container(first=ut.nn.Linear(1, 2)).named_children()]
    ['first']
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn_user("`nn.Container` is deprecated: derive from `nn.Module`, or use `nn.ModuleDict`.", FutureWarning)
        for name, module in kwargs.items():
            self.add_module(name, module)


class NLLLoss2d(NLLLoss):
    """`NLLLoss`, which takes images, too, and is the one to use.

    *args, **kwargs  those of `NLLLoss`

    >>> import warnings
    >>> import undertow as ut
    >>> with warnings.catch_warnings(action="ignore"):
    ...     ut.nn.NLLLoss2d()(ut.zeros(1, 2, 1, 1), ut.ones(1, 1, 1, dtype=ut.int64))
    tensor(0.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn_user("`NLLLoss2d` is deprecated: `NLLLoss` takes images, too.", FutureWarning)
        super().__init__(*args, **kwargs)
