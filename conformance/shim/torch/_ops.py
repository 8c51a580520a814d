"""`torch.ops.aten`: an overload of an operation is its name, which is what undertow's checkpoint policies are given."""

from __future__ import annotations

from typing import Any

import undertow


class OpOverload(str):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(undertow, self)(*args, **kwargs)


class OpOverloadPacket:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return OpOverload(self._name)


class _Namespace:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return OpOverloadPacket(name)


aten = _Namespace()
