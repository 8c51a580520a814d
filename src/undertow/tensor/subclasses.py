"""Subclasses of Tensor that programs define: what operations on them give is of their class, as in PyTorch.

`SUBCLASSES` is empty until there is one, so that programs without them ask nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ref

from undertow.tensor.tensor import LEAF, SUBCLASSES, Tensor, share_memory
from undertow.tensor.torch_function import PLAIN, DisableTorchFunction, asking


def class_of(arguments: Iterable[Any]) -> type[Tensor]:
    """The class of what an operation gives: the most derived one among its tensors, of those that are kept."""
    found = Tensor
    if asking.get().classes == PLAIN:
        return found
    for value in arguments:
        kind = type(value)
        if kind is not found and isinstance(value, Tensor) and kind.results_keep_class and issubclass(kind, found):
            found = kind
    return found if ref(found) in SUBCLASSES else Tensor


def as_subclass(self: Tensor, cls: type[Tensor]) -> Any:
    """The same tensor as one of a subclass, through which gradients flow.

    cls  a subclass of Tensor

    >>> import undertow as ut
    >>> class Labelled(ut.Tensor): ...
    >>> type(ut.ones(2).as_subclass(Labelled)).__name__
    'Labelled'
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): argument 'cls' must be a subclass of Tensor, not {cls!r}")
    with DisableTorchFunction():  # it is no function that a class is asked about: objects may be half made
        view = self.view_as(self)
    return as_class(view, cls)


def as_class(tensor: Tensor, cls: type[Tensor]) -> Any:
    """A tensor of a class in the place of another, which nobody holds."""
    if type(tensor) is cls:
        return tensor
    made = cls.__new__(cls) if cls.__new__ is object.__new__ else object.__new__(cls)
    for slot in ("_array", "_xp", "_edge", "_extra"):
        setattr(made, slot, getattr(tensor, slot))
    return made


def make_subclass(cls: type[Tensor], data: Tensor, require_grad: bool = False, **ignored: Any) -> Any:
    """A leaf of a subclass on the memory of a tensor."""
    made = object.__new__(cls)
    Tensor.__init__(made, data._array, data._xp, LEAF if require_grad else None)
    share_memory(data, made)
    return made
