"""`undertow.data`, under PyTorch's name for it; PyTorch's `utils.data.dataloader`, `.dataset` and `.sampler`, too."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from undertow import data
from undertow.data import *  # noqa: F403
from undertow.data import __all__ as __all__
from undertow.torch_names import missing


def part(name: str) -> ModuleType:
    """All of undertow.data, where programs look for some of it."""
    made = ModuleType(f"{__name__}.{name}", "`undertow.data`, under PyTorch's name for a part of it.")
    made.__dict__.update({key: getattr(data, key) for key in data.__all__})
    sys.modules[made.__name__] = made
    return made


dataloader, dataset, sampler = part("dataloader"), part("dataset"), part("sampler")

if not TYPE_CHECKING:
    __getattr__ = missing.getter("data")
