"""`undertow.data`, under PyTorch's name for it."""

from undertow.data import *  # noqa: F403
from undertow.data import __all__ as __all__
