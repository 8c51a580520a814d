"""`torch.autograd.Variable`: the tensor class's old name, and the way to the engine's callbacks."""

from __future__ import annotations

from .._undertow import lookup

Variable = lookup("autograd.Variable")
