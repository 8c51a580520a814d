"""The engine as programs written for PyTorch call it: `Variable._execution_engine`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.autograd.backward import backward, grad
from undertow.engine.engine import engine
from undertow.engine.tasks import is_checkpoint_valid
from undertow.tensor import Tensor


class ImperativeEngine:
    """What `backward` and `grad` do, for arguments that are already in order: tuples, and no gradient left out."""

    __slots__ = ()

    def run_backward(
        self,
        tensors: tuple[Any, ...],
        grad_tensors: tuple[Any, ...],
        keep_graph: bool,
        create_graph: bool,
        inputs: tuple[Any, ...] = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[Any, ...] | None:
        """Send `grad_tensors` into `tensors`.

        inputs             only these get gradients, in a tuple or, with `accumulate_grad`, in `.grad`
        allow_unreachable  an input that no gradient reaches gets None, instead of an error

        >>> import undertow as ut
        >>> x = ut.tensor(3.0, requires_grad=True)
        >>> run_backward = ut.autograd.Variable._execution_engine.run_backward
        >>> run_backward((x * x,), (ut.tensor(1.0),), False, False, (x,))
        (tensor(6.),)
        """
        _check_tuple("tensors", tensors)
        _check_tuple("grad_tensors", grad_tensors)
        if len(tensors) != len(grad_tensors):
            raise RuntimeError(f"got {len(tensors)} tensors and {len(grad_tensors)} gradients")
        for index, (tensor, gradient) in enumerate(zip(tensors, grad_tensors, strict=True)):
            if gradient is None and (not isinstance(tensor, Tensor) or tensor.requires_grad):
                raise RuntimeError(
                    f"element {index} of gradients tuple is None, but the corresponding Tensor requires grad: give a "
                    "gradient, or call undertow.autograd.backward, which makes that of a scalar"
                )
        if inputs:
            _check_tuple("inputs", inputs)
        elif not accumulate_grad:
            raise RuntimeError("grad requires non-empty inputs: name some, or pass accumulate_grad=True")
        if not accumulate_grad:
            found = grad(tensors, inputs, grad_tensors, keep_graph, create_graph, allow_unused=allow_unreachable)
            return tuple(found)
        backward(tensors, grad_tensors, keep_graph, create_graph, inputs=inputs or None)
        return None

    def queue_callback(self, callback: Callable[[], None], outermost: bool = False) -> None:
        """Run `callback` once, when the backward pass that is running now has finished: see autograd.graph."""
        engine.queue_callback(callback, outermost)

    def is_checkpoint_valid(self) -> bool:
        """Whether re-entrant checkpoints can run: no pass that is running now has chosen inputs."""
        return is_checkpoint_valid()


#: by the name under which libraries ask for it
_is_checkpoint_valid = is_checkpoint_valid


def _check_tuple(name: str, value: Any) -> None:
    if not isinstance(value, tuple):
        raise RuntimeError(f"{name} argument is expected to be a tuple, but got {type(value).__name__}")
