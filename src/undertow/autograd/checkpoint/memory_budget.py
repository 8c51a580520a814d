"""A memory budget for checkpointing: which results to keep, from measured sizes and times.

The first forward run of a function (for arguments of these shapes) keeps the results of all its operations, and notes
how long each took and which of them the graph would save. At its end the results whose computation took longest per
byte stay, as many as fit into the budget: a share of the bytes that the graph would have saved. The recomputation
computes the others again. Later runs keep what the first one chose, and no more than that even for a moment.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from undertow.autograd.checkpoint.kept_results import Between, Kept, can_be_kept
from undertow.autograd.checkpoint.mismatch import CheckpointError
from undertow.autograd.checkpoint.replayed_results import call_with_known
from undertow.autograd.interceptors.op_mode import operation_name
from undertow.modes import State
from undertow.tensor import Tensor, current_edge


class BudgetedCall:
    """One operation of the forward run: its name and result's metadata, and the result if it is kept."""

    def __init__(self, signature: Any, kept: Kept | None, seconds: float = 0.0) -> None:
        self.signature, self.kept, self.seconds = signature, kept, seconds
        self.nbytes = 0 if kept is None else kept.nbytes()

    def is_among(self, arrays: set[int]) -> bool:
        return self.kept is not None and any(id(t._array) in arrays for t in self.kept.tensors)

    def value(self) -> float:
        """Seconds of recomputation that a byte saves."""
        return self.seconds / self.nbytes if self.nbytes else float("inf")


#: for each operation of a function, its signature and whether its result is kept
Plan = list[tuple[Any, bool]]

#: function, or the object whose method it is -> its name -> (budget, metadata of the arguments) -> plan
_plans: weakref.WeakKeyDictionary[Any, dict[str, dict[Any, Plan]]] = weakref.WeakKeyDictionary()


class Budget:
    """One checkpointed call, which may keep `share` of the bytes that its graph would save."""

    def __init__(self, share: float, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"budget must be a share between 0 and 1 of what would be saved, but got {share}")
        self.share = share
        self.plans = _plans_of(function)
        self.key = (share, tuple([_signature_of(a) for a in args]))
        self.calls: list[BudgetedCall] = []
        self.saved: list[Any] = []  # the arrays that the graph would keep; the first run needs them to stay

    def contexts(self) -> tuple[Between, Between]:
        """The contexts of the forward run and of the recomputation."""
        plan = self.plans.get(self.key)
        forward = _Measuring(self) if plan is None else _Following(self, plan)
        return forward, _Restoring(self, forward)

    def see_saved(self, tensor: Tensor) -> None:
        """The graph would keep this tensor. Only the first run asks."""
        if self.key not in self.plans:
            self.saved.append(tensor._array)

    def choose(self) -> None:
        """Keep the results that take longest per byte, as many as the budget has room for."""
        candidates = [call for call in self.calls if call.kept is not None]
        saved = _ids_with_bases(self.saved)
        room = self.share * sum(call.nbytes for call in candidates if call.is_among(saved))
        for call in sorted(candidates, key=BudgetedCall.value, reverse=True):
            assert call.kept is not None
            if call.nbytes > room or call.kept.is_changed():
                call.kept = None
            else:
                room -= call.nbytes
        self.saved.clear()
        self.plans[self.key] = [(call.signature, call.kept is not None) for call in self.calls]

    def keep_nothing(self) -> None:
        for call in self.calls:
            call.kept = None


class _Measuring(Between):
    """The first forward run: keeps everything, measures, and chooses at the end."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.budget = budget

    def decide(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        started = time.perf_counter()
        result = self.compute(function, args)
        seconds = time.perf_counter() - started
        kept = Kept(result) if can_be_kept(result, args) else None
        self.budget.calls.append(BudgetedCall(_signature(function, result), kept, seconds))
        return result

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.budget.choose()


class _Following(Between):
    """A later forward run: keeps what the first one chose; nothing, if it turns out to be another computation."""

    def __init__(self, budget: Budget, plan: Plan) -> None:
        super().__init__()
        self.budget, self.plan = budget, plan
        self.is_as_planned = True

    def decide(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        result = self.compute(function, args)
        signature, calls = _signature(function, result), self.budget.calls
        expected, wanted = self.plan[len(calls)] if len(calls) < len(self.plan) else (None, False)
        if signature != expected:
            self.give_up()
        kept = Kept(result) if wanted and self.is_as_planned and can_be_kept(result, args) else None
        calls.append(BudgetedCall(signature, kept))
        return result

    def give_up(self) -> None:
        self.is_as_planned = False
        self.budget.keep_nothing()
        self.budget.plans.pop(self.budget.key, None)  # the next run measures again

    def ended(self) -> None:
        if len(self.budget.calls) != len(self.plan):
            self.give_up()


class _Restoring(Between):
    """The recomputation: takes what was kept, computes the rest. A second one computes everything."""

    def __init__(self, budget: Budget, forward: Between) -> None:
        super().__init__(instead_of=forward)
        self.budget = budget

    def inside(self, outer: State) -> State:
        self.number = 0
        return super().inside(outer)

    def ended(self) -> None:
        if not self.is_early():
            self.budget.keep_nothing()

    def decide(self, function: Any, args: tuple[Any, ...]) -> Any:
        call = self.next_call(operation_name(function.op))
        kept, call.kept = call.kept, None
        if kept is None or kept.is_changed():
            return self.compute(function, args)
        return call_with_known(function, args, kept.arrays())

    def next_call(self, name: str) -> BudgetedCall:
        calls, number = self.budget.calls, self.number
        self.number += 1
        expected = calls[number].signature[0] if number < len(calls) else "not done"
        if name != expected:
            raise CheckpointError(
                f"checkpoint: operation {number} of the recomputation is {name}, and was {expected} in the forward "
                "run. The function must do the same both times."
            )
        return calls[number]


def _plans_of(function: Callable[..., Any]) -> dict[Any, Plan]:
    """The plans of a function, or an empty dictionary that nobody keeps if it is not there to stay."""
    owner, name = getattr(function, "__self__", function), getattr(function, "__name__", "")
    try:
        found = _plans.setdefault(owner, {})
    except TypeError:  # it cannot be hashed or referred to weakly
        return {}
    return found.setdefault(name, {})


def _ids_with_bases(arrays: list[Any]) -> set[int]:
    """The ids of arrays, and of those whose memory they show a part of."""
    found = set()
    for array in arrays:
        while array is not None:
            found.add(id(array))
            array = getattr(array, "base", None)
    return found


def _signature(function: Any, result: Tensor) -> Any:
    return operation_name(function.op), _signature_of(result)


def _signature_of(value: Tensor) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype, current_edge(value) is not None
    if isinstance(value, tuple):
        return tuple([_signature_of(v) for v in value])
    return type(value)
