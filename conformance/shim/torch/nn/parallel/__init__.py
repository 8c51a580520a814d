"""`torch.nn.parallel`: without GPUs, DataParallel calls the module it wraps."""

from __future__ import annotations

from typing import Any

from ..module import Module


class DataParallel(Module):
    def __init__(self, module: Any):
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)
