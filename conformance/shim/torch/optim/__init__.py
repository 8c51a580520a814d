"""`torch.optim` is undertow's."""

from __future__ import annotations

from .._undertow import forward

__getattr__ = forward("optim.")
