"""Mixed precision for GPUs, under PyTorch's older name `cuda.amp`: there is no GPU, and both say so and do nothing."""

from __future__ import annotations

import warnings

from undertow.amp.grad_scaler import GradScaler as AnyGradScaler
from undertow.autograd.interceptors.autocast import autocast as any_autocast
from undertow.autograd.interceptors.autocast import custom_bwd as custom_bwd
from undertow.autograd.interceptors.autocast import custom_fwd as custom_fwd
from undertow.backend.interface import DType


class autocast(any_autocast):
    """`undertow.autocast("cuda")`."""

    def __init__(self, enabled: bool = True, dtype: DType | None = None, cache_enabled: bool = True) -> None:
        _warn_of_old_name("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(AnyGradScaler):
    """`undertow.amp.GradScaler("cuda")`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _warn_of_old_name("GradScaler")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def _warn_of_old_name(name: str) -> None:
    warnings.warn(
        f"`undertow.cuda.amp.{name}(args...)` is deprecated. "
        f"Please use `undertow.amp.{name}('cuda', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )
