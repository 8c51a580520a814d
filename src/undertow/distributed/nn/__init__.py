"""Exchanges that gradients go through."""

from undertow.distributed.nn import functional as functional
from undertow.distributed.nn.functional import *  # noqa: F403
