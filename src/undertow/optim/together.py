"""Steps of all parameters of a group at once, on a device whose kernels take many arrays.

Parameters that are left out, because they are on the CPU, take their first step, or are of a kind that the kernel does
not take, are changed one by one, as on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, kernels

if TYPE_CHECKING:
    from undertow.optim.optimizer import Optimizer

NOTHING: dict[str, Any] = {}


class Members:
    """Parameters that can take part: ids, arrays in the order of the kernel, and counters of steps."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.arrays: list[tuple[Any, ...]] = []
        self.counters: list[Any] = []


def members(optimizer: Optimizer, group: dict[str, Any], names: tuple[str, ...], counted: bool) -> dict[Any, Members]:
    """The parameters with gradients, not on the CPU, that have state of these names; by device, dtype and step.

    counted  whether the first name is that of a counter
    """
    found: dict[Any, Members] = {}
    params, states = group["params"], optimizer.state
    if len(set(map(id, params))) != len(params):
        return found  # one that is there twice is changed twice
    for p in params:
        xp, extra = p._xp, p._extra
        if xp is cpu or extra is None or extra.grad is None:
            continue
        array, grad = p._array, extra.grad._array
        kept: tuple[Any, ...] = ()
        if names:
            state = states.get(p, NOTHING)
            try:
                kept = tuple([state[name]._array for name in names])
            except (KeyError, AttributeError):  # the first step, or the state of an older version
                continue
        dtype = array.dtype
        if type(grad) is not xp.ndarray or grad.dtype is not dtype:
            continue
        key = xp, dtype, kept[0].item() if counted else 0
        some = found.get(key)
        if some is None:
            some = found[key] = Members()
        some.ids.append(id(p))
        if counted:
            some.counters.append(kept[0])
            some.arrays.append((array, grad, *kept[1:]))
        else:
            some.arrays.append((array, grad, *kept))
    return found


Numbers = Callable[[float], tuple[float, ...]]


def all_as_one(
    optimizer: Optimizer, group: dict[str, Any], names: tuple[str, ...], counted: bool, update: Any, numbers: Numbers
) -> Collection[int] | None:
    """The usual step: all parameters of a group are of one kind and have come equally far. None: it is not so.

    Lists of many parameters are gone through once for each thing to be known of them, which is quicker than asking
    everything of one after the other. What the kernel asks of arrays, it finds out itself.
    """
    params, states = group["params"], optimizer.state
    xp = params[0]._xp if params else cpu
    if xp is cpu:
        return None
    try:
        grads = [p._extra.grad._array for p in params]
        own = [states[p] for p in params] if names else []
        kept = [[state[name]._array for state in own] for name in names]
    except (KeyError, AttributeError):  # the first step; no gradient
        return None
    ids, arrays = set(map(id, params)), [p._array for p in params]
    counters = kept.pop(0) if counted else []
    steps = set(map(float, counters)) if counted else {0.0}
    if len(ids) != len(params) or len(steps) != 1 or {*map(type, arrays), *map(type, grads)} != {xp.ndarray}:
        return None
    (step,) = steps
    if not update(xp, list(zip(arrays, grads, *kept, strict=True)), numbers(step)):
        return None
    for counter in counters:
        counter[()] = step + 1  # in a third of the time of `fill`
    return ids


def step_of(
    optimizer: Optimizer, group: dict[str, Any], names: tuple[str, ...], counted: bool, update: Any, numbers: Numbers
) -> Collection[int]:
    found = all_as_one(optimizer, group, names, counted, update, numbers)
    return stepped(members(optimizer, group, names, counted), update, numbers) if found is None else found


def stepped(found: dict[Any, Members], update: Callable[..., Any], numbers: Numbers) -> Collection[int]:
    """Launch the updates; the ids of the parameters that were changed."""
    done: set[int] = set()
    for (xp, _, step), some in found.items():
        if update(xp, some.arrays, numbers(step)):
            done.update(some.ids)
            for counter in some.counters:
                counter[()] = step + 1
    return done


def step_of_adam(optimizer: Any, group: dict[str, Any]) -> Collection[int]:
    sign = -1.0 if group["maximize"] else 1.0
    coupled = 0.0 if group["decoupled_weight_decay"] else float(group["weight_decay"])

    def numbers(step: float) -> tuple[float, ...]:
        *factors, shrink = optimizer.factors(group, step + 1)
        return (*factors, shrink if group["decoupled_weight_decay"] else 1.0, coupled, sign)

    return step_of(optimizer, group, ("step", "exp_avg", "exp_avg_sq"), True, kernels.adam_updates, numbers)


def step_of_sgd(optimizer: Optimizer, group: dict[str, Any]) -> Collection[int]:
    sign = -1.0 if group["maximize"] else 1.0
    momentum, taken = float(group["momentum"]), 1.0 - group["dampening"]
    numbers = (
        float(group["lr"]), float(group["weight_decay"]), sign, momentum, taken, 1.0 if group["nesterov"] else 0.0,
    )  # fmt: skip
    names = ("momentum_buffer",) if momentum else ()
    return step_of(optimizer, group, names, False, kernels.sgd_updates, lambda step: numbers)
