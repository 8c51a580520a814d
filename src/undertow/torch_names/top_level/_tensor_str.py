"""How tensors are printed, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from undertow.tensor import Tensor
from undertow.tensor.display import Style, write_array
from undertow.tensor.display import get_printoptions as get_printoptions
from undertow.tensor.display import options as PRINT_OPTS
from undertow.tensor.display import printoptions as printoptions
from undertow.tensor.display import set_printoptions as set_printoptions


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor in their brackets, without `tensor(...)` around them."""
    plain = self.detach()
    return write_array(plain._array, plain._xp, indent)


class _Formatter:
    """How the numbers of a tensor are written, to write others like them."""

    def __init__(self, tensor: Tensor) -> None:
        self._style = Style(tensor.detach()._array, tensor._xp)

    def width(self) -> int:
        return self._style.width

    def format(self, value: Any) -> str:
        return self._style(value)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    return repr(self)


__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]
