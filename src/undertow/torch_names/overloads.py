"""What stands for an operation of PyTorch's dispatcher, `torch.ops.aten.add.Tensor`."""

from __future__ import annotations

from typing import Any


class Overloads:
    """`torch.ops.aten.add`: called itself, or by the name of an overload."""

    def __init__(self, namespace: str, name: str, function: Any) -> None:
        self._qualified_op_name = f"{namespace}::{name}"
        self.__name__ = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> Overloads:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def overloads(self) -> list[str]:
        return ["default"]

    @property
    def overloadpacket(self) -> Overloads:
        return self

    _overloadpacket = overloadpacket

    def name(self) -> str:
        return self._qualified_op_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overloads) and other._qualified_op_name == self._qualified_op_name

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".") + ".default"

    def __repr__(self) -> str:
        return f"<operation {self._qualified_op_name}>"
