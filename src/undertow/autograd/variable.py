"""Variable, which every tensor has been since PyTorch 0.4."""

from __future__ import annotations

from typing import Any

from undertow.autograd.imperative_engine import ImperativeEngine
from undertow.errors import warn_of_volatile
from undertow.tensor import Tensor


class VariableType(type):
    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile:
            warn_of_volatile()
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=VariableType):
    """The tensor, without history: of old programs. Tensors need no wrapping.

    data      a tensor
    volatile  accepted, without effect

    >>> import undertow as ut
    >>> from undertow.autograd import Variable
    >>> Variable(ut.ones(1), requires_grad=True)
    tensor([1.], requires_grad=True)
    """

    _execution_engine = ImperativeEngine()
