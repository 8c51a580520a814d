"""Mixed precision: `autocast`, and `GradScaler`, which keeps small gradients from vanishing in it."""

from undertow.amp.grad_scaler import GradScaler
from undertow.autograd.interceptors.autocast import autocast, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["autocast", "is_autocast_available", "custom_fwd", "custom_bwd", "GradScaler"]
