"""A small `torch.nn`, built on undertow's operations for the tests that train something."""

from . import functional, parallel
from .layers import (
    BatchNorm1d,
    InstanceNorm2d,
    Linear,
    ModuleList,
    MSELoss,
    ReLU,
    Sequential,
)
from .module import Module, Parameter
from .parallel import DataParallel
