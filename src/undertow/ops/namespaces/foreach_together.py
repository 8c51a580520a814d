"""Lists of tensors on a device whose kernels take many arrays: one launch in the place of one for each tensor.

Nothing is recorded there. A list goes this way if it would give the same tensor by tensor: none needs a gradient, each
that is changed has memory of its own, and none reads what another one changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, kernels
from undertow.modes import current
from undertow.tensor import Tensor, counter_of
from undertow.tensor.tensor import requires_grad
from undertow.tensor.version_counter import NO_COUNTER

if TYPE_CHECKING:
    from undertow.backend.interface import Array, Namespace

#: function -> the kinds of its arguments (t: tensors, n: a number, s: a tensor of one number for all) -> its formula
FORMULAS: dict[str, dict[str, str]] = {
    "add": {"n": "a + s[0]", "t": "a + b", "s": "a + shared"},
    "sub": {"n": "a - s[0]", "t": "a - b"},
    "mul": {"n": "a * s[0]", "t": "a * b", "s": "a * shared"},
    "div": {"n": "a / s[0]", "t": "a / b", "s": "a / shared"},
    "addcmul": {"ttn": "a + s[0] * (b * c)"},
    "addcdiv": {"ttn": "a + s[0] * (b / c)"},
    "lerp": {"tn": "s[0] < T(0.5) ? a + s[0] * (b - a) : b - (b - a) * (T(1) - s[0])"},
    "neg": {"": "-a"},
    "sqrt": {"": "m_sqrt(a)"},
    "abs": {"": "m_fabs(a)"},
    "exp": {"": "m_exp(a)"},
    "reciprocal": {"": "T(1) / a"},
    "copy": {"t": "b"},
    "zero": {"": "T(0)"},
}


def is_plain(tensor: Array, xp: Namespace) -> bool:
    """Whether a tensor is of that device and nobody asks for its gradient, nor is it one of inference mode."""
    extra = tensor._extra if type(tensor) is Tensor else None
    return (
        type(tensor) is Tensor
        and tensor._xp is xp
        and type(tensor._array) is xp.ndarray
        and (extra is None or extra.counter is not NO_COUNTER)
        and not (current().grad_enabled and requires_grad(tensor))
    )


def kind_of(arg: Any, xp: Namespace) -> str:
    """The letter of an argument in FORMULAS; "-": none of them."""
    if type(arg) in (int, float):
        return "n"
    if isinstance(arg, (list, tuple)):
        if all([is_plain(t, xp) for t in arg]):
            return "t"
        return "n" if all([type(n) in (int, float) for n in arg]) and len(set(arg)) == 1 else "-"
    return "s" if isinstance(arg, Tensor) and is_plain(arg, xp) and not arg.ndim else "-"


def changed_together(name: str, tensors: Sequence[Array], args: Sequence[Any]) -> bool:
    """Change every tensor of a list by a function of FORMULAS; False: nothing was changed, it does not go this way."""
    formulas, first = FORMULAS.get(name), tensors[0]
    xp = getattr(first, "_xp", cpu)
    if formulas is None or xp is cpu or current().unusual or current().inference or len(tensors) < 2:
        return False
    code = formulas.get("".join([kind_of(arg, xp) for arg in args]))
    if code is None or not all([is_plain(t, xp) for t in tensors]):
        return False
    lists = [[t._array for t in arg] for arg in args if isinstance(arg, (list, tuple)) and isinstance(arg[0], Tensor)]
    changed = [t._array for t in tensors]
    if not are_apart(changed, lists):
        return False
    numbers = tuple([float(n) for n in (a[0] if isinstance(a, (list, tuple)) else a for a in args) if is_number(n)])
    shared = next((a._array for a in args if isinstance(a, Tensor)), None)
    if shared is not None and any([shared.address == a.address for a in changed]):
        return False
    if not kernels.change_all(xp, code, list(zip(changed, *lists, strict=True)), numbers, shared):
        return False
    for tensor in tensors:
        counter_of(tensor).bump(f"{name}_")
    return True


def is_number(value: Array) -> bool:
    return type(value) in (int, float)


def are_apart(changed: Sequence[Any], lists: Sequence[Sequence[Any]]) -> bool:
    """Whether arrays have memory of their own, in which no other's list entry is read, and fit their sources."""
    places = {a.address: k for k, a in enumerate(changed)}
    if len(places) != len(changed) or any([a.base is not None for a in changed]):
        return False
    for sources in lists:
        for k, (source, target) in enumerate(zip(sources, changed, strict=True)):
            if source.base is not None or places.get(source.address, k) != k:
                return False
            if source.shape != target.shape or source.dtype is not target.dtype:
                return False
    return True


def norm_together(tensors: Sequence[Array], order: float) -> Tensor | None:
    """The norm of all elements of tensors on one device, as a tensor; None: it does not go this way."""
    xp = getattr(tensors[0], "_xp", cpu)
    if xp is cpu or current().unusual or not all([is_plain(t, xp) for t in tensors]):
        return None
    arrays = [t._array for t in tensors]
    if any([a.dtype is not arrays[0].dtype for a in arrays]):
        return None
    found = kernels.total_norm(xp, arrays, order)
    return None if found is None else Tensor(found, xp)
