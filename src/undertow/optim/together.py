"""Steps of all parameters of a group at once, on a device whose kernels take many arrays.

Parameters that are left out, because they are on the CPU, take their first step, or are of a kind that the kernel does
not take, are changed one by one, as on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from undertow.backend import cpu, kernels
from undertow.tensor import Tensor


class Member(NamedTuple):
    """A parameter that can take part: its arrays, in the order of the kernel, and its state."""

    param: Tensor
    arrays: tuple[Any, ...]
    state: dict[str, Any]


def members(optimizer: Any, group: dict[str, Any], names: tuple[str, ...]) -> dict[Any, list[Member]]:
    """The parameters with gradients, not on the CPU, that have state of these names; by device, dtype and step."""
    found: dict[Any, list[Member]] = {}
    params, states = group["params"], optimizer.state
    if len({id(p) for p in params}) != len(params):
        return found  # one that is there twice is changed twice
    for p in params:
        xp, extra = p._xp, p._extra
        if xp is cpu or extra is None or extra.grad is None:
            continue
        array, grad, step, state = p._array, extra.grad._array, 0, {}
        arrays = [array, grad]
        if names:
            state = states.get(p)
            kept = [] if state is None else [state[name] for name in names if type(state.get(name)) is Tensor]
            if len(kept) != len(names):
                continue
            arrays += [tensor._array for tensor in kept]
        if names and names[0] == "step":
            step = arrays.pop(2).item()
        if type(grad) is not xp.ndarray or grad.dtype is not array.dtype:
            continue
        found.setdefault((xp, array.dtype, step), []).append(Member(p, tuple(arrays), state))
    return found


def stepped(
    found: dict[Any, list[Member]], update: Callable[..., Any], numbers: Callable[[float], tuple[float, ...]]
) -> Collection[int]:
    """Launch the updates; the ids of the parameters that were changed."""
    done: set[int] = set()
    for (xp, _, step), some in found.items():
        if update(xp, [member.arrays for member in some], numbers(step)):
            done.update([id(member.param) for member in some])
            for member in some:
                if "step" in member.state:
                    array = member.state["step"]._array
                    array += 1
    return done


def step_of_adam(optimizer: Any, group: dict[str, Any]) -> Collection[int]:
    sign = -1.0 if group["maximize"] else 1.0
    coupled = 0.0 if group["decoupled_weight_decay"] else float(group["weight_decay"])

    def numbers(step: float) -> tuple[float, ...]:
        *factors, shrink = optimizer.factors(group, step + 1)
        return (*factors, shrink if group["decoupled_weight_decay"] else 1.0, coupled, sign)

    found = members(optimizer, group, ("step", "exp_avg", "exp_avg_sq"))
    return stepped(found, kernels.adam_updates, numbers)


def step_of_sgd(optimizer: Any, group: dict[str, Any]) -> Collection[int]:
    sign = -1.0 if group["maximize"] else 1.0
    momentum, taken = float(group["momentum"]), 1.0 - group["dampening"]
    numbers = (
        float(group["lr"]), float(group["weight_decay"]), sign, momentum, taken, 1.0 if group["nesterov"] else 0.0,
    )  # fmt: skip
    found = members(optimizer, group, ("momentum_buffer",) if momentum else ())
    return stepped(found, kernels.sgd_updates, lambda step: numbers)
