"""Recomputation by saved-tensor hooks: what one call of a checkpointed function saves, and how it is had again.

The forward hooks put an empty Holder in the place of every saved tensor. The first unpack in a backward pass runs the
function again under another pair of hooks, which catch the saved tensors in the same order and keep them for that pass.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from undertow.autograd.batched_tensor import BatchedTensor, physical
from undertow.autograd.checkpoint.mismatch import CheckpointError, Log, explained
from undertow.autograd.function import Function
from undertow.autograd.graph import current_graph_task_id, is_graph_kept
from undertow.autograd.interceptors.stack import Transforms, active, under, with_beneath
from undertow.autograd.saved_tensors import saved_tensors_hooks
from undertow.autograd.tensor_attributes import detach
from undertow.engine.tasks import current_task
from undertow.modes import current, enable_grad, no_grad
from undertow.ops import REGISTRY
from undertow.scopes import Scope
from undertow.tensor import Tensor, counter_of, current_edge, version_of

early_stop_choice: ContextVar[bool | None] = ContextVar("undertow.checkpoint.early_stop", default=None)
debug_choice: ContextVar[bool | None] = ContextVar("undertow.checkpoint.debug", default=None)
_group: ContextVar[GraphExecGroup | None] = ContextVar("undertow.checkpoint.group", default=None)


class set_checkpoint_early_stop(Scope, contextlib.ContextDecorator):
    """Whether recomputation stops as soon as everything needed is there; overrides the argument of `checkpoint`.

    enable  True or False

    >>> import undertow as ut
    >>> model = ut.nn.Linear(2, 1)
    >>> with ut.utils.checkpoint.set_checkpoint_early_stop(False):
    ...     out = ut.utils.checkpoint.checkpoint(model, ut.ones(1, 2), use_reentrant=False)
    >>> out.shape
    undertow.Size([1, 1])
    """

    variable = early_stop_choice

    def __init__(self, enable: bool) -> None:
        self.enable = enable

    def inside(self, outer: bool | None) -> bool:
        return self.enable


class set_checkpoint_debug_enabled(Scope, contextlib.ContextDecorator):
    """Whether checkpoints made inside explain a mismatch by the operations of both runs; overrides their argument.

    >>> import undertow as ut
    >>> model = ut.nn.Linear(2, 1)
    >>> with ut.utils.checkpoint.set_checkpoint_debug_enabled(True):
    ...     out = ut.utils.checkpoint.checkpoint(model, ut.ones(1, 2), use_reentrant=False)
    >>> out.shape
    undertow.Size([1, 1])
    """

    variable = debug_choice

    def __init__(self, enabled: bool | None) -> None:
        self.enabled = enabled

    def inside(self, outer: bool | None) -> bool | None:
        return self.enabled


class GraphExecGroup(Scope):
    """Backward passes inside share what is recomputed; they must use disjoint parts of the graph.

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> y = ut.utils.checkpoint.checkpoint(ut.sin, x, use_reentrant=False)
    >>> with ut.utils.checkpoint.GraphExecGroup():
    ...     y.sum().backward()
    >>> x.grad
    tensor([0.5403, 0.5403])
    """

    variable = _group

    @property
    def given(self) -> GraphExecGroup:
        return self

    def inside(self, outer: GraphExecGroup | None) -> GraphExecGroup:
        if outer is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested")
        return self


class _Handle:
    """The key of a recomputed tensor; it dies with the pass it was recomputed for."""

    __slots__ = ("__weakref__",)


class _Holder:
    """What stands in a node for a saved tensor: for each pass, the key under which it was recomputed."""

    __slots__ = ("__weakref__", "handles")

    def __init__(self) -> None:
        self.handles: dict[Any, _Handle] = {}


class Recomputed:
    """A tensor that was saved while the function ran again, and the version it had then."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.version = version_of(physical(tensor))

    def unchanged(self) -> Tensor:
        counted = physical(self.tensor)
        if version_of(counted) == self.version:
            return self.tensor
        raise CheckpointError(
            "checkpoint: one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: the function changed a tensor of shape {list(self.tensor.shape)} that it needs as it was. "
            f"The last change was {counter_of(counted).last_change()}. Let it change a clone() of the tensor."
        )


class _StopRecomputation(Exception):
    """Everything that was saved in the forward pass has been recomputed."""


class SaveInputs(Function):
    """A node that keeps the checkpointed function's tensors, so that outer hooks see them like any saved tensor."""

    _is_tracked = False

    @staticmethod
    def forward(*tensors: Tensor) -> Any:
        return REGISTRY["zeros"].function(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        args = inputs[1:]
        ctx.positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        tensors = [a for a in args if isinstance(a, Tensor)]
        ctx.batches = [batches_of(a) for a in tensors]
        ctx.save_for_backward(*[physical(a) for a in tensors])  # whose versions are counted

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("nothing flows through the node that saves a checkpoint's inputs")


def batches_of(tensor: Tensor) -> list[tuple[int, Any]]:
    """Dimension and level of the batch that a tensor stands for, and of those within it, innermost first."""
    found: list[tuple[int, Any]] = []
    while type(tensor) is BatchedTensor:
        found.append((tensor._dim, tensor._level))
        tensor = tensor._value
    return found[::-1]


def as_batches(tensor: Tensor, batches: list[tuple[int, Any]]) -> Tensor:
    for dim, level in batches:
        tensor = BatchedTensor(tensor, dim, level)
    return tensor


class TransformsOfForward:
    """The vmaps and dual levels that a checkpointed function ran in, which it must run in again.

    A vmap can be had again after its end, because tensors with examples know it. Tangents end with their level. A vmap
    that only a batch of gradients is in is none of theirs.
    """

    def __init__(self) -> None:
        self._found = active()

    def again(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        duals = active().duals
        if any(level not in duals for level in self._found.duals):
            raise CheckpointError(
                "checkpoint: the function ran inside a level of forward mode (forward_ad.dual_level, func.jvp or "
                "func.jacfwd) which has ended, and with it the tangents that running it again needs. Call backward "
                "inside that level, or leave the checkpoint out there."
            )
        if not active().order and not self._found.vmaps:
            return function(*args, **kwargs)
        transforms = Transforms(duals, self._found.vmaps) if duals or self._found.vmaps else None
        return under(with_beneath(current().intercept, transforms), function, *args, **kwargs)


class Frame:
    """One call of `checkpoint`.

    holders     what the forward pass saved, in order; weakly, because the nodes own them
    recomputed  pass -> handle -> tensor; weak in the handles, which the holders own
    counts      pass -> how many tensors have been recomputed for it
    done        the passes whose recomputation has run
    """

    def __init__(self, early_stop: bool, metadata: Callable[[Tensor], Any] | None) -> None:
        self.recompute: Callable[..., None]  # runs the function again; given with the inputs
        self.early_stop = early_stop
        self.metadata = metadata
        self.inputs: Any = None
        self.watch: Callable[[Tensor], None] | None = None  # is shown what the forward pass saves
        self.forward_finished = False
        self.incomparable = False  # a backward pass inside the function ran it again before it had finished
        self.logs: tuple[Log, Log] | None = None
        self.holders: list[weakref.ref[_Holder]] = []
        self.facts: list[Any] = []
        self.recomputed: dict[Any, weakref.WeakKeyDictionary[_Handle, Recomputed]] = {}
        self.counts: dict[Any, int] = {}
        self.done: set[Any] = set()

    def hooks(self) -> saved_tensors_hooks:
        """The hooks of the forward pass."""

        def pack(tensor: Tensor) -> _Holder:
            holder = _Holder()
            self.holders.append(weakref.ref(holder))
            if self.watch is not None:
                self.watch(tensor)
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
                raise explained(error, self.logs) from None if self.logs is None else error
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
        return found.unchanged()

    def forget(self, task: Any) -> None:
        self.done.discard(task)
        self.counts.pop(task, None)
        self.recomputed.pop(task, None)

    def run_again(self, task: Any) -> None:
        arguments = self.inputs.grad_fn
        args = list(arguments.others)
        tensors = zip(arguments.saved_tensors, arguments.batches, strict=True)
        for position, (tensor, batches) in zip(arguments.positions, tensors, strict=True):
            args[position] = as_batches(tensor, batches)
        self.recomputed[task] = weakref.WeakKeyDictionary()
        self.counts[task] = 0
        with contextlib.suppress(_StopRecomputation), self.recomputation_hooks(task), enable_grad():
            self.recompute(*args)
        self.done.add(task)
        self.check(task)

    def recomputation_hooks(self, task: Any) -> saved_tensors_hooks:
        def pack(tensor: Tensor) -> Tensor:
            # without history: the graph of the recomputation is not used, and must not be kept
            kept = tensor if current_edge(tensor) is None else detach(tensor)
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
                self.recomputed[task][handle] = Recomputed(kept)
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
            if found is not None and self.metadata(found.tensor) != self.facts[number]:
                differences.append(
                    f"tensor at position {number}:\nsaved metadata: {self.facts[number]}\n"
                    f"recomputed metadata: {self.metadata(found.tensor)}"
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
