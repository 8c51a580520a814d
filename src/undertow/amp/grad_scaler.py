"""GradScaler: training with float16, whose smallest number is 6e-8, without losing the gradients below it."""

from __future__ import annotations

import enum
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.interceptors.autocast import has_device
from undertow.backend.dtypes import float16
from undertow.modes import no_grad
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.optim.optimizer import Optimizer


class Stage(enum.Enum):
    """What has been done with the gradients of an optimizer since the last update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


OptState = Stage  # PyTorch's name


class GradScaler:
    """Scales the loss, so that gradients in float16 do not become zero, and the gradients back before they are used.

    A step whose gradients are not finite is left out, and the scale lowered; after many that are, it is raised.

    device           as in PyTorch; gradients may be on any device
    init_scale       the first scale
    growth_factor    what the scale is multiplied by after `growth_interval` steps with finite gradients
    backoff_factor   what it is multiplied by after one without
    enabled          False: everything is handed on as it is

    >>> import undertow as ut
    >>> model = ut.nn.Linear(3, 1)
    >>> optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    >>> scaler = ut.amp.GradScaler("cpu")
    >>> with ut.autocast("cpu"):
    ...     loss = model(ut.ones(2, 3)).float().square().mean()
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        if enabled and device == "cuda" and not has_device("cuda"):
            warnings.warn("GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        self._device, self._enabled = device, enabled
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._used = False  # whether something was scaled
        self._reset()

    def _reset(self) -> None:
        self._stages: weakref.WeakKeyDictionary[Any, Stage] = weakref.WeakKeyDictionary()
        self._finite: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    # ---- a step

    def scale(self, outputs: Any) -> Any:
        """A tensor times the scale, or a list or tuple of them.

        outputs  a loss, or a list or tuple of them
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            self._used = True
            return outputs * self._scale
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(output) for output in outputs])
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale: for clipping them before `step`."""
        if not self._enabled:
            return
        self._check_used("unscale_")
        stage = self._stages.get(optimizer, Stage.READY)
        if stage is Stage.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage is Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(g.dtype == float16 for g in gradients):
            raise ValueError(
                "Attempting to unscale FP16 gradients. The parameters must be float32: autocast casts them itself, do "
                "not call model.half()."
            )
        with no_grad():
            self._finite[optimizer] = all([self._unscaled_is_finite(g) for g in gradients])
        self._stages[optimizer] = Stage.UNSCALED

    def _unscaled_is_finite(self, gradient: Tensor) -> bool:
        values = gradient._values() if gradient.is_sparse else gradient
        values.mul_(1.0 / self._scale)
        return bool(ops.isfinite(values).all())

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), with the gradients divided by the scale; not at all if one of them is not finite.

        *args, **kwargs  what `optimizer.step` is called with
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_used("step")
        if self._stages.get(optimizer) is Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if self._stages.get(optimizer) is not Stage.UNSCALED:
            self.unscale_(optimizer)
        result = optimizer.step(**kwargs) if self._finite[optimizer] else None
        self._stages[optimizer] = Stage.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Lower or raise the scale by what the steps since the last update() found, or set it.

        new_scale  the scale from now on; None: by what was found
        """
        if not self._enabled:
            return
        self._check_used("update")
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._finite:
            raise AssertionError("No inf checks were recorded prior to update. Call step(optimizer) before.")
        elif all(self._finite.values()):
            self._grow()
        else:
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        self._reset()

    def _grow(self) -> None:
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            self._scale, self._growth_tracker = self._scale * self._growth_factor, 0

    def _check_used(self, function: str) -> None:
        if not self._used:
            raise AssertionError(
                f"Attempted {function} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    # ---- what it is

    def get_scale(self) -> float:
        """The scale; 1 if not enabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """To be saved with the model and the optimizer; empty if not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval, self._growth_tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]
