"""What selective checkpointing and memory budgets share: an interceptor that keeps results in the forward run, or hands
them out in the recomputation instead of computing them.

Views, changes in place, random draws and operations that return memory of their arguments are always done again:
nothing would be gained, or the state of tensors and generators would not be what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.autograd.interceptors.autocast import lifted
from undertow.autograd.interceptors.stack import NONE, active, run_function, under
from undertow.modes import Interceptor, State, state_variable
from undertow.scopes import Scope
from undertow.tensor import Tensor, counter_of, extra_of


class Between(Interceptor, Scope):
    """Stands between the function and its operations while its context lasts.

    instead_of  the interceptor of the forward run. A backward pass inside the function recomputes while that run goes
                on, and must not be taken for part of it.
    """

    variable = state_variable

    def __init__(self, instead_of: Between | None = None) -> None:
        self.outer: tuple[Any, ...] = ()
        self.instead_of = instead_of

    @property
    def given(self) -> Between:
        return self

    def inside(self, outer: State) -> State:
        if active() is not NONE:
            raise RuntimeError(
                "Selective checkpointing (by policy or budget) cannot run inside vmap or forward-mode AD: the results "
                "it would keep are those of one transformation. Use plain checkpoint() there."
            )
        casts, below = lifted(outer.intercept, self)  # what is kept are results as they are, in half precision
        if isinstance(below, Between) and below is self.instead_of:
            below = below.outer[-1]
        found = outer.with_intercept(casts)
        self.outer = (*self.outer, below)
        return found

    def after(self, inner: State, outer: State) -> State:
        self.outer = self.outer[:-1]
        return inner.with_intercept(outer.intercept)

    def is_early(self) -> bool:
        """Whether this recomputes while the forward run goes on: nothing can be told from its results yet."""
        return self.instead_of is not None and bool(self.instead_of.outer)

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        if function.op.kind == "view" or function.op.random or self.is_early():
            return self.compute(function, args)
        return self.decide(function, args)

    def decide(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        raise NotImplementedError("what becomes of an operation that could be kept")

    def compute(self, function: Any, args: tuple[Any, ...]) -> Any:
        return under(self.outer[-1], function.op.by_position, *args)

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return under(self.outer[-1], change, tensor, *args, **kwargs)

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return under(self.outer[-1], change, tensor, *args, **kwargs)

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run_function(cls, args, kwargs)

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function.__wrapped__(*args, **kwargs)


class Kept:
    """A result that is kept: tensors without history that share the memory and the version counter of the originals."""

    def __init__(self, result: Any) -> None:
        self.is_tuple = isinstance(result, tuple)
        self.tensors = [twin(t) for t in (result if self.is_tuple else (result,))]
        self.versions = [counter_of(t).value for t in self.tensors]

    @property
    def val(self) -> Any:
        return tuple(self.tensors) if self.is_tuple else self.tensors[0]

    def is_changed(self) -> bool:
        return any(counter_of(t).value != v for t, v in zip(self.tensors, self.versions, strict=True))

    def arrays(self) -> Any:
        found = tuple([t._array for t in self.tensors])
        return found if self.is_tuple else found[0]

    def nbytes(self) -> int:
        return sum(t._array.nbytes for t in self.tensors)


def twin(tensor: Tensor) -> Tensor:
    found = Tensor(tensor._array, tensor._xp)
    extra_of(found).counter = counter_of(tensor)
    return found


def can_be_kept(result: Any, args: tuple[Any, ...]) -> bool:
    """Whether a result is made of dense tensors with memory of their own."""
    results = result if isinstance(result, tuple) else (result,)
    if not all(type(t) is Tensor and isinstance(t._array, t._xp.ndarray) for t in results):
        return False
    given = [a for a in args if isinstance(a, Tensor)]
    return not any(t._xp.may_share_memory(t._array, a._array) for t in results for a in given if a._xp is t._xp)
