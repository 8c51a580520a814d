"""Observers: interceptors that change nothing, and are told of every operation when it has run.

A profiler is one, a printed log another. Everything is computed as it would be without them: backward passes run on
arrays, layers take their short ways. Of an operation that is made of others (a composite), those are shown;
how a profile sees it as well is in instrument/profiler/composites.py.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.interceptors.op_mode import operation_name
from undertow.autograd.interceptors.stack import Above, Transforms, beneath, run_function, under
from undertow.modes import State, current, set_state, state_variable
from undertow.scopes import reset_variable, set_for_now

if TYPE_CHECKING:
    from undertow.tensor import Tensor

clock = perf_counter_ns


class Observer(Above):
    """Stands above the transformations, hands every operation on, and says when it ran: see `ran`."""

    def __init__(self, below: Any = None) -> None:
        super().__init__(below)
        self.only_looks_on = below is None or getattr(below, "only_looks_on", False)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, begin: int) -> None:
        """An operation that began at `begin`, in nanoseconds, has just ended.

        what  an Op (`name_of` gives its name), or the name
        args  all arguments in the order of the signature, if it is an Op
        """
        raise NotImplementedError("an observer says what it does with what it sees")

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        op = function.op
        state = current()
        set_state(state.with_intercept(self.below))
        begin = clock()
        try:
            result = op.by_position(*args)
        finally:
            set_state(state)
        self.ran(op, args, {}, result, begin)
        return result

    def watched(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that is more than one operation, and tell of it as of one."""
        begin = clock()
        result = under(self.below, function, *args, **kwargs)
        self.ran(name, args, kwargs, result, begin)
        return result

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return self.watched(name, change, (tensor, *args), kwargs)

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.watched(change.__name__, change, (tensor, *args), kwargs)

    def detach(self, function: Callable[..., Any], itself: Callable[..., Any], tensor: Tensor) -> Any:
        return self.watched("detach", function, (tensor,), {})

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.watched(function.__name__, function, args, kwargs)

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A custom Function, and what its forward calls."""
        begin = clock()
        if isinstance(beneath(self), Transforms):
            result = super().apply_function(cls, args, kwargs)
        else:
            result = run_function(cls, args, kwargs)
        self.ran(cls.__name__, args, kwargs, result, begin)
        return result


def name_of(what: Any) -> str:
    """What PyTorch calls an operation that an observer was shown."""
    if isinstance(what, str):
        return what
    what = getattr(what, "op", what)  # the compiled core shows the function of an Op
    name = _names.get(what)
    if name is None:
        name = _names[what] = operation_name(what)
    return name


_names: dict[Any, str] = {}


class Entered(NamedTuple):
    """What `enter` set, and how to undo it."""

    state: State
    token: Any


def enter(observer: Observer) -> Entered:
    """Let this thread's operations be seen, from now on; the observer stands above all others."""
    state = current()
    inside = state.with_intercept(observer.over(state.intercept))
    return Entered(inside, set_for_now(state_variable, inside))


def leave(kind: type[Observer], is_it: Callable[[Any], bool], entered: Entered | None = None) -> None:
    """Take the observer of this kind for which `is_it` holds out again; nothing is left of it if no mode changed."""
    state = current()
    if entered is not None and entered.state is state and entered.token.var is state_variable:
        try:
            return reset_variable(state_variable, entered.token)
        except (RuntimeError, ValueError):  # in another context than it was entered in, or a second time
            pass
    set_state(state.with_intercept(_without(state.intercept, kind, is_it)))


def _without(intercept: Any, kind: type[Observer], is_it: Callable[[Any], bool]) -> Any:
    if not isinstance(intercept, Above):
        return intercept
    if type(intercept) is kind and is_it(intercept):
        return intercept.below
    return intercept.over(_without(intercept.below, kind, is_it))
