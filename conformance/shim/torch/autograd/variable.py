"""`torch.autograd.Variable`: the tensor class's old name, and the way to the engine's callbacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import undertow

from .._undertow import lookup


def _queue_callback(callback: Any) -> None:
    lookup("autograd.graph.queue_callback", "autograd.queue_callback", "engine.queue_callback")(callback)


class _VariableType(type):
    _execution_engine = SimpleNamespace(queue_callback=_queue_callback)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, undertow.Tensor)

    def __call__(cls, data: Any, requires_grad: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_VariableType):
    pass
