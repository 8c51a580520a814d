"""The re-entrant form of checkpointing: one node, whose backward runs the function again and then a backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.autograd.backward import backward
from undertow.autograd.function import Function
from undertow.autograd.interceptors.autocast import Autocasts
from undertow.engine.tasks import is_checkpoint_valid
from undertow.graph.user_lines import warn_user
from undertow.modes import enable_grad, no_grad
from undertow.ops.random.generator import fork_rng, restore, states
from undertow.tensor import Tensor, current_edge


class CheckpointFunction(Function):
    """Runs the function without recording; backward runs it again, recorded, and a backward pass through that."""

    _is_tracked = False

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        _check_some_require_grad(args)
        ctx.function, ctx.autocasts = function, Autocasts()
        ctx.rng_states = states() if preserve_rng_state else None
        ctx.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(): undertow's is, too. To resolve this error, you can either set "
                "use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.others)
        for position, tensor in zip(ctx.positions, ctx.saved_tensors, strict=True):
            copy = inputs[position] = tensor.detach()
            if current_edge(tensor) is not None:
                copy.requires_grad_(True)
        with fork_rng(enabled=ctx.rng_states is not None):
            if ctx.rng_states is not None:
                restore(ctx.rng_states)
            with enable_grad(), ctx.autocasts.again():
                outputs = ctx.function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o._edge is not None]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[i.grad if isinstance(i, Tensor) else None for i in inputs])


def _check_some_require_grad(args: Sequence[Any]) -> None:
    if not any(isinstance(a, Tensor) and current_edge(a) is not None for a in args):
        warn_user("None of the inputs have requires_grad=True. Gradients will be None")
