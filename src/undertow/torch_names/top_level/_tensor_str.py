"""How tensors are printed, under PyTorch's names."""

from __future__ import annotations

from undertow.tensor import Tensor
from undertow.tensor.display import get_printoptions as get_printoptions
from undertow.tensor.display import options as PRINT_OPTS
from undertow.tensor.display import printoptions as printoptions
from undertow.tensor.display import set_printoptions as set_printoptions
from undertow.tensor.display import write_array


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor in their brackets, without `tensor(...)` around them."""
    plain = self.detach()
    return write_array(plain._array, plain._xp, indent)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    return repr(self)


__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]
