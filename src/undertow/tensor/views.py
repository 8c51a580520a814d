"""Views: which tensor's memory a tensor shows, and how to look at it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.tensor.extra import DEFAULT, INFERENCE, INFERENCE_EXTRA, MULTIPLE_OUTPUTS, NO_GRAD
from undertow.tensor.extra import Extra as Extra
from undertow.tensor.extra import View as View
from undertow.tensor.lent_operations import lent
from undertow.tensor.tensor import Tensor, version_of
from undertow.tensor.version_counter import NO_COUNTER

if TYPE_CHECKING:
    from undertow.modes import State


class Replay:
    """How to take a view again: `function(tensor, *arguments)[output]`, after the steps that led to the tensor.

    Linked, so that a view of a view adds one step and copies none; walked in loops, because chains may be long.

    before  the Replay of the tensor that the view was taken of; None if that is the base
    output  which output of the function it is; None if it has but one
    """

    __slots__ = ("arguments", "before", "function", "output")

    def __init__(
        self, before: Replay | None, function: Callable[..., Any], arguments: tuple[Any, ...], output: int | None
    ) -> None:
        self.before = before
        self.function = function
        self.arguments = arguments
        self.output = output

    def steps(self) -> list[Replay]:
        """The steps from the base to the view."""
        found, step = [self], self.before
        while step is not None:
            found.append(step)
            step = step.before
        return found[::-1]

    def __call__(self, base: Tensor) -> Tensor:
        """The same view of another tensor that is shaped as the base."""
        for step in self.steps():
            base = step.function(base, *step.arguments)
            if step.output is not None:
                base = base[step.output]
        return base

    def of_array(self, xp: Namespace, array: Array) -> Array:
        """The same part of a bare array, sharing its memory."""
        for step in self.steps():
            op = getattr(step.function, "op", None)
            if op is None:
                array = step.function(Tensor(array, xp), *step.arguments)._array
            else:
                array = op.forward(xp, array, *step.arguments)
            if step.output is not None:
                array = array[step.output]
        return array

    def sees_memory(self) -> bool:
        """Whether the view depends on how its base lies in memory, and not only on its elements: as_strided does."""
        ops = [getattr(step.function, "op", None) for step in self.steps()]
        return any([op is not None and op.name == "_as_strided" for op in ops])


def is_view(tensor: Tensor) -> bool:
    return tensor._extra is not None and tensor._extra.view is not None


def attach_view(
    result: Any,
    source: Tensor,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    state: State,
    number: int | None = None,
) -> None:
    """Mark `result` (a tensor, or a tuple of them) as made by the view operation `function(source, *arguments)`.

    number  which of several results it is, if they are marked one by one
    """
    extra = source._extra
    if extra is None or extra.view is None:
        if extra is not None and extra.counter is NO_COUNTER:
            share_inference(result)
            return
        base, before, former = source, None, DEFAULT
    else:
        base, before, former = extra.view.base, current_replay(source), extra.view.creation
    version = 0 if base._extra is None else version_of(base)
    several = type(result) is tuple
    creation = creation_in(state, several or number is not None, former)
    if several:
        for nr, tensor in enumerate(result):
            tensor._extra = Extra(View(base, Replay(before, function, arguments, nr), creation, version))
    else:
        result._extra = Extra(View(base, Replay(before, function, arguments, number), creation, version))


def creation_in(state: State, several: bool, former: str) -> str:
    """How a view made now came to be: by the mode that is on, or else as the view it is made of."""
    if state.inference:
        return INFERENCE
    if not state.grad_enabled:
        return NO_GRAD
    return MULTIPLE_OUTPUTS if several else former


def share_inference(result: Any) -> None:
    """Views of inference tensors are inference tensors: nobody follows what is done to their memory."""
    for tensor in result if type(result) is tuple else (result,):
        tensor._extra = INFERENCE_EXTRA
        tensor._edge = None


def current_replay(tensor: Tensor) -> Replay:
    """How to look at a view again, given the shape that its base, and the memory that it, has now."""
    view = tensor._extra.view  # type: ignore[union-attr]
    assert view is not None
    rare = None if view.base._extra is None else view.base._extra.rare
    if rare is not None and (rare.moved or rare.reshaped_at > view.version):
        return lent().by_memory(tensor)  # type: ignore[no-any-return]
    return view.replay
