"""Checkpointing: keep the inputs of a function instead of what it saves, and run it again when backward needs that.

The hook-based form (`use_reentrant=False`, recomputation.py) stops running as soon as the last value needed is there.
It may keep the results of some operations: by a policy (selective.py) or by a budget (memory_budget.py). The re-entrant
form (reentrant.py) is a node with a backward pass of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from undertow.autograd.checkpoint.memory_budget import Budget
from undertow.autograd.checkpoint.mismatch import CheckpointError, Log
from undertow.autograd.checkpoint.recomputation import (
    METADATA_FUNCTIONS,
    Frame,
    GraphExecGroup,
    SaveInputs,
    TransformsOfForward,
    debug_choice,
    early_stop_choice,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from undertow.autograd.checkpoint.reentrant import CheckpointFunction
from undertow.autograd.checkpoint.selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from undertow.autograd.interceptors.autocast import Autocasts
from undertow.autograd.interceptors.stack import active, under
from undertow.graph.user_lines import warn_user
from undertow.modes import is_grad_enabled
from undertow.ops import REGISTRY
from undertow.ops.random.generator import fork_rng, restore, states

if TYPE_CHECKING:
    from undertow.tensor import Tensor

__all__ = [
    "CheckpointError", "CheckpointPolicy", "GraphExecGroup", "SelectiveCheckpointContext", "checkpoint",
    "checkpoint_sequential", "create_selective_checkpoint_contexts", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip


def noop_context_fn() -> tuple[Any, Any]:
    """No extra context managers around forward and recomputation.

    >>> import undertow as ut
    >>> first, second = ut.utils.checkpoint.noop_context_fn()
    >>> with first, second:
    ...     print(ut.ones(1))
    tensor([1.])
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    budget: float | None = None,
    **kwargs: Any,
) -> Any:
    """Run `function(*args, **kwargs)` without keeping what it saves; it runs again when backward needs that.

    use_reentrant      False: by saved-tensor hooks (recommended); True: by a backward pass inside a node
    context_fn         gives two context managers, for the forward run and for the recomputation
    determinism_check  "default": compare shape, dtype and device of what is recomputed; "none": do not
    debug              explain a mismatch by the operations that both runs did
    early_stop         stop the recomputation when the last tensor needed is there
    preserve_rng_state give the recomputation the random numbers of the forward run
    budget             keep some results after all, those that take longest per byte: at most this share (0 to 1) of
                       the bytes that the graph would have kept. Implies use_reentrant=False

    preserve_rng_state  draw the same random numbers again

    >>> import undertow as ut
    >>> from undertow.autograd.checkpoint import checkpoint
    >>> x = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> ut.allclose(x.grad, x.exp() * x.exp().cos())
    True
    """
    if use_reentrant is None and budget is None:
        _warn_about_the_default("checkpoint")
        use_reentrant = True
    if use_reentrant:
        _check_reentrant(context_fn is not noop_context_fn or debug is not False or budget is not None, args, kwargs)
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in METADATA_FUNCTIONS:
        raise ValueError(f"determinism_check must be one of {sorted(METADATA_FUNCTIONS)}, not {determinism_check!r}")
    chosen_early_stop, chosen_debug = early_stop_choice.get(), debug_choice.get()
    early_stop = early_stop if chosen_early_stop is None else chosen_early_stop
    debug = debug if chosen_debug is None else chosen_debug
    if (debug or budget is not None) and context_fn is not noop_context_fn:
        raise ValueError("debug=True and budget are incompatible with a context_fn of your own")
    if debug and budget is not None:
        raise ValueError("debug=True and budget are incompatible: find the mismatch without a budget")
    frame = Frame(early_stop, METADATA_FUNCTIONS[determinism_check])
    if debug:
        context_fn = _logging(frame)
    elif budget is not None and is_grad_enabled():
        context_fn = _within(budget, frame, function, (*args, *kwargs.values()))
    return _run(frame, function, args, kwargs, context_fn, preserve_rng_state)


def _check_reentrant(has_options: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what only a checkpoint by hooks can do."""
    if has_options:
        raise ValueError("Passing `context_fn` or `debug` (or `budget`) is only supported when use_reentrant=False.")
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs) + " (only with use_reentrant=False)")
    if active().vmaps or any([level.concerns(args) for level in active().duals]):
        raise RuntimeError(
            "checkpoint(use_reentrant=True) cannot run inside vmap or forward-mode AD: its node has a backward pass of "
            "its own, and no other rule. Pass use_reentrant=False."
        )


def _warn_about_the_default(name: str) -> None:
    warn_user(
        f"{name}: the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended, "
        "but if you need to preserve the current default behavior, you can pass use_reentrant=True."
    )


def _logging(frame: Frame) -> Callable[[], tuple[Any, Any]]:
    """Contexts that note the operations of both runs, to explain a mismatch."""
    frame.logs = (Log(), Log())
    forward, again = frame.logs
    return lambda: (forward.recording(), again.recording())


def _within(share: float, frame: Frame, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Contexts that keep results within a budget."""
    budget = Budget(share, function, args)
    frame.watch = budget.see_saved
    return budget.contexts


def _run(
    frame: Frame,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context_fn: Callable[[], tuple[Any, Any]],
    preserve_rng_state: bool,
) -> Any:
    forward_context, recompute_context = context_fn()
    saved = states() if preserve_rng_state else None
    autocasts, transforms = Autocasts(), TransformsOfForward()

    def recompute(*inputs: Any) -> None:
        named, positional = inputs[0], inputs[1:]
        with fork_rng(enabled=preserve_rng_state):
            if saved is not None:
                restore(saved)
            with autocasts.again(), recompute_context:
                transforms.again(function, positional, named)

    frame.recompute = recompute
    dummy = REGISTRY["empty"].function(0, requires_grad=True)
    frame.inputs = under(None, SaveInputs.apply, dummy, kwargs, *args)  # it computes nothing to be transformed
    if frame.inputs.grad_fn is None:  # nothing is recorded, so nothing will be recomputed
        with forward_context:
            return function(*args, **kwargs)
    with frame.hooks(), forward_context:
        result = function(*args, **kwargs)
    frame.forward_finished = True
    return result


#: what `checkpoint` takes beside the arguments of its function
OPTIONS = ("context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state", "budget")


def checkpoint_sequential(
    functions: Any, segments: int, input: Tensor, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of functions in `segments` parts, all but the last of them checkpointed.

    Keyword arguments are options of `checkpoint`.

    input          what the first function is called with
    use_reentrant  as `checkpoint` takes it
    **kwargs       further options of `checkpoint`

    >>> import undertow as ut
    >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.ReLU(), ut.nn.Linear(3, 1))
    >>> ut.utils.checkpoint.checkpoint_sequential(model, 2, ut.ones(1, 2), use_reentrant=False).shape
    undertow.Size([1, 1])
    """
    unknown = [name for name in kwargs if name not in OPTIONS]
    if unknown:
        raise ValueError("Unexpected keyword arguments: " + ",".join(unknown))
    if use_reentrant is None and kwargs.get("budget") is not None:
        use_reentrant = False
    if use_reentrant is None:
        _warn_about_the_default("checkpoint_sequential")
        use_reentrant = True
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments
    ends = [size * k for k in range(segments)] + [len(steps)]
    for start, end in pairwise(ends[:-1]):
        input = checkpoint(_chain(steps[start:end]), input, use_reentrant=use_reentrant, **kwargs)
    return _chain(steps[ends[-2] :])(input)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Tensor) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run
