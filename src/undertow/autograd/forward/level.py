"""DualLevel: one level of forward mode. What an operation, a change in place and a custom Function do to tangents.

An operation on tensors with tangents runs as always (and is recorded as always), then its declared jvp is evaluated
with recorded operations on tensors, so that tangents can be differentiated in every direction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from undertow.autograd.batched_tensor import physical
from undertow.autograd.forward.tangents import (
    fresh,
    laid_out_as,
    remember_for_node,
    same_layout,
    set_first_tangent,
    set_tangent,
    spread_cut,
    tangent_of,
)
from undertow.autograd.forward.unknown_tangent import UnknownTangent, unknown_among
from undertow.autograd.interceptors.stack import Transforms, active, under
from undertow.autograd.slopes import has_slope, slopes_of
from undertow.backend import cpu, dtypes
from undertow.backend.silence import quietly
from undertow.backend.sparse.protocol import AnySparse
from undertow.modes import no_grad
from undertow.ops import REGISTRY
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare.rules.apply_jvp import apply_jvp, sum_of_terms, terms_of
from undertow.ops.inplace.checks import check_fit, check_in_place
from undertow.ops.inplace.methods import copy_
from undertow.ops.inplace.overwriting import copy
from undertow.tensor import Tensor, version_of
from undertow.tensor.extra import Tangents
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

#: whether operations compute tangents (see forward_ad.set_fwd_grad_enabled)
enabled: ContextVar[bool] = ContextVar("undertow.forward_grad", default=True)


ARRAYS = (cpu.ndarray, cpu.generic)


class DualLevel:
    """One level.

    number   how many levels it is nested in
    tracked  whether what is computed for tangents is recorded, where something requires grad
    holders  every Tangents that has a tangent of this level
    """

    __slots__ = ("holders", "most_holders", "number", "tracked")

    def __init__(self, number: int, tracked: bool = True) -> None:
        self.number = number
        self.tracked = tracked
        self.holders: list[ref[Tangents]] = []
        self.most_holders = 64  # when there are so many, those that are gone are taken out

    def add_holder(self, holder: Tangents) -> None:
        self.holders.append(ref(holder))
        if len(self.holders) > self.most_holders:
            self.holders = [known for known in self.holders if known() is not None]
            self.most_holders = 64 + 2 * len(self.holders)

    def close(self) -> None:
        for known in self.holders:
            if (holder := known()) is not None:
                holder.pop(self, None)
        self.holders = []

    def __repr__(self) -> str:
        return f"<dual level {self.number}>"

    # ---- which arguments have a tangent

    def concerns(self, args: Any) -> bool:
        return enabled.get() and self.is_among(args)

    def is_among(self, values: Any) -> bool:
        """Whether one of the values, or of those in lists, has a tangent."""
        for value in values:
            if isinstance(value, Tensor):
                if value._extra is not None and tangent_of(value, self) is not None:
                    return True
            elif type(value) in (list, tuple) and self.is_among(value):
                return True
        return False

    def tangent(self, value: Any) -> Any:
        """Of a tensor; for a list, a list."""
        if isinstance(value, Tensor):
            return tangent_of(value, self)
        if type(value) in (list, tuple):
            return [self.tangent(v) for v in value]
        return None

    def below(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function without this level."""
        return under(active().without(self), function, *args)

    # ---- operations

    def run(self, function: Any, args: tuple[Any, ...], stack: Transforms) -> Any:
        return under(stack.without(self), self.run_below, function.op, args)

    def run_below(self, op: Op, args: tuple[Any, ...]) -> Any:
        result = op.by_position(*args)
        if op.kind == "nondifferentiable" or self.run_by_terms(op, args, result):
            return result
        values = op.by_name(args)
        for n in op.inputs:
            if isinstance(values[n], ARRAYS):  # NumPy arrays, given for tensors
                values[n] = as_operand(op.name, n, values[n])
        tangents = {n: t for n in op.edges if (t := self.tangent(values[n])) is not None}
        unknown = unknown_among(tangents.values())
        if unknown is not None:
            return self.run_on_unknown(op, result, unknown)
        # as in a backward pass, the caller's errstate is for the values alone
        found = quietly(self.computed, apply_jvp, op, values, tangents, result)
        given: list[Any] = []
        for t in tangents.values():
            given += [one for one in t if one is not None] if isinstance(t, list) else [t]
        single = isinstance(result, Tensor)
        for out, tangent in zip([result] if single else result, [found] if single else found, strict=True):
            if tangent is not None:
                self.attach(out, tangent if op.kind == "view" else fresh(tangent, out, given))
        return result

    def run_by_terms(self, op: Op, args: tuple[Any, ...], result: Any) -> bool:
        """Give a result of real numbers its tangent, if that is a sum of terms, one for each operand that has one."""
        terms = terms_of(op)
        if terms is None or not isinstance(result, Tensor) or not is_dense_real(result):
            return False
        dtype, given = result._array.dtype, []
        for term in terms:
            value = args[term.place]
            if not isinstance(value, Tensor):
                if type(value) not in (int, float) or op.ordered[term.place] != op.number:
                    return False
            elif value._extra is not None and (tangent := tangent_of(value, self)) is not None:
                if type(tangent) is UnknownTangent or tangent._array.dtype is not dtype or not is_dense_real(tangent):
                    return False
                given.append((tangent, term))
        if not given:
            return False
        found = quietly(self.computed, sum_of_terms, given, args, result)
        if op.kind != "view":
            found = fresh(found, result, [tangent for tangent, _ in given])
        self.attach(result, found)
        return True

    def run_on_unknown(self, op: Op, result: Any, unknown: UnknownTangent) -> Tensor:
        """The tangents of the results are as unknown as that of an operand, where they have any."""
        arguments, without = slopes_of(op)
        for nr, out in enumerate((result,) if isinstance(result, Tensor) else result):
            if arguments and nr not in without and has_slope(op, out):
                self.attach(out, unknown.of(out))
        return result

    def computed(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that computes tangents."""
        if self.tracked:
            return function(*args)
        with no_grad():
            return function(*args)

    def attach(self, tensor: Tensor, tangent: Tensor) -> None:
        set_tangent(tensor, self, tangent)
        remember_for_node(tensor, self)

    def spread_cuts(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """A view of a tensor that is cut off from its base's tangent is cut off, too."""
        if function.op.kind != "view" or not isinstance(args[0], Tensor):
            return
        source, others = args[0], args[1:]
        if isinstance(result, Tensor):
            spread_cut(source, self, result, lambda tangent: function(tangent, *others))
            return

        def part(nr: int, tangent: Tensor) -> Tensor:
            return function(tangent, *others)[nr]

        for nr, tensor in enumerate(result):
            spread_cut(source, self, tensor, partial(part, nr))

    # ---- changes in place

    def in_place(
        self,
        name: str,
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Transforms,
    ) -> Any:
        # what the operation saves must survive the change, so it works on a copy
        result = function(REGISTRY["clone"].function(tensor), *args, **kwargs)
        check_fit(tensor._array, tuple(result.shape), result.dtype, name)
        if result.dtype != tensor.dtype:
            result = copy(tensor, result)
        old, new = tangent_of(tensor, self), tangent_of(result, self)
        return under(stack.without(self), self.change, tensor, result, old, new)

    def change(self, tensor: Tensor, result: Tensor, old: Tensor | None, new: Tensor) -> Tensor:
        if old is not None:
            check_change(old, new)
        copy_(tensor, result)
        if old is not None:
            copy_(old, 0 if new is None else new)
        elif new is not None:
            set_first_tangent(tensor, self, new)
        return tensor

    def new_look(self, function: Callable[..., Any], tensor: Tensor, args: Any, kwargs: Any, stack: Transforms) -> Any:
        """The tensor's tangent, looked at as an in-place view operation is going to look at the tensor."""
        tangent = tangent_of(tensor, self)
        outer = Transforms(stack.duals[: self.number], stack.vmaps)
        return None if tangent is None else under(outer, function, tangent, *args, **kwargs)

    def look_again(self, tensor: Tensor, tangent: Tensor) -> None:
        if tangent is not None:
            set_tangent(tensor, self, tangent)

    def refuse_out(self, name: str) -> None:
        raise NotImplementedError(
            f"Trying to use forward AD with {name}_out that does not support it because it is an out= function: use "
            "the form without out="
        )

    # ---- custom Functions

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Transforms) -> Any:
        """Run forward without any dual level, then jvp once for each of them, outermost first."""
        below = Transforms((), stack.vmaps) if stack.vmaps else None
        call = under(below, cls._noted_call, args, kwargs)
        for place, level in enumerate(stack.duals):
            outer = Transforms(stack.duals[:place], stack.vmaps) if place or stack.vmaps else None
            if level.concerns(call.args):
                under(outer, level.push, call)
        return call.result

    def push(self, call: Any) -> None:
        """Call a custom Function's jvp, and give its outputs what it returns."""
        inputs = [(k, a) for k, a in enumerate(call.args) if isinstance(a, Tensor)]
        given = {k: tangent_of(a, self) for k, a in inputs}
        versions = {k: counted_version(given[k]) for k, a in inputs if call.is_dirty(a)}
        tangents = [self.shown(call, k, a, given.get(k)) for k, a in enumerate(call.args)]
        found = self.computed(call.jvp, tangents)
        if len(found) != len(call.outputs):
            raise RuntimeError(
                "Function's jvp returned an invalid number of forward gradients (expected "
                f"{len(call.outputs)} but got {len(found)})"
            )
        for nr, tangent in enumerate(found):
            self.take(call, nr, tangent, given, versions)

    def shown(self, call: Any, place: int, value: Any, tangent: Tensor | None) -> Any:
        """What jvp sees for an argument: its tangent, zeros, or None."""
        if tangent is not None or not isinstance(value, Tensor) or not call.node.materialize_grads:
            return tangent
        if not dtypes.is_differentiable(value._array.dtype):
            return None
        return REGISTRY["zeros_like"].function(value)

    def take(self, call: Any, nr: int, tangent: Tensor, given: dict[int, Any], versions: dict[int, int | None]) -> None:
        raw, out = call.raw[nr], call.outputs[nr]
        if not call.is_differentiable(nr):
            if tangent is not None:
                raise RuntimeError(
                    f"Function's jvp returned a gradient at position {nr}, but  the corresponding forward output is "
                    "not a differentiable Tensor.You should return None at that position instead."
                )
            return
        if tangent is None:
            return
        self.check_tangent(out, tangent)
        if call.is_dirty(raw):
            self.take_dirty(call, raw, out, tangent, given, versions)
            return
        source = call.viewed_input(raw)
        if source is not None and given.get(source) is not None:
            check_is_view(tangent, given[source])
            self.attach(out, tangent)
        elif source is not None:
            set_first_tangent(out, self, tangent)
        else:
            self.attach(out, tangent if same_layout(tangent, out) else laid_out_as(tangent, out))

    def take_dirty(
        self, call: Any, raw: Any, out: Any, tangent: Any, given: dict[int, Any], versions: dict[int, int | None]
    ) -> None:
        place = next(k for k, a in enumerate(call.args) if a is raw)
        old = given.get(place)
        if old is None:
            set_first_tangent(out, self, tangent)
            return
        if versions[place] is not None and counted_version(old) == versions[place]:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
        if tangent is not old:
            raise RuntimeError(
                "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is "
                "modifying an input inplace, then the jvp function must modify the gradient inplace and return it "
                "as-is."
            )

    def check_tangent(self, tensor: Tensor, tangent: Tensor) -> None:
        """Raise unless `tangent` can be a tangent of the tensor."""
        if tangent._array.shape != tensor._array.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                f"not supported. Tensor is of size {list(tensor._array.shape)} while the given forward gradient is of "
                f"size {list(tangent._array.shape)}."
            )
        if tangent_of(tangent, self) is not None:
            raise RuntimeError(
                f"Setting a forward grad that itself has a forward gradient at the same level {self.number} is not "
                "supported. Use its primal (unpack_dual), or another level."
            )


def check_change(tangent: Tensor, value: Tensor | None) -> None:
    """Refuse a change of a tangent that would fail after its tensor has been changed."""
    changed, written = physical(tangent), None if value is None else physical(value)
    if isinstance(written, UnknownTangent):
        written._array.refuse()
    check_in_place(changed, "copy_", written is not None and requires_grad(written))
    for level in active().vmaps:
        level.check_shared("copy_", tangent, value)


def base_of(tensor: Tensor) -> Tensor | None:
    extra = physical(tensor)._extra
    return None if extra is None or extra.view is None else extra.view.base


def is_dense_real(tensor: Tensor) -> bool:
    return tensor._array.dtype.kind == "f" and not isinstance(tensor._array, AnySparse)


def counted_version(tangent: Tensor | None) -> int | None:
    """The version of a tangent; None if there is no tangent, or none that counts its changes (an inference tensor)."""
    if tangent is None:
        return None
    tensor = physical(tangent)
    return None if tensor._extra is not None and tensor._extra.inference else version_of(tensor)


def check_is_view(tangent: Tensor, given: Tensor) -> None:
    """Raise unless the tangent that jvp returned is a view of the one it was given, as the output is of the input."""
    base = base_of(tangent)
    if base is None:
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
    if base_of(given) is not None and base is not base_of(given):
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of the same base as the given "
            "grad input."
        )
    if base_of(given) is None and base is not physical(given):
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of the given grad input."
        )
