"""Forward mode: tensors that carry a tangent, the derivative along one direction, through every operation.

>>> import undertow as ut
>>> from undertow.autograd import forward_ad
>>> with forward_ad.dual_level():
...     x = forward_ad.make_dual(ut.tensor(3.0), ut.tensor(1.0))
...     forward_ad.unpack_dual(x * x).tangent
tensor(6.)

Levels nest: inside a second one, tangents have tangents. A level belongs to the thread that entered it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undertow.autograd.alias import on_memory
from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.forward import level as _dual
from undertow.autograd.forward.level import DualLevel
from undertow.autograd.forward.tangents import laid_out_as, same_layout, set_tangent, tangent_of
from undertow.autograd.forward.unknown_tangent import UnknownTangent, known
from undertow.autograd.interceptors.stack import active, active_in, entered, left, under
from undertow.backend import dtypes
from undertow.modes import State, current, set_state, state_variable
from undertow.ops import REGISTRY
from undertow.scopes import Scope
from undertow.tensor import Tensor, display


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns: the tensor without its tangent, and the tangent (or None).

    primal  the tensor without its tangent

    >>> import undertow as ut
    >>> fw = ut.autograd.forward_ad
    >>> with fw.dual_level():
    ...     print(fw.unpack_dual(fw.make_dual(ut.ones(1), ut.ones(1)) * 3))
    UnpackedDualTensor(primal=tensor([3.]), tangent=tensor([3.]))
    """

    primal: Tensor
    tangent: Tensor | None


# ---- levels


def current_level() -> int:
    """The number of the innermost level, counted from 0; -1 outside of all levels."""
    return len(active().duals) - 1


def __getattr__(name: str) -> Any:
    """PyTorch keeps the innermost level in a variable of its module, `_current_level`."""
    if name == "_current_level":
        return current_level()
    raise AttributeError(f"module 'undertow.autograd.forward_ad' has no attribute {name!r}")


def enter_dual_level(*, track_tangent_grad: bool = True) -> int:
    """Enter a level, inside of those there are, and return its number. Prefer `with dual_level()`.

    track_tangent_grad  whether what is computed of tangents is recorded

    >>> import undertow as ut
    >>> fw = ut.autograd.forward_ad
    >>> level = fw.enter_dual_level()
    >>> fw.make_dual(ut.ones(1), ut.ones(1)).shape
    undertow.Size([1])
    >>> fw.exit_dual_level(level=level)
    """
    level = DualLevel(current_level() + 1, track_tangent_grad)
    set_state(entered(current(), level, "duals"))
    return level.number


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the innermost level; all tangents of it are gone.

    >>> import undertow as ut
    >>> fw = ut.autograd.forward_ad
    >>> level = fw.enter_dual_level()
    >>> fw.exit_dual_level(level=level)
    """
    last = _innermost(current(), current_level() if level is None else level)
    set_state(left(current(), last))
    last.close()


def _innermost(state: State, number: int) -> DualLevel:
    """The innermost level in a state, which must be the one with that number."""
    duals = active_in(state).duals
    if number < 0:
        raise RuntimeError("Dual level must be a positive number: no level was entered.")
    if number != len(duals) - 1:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported: "
            f"the innermost level is {len(duals) - 1}, not {number}."
        )
    return duals[-1]


class dual_level(Scope):
    """A level of forward mode as a context manager: tangents exist only inside of it.

    track_tangent_grad  False: tangents get no history, although the tensors they belong to do. Nothing is saved for a
                        backward pass through them

    >>> import undertow as ut
    >>> with ut.autograd.forward_ad.dual_level():
    ...     x = ut.autograd.forward_ad.make_dual(ut.tensor([2.0]), ut.ones(1))
    ...     print(ut.autograd.forward_ad.unpack_dual(3 * x).tangent)
    tensor([3.])
    """

    variable: Any = state_variable
    given: int

    def __init__(self, *, track_tangent_grad: bool = True) -> None:
        self.track_tangent_grad = track_tangent_grad
        self._levels: tuple[DualLevel, ...] = ()

    def inside(self, outer: State) -> State:
        level = DualLevel(current_level() + 1, self.track_tangent_grad)
        found = entered(outer, level, "duals")
        self.given, self._levels = level.number, (*self._levels, level)
        return found

    def after(self, inner: State, outer: State) -> State:
        _innermost(inner, self._levels[-1].number)
        return left(inner, self._levels[-1])

    def ended(self) -> None:
        *others, last = self._levels
        self._levels = tuple(others)
        last.close()


class _StateAndSwitch:
    """The state of this thread, and whether tangents are computed, as one variable; see scopes.py."""

    def get(self) -> tuple[State, bool]:
        return current(), _dual.enabled.get()

    def set(self, value: tuple[State, bool]) -> None:
        set_state(value[0])
        _dual.enabled.set(value[1])


class own_level(dual_level):
    """The level of a function that computes tangents on its own, whatever `set_fwd_grad_enabled` says outside."""

    variable: Any = _StateAndSwitch()

    def inside(self, outer: Any) -> Any:
        return super().inside(outer[0]), True

    def after(self, inner: Any, outer: Any) -> Any:
        return super().after(inner[0], outer[0]), outer[1]


def _level(number: int | None, purpose: str) -> DualLevel:
    duals = active().duals
    number = len(duals) - 1 if number is None else number
    if not 0 <= number < len(duals):
        raise RuntimeError(
            f"Trying to {purpose} for forward AD but no level exists, make sure to enter_dual_level() first."
            if not duals
            else f"Trying to {purpose} at level {number}, but the levels are 0 to {len(duals) - 1}."
        )
    return duals[number]


# ---- duals


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """An alias of `tensor` that carries `tangent`, at the innermost level or the one given.

    The tangent is used as it is where it lies in memory as the tensor does, else a copy of it.

    >>> import undertow as ut
    >>> with ut.autograd.forward_ad.dual_level():
    ...     x = ut.autograd.forward_ad.make_dual(ut.tensor([2.0]), ut.ones(1))
    ...     print(ut.autograd.forward_ad.unpack_dual(x * x).tangent)
    tensor([4.])
    """
    chosen = _level(level, "create a dual Tensor")
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not dtypes.is_differentiable(value._array.dtype):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {value._array.dtype}")
    chosen.check_tangent(tensor, tangent)
    if tangent_of(tensor, chosen) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
            f"{chosen.number} is not supported. Take its primal (unpack_dual), or another level."
        )
    if any(tangent_of(tangent, d) is not None for d in active().duals[chosen.number + 1 :]):
        raise RuntimeError(
            f"the tangent given for level {chosen.number} has itself a tangent at an inner level. Make the inner dual "
            "of the result instead."
        )
    return _make_dual(tensor, tangent, chosen)


def _make_dual(tensor: Tensor, tangent: Tensor, level: DualLevel) -> Tensor:
    if type(tensor) is BatchedTensor:
        vmap = tensor._level
        return BatchedTensor(_make_dual(vmap.front(tensor), vmap.front(tangent), level), 0, vmap)
    dual = _alias(tensor, level)
    fits = same_layout(tangent, tensor)
    set_tangent(dual, level, tangent if fits else level.below(laid_out_as, tangent, tensor))
    return dual


def _alias(tensor: Tensor, level: DualLevel) -> Tensor:
    """The tensor without its tangent at a level; gradients flow through."""
    alias: Tensor = level.below(REGISTRY["view_as"].function, tensor, tensor)
    set_tangent(alias, level, None)
    return alias


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent, and the tangent, None if it has none at that level.

    >>> import undertow as ut
    >>> with ut.autograd.forward_ad.dual_level():
    ...     x = ut.autograd.forward_ad.make_dual(ut.tensor([2.0]), ut.ones(1))
    ...     print(ut.autograd.forward_ad.unpack_dual(x.sin()).primal)
    tensor([0.9093])
    """
    if level is None and not active().duals:
        return UnpackedDualTensor(tensor, None)
    if level is not None and level < 0:
        return UnpackedDualTensor(tensor, None)
    chosen = _level(level, "unpack a dual Tensor")
    return _unpack(tensor, chosen)


def primal_of(tensor: Tensor) -> Tensor:
    """The tensor without its tangent at the innermost level, whatever that is."""
    return on_memory(tensor, lambda t: _alias(t, active().duals[-1]))


def _unpack(tensor: Tensor, level: DualLevel) -> UnpackedDualTensor:
    if type(tensor) is BatchedTensor:
        primal, tangent = _unpack(tensor._value, level)
        wrapped = None if tangent is None else BatchedTensor(tangent, tensor._dim, tensor._level)
        return UnpackedDualTensor(BatchedTensor(primal, tensor._dim, tensor._level), wrapped)
    tangent = known(tangent_of(tensor, level)) if _dual.enabled.get() else None
    return UnpackedDualTensor(_alias(tensor, level), tangent)


# ---- switching off


def is_fwd_grad_enabled() -> bool:
    """Whether operations compute tangents."""
    return _dual.enabled.get()


class set_fwd_grad_enabled(Scope):
    """Whether operations compute tangents: at once as a call, until the end of the block as a context manager."""

    variable = _dual.enabled
    at_once = True

    def prepare(self, mode: bool) -> None:
        self.mode = bool(mode)

    def inside(self, outer: bool) -> bool:
        return self.mode


#: by the names under which libraries ask for them
_is_fwd_grad_enabled, _set_fwd_grad_enabled = is_fwd_grad_enabled, set_fwd_grad_enabled


# ---- printing


def tensor_repr(tensor: Tensor, **shown: Any) -> str:
    """`repr(tensor)`, with its tangent at the innermost level."""
    duals = active().duals
    tangent = tangent_of(tensor, duals[-1]) if duals else None
    tangent = None if type(tangent) is UnknownTangent else tangent
    return under(None, display.tensor_repr, tensor, tangent=tangent, **shown)
