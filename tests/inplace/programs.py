"""Random programs of views and in-place changes, and a model that knows neither graph nor versions.

The model runs a program on NumPy arrays, forward: every tensor is a pair of views, of the values and of their
derivatives with respect to all elements of all leaves (a last dimension more). NumPy's own views and assignments then
say what the derivative of any program is, whatever memory it shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Dual(NamedTuple):
    """Values, and their derivatives along one dimension more."""

    value: Any
    slope: Any

    def write(self, value: Any, slope: Any) -> None:
        self.value[...] = value
        self.slope[...] = slope

    def alone(self) -> Dual:
        """The same values, derivatives of their own: zeros."""
        return Dual(self.value, np.zeros((*self.value.shape, self.slope.shape[-1])))


def up(value: Any) -> Any:
    """Values beside derivatives."""
    return np.asarray(value)[..., None]


# ---- views: what is called, and the same of a Dual


class Look(NamedTuple):
    name: str
    call: Callable[[Any], Any]
    model: Callable[[Dual], Dual]
    fits: Callable[[tuple[int, ...]], bool]
    several: bool = False
    dense: bool = False  # whether it is only for tensors that lie in memory row by row
    writeable: bool = True  # whether its elements lie in memory apart


def by_key(name: str, key: Any, call: Callable[[Any], Any], fits: Callable[..., bool], several: bool = False) -> Look:
    return Look(name, call, lambda d: Dual(d.value[(*key, ...)], d.slope[(*key, ...)]), fits, several)


def diagonal(d: Dual) -> Dual:
    value, slope = d.value.diagonal(), np.moveaxis(d.slope.diagonal(0, 0, 1), -1, 0)
    if d.value.flags.writeable:
        value.flags.writeable = slope.flags.writeable = True
    return Dual(value, slope)


def windows(values: Any, further: int) -> Any:
    """Pairs of neighbours in memory, which overlap; `further` dimensions stay as they are."""
    rest = values.shape[values.ndim - further :]
    flat = values.reshape(-1, *rest)
    step = flat.strides[0]
    shown = np.lib.stride_tricks.as_strided(flat, (len(flat) - 1, 2, *rest), (step, step, *flat.strides[1:]))
    shown.flags.writeable = False
    return shown


def expanded(values: Any) -> Any:
    return np.broadcast_to(values, (2, *values.shape))


def neighbours(x: Any) -> Any:
    return x.as_strided((x.numel() - 1, 2), (1, 1))


def has(rank: int, least: int = 1) -> Callable[[tuple[int, ...]], bool]:
    return lambda shape: len(shape) >= rank and all(n >= least for n in shape[:rank])


ALL = slice(None)

LOOKS = [
    by_key("x[0]", (0,), lambda x: x[0], has(1)),
    by_key("x[-1]", (-1,), lambda x: x[-1], has(1)),
    by_key("x[1:]", (slice(1, None),), lambda x: x[1:], has(1, 2)),
    by_key("x[::2]", (slice(None, None, 2),), lambda x: x[::2], has(1)),
    by_key("x[:, 1]", (ALL, 1), lambda x: x[:, 1], has(2, 2)),
    by_key("x[:, :2]", (ALL, slice(0, 2)), lambda x: x[:, :2], has(2)),
    by_key("x.narrow(0, 0, 2)", (slice(0, 2),), lambda x: x.narrow(0, 0, 2), has(1, 2)),
    by_key("x.unsqueeze(0)", (None,), lambda x: x.unsqueeze(0), lambda s: len(s) < 3),
    by_key("x.unbind(0)[0]", (0,), lambda x: x.unbind(0)[0], has(1), several=True),
    by_key("x.split(1, 0)[0]", (slice(0, 1),), lambda x: x.split(1, 0)[0], has(1), several=True),
    by_key("x.view_as(x)", (), lambda x: x.view_as(x), lambda s: True),
    Look("x.t()", lambda x: x.t(), lambda d: Dual(d.value.T, d.slope.swapaxes(0, 1)), lambda s: len(s) == 2),
    Look("x.diagonal()", lambda x: x.diagonal(), diagonal, lambda s: len(s) == 2 and min(s) > 0),
    Look(
        "x.flatten()",
        lambda x: x.view(-1),
        lambda d: Dual(d.value.reshape(-1), d.slope.reshape(-1, d.slope.shape[-1])),
        lambda s: len(s) == 2,
        dense=True,
    ),
    by_key("x[:0]", (slice(0, 0),), lambda x: x[:0], lambda s: 1 <= len(s) < 3),
    Look(
        "x.expand(2, ...)",
        lambda x: x.expand(2, *x.shape),
        lambda d: Dual(expanded(d.value), expanded(d.slope)),
        lambda s: len(s) < 3,
        writeable=False,
    ),
    Look(
        "x.as_strided((n - 1, 2), (1, 1))",
        neighbours,
        lambda d: Dual(windows(d.value, 0), windows(d.slope, 1)),
        lambda s: len(s) > 0 and int(np.prod(s)) > 2,
        dense=True,
        writeable=False,
    ),
]


# ---- where functions jump


def never(value: Any) -> Any:
    return np.array(np.inf)


def at(*places: float) -> Callable[[Any], Any]:
    """How far values are from these, where a function jumps: a last bit, which libraries may differ in, decides."""
    return lambda value: np.min([np.abs(value - place) for place in places], axis=0)


def at_integers(value: Any) -> Any:
    return np.abs(value - np.round(value))


# ---- functions of one or two tensors: what is called, in place or not, and the model's result


class Step(NamedTuple):
    name: str
    call: Callable[[Any, Any], Any]
    change: Callable[[Any, Any], Any]
    model: Callable[[Dual, Dual], tuple[Any, Any]]
    jumps: Callable[[Any], Any] = never


def elementwise(
    name: str,
    function: Callable[[Any], Any],
    derivative: Callable[[Any], Any],
    jumps: Callable[[Any], Any] = never,
) -> Step:
    def model(x: Dual, y: Dual) -> tuple[Any, Any]:
        return function(x.value), up(derivative(x.value)) * x.slope

    return Step(name, lambda x, y: getattr(x, name)(), lambda x, y: getattr(x, name + "_")(), model, jumps)


def sigmoid(v: Any) -> Any:
    return 1 / (1 + np.exp(-v))


def threes(x: Any) -> Any:
    return x.detach().isnan().long() + 3


STEPS = [
    elementwise("sin", np.sin, np.cos),
    elementwise("exp", np.exp, np.exp),
    elementwise("tanh", np.tanh, lambda v: 1 - np.tanh(v) ** 2),
    elementwise("sigmoid", sigmoid, lambda v: sigmoid(v) * (1 - sigmoid(v))),
    elementwise("neg", np.negative, lambda v: -np.ones_like(v)),
    elementwise("relu", lambda v: np.maximum(v, 0), lambda v: (v > 0) * 1.0, at(0)),
    elementwise("square", np.square, lambda v: 2 * v),
    elementwise("floor", np.floor, np.zeros_like, at_integers),
    Step("add", lambda x, y: x + y, lambda x, y: x.add_(y), lambda x, y: (x.value + y.value, x.slope + y.slope)),
    Step(
        "sub",
        lambda x, y: x.sub(y, alpha=0.5),
        lambda x, y: x.sub_(y, alpha=0.5),
        lambda x, y: (x.value - 0.5 * y.value, x.slope - 0.5 * y.slope),
    ),
    Step(
        "mul",
        lambda x, y: x * y,
        lambda x, y: x.mul_(y),
        lambda x, y: (x.value * y.value, up(y.value) * x.slope + up(x.value) * y.slope),
    ),
    # an exponent of another dtype: the general way to change a tensor, which keeps the former value
    Step(
        "pow",
        lambda x, y: x.pow(threes(x)),
        lambda x, y: x.pow_(threes(x)),
        lambda x, y: (x.value**3, up(3 * x.value**2) * x.slope),
    ),
    Step("halve", lambda x, y: x * 0.5, lambda x, y: x.mul_(0.5), lambda x, y: (x.value * 0.5, x.slope * 0.5)),
    Step(
        "clamp",
        lambda x, y: x.clamp(0.3, 0.9),
        lambda x, y: x.clamp_(0.3, 0.9),
        lambda x, y: (np.clip(x.value, 0.3, 0.9), up((x.value >= 0.3) & (x.value <= 0.9)) * x.slope),
        at(0.3, 0.9),
    ),
    Step(
        "masked_fill",
        lambda x, y: x.masked_fill(x > 0.8, 0.1),
        lambda x, y: x.masked_fill_(x > 0.8, 0.1),
        lambda x, y: (np.where(x.value > 0.8, 0.1, x.value), up(x.value <= 0.8) * x.slope),
        at(0.8),
    ),
    Step(
        "lerp",
        lambda x, y: x.lerp(y, 0.25),
        lambda x, y: x.lerp_(y, 0.25),
        lambda x, y: (x.value + 0.25 * (y.value - x.value), x.slope + 0.25 * (y.slope - x.slope)),
    ),
]

#: those that read both tensors
OF_TWO = [step for step in STEPS if step.name in ("add", "sub", "mul", "lerp")]


# ---- writes that have no out-of-place form


class Write(NamedTuple):
    name: str
    change: Callable[[Any, Any], Any]
    model: Callable[[Dual, Dual], None]
    fits: Callable[[tuple[int, ...]], bool] = lambda s: True
    jumps: Callable[[Any], Any] = never


def assign(key: Any) -> Callable[[Any, Any], None]:
    def change(x: Any, y: Any) -> None:
        x[key] = 0.25

    return change


def assign_model(key: Any) -> Callable[[Dual, Dual], None]:
    def change(x: Dual, y: Dual) -> None:
        x.value[key], x.slope[key] = 0.25, 0

    return change


def assign_row(x: Any, y: Any) -> None:
    x[0] = y[-1]


def assign_row_model(x: Dual, y: Dual) -> None:
    value, slope = y.value[-1].copy(), y.slope[-1].copy()
    x.value[0], x.slope[0] = value, slope


def assign_last(x: Any, y: Any) -> None:
    x[-1] = y[0]


def assign_last_model(x: Dual, y: Dual) -> None:
    value, slope = y.value[0].copy(), y.slope[0].copy()
    x.value[-1], x.slope[-1] = value, slope


def assign_all(x: Any, y: Any) -> None:
    x[:] = y


def scale_chosen(x: Any, y: Any) -> None:
    x[[0]] = x[[0]] * 3


def scale_chosen_model(x: Dual, y: Dual) -> None:
    x.value[0], x.slope[0] = x.value[0] * 3, x.slope[0] * 3


def assign_mask(x: Any, y: Any) -> None:
    x[x > 0.6] = 0.5


def assign_mask_model(x: Dual, y: Dual) -> None:
    mask = x.value > 0.6
    x.slope[mask] = 0
    x.value[mask] = 0.5


WRITES = [
    Write("zero_", lambda x, y: x.zero_(), lambda x, y: x.write(0, 0)),
    Write("fill_", lambda x, y: x.fill_(0.7), lambda x, y: x.write(0.7, 0)),
    Write("copy_", lambda x, y: x.copy_(y), lambda x, y: x.write(y.value.copy(), y.slope.copy())),
    Write("gt_", lambda x, y: x.gt_(0.5), lambda x, y: x.write(x.value > 0.5, 0), jumps=at(0.5)),
    Write("x[0] = 0.25", assign(0), assign_model(0), has(1)),
    Write("x[1:] = 0.25", assign(slice(1, None)), assign_model(slice(1, None)), has(1)),
    Write("x[0] = y[-1]", assign_row, assign_row_model, has(1)),
    Write("x[-1] = y[0]", assign_last, assign_last_model, has(1)),
    Write("x[:] = y", assign_all, lambda x, y: x.write(y.value.copy(), y.slope.copy()), has(1)),
    Write("x[[0]] *= 3", scale_chosen, scale_chosen_model, has(1)),
    Write("x[x > 0.6] = 0.5", assign_mask, assign_mask_model, jumps=at(0.6)),
]
