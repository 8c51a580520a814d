"""InputTracking: follows the inputs of a custom Function through the operations of its forward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from undertow.autograd.batched_tensor import BatchedTensor, physical
from undertow.autograd.forward.tangents import tangent_of
from undertow.autograd.interceptors.stack import Above, Transforms, beneath, under
from undertow.autograd.slopes import has_slope, is_continuous, is_flat, slopes_of
from undertow.modes import Interceptor
from undertow.ops.declare import REGISTRY
from undertow.tensor import Tensor

#: operations in place that leave nothing of what was there
OVERWRITING = {"zero_", "fill_", "copy_", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
               "normal_", "random_", "uniform_"}  # fmt: skip

CONTAINERS = (list, tuple, dict)


class InputTracking(Above):
    """Follows the inputs of one call, above the transformations that are active.

    A tensor's `reach` is a number with bit k set if it changes with the k-th tensor among the arguments. Of a batch of
    examples, the tensor with all of them is looked at.

    known  id of a tensor -> (weak reference to it, its reach); of a view, the id of its base
    """

    def __init__(self, below: Callable[..., Any] | None, known: dict[int, tuple[Any, int]]) -> None:
        super().__init__(below)
        self.known = known
        self.duals = below.duals if isinstance(below, Transforms) else ()  # those that forward itself entered

    @classmethod
    def of(cls, inputs: Sequence[Tensor], needed: Sequence[bool], below: Callable[..., Any] | None) -> InputTracking:
        """A new one; `needed` says which inputs a derivative is taken by."""
        tracking = cls(below, {})
        for k, tensor in enumerate(inputs):
            if needed[k]:
                tracking.note(tensor, tracking.reach(tensor) | 1 << k)
        return tracking

    def over(self, below: Callable[..., Any]) -> InputTracking:
        return InputTracking(below, self.known)

    def note(self, tensor: Tensor, reach: int) -> None:
        base = base_of(tensor)
        self.known[id(base)] = weakref.ref(base), reach
        if self.duals:
            for tangent in self.tangents(tensor):
                self.note(tangent, reach)

    def reach(self, tensor: Tensor) -> int:
        base = base_of(tensor)
        found = self.known.get(id(base))
        reach = 0 if found is None or found[0]() is not base else found[1]
        return reach | self.reach_of_all(self.tangents(tensor)) if self.duals else reach

    def tangents(self, tensor: Tensor) -> list[Tensor]:
        """The tangents that forward itself gave to a tensor."""
        found = [tangent_of(physical(tensor), level) for level in self.duals]
        return [t for t in found if t is not None]

    def reach_of_all(self, values: Iterable[Any]) -> int:
        reach = 0
        for value in values:
            if isinstance(value, Tensor):
                reach |= self.reach(value)
            elif isinstance(value, CONTAINERS):
                reach |= self.reach_of_all(value.values() if isinstance(value, dict) else value)
        return reach

    def note_all(self, values: Any, reach: int) -> None:
        for value in values if isinstance(values, CONTAINERS) else (values,):
            if reach and is_continuous(value):
                self.note(value, reach)

    # ---- what forward may do

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        op = function.op
        result = under(self.below, op.by_position, *args)
        arguments, without = slopes_of(op)
        reach = self.reach_of_all([args[k] for k in arguments])
        if reach and op.kind != "view":  # a view is known by its base
            for nr, out in enumerate((result,) if op.outputs is None else result):
                if nr not in without and has_slope(op, out):
                    self.note(out, reach)
        return result

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        op = getattr(function, "op", None)
        reach = 0 if op is not None and is_flat(op) else self.reach_of_all((args, kwargs))
        is_part = base_of(tensor) is not physical(tensor)
        if is_part or not (name in OVERWRITING or (op is not None and is_flat(op))):
            reach |= self.reach(tensor)
        if isinstance(self.below, Interceptor):
            result = under(self.below, self.below.in_place, name, change, function, tensor, args, kwargs)
        else:
            result = under(self.below, change, tensor, *args, **kwargs)
        if is_continuous(tensor):
            self.note(tensor, reach)
        return result

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reach = self.reach_of_all((args, kwargs))
        if isinstance(self.below, Interceptor):
            result = under(self.below, self.below.apply_function, cls, args, kwargs)
            self.note_all(result, reach)
            return result
        call = under(self.below, cls._noted_call, args, kwargs)
        self.note_all([out for nr, out in enumerate(call.outputs) if call.is_differentiable(nr)], reach)
        return call.result

    def stands_for(self, alias: Tensor, tensor: Tensor) -> None:
        self.note(alias, self.reach(tensor))

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.below, Interceptor):
            return under(self.below, self.below.draw, function, args, kwargs)
        return under(self.below, function.__wrapped__, *args, **kwargs)

    def in_turn(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().in_turn(function, args, kwargs)
        if beneath(self) is not None:  # it may have looked at the examples one by one, below this
            self.note_all(result, self.reach_of_all((args, kwargs)))
        return result

    def check_out(self, name: str, tensors: list[Any]) -> None:
        super().check_out(name, tensors)
        reach = self.reach_of_all(tensors)
        op = REGISTRY.get(name)
        if reach and not (op and op.piecewise_constant) and is_continuous(tensors[-1]):
            self.note(tensors[-1], reach)


def base_of(tensor: Tensor) -> Tensor:
    """The tensor whose memory it is, with all examples."""
    if type(tensor) is BatchedTensor:
        tensor = physical(tensor)
    extra = tensor._extra
    return tensor if extra is None or extra.view is None else extra.view.base
