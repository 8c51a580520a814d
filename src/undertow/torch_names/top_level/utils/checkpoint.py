"""`undertow.autograd.checkpoint`, under PyTorch's name for it."""

from undertow.autograd.checkpoint import *  # noqa: F403
from undertow.autograd.checkpoint import __all__ as __all__
