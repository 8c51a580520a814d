"""What the current thread (or asyncio task) has switched on: grad mode, interceptors, saved-tensor hooks.

One `ContextVar` holds one immutable `State`; an operation reads it when it is called (`current()`, about 25 ns).
Switching a mode puts another State in its place and leaving puts the old one back, so no thread can see another's
switches and nothing needs a lock. A mode is a `Scope`: whatever interrupts it, it is on or off, and off at the end of
its block (scopes.py).
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from undertow.scopes import Scope, call_with, set_value
from undertow.tensor.extra import INFERENCE_EXTRA

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class Anomaly(NamedTuple):
    """What anomaly mode looks for in the gradients that nodes return."""

    check_nan: bool
    check_inf: bool
    record: Callable[[Any], None]  # is shown every recorded node


#: None, or the Anomaly that is on. The only switch of the whole process, as it is in PyTorch: see set_anomaly
_anomaly: list[Anomaly | None] = [None]


def _record(node: Node, state: State) -> None:
    """`State.record` while saved-tensor hooks or anomaly mode are on."""
    if state.saved_hooks:
        state.saved_hooks[-1].record(node)
    anomaly = _anomaly[0]
    if anomaly is not None:
        anomaly.record(node)


#: so many answers of `with_intercept` a State keeps: a few levels in all orders
MOST_ANSWERS = 16


class State:
    """The switches of one thread. Never changed after construction: `replace` makes another.

    grad_enabled  whether operations record a graph: grad mode is on, and inference mode is not
    grad_mode     whether grad mode is on
    intercept     None, or a function `(op's function, args) -> result` that op calls are handed to (see Interceptor)
    record        None, or (when something wants it) a function `(node, state)` shown every recorded node
    inference     whether inference mode is on
    extra         the `_extra` of new tensors: None, or in inference mode that of all inference tensors
    before_change  None, or a function that is shown every tensor that is about to be changed in place
    unusual       whether one of intercept and before_change is there
    transforms    whether the interceptor may change what is computed, as opposed to one that only looks on
    replay_views  whether the history of a view of changed memory is its view operations (or one as_strided)
    grad_layout   whether a leaf's gradient is laid out in memory as the leaf is
    multithreading  whether a backward pass may use threads other than the caller's
    saved_hooks   the saved-tensor hooks that are on (SavedHooks of graph/operation_node.py); the last ones count
    no_saved_hooks  None, or the message that switching saved-tensor hooks on is refused with
    ground        None, or the interceptor that stands below all others: what there is where there is none of them
    """

    FIELDS = ("intercept", "inference", "multithreading", "saved_hooks", "no_saved_hooks", "before_change",
              "replay_views", "grad_layout", "ground")  # fmt: skip
    __slots__ = (*FIELDS, "_answers", "_other_grad", "_lowered", "extra", "grad_enabled", "grad_mode", "record",
                 "transforms", "unusual")  # fmt: skip

    def __init__(
        self,
        grad_enabled: bool = True,
        intercept: Callable[..., Any] | None = None,
        inference: bool = False,
        multithreading: bool = True,
        saved_hooks: tuple[Any, ...] = (),
        no_saved_hooks: str | None = None,
        before_change: Any = None,
        replay_views: bool = True,
        grad_layout: bool = True,
        ground: Callable[..., Any] | None = None,
    ) -> None:
        self.grad_mode = grad_enabled
        self.grad_enabled = grad_enabled and not inference
        self.intercept = intercept = ground if intercept is None else intercept
        self.ground = ground
        self.inference = inference
        self.extra = INFERENCE_EXTRA if inference else None
        self.multithreading = multithreading
        self.saved_hooks = saved_hooks
        self.no_saved_hooks = no_saved_hooks
        self.before_change = before_change
        self.replay_views = replay_views
        self.grad_layout = grad_layout
        self.unusual = intercept is not None or before_change is not None
        self.transforms = intercept is not None and not getattr(intercept, "only_looks_on", False)
        self._other_grad: State | None = None
        self._lowered: State | None = None  # the last answer of with_intercept
        self._answers: dict[int, State] = {}  # its answers, by the address of the interceptor
        self.choose_record()

    def choose_record(self) -> None:
        self._lowered, self._answers = None, {}
        self.record = _record if self.saved_hooks or _anomaly[0] is not None else None

    def replace(self, **changes: Any) -> State:
        fields = {name: getattr(self, name) for name in self.FIELDS}
        return State(**{"grad_enabled": self.grad_mode, **fields, **changes})

    def with_intercept(self, intercept: Callable[..., Any] | None) -> State:
        """This state with another interceptor, or None: with the one that stands below all others."""
        if intercept is None:
            intercept = self.ground
        if intercept is self.intercept:
            return self
        found = self._lowered
        if found is None or found.intercept is not intercept:
            found = self._answers.get(id(intercept))
            if found is None:
                found = self.replace(intercept=intercept)
                if self.intercept is None:
                    found._lowered = self  # the way back
                    return found
                if len(self._answers) < MOST_ANSWERS:
                    self._answers[id(intercept)] = found
            if self.intercept is not None:
                self._lowered = found
        return found

    def with_grad(self, enabled: bool) -> State:
        """This state with grad mode on or off, which is made once; with a plain state, so is the way back."""
        if self.grad_mode == enabled:
            return self
        other = self._other_grad
        if other is None:
            other = self._other_grad = self.replace(grad_enabled=enabled)
            if not self.saved_hooks and self.intercept is None and self.before_change is None:
                other._other_grad = self  # a cycle, which must not hold anything of the user's
        return other

    def back_to(self, outer: State) -> State:
        """This state with grad mode as it is in `outer`: that one itself, if this was made of it."""
        records = bool(outer.saved_hooks) or _anomaly[0] is not None  # anomaly mode may have been switched since
        is_way_back = outer._other_grad is self and records is (outer.record is not None)
        return outer if is_way_back else self.with_grad(outer.grad_mode)


class Interceptor:
    """What `State.intercept` may be beyond a plain function: it also sees what is more than one operation.

    Those there are stand in autograd (interceptors/stack.py says in which order); but it is operations, below autograd,
    that call these methods, each in the place of what it would do, so the class is here. To go on with what would have
    happened, a method calls what it was given under another interceptor, or none.
    """

    #: whether everything is computed as it would be without it: see autograd/interceptors/observer.py
    only_looks_on = False

    def __call__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The call of an operation; `args` are all its arguments, in the order of its signature."""
        raise NotImplementedError("an interceptor says what becomes of an operation")

    def in_place(
        self,
        name: str,
        change: Any,
        function: Callable[..., Any],
        tensor: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`tensor` changed to `function(tensor, *args, **kwargs)`: what `change` does without transformations."""
        raise NotImplementedError("an interceptor says what becomes of a change in place")

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`tensor` looks at its memory in another way: as `function(tensor, *args)` does, a view operation."""
        raise NotImplementedError("an interceptor says what becomes of a view operation in place")

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a custom Function."""
        raise NotImplementedError("an interceptor says what becomes of a custom Function")

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a function that draws random numbers; `__wrapped__` is the function itself."""
        raise NotImplementedError("an interceptor says what becomes of random numbers")

    def detach(self, function: Callable[..., Any], itself: Callable[..., Any], tensor: Tensor) -> Any:
        """The call of `tensor.detach()`: `function` asks interceptors, `itself` does not."""
        return itself(tensor)

    def in_turn(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a function that may look at the values of its tensors; `__wrapped__` is the function itself."""
        return function.__wrapped__(*args, **kwargs)

    def in_float32(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a function of several operations that autocast computes in float32 as a whole."""
        return function(*args, **kwargs)

    def watched(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a function that is shown as one operation. Only one that `only_looks_on` is asked."""
        raise NotImplementedError("an interceptor that only looks on says what it does with what it sees")

    def check_out(self, name: str, tensors: list[Any]) -> None:
        """Raise if an operation on these tensors cannot be written into one of them."""

    def stands_for(self, alias: Tensor, tensor: Tensor) -> None:
        """Learn that a transformation inside made an alias of a tensor, to differentiate by it."""

    def cut_off(self, alias: Tensor, tensor: Tensor) -> None:
        """Learn that a tensor is another one without its history."""


#: the state every thread starts with
_PLAIN = State()
state_variable: ContextVar[State] = ContextVar("undertow.state", default=_PLAIN)
current = state_variable.get
set_state: Callable[[State], None] = functools.partial(set_value, state_variable)
#: in_state(state, function, *args, **kwargs): what the function returns, called in that state
in_state: Callable[..., Any] = functools.partial(call_with, state_variable)


class _AnomalyOfAllThreads:
    """Anomaly mode as a variable; see scopes.py."""

    def get(self) -> Anomaly | None:
        return _anomaly[0]

    def set(self, wanted: Anomaly | None) -> None:
        set_anomaly(wanted)


anomaly_variable = _AnomalyOfAllThreads()
anomaly = anomaly_variable.get


def set_anomaly(wanted: Anomaly | None) -> None:
    """Switch anomaly mode, for all threads.

    Backward passes ask for it when they start. Recording asks the State, so those that exist are brought up to date:
    the one that threads start with and this thread's. A thread that is inside another mode notices when it leaves it.
    """
    _anomaly[0] = wanted
    for state in (_PLAIN, current()):
        for each in (state, state.with_grad(not state.grad_mode)):
            each.choose_record()


def is_grad_enabled() -> bool:
    """Whether operations in this thread currently record a graph.

    >>> import undertow as ut
    >>> with ut.no_grad():
    ...     print(ut.is_grad_enabled())
    False
    """
    return current().grad_mode


class Decorator:
    """A context manager that is also a decorator of functions, generators and coroutines: each call has a clone."""

    def clone(self) -> Any:
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly "
                "decorate the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            return self._wrap_plain(function)  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):
            return self._wrap_coroutine(function)  # type: ignore[return-value]
        if inspect.isasyncgenfunction(function):
            return self._wrap_async_generator(function)  # type: ignore[return-value]
        return self._wrap_plain(function)  # type: ignore[return-value]

    def _wrap_plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapped

    def _wrap_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            return await _Driven(self, function(*args, **kwargs).__await__())

        return wrapped

    def _wrap_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step = generator.asend(None)
            while True:
                try:
                    response = await _Driven(self, step.__await__())
                except StopAsyncIteration:
                    return
                try:
                    step = generator.asend((yield response))
                except GeneratorExit:
                    await _Driven(self, generator.aclose().__await__())
                    raise
                except BaseException as error:
                    step = generator.athrow(error)

        return wrapped

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return (yield from _drive(self, function(*args, **kwargs)))

        return wrapped


class _Switch(Decorator, Scope):
    """A mode as a context manager and as a decorator."""

    variable: Any = state_variable


class _Driven:
    """An awaitable whose inner steps run inside a mode and whose suspensions do not."""

    def __init__(self, mode: Decorator, inner: Any) -> None:
        self.mode, self.inner = mode, inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from _drive(self.mode, self.inner))


def _drive(mode: Decorator, generator: Any) -> Generator[Any, Any, Any]:
    """Run a generator's own steps inside the mode, and its caller's code (between the steps) outside it."""
    try:
        with mode.clone():
            response = next(generator) if not hasattr(generator, "send") else generator.send(None)
        while True:
            try:
                request = yield response
            except GeneratorExit:
                with mode.clone():
                    generator.close()
                raise
            except BaseException as error:
                with mode.clone():
                    response = generator.throw(error)
            else:
                with mode.clone():
                    response = generator.send(request)
    except StopIteration as stop:
        return stop.value


class _GradSwitch(_Switch):
    enabled: bool

    def inside(self, outer: State) -> State:
        return outer.with_grad(self.enabled)

    def after(self, inner: State, outer: State) -> State:
        return inner.back_to(outer)


class no_grad(_GradSwitch):
    """Record no graph inside: `with no_grad():`, `@no_grad`, `@no_grad()`. This thread only.

    function  what it decorates, if it is used as a decorator without parentheses

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> with ut.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    enabled = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        pass


class enable_grad(_GradSwitch):
    """Record a graph inside, also within `no_grad`.

    function  what it decorates, if it is used as a decorator without parentheses

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> with ut.no_grad(), ut.enable_grad():
    ...     print((2 * x).requires_grad)
    True
    """

    enabled = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        pass


class set_grad_enabled(_Switch):
    """Switch recording on or off: at once as a call, until the end of the block as a context manager.

    mode  True or False

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> with ut.set_grad_enabled(False):
    ...     print((2 * x).requires_grad)
    False
    """

    at_once = True

    def prepare(self, mode: bool) -> None:
        self.mode = bool(mode)

    def inside(self, outer: State) -> State:
        return outer.with_grad(self.mode)

    def after(self, inner: State, outer: State) -> State:
        return inner.back_to(outer)

    def __call__(self, function: F) -> F:
        self.__exit__(None, None, None)
        return super().__call__(function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mode={self.mode})"

    def clone(self) -> set_grad_enabled:
        return type(self)(self.mode)


def is_multithreading_enabled() -> bool:
    """Whether backward passes started by this thread may use other threads.

    >>> import undertow as ut
    >>> ut.autograd.is_multithreading_enabled()
    True
    """
    return current().multithreading


class _FieldSwitch(_Switch):
    """A switch for one field of State: it acts at once, and is undone at the end of a block or of a function."""

    field: str
    at_once = True

    def prepare(self, mode: bool) -> None:
        self.mode = bool(mode)

    def inside(self, outer: State) -> State:
        return outer.replace(**{self.field: self.mode})

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(**{self.field: getattr(outer, self.field)})

    def clone(self) -> _FieldSwitch:
        return type(self)(self.mode)

    def __call__(self, function: F) -> F:
        self.__exit__(None, None, None)
        return super().__call__(function)


class set_multithreading_enabled(_FieldSwitch):
    """Whether a backward pass may use device threads, or runs on the calling thread alone, in a fixed order.

    At once as a call, until the end of the block as a context manager.

    mode  True or False

    >>> import undertow as ut
    >>> with ut.autograd.set_multithreading_enabled(False):
    ...     print(ut.autograd.is_multithreading_enabled())
    False
    """

    field = "multithreading"


class enforce_grad_layout_policy(_FieldSwitch):
    """Whether the first gradient of a leaf is laid out in memory as the leaf is (the default), or kept as it came.

    At once as a call, until the end of the block as a context manager, during the call as a decorator.

    mode  True or False

    >>> import undertow as ut
    >>> with ut.autograd.enforce_grad_layout_policy(True):
    ...     (2 * ut.ones(1, requires_grad=True)).backward()
    """

    field = "grad_layout"


class force_original_view_tracking(_FieldSwitch):
    """How the history of a view is found after its base or another view of it was changed in place.

    True (the default here): by the operations that made the view. False: by one as_strided of the base's memory, which
    is what PyTorch does by default.

    mode  True or False

    >>> import undertow as ut
    >>> with ut.autograd.force_original_view_tracking(True):
    ...     print(ut.autograd.is_view_replay_enabled())
    True
    """

    field = "replay_views"


#: by the name under which libraries ask for it
_force_original_view_tracking = force_original_view_tracking


def is_view_replay_enabled() -> bool:
    """Whether views of changed memory are replayed; see `force_original_view_tracking`.

    >>> import undertow as ut
    >>> ut.autograd.is_view_replay_enabled()
    True
    """
    return current().replay_views


# ---- inference mode


class inference_mode(_Switch):
    """Neither record a graph nor keep what is needed to notice changes: `with inference_mode():`, `@inference_mode`.

    Tensors made inside are inference tensors for good. They have no version counter, cannot be saved for a backward
    pass and cannot be changed in place outside; a `clone()` of one is a normal tensor. Views of normal tensors made
    inside are normal, but refuse to be changed in place outside while a gradient is asked of them.

    mode  False switches inference mode off inside the block

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> with ut.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def inside(self, outer: State) -> State:
        return outer.replace(inference=self.mode, grad_enabled=not self.mode)

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(inference=outer.inference, grad_enabled=outer.grad_mode)

    def clone(self) -> inference_mode:
        return type(self)(self.mode)


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this thread.

    >>> import undertow as ut
    >>> with ut.inference_mode():
    ...     print(ut.is_inference_mode_enabled())
    True
    """
    return current().inference
