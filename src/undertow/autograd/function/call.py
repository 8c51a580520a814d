"""Call: what one call of a custom Function was given and returned, for forward mode and vmap."""

from __future__ import annotations

from typing import Any

from undertow.autograd.function.intermediates import guard_attributes, is_guarding
from undertow.autograd.function.node import FunctionNode
from undertow.backend import dtypes
from undertow.tensor import Tensor


class FunctionCall:
    """One call of a Function, for forward mode: its arguments, and its outputs before and after they were wrapped."""

    result: Any

    def note(self, node: FunctionNode, args: tuple[Any, ...], output: Any) -> None:
        """After forward, before its outputs are wrapped."""
        self.node, self.args = node, args
        self.raw = tuple(output) if isinstance(output, tuple) else (output,)
        self.dirty, self.non_differentiable = node._dirty, node._non_differentiable

    @property
    def outputs(self) -> tuple[Any, ...]:
        return self.result if isinstance(self.result, tuple) else (self.result,)

    def jvp(self, tangents: list[Any]) -> list[Any]:
        """What the user's jvp returns, as a list; it sees what was saved for it."""
        wrapped = {id(raw): out for raw, out in zip(self.raw, self.outputs, strict=True)}
        self.node._saved_for_forward = tuple([wrapped.get(id(t), t) for t in self.node._saved_for_forward])
        found = call_jvp(self.node, tangents)
        return list(found) if isinstance(found, tuple | list) else [found]

    def is_differentiable(self, nr: int) -> bool:
        out = self.raw[nr]
        marked = any(out is n for n in self.non_differentiable)
        return isinstance(out, Tensor) and not marked and dtypes.is_differentiable(out._array.dtype)

    def is_dirty(self, output: Tensor) -> bool:
        return any(output is d for d in self.dirty)

    def viewed_input(self, output: Tensor) -> int | None:
        """The place of the argument that an output is, or shares its memory with as a view."""
        base = _root(output)
        return next((k for k, a in enumerate(self.args) if isinstance(a, Tensor) and _root(a) is base), None)


def call_jvp(node: FunctionNode, tangents: list[Any]) -> Any:
    """What the user's jvp returns; its `saved_tensors` are those that were saved for it."""
    if is_guarding(node):
        guard_attributes(node)
    node.__dict__["_in_jvp"] = True
    try:
        return node._forward_cls.jvp(node, *tangents)
    finally:
        node.__dict__["_in_jvp"] = False


def _root(tensor: Tensor) -> Tensor:
    return tensor if tensor._extra is None or tensor._extra.view is None else tensor._extra.view.base
