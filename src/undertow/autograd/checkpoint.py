"""Checkpointing: keep the inputs of a function instead of what it saves, and run it again when backward needs that.

The hook-based form (`use_reentrant=False`) packs every tensor that the function's nodes save into an empty Holder. The
first unpack in a backward pass runs the function again under another pair of hooks, which catch the saved tensors in
the same order and keep them for that pass. As soon as the last one is caught, the run stops (early stop).

The re-entrant form records one node, whose backward runs the function again and then a backward pass of its own.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

from undertow.autograd.backward import backward
from undertow.autograd.function import Function
from undertow.autograd.graph import current_graph_task_id, is_graph_kept
from undertow.autograd.saved_tensors import saved_tensors_hooks
from undertow.engine.tasks import current_task
from undertow.errors import AutogradError
from undertow.modes import current, enable_grad, no_grad, set_state
from undertow.ops import REGISTRY
from undertow.ops.generator import fork_rng, get_rng_state, set_rng_state
from undertow.tensor import Tensor, current_edge


class CheckpointError(AutogradError):
    """The recomputation did not save what the forward pass saved."""


_early_stop: ContextVar[bool | None] = ContextVar("undertow.checkpoint.early_stop", default=None)
_debug: ContextVar[bool | None] = ContextVar("undertow.checkpoint.debug", default=None)
_group: ContextVar[GraphExecGroup | None] = ContextVar("undertow.checkpoint.group", default=None)


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether recomputation stops as soon as everything needed is there; overrides the argument of `checkpoint`."""
    token = _early_stop.set(enable)
    try:
        yield
    finally:
        _early_stop.reset(token)


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether checkpoints made inside explain a mismatch by the operations of both runs; overrides their argument."""
    token = _debug.set(enabled)
    try:
        yield
    finally:
        _debug.reset(token)


class GraphExecGroup:
    """Backward passes inside share what is recomputed; they must use disjoint parts of the graph."""

    def __enter__(self) -> GraphExecGroup:
        if _group.get() is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested")
        self._token = _group.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _group.reset(self._token)


# ---- the hook-based form


class _Handle:
    """The key of a recomputed tensor; it dies with the pass it was recomputed for."""

    __slots__ = ("__weakref__",)


class _Holder:
    """What stands in a node for a saved tensor: for each pass, the key under which it was recomputed."""

    __slots__ = ("__weakref__", "handles")

    def __init__(self) -> None:
        self.handles: dict[Any, _Handle] = {}


class _StopRecomputation(Exception):
    """Everything that was saved in the forward pass has been recomputed."""


class _SaveInputs(Function):
    """A node that keeps the checkpointed function's tensors, so that outer hooks see them like any saved tensor."""

    @staticmethod
    def forward(*tensors: Any) -> Any:
        return REGISTRY["zeros"].function(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        args = inputs[1:]
        ctx.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("nothing flows through the node that saves a checkpoint's inputs")


class _Frame:
    """One call of `checkpoint`.

    holders     what the forward pass saved, in order; weakly, because the nodes own them
    recomputed  pass -> handle -> tensor; weak in the handles, which the holders own
    counts      pass -> how many tensors have been recomputed for it
    done        the passes whose recomputation has run
    """

    def __init__(
        self, recompute: Callable[..., None], early_stop: bool, metadata: Callable[[Tensor], Any] | None
    ) -> None:
        self.recompute = recompute
        self.early_stop = early_stop
        self.metadata = metadata
        self.inputs: Any = None
        self.forward_finished = False
        self.incomparable = False  # a backward pass inside the function ran it again before it had finished
        self.logs: tuple[_Log, _Log] | None = None
        self.holders: list[weakref.ref[_Holder]] = []
        self.facts: list[Any] = []
        self.recomputed: dict[Any, weakref.WeakKeyDictionary[_Handle, Tensor]] = {}
        self.counts: dict[Any, int] = {}
        self.done: set[Any] = set()

    def hooks(self) -> saved_tensors_hooks:
        """The hooks of the forward pass."""

        def pack(tensor: Tensor) -> _Holder:
            holder = _Holder()
            self.holders.append(weakref.ref(holder))
            if self.metadata is not None:
                with no_grad():
                    self.facts.append(self.metadata(tensor))
            return holder

        return saved_tensors_hooks(pack, self.unpack)

    def unpack(self, holder: _Holder) -> Tensor:
        task, temporary = _running_pass()
        if task not in self.done:
            try:
                self.run_again(task)
            except CheckpointError as error:
                raise _explained(error, self.logs) from None if self.logs is None else error
        if task not in holder.handles:
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}.\n"
                f"Number of tensors saved during recomputation: {self.counts.get(task, 0)}."
            )
        handle = holder.handles[task]
        if handle is None:
            raise CheckpointError(
                "checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are calling "
                "ctx.saved_tensors in backward, make sure to do so only once. Otherwise please report the case."
            )
        found = self.recomputed[task].get(handle)
        if found is None:
            raise CheckpointError(
                "checkpoint: Performing two backward calls that overlap (i.e. require the same saved activation) "
                "inside one GraphExecGroup is not supported: keep their parts of the graph disjoint, or leave the "
                "group out."
            )
        if temporary:
            self.forget(task)
        elif _group.get() is not None or not is_graph_kept():
            # used up: the tensor dies with its handle
            holder.handles[task] = None if _group.get() is None else _Handle()  # type: ignore[assignment]
        return found

    def forget(self, task: Any) -> None:
        self.done.discard(task)
        self.counts.pop(task, None)
        self.recomputed.pop(task, None)

    def run_again(self, task: Any) -> None:
        arguments = self.inputs.grad_fn
        tensors = iter(arguments.saved_tensors)
        args = list(arguments.others)
        for position in arguments.positions:
            args[position] = next(tensors)
        self.recomputed[task] = weakref.WeakKeyDictionary()
        self.counts[task] = 0
        with contextlib.suppress(_StopRecomputation), self.recomputation_hooks(task), enable_grad():
            self.recompute(*args)
        self.done.add(task)
        self.check(task)

    def recomputation_hooks(self, task: Any) -> saved_tensors_hooks:
        def pack(tensor: Tensor) -> Tensor:
            # without history: the graph of the recomputation is not used, and must not be kept
            kept = tensor if current_edge(tensor) is None else tensor.detach()  # type: ignore[attr-defined]
            number = self.counts[task]
            self.counts[task] = number + 1
            if number >= len(self.holders) and not self.forward_finished:
                self.incomparable = True
                return kept
            if number >= len(self.holders):
                raise CheckpointError(
                    "checkpoint: trying to save more tensors during recomputation than during the original forward "
                    f"pass, which saved {len(self.holders)}. The function must do the same both times."
                )
            holder = self.holders[number]()
            if holder is not None:
                handle = holder.handles[task] = _Handle()
                self.recomputed[task][handle] = kept
            if self.early_stop and self.forward_finished and self.counts[task] == len(self.holders):
                raise _StopRecomputation
            return kept

        def unpack(tensor: Tensor) -> Tensor:
            return tensor

        return saved_tensors_hooks(pack, unpack)

    def check(self, task: Any) -> None:
        """Compare what was recomputed with what the forward pass saved."""
        if self.incomparable:
            return
        if self.counts[task] != len(self.holders):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}.\n"
                f"Number of tensors saved during recomputation: {self.counts[task]}."
            )
        if self.metadata is None:
            return
        differences = []
        for number, reference in enumerate(self.holders):
            holder = reference()
            handle = None if holder is None else holder.handles.get(task)
            found = None if handle is None else self.recomputed[task].get(handle)
            if found is not None and self.metadata(found) != self.facts[number]:
                differences.append(
                    f"tensor at position {number}:\nsaved metadata: {self.facts[number]}\n"
                    f"recomputed metadata: {self.metadata(found)}"
                )
        if differences:
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata than during the "
                "forward pass: the tensors have different metadata.\n" + "\n".join(differences)
            )


def _running_pass() -> tuple[Any, bool]:
    """What recomputed tensors are kept for: a group, the running pass, or (True) just this one access."""
    group = _group.get()
    if group is not None:
        return group, False
    number = current_graph_task_id()
    if number == -1:
        return object(), True
    task = current_task()
    assert task is not None
    return number, False


def _metadata(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tuple(tensor.shape), "dtype": tensor.dtype, "device": str(tensor.device)}


METADATA_FUNCTIONS: dict[str, Callable[[Tensor], Any] | None] = {"default": _metadata, "none": None}


def noop_context_fn() -> tuple[Any, Any]:
    """No extra context managers around forward and recomputation."""
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
    **kwargs: Any,
) -> Any:
    """Run `function(*args, **kwargs)` without keeping what it saves; it runs again when backward needs that.

    use_reentrant      False: by saved-tensor hooks (recommended); True: by a backward pass inside a node
    context_fn         gives two context managers, for the forward run and for the recomputation
    determinism_check  "default": compare shape, dtype and device of what is recomputed; "none": do not
    debug              explain a mismatch by the operations that both runs did
    early_stop         stop the recomputation when the last tensor needed is there
    preserve_rng_state give the recomputation the random numbers of the forward run

    >>> import undertow as ut
    >>> from undertow.autograd.checkpoint import checkpoint
    >>> x = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> ut.allclose(x.grad, x.exp() * x.exp().cos())
    True
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended, "
            "but if you need to preserve the current default behavior, you can pass use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant:
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs) + " (only with use_reentrant=False)")
        return _Reentrant.apply(function, preserve_rng_state, *args)
    if determinism_check not in METADATA_FUNCTIONS:
        raise ValueError(f"determinism_check must be one of {sorted(METADATA_FUNCTIONS)}, not {determinism_check!r}")
    chosen_debug = _debug.get()
    if debug if chosen_debug is None else chosen_debug:
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with a context_fn of your own")
        return _run_logged(function, args, kwargs, determinism_check, early_stop, preserve_rng_state)
    return _run_hooked(function, args, kwargs, context_fn, determinism_check, early_stop, preserve_rng_state)


def _run_hooked(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context_fn: Callable[[], tuple[Any, Any]],
    determinism_check: str,
    early_stop: bool,
    preserve_rng_state: bool,
    logs: tuple[_Log, _Log] | None = None,
) -> Any:
    forward_context, recompute_context = context_fn()
    state = get_rng_state() if preserve_rng_state else None

    def recompute(*inputs: Any) -> None:
        named, positional = inputs[0], inputs[1:]
        with fork_rng(enabled=preserve_rng_state):
            if state is not None:
                set_rng_state(state)
            with recompute_context:
                function(*positional, **named)

    chosen = _early_stop.get()
    frame = _Frame(recompute, early_stop if chosen is None else chosen, METADATA_FUNCTIONS[determinism_check])
    frame.logs = logs
    dummy = REGISTRY["empty"].function(0, requires_grad=True)
    frame.inputs = _SaveInputs.apply(dummy, kwargs, *args)
    if frame.inputs.grad_fn is None:  # nothing is recorded, so nothing will be recomputed
        with forward_context:
            return function(*args, **kwargs)
    with frame.hooks(), forward_context:
        result = function(*args, **kwargs)
    frame.forward_finished = True
    return result


# ---- explaining a mismatch


class _Log:
    """The operations of a run, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        outer = current()

        def intercept(function: Any, args: tuple[Any, ...]) -> Any:
            self.lines.append(f"{function.__name__}({', '.join(_shown(a) for a in args)})")
            inner = current()
            set_state(inner.replace(intercept=outer.intercept))
            try:
                return function(*args)
            finally:
                set_state(inner)

        set_state(outer.replace(intercept=intercept))
        try:
            yield
        finally:
            set_state(current().replace(intercept=outer.intercept))


def _shown(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _run_logged(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    determinism_check: str,
    early_stop: bool,
    preserve_rng_state: bool,
) -> Any:
    forward_log, again_log = _Log(), _Log()

    def contexts() -> tuple[Any, Any]:
        return forward_log.recording(), again_log.recording()

    return _run_hooked(
        function, args, kwargs, contexts, determinism_check, early_stop, preserve_rng_state, (forward_log, again_log)
    )


def _explained(error: CheckpointError, logs: tuple[_Log, _Log] | None) -> CheckpointError:
    """The error, with the operations of both runs where they were logged."""
    if logs is None:
        return error
    forward_log, again_log = ("\n".join(f"  {line}" for line in log.lines) for log in logs)
    return CheckpointError(
        "checkpoint: the recomputation did not do what the forward run did. You are seeing this error because you "
        "passed `debug=True` to checkpoint and tensors to be saved during the original forward and differ between "
        f"those saved during recomputation.\nOperations of the forward run:\n{forward_log}\n"
        f"Operations of the recomputation:\n{again_log}\n{error}"
    )


# ---- the re-entrant form


class _Reentrant(Function):
    """Runs the function without recording; backward runs it again, recorded, and a backward pass through that."""

    @staticmethod
    def forward(ctx: Any, function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        _check_some_require_grad(args)
        ctx.function = function
        ctx.rng_state = get_rng_state() if preserve_rng_state else None
        ctx.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        task = current_task()
        if task is not None and task.exec_info is not None:
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
        with fork_rng(enabled=ctx.rng_state is not None):
            if ctx.rng_state is not None:
                set_rng_state(ctx.rng_state)
            with enable_grad():
                outputs = ctx.function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o._edge is not None]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[i.grad if isinstance(i, Tensor) else None for i in inputs])  # type: ignore[attr-defined]


def _check_some_require_grad(args: Sequence[Any]) -> None:
    if not any(isinstance(a, Tensor) and current_edge(a) is not None for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of functions in `segments` parts, all but the last of them checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: the use_reentrant parameter should be passed explicitly. use_reentrant=False is "
            "recommended, but if you need to preserve the current default behavior, you can pass use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments
    ends = [size * k for k in range(segments)] + [len(steps)]
    for start, end in pairwise(ends[:-1]):
        input = checkpoint(_chain(steps[start:end]), input, use_reentrant=use_reentrant, **kwargs)
    return _chain(steps[ends[-2] :])(input)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return run
