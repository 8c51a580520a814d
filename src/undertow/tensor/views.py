"""Views: which tensor's memory a tensor shows, and how to look at it again."""

from __future__ import annotations

from typing import Any

from undertow.tensor.metadata import DEFAULT, INFERENCE, INFERENCE_EXTRA, MULTIPLE_OUTPUTS, NO_COUNTER, NO_GRAD
from undertow.tensor.metadata import Extra as Extra
from undertow.tensor.metadata import View as View
from undertow.tensor.tensor import Tensor, version_of


class Replay:
    """A chain of view operations; calling it on a tensor shaped as the base gives the same view of that tensor.

    steps  (function, arguments, output number or None): `function(tensor, *arguments)[output]`
    """

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[Any, ...]) -> None:
        self.steps = steps

    def __call__(self, base: Tensor) -> Tensor:
        for function, arguments, output in self.steps:
            base = function(base, *arguments)
            if output is not None:
                base = base[output]  # type: ignore[index]
        return base

    def of_array(self, xp: Any, array: Any) -> Any:
        """The same part of a bare array, sharing its memory."""
        for function, arguments, output in self.steps:
            op = getattr(function, "op", None)
            if op is None:
                array = function(Tensor(array, xp), *arguments)._array
            else:
                array = op.forward(xp, array, *arguments)
            if output is not None:
                array = array[output]
        return array

    def sees_memory(self) -> bool:
        """Whether the view depends on how its base lies in memory, and not only on its elements: as_strided does."""
        return any([getattr(function, "op", None) is not None and function.op.name == "_as_strided"
                    for function, _, _ in self.steps])  # fmt: skip


class PartReplay(Replay):
    """`base[key]`, where key is of ints and slices: the view that an assignment writes to, if it is to a base."""

    __slots__ = ("key", "part")

    def __init__(self, part: Any, key: Any) -> None:
        self.part = part
        self.key = key

    @property
    def steps(self) -> tuple[Any, ...]:  # type: ignore[override]
        return ((self.part, (self.key,), None),)

    def of_array(self, xp: Any, array: Any) -> Any:
        return array[self.key]

    def sees_memory(self) -> bool:
        return False


def attach_view(result: Any, source: Tensor, function: Any, arguments: tuple[Any, ...], state: Any) -> None:
    """Mark `result` (a tensor, or a tuple of them) as made by the view operation `function(source, *arguments)`."""
    extra = source._extra
    if extra is None or extra.view is None:
        if extra is not None and extra.counter is NO_COUNTER:
            share_inference(result)
            return
        base, steps, former = source, (), DEFAULT
    else:
        base, steps, former = extra.view.base, current_replay(source).steps, extra.view.creation
    version = 0 if base._extra is None else version_of(base)
    several = type(result) is tuple
    creation = creation_in(state, several, former)
    if several:
        for nr, tensor in enumerate(result):
            extra = tensor._extra = Extra()
            extra.view = View(base, Replay((*steps, (function, arguments, nr))), creation, version)
        return
    extra = result._extra = Extra()
    extra.view = View(base, Replay((*steps, (function, arguments, None))), creation, version)


def creation_in(state: Any, several: bool, former: str) -> str:
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
    """How to look at a view again, given the shape that its base has now."""
    view = tensor._extra.view  # type: ignore[union-attr]
    assert view is not None
    base_extra = view.base._extra
    if base_extra is not None and base_extra.rare is not None and base_extra.rare.reshaped_at > view.version:
        return by_memory(tensor)
    return view.replay  # type: ignore[no-any-return]


def by_memory(tensor: Tensor) -> Replay:
    """Set by ops/strided.py: the replay that finds the tensor's elements by their places in memory."""
    raise NotImplementedError("the operations are not loaded")


def install_by_memory(function: Any) -> None:
    global by_memory
    by_memory = function
