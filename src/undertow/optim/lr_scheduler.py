"""Schedulers: the learning rate of every parameter group as a function of the number of steps.

Some are formulas of the step number (`rate`); the others say how a rate follows from the one before, so that rates that
were changed by hand, or by another scheduler, are respected.
"""

from __future__ import annotations

from undertow.optim.schedulers.base import LRScheduler as LRScheduler
from undertow.optim.schedulers.combined import ChainedScheduler as ChainedScheduler
from undertow.optim.schedulers.combined import SequentialLR as SequentialLR
from undertow.optim.schedulers.cosine import CosineAnnealingLR as CosineAnnealingLR
from undertow.optim.schedulers.cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from undertow.optim.schedulers.cyclic import CyclicLR as CyclicLR
from undertow.optim.schedulers.cyclic import OneCycleLR as OneCycleLR
from undertow.optim.schedulers.decay import ConstantLR as ConstantLR
from undertow.optim.schedulers.decay import ExponentialLR as ExponentialLR
from undertow.optim.schedulers.decay import LambdaLR as LambdaLR
from undertow.optim.schedulers.decay import LinearLR as LinearLR
from undertow.optim.schedulers.decay import MultiplicativeLR as MultiplicativeLR
from undertow.optim.schedulers.decay import MultiStepLR as MultiStepLR
from undertow.optim.schedulers.decay import PolynomialLR as PolynomialLR
from undertow.optim.schedulers.decay import StepLR as StepLR
from undertow.optim.schedulers.plateau import ReduceLROnPlateau as ReduceLROnPlateau

#: the name that schedulers of users often inherit from
_LRScheduler = LRScheduler
