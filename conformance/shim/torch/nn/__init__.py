"""A small `torch.nn`, built on undertow's operations for the tests that train something."""

from . import functional, parallel  # noqa: F401
from .layers import (  # noqa: F401
    BatchNorm1d,
    InstanceNorm2d,
    Linear,
    ModuleList,
    MSELoss,
    ReLU,
    Sequential,
)
from .module import Module, Parameter  # noqa: F401
from .parallel import DataParallel  # noqa: F401
