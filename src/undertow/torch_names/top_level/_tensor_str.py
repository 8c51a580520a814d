"""How tensors are printed, under PyTorch's name for the module."""

from undertow.tensor.display import get_printoptions as get_printoptions
from undertow.tensor.display import options as PRINT_OPTS
from undertow.tensor.display import printoptions as printoptions
from undertow.tensor.display import set_printoptions as set_printoptions

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]
