"""Complex parameters as pairs of real ones: what every rule with squares or signs of gradients does with them."""

from __future__ import annotations

from typing import Any

from undertow.backend.interface import Array, Namespace
from undertow.optim.optimizer import Optimizer
from undertow.tensor import Tensor


class RealOptimizer(Optimizer):
    """An optimizer whose rule, `update_real`, is for real arrays; complex ones come as real and imaginary parts."""

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        if param.dtype.kind == "c":
            slots = _RealSlots(state, param.shape)
            self.update_real(xp, as_real(param), as_real(xp.asarray(grad, order="C")), slots, group)
        else:
            self.update_real(xp, param, grad, state, group)

    def update_real(self, xp: Namespace, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how a parameter is changed")


def as_real(array: Array) -> Array:
    """A complex array as real and imaginary parts side by side, on the same memory."""
    return (array if array.ndim else array.reshape(1)).view(array.real.dtype)


class _RealSlots(dict[str, Any]):
    """The state of a complex parameter: what is kept for its real and imaginary parts looks complex from outside."""

    def __init__(self, state: dict[str, Any], shape: tuple[int, ...]) -> None:
        super().__init__({name: _real_tensor(tensor) for name, tensor in state.items()})
        self.outside, self.shape = state, shape

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        super().__setitem__(name, tensor)
        array = tensor._array
        if array.ndim:  # counters are not
            tensor = Tensor(array.view(f"complex{16 * array.itemsize}").reshape(self.shape), tensor._xp)
        self.outside[name] = tensor


def _real_tensor(tensor: Tensor) -> Tensor:
    return Tensor(as_real(tensor._array), tensor._xp) if tensor._array.dtype.kind == "c" else tensor
