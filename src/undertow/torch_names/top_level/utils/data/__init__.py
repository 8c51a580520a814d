"""`undertow.data`, under PyTorch's name for it; PyTorch's `utils.data.dataloader`, `.dataset` and `.sampler`, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.data import *  # noqa: F403
from undertow.data import __all__ as __all__
from undertow.torch_names import missing, module_aliases

module_aliases.register(__name__)

if not TYPE_CHECKING:
    __getattr__ = missing.getter("data")
