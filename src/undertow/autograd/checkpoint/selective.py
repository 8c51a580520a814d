"""Selective checkpointing: a policy says, operation by operation, which results are kept and which computed again."""

from __future__ import annotations

import enum
import functools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.checkpoint.kept_results import Between, Kept, can_be_kept
from undertow.autograd.checkpoint.replayed_results import call_with_known
from undertow.autograd.interceptors.op_mode import operation_name
from undertow.modes import State
from undertow.ops import REGISTRY

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op


class CheckpointPolicy(enum.Enum):
    """What a policy may answer. There is no compiler here to overrule it, so MUST and PREFER mean the same.

    >>> import undertow as ut
    >>> [policy.name for policy in ut.utils.checkpoint.CheckpointPolicy]
    ['MUST_SAVE', 'PREFER_SAVE', 'MUST_RECOMPUTE', 'PREFER_RECOMPUTE']
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class SelectiveCheckpointContext:
    """What a policy is told beside the operation and its arguments: the result, `op_output`.

    is_recompute  whether it runs for the second time

    >>> import undertow as ut
    >>> ut.utils.checkpoint.SelectiveCheckpointContext(is_recompute=False).is_recompute
    False
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Mark(enum.Enum):
    """What stands in the storage for results that are not there."""

    RECOMPUTE = "the policy said so"
    CONSUMED = "a recomputation has used it"


#: operation -> number of its call -> the result that is kept, or a mark
Storage = dict[str, dict[int, Any]]

MISMATCH = (
    "The function must do the same both times: this happens if it depends on chance or on state that changed between "
    "forward and backward."
)


class Caching(Between):
    """The forward run: asks the policy about every operation, and keeps what it wants kept."""

    def __init__(self, policy: Callable[..., Any], storage: Storage) -> None:
        super().__init__()
        self.policy, self.storage = policy, storage

    def decide(self, function: Any, args: tuple[Any, ...]) -> Any:
        name = operation_name(function.op)
        result = self.compute(function, args)
        context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        wanted = _as_policy(self.policy(context, name, *args)) in SAVE
        calls = self.storage[name]
        calls[len(calls)] = Kept(result) if wanted and can_be_kept(result, args) else _Mark.RECOMPUTE
        return result


class Cached(Between):
    """The recomputation: hands out what was kept, each result once."""

    def __init__(self, storage: Storage, allow_cache_entry_mutation: bool, forward: Caching) -> None:
        super().__init__(instead_of=forward)
        self.storage, self.allow_mutation = storage, allow_cache_entry_mutation

    def inside(self, outer: State) -> State:
        self.numbers: dict[str, int] = defaultdict(int)
        return super().inside(outer)

    def ended(self) -> None:
        for calls in () if self.is_early() else self.storage.values():  # an early stop may have left some over
            calls.update({n: _Mark.CONSUMED for n, found in calls.items() if isinstance(found, Kept)})

    def decide(self, function: Any, args: tuple[Any, ...]) -> Any:
        name = operation_name(function.op)
        number = self.numbers[name]
        self.numbers[name] += 1
        found = self.take(name, number)
        if found is None:
            return self.compute(function, args)
        return call_with_known(function, args, found)

    def take(self, name: str, number: int) -> Any:
        """The arrays that were kept for a call; None if it is to be computed again."""
        if name not in self.storage:
            raise RuntimeError(f"{name} encountered during backward but not found in storage. {MISMATCH}")
        kept = self.storage[name].get(number)
        if kept is None:
            raise RuntimeError(
                f"{name} invocation index {number} encountered during backward but not found in storage. {MISMATCH}"
            )
        if kept is _Mark.CONSUMED:
            raise RuntimeError(
                "Trying to backward an extra time. A region under selective checkpointing can be recomputed once, "
                "because what was kept is used up then: call the function again, or use plain checkpoint()."
            )
        if kept is _Mark.RECOMPUTE:
            return None
        self.storage[name][number] = _Mark.CONSUMED
        return self.unchanged(name, kept)

    def unchanged(self, name: str, kept: Kept) -> Any:
        if not kept.is_changed():
            return kept.arrays()
        if not self.allow_mutation:
            raise RuntimeError(
                f"The result of {name}, kept by selective checkpointing, has been mutated since by an operation in "
                "place. Let the policy recompute it, or leave the change in place out. (With "
                "allow_cache_entry_mutation=True the changed values would be used: only right if they do not matter.)"
            )
        arrays = kept.arrays()
        return tuple([a.copy() for a in arrays]) if kept.is_tuple else arrays.copy()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Caching, Cached]:
    """The two contexts of a selective checkpoint, for `checkpoint(..., context_fn=...)`.

    policy_fn_or_list  the operations whose results are kept: a list of names or functions, or a policy
                       `(ctx, op, *args) -> CheckpointPolicy or bool` that is asked in the forward run; `op` is a name
    allow_cache_entry_mutation  do not complain about kept results that were changed in place

    Names are PyTorch's, those of the nodes: "mm" for MmBackward0. Views, changes in place and random draws are always
    done again, and the policy is not asked about them.

    >>> import undertow as ut
    >>> from functools import partial
    >>> from undertow.autograd.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> x = ut.ones(2, 2, requires_grad=True)
    >>> keep_products = partial(create_selective_checkpoint_contexts, ["mm"])
    >>> y = checkpoint(lambda t: (t @ t).sin(), x, use_reentrant=False, context_fn=keep_products)
    >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, list):
        names = frozenset(_checked_name(op) for op in policy_fn_or_list)
        policy: Callable[..., Any] = functools.partial(_is_listed, names)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage: Storage = defaultdict(dict)
    forward = Caching(policy, storage)
    return forward, Cached(storage, allow_cache_entry_mutation, forward)


def _is_listed(names: frozenset[str], context: SelectiveCheckpointContext, op: str, *args: Any) -> bool:
    return op in names


@functools.cache
def _known_names() -> frozenset[str]:
    return frozenset(operation_name(op) for op in REGISTRY.values() if op.kind != "composite")


def _checked_name(op: Op) -> str:
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    registered = REGISTRY.get(name) if name in REGISTRY else None
    if registered is not None and registered.kind != "composite":
        return operation_name(registered)
    if name in _known_names():
        return str(name)
    raise ValueError(
        f"Expected op in `op_list` to be an OpOverload, which here is the name of a single operation or its function, "
        f"but got: {op} of type {type(op)}. A function of several operations (matmul, conv2d) is none: give the names "
        "of the nodes it records ('mm' for MmBackward0). With PyTorch's names, update the OpOverloadPacket to a "
        "specific OpOverload, torch.ops.aten.mm.default."
    )


def _as_policy(answer: Any) -> CheckpointPolicy:
    if isinstance(answer, bool):
        return CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
    if not isinstance(answer, CheckpointPolicy):
        raise TypeError(f"A checkpoint policy must return a CheckpointPolicy or a bool, not {type(answer).__name__}")
    return answer
