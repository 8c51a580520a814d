"""Changes that end with a block or a call, whatever interrupts it.

An interrupt (Ctrl-C), or any exception that a signal handler raises, comes between two instructions of Python: also
between `acquire()` and the `with` that would release, or on the first instruction of an `__exit__`. What was changed
then stays changed, and the program goes on without grad mode, or waits for a lock for ever. So nothing in undertow
changes what outlives a call but by one of these, which are C (csrc/scopes.c), where nothing can come in between:

    with held(lock): ...                      a lock
    class mode(Scope): ...; with mode(): ...  a mode, or whatever else is a value that is put back at the end of a block
    class block(Switched); with block(): ...  the same of what begins and ends in several steps
    call_with(variable, value, function)      the same for the time of a call

Without the compiled core they are the Python below: the same as far as it goes. Its `__exit__` is one of Python's own,
in C, and what it calls is thrown away, with a _Repair in it, if an interrupt keeps it from beginning.

Note [One lock]: a signal handler or a destructor runs wherever Python happens to be, and may use all that undertow has:
also while its thread holds a lock that another thread waits for while it holds a second one, which the handler needs.
So there is one lock for all that is changed in short steps, and it is re-entrant; what it guards is consistent between
two statements. The only others are those of a device pass (engine/), under which this one may be taken, never the other
way round; while a thread holds any, passes that it starts wait for no other thread. A fork takes the lock, so that a
child finds nothing half-changed, and nothing held by a thread that it does not have. It also waits while another thread
imports a module of undertow's, as first uses do: Python has a lock for each module, which a child would never get.
Python 3.11's `functools.cached_property` has such a lock, too: `computed_once` has none.

A variable is a ContextVar, or any object with `get()` and `set(value)`. `set` must be such that a second call with the
same value completes what a first one began: it is called again if it was interrupted.
"""

from __future__ import annotations

import _io
import inspect
import operator
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Generic, TypeVar, overload

from undertow.compiled import core

T = TypeVar("T")


class computed_once(Generic[T]):
    """An attribute that is worked out when it is first read. Of two threads that do so at once, the first wins."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    @overload
    def __get__(self, instance: None, owner: Any = None) -> computed_once[T]: ...

    @overload
    def __get__(self, instance: object, owner: Any = None) -> T: ...

    def __get__(self, instance: Any, owner: Any = None) -> computed_once[T] | T:
        if instance is None:
            return self
        found: T = vars(instance).setdefault(self.name, self.function(instance))
        return found


class _PythonScope(_io._IOBase):
    """What core.Scope is. The `__exit__` of a file object is C and calls `close`, which here ends the block."""

    closed = True  # a destructor has nothing to do
    _entered: list[tuple[Any, Any]]
    variable: Any
    given: Any
    at_once: bool
    ended: Any
    prepare: Any
    inside: Any
    after: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        scope = super().__new__(cls)
        scope._entered = []
        return scope

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.at_once:
            self.prepare(*args, **kwargs)
            self.__enter__()
        elif args or kwargs:
            raise TypeError(f"{type(self).__name__}() takes no arguments")

    def __enter__(self) -> Any:
        variable, entered = self.variable, self._entered
        if self.at_once and entered and entered[-1][1] is not None:  # since it was made, if no mode was switched since
            is_mode = isinstance(variable, ContextVar)
            if not is_mode or variable.get() is entered[-1][1]:
                return self.given
        outer = variable.get()
        inner, given, depth, former = self.inside(outer), self.given, len(entered), self.close
        try:
            if self.at_once and entered:
                entered[-1] = entered[-1][0], inner
            else:
                entered.append((outer, inner))
            self.__dict__["close"] = self._steps_of_end(entered[-1][0], former)
            variable.set(inner)
            return given
        except BaseException:
            variable.set(outer)
            self.__dict__["close"] = former
            del entered[depth:]
            raise

    def _steps_of_end(self, outer: Any, former: Any) -> Any:
        """What ends a block, in steps that C calls: if one is interrupted they are thrown away, with the _Repair."""
        repair, restore = _Repair(self.variable, outer), partial(self.__dict__.__setitem__, "close", former)
        arm, disarm = (partial(setattr, repair, "armed", armed) for armed in (True, False))
        return partial(deque, map(operator.call, [arm, restore, partial(self._end, outer), disarm]), 0)

    def close(self) -> None:
        self._end(self._entered[-1][0] if self._entered else self.variable.get())

    def _end(self, outer: Any) -> None:
        value = outer
        try:
            value = self.after(self.variable.get(), outer)
        finally:
            self.variable.set(value)
            if self._entered and self.at_once:
                self._entered[-1] = outer, None
            elif self._entered:
                self._entered.pop()
        if self.ended is not None:
            self.ended()


class _Repair:
    """Sets a variable when it is thrown away, if it is armed: an interrupt has kept the end of a block from that."""

    __slots__ = ("armed", "outer", "variable")

    def __init__(self, variable: Any, outer: Any) -> None:
        self.variable, self.outer, self.armed = variable, outer, False

    def __del__(self) -> None:
        if self.armed:
            self.variable.set(self.outer)


class Scope(_PythonScope if core is None else core.Scope):  # type: ignore[misc]
    """A context manager that sets a variable, and sets it back.

    variable  what is set; belongs to the class
    given     what `with ... as` gives
    at_once   whether it is entered when it is made, so that it also works as a call; the end of a block then ends it.
              Such a class has `prepare` in the place of `__init__`
    ended     None, or what is called when all has been put back
    """

    variable: Any
    given: Any = None
    at_once = False
    ended: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "prepare" in vars(cls):
            signature = inspect.signature(cls.prepare)
            parameters = list(signature.parameters.values())[1:]
            cls.__signature__ = signature.replace(parameters=parameters)  # what help() and editors show

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of one that acts at once; it is entered next."""

    def inside(self, outer: Any) -> Any:
        """The value inside, if it is `outer` outside. Nothing has been changed yet: this may raise."""
        raise NotImplementedError("a Scope says what its variable is inside")

    def after(self, inner: Any, outer: Any) -> Any:
        """The value after the block, at whose end it is `inner`: by default what it was before.

        (If somebody calls `__exit__` more often than `__enter__`, both are what it is.)
        """
        return outer


class _Whether:
    """Whether a Switched is on, as a variable."""

    def __init__(self, switched: Switched) -> None:
        self.switched = weakref.ref(switched)

    def get(self) -> bool:
        switched = self.switched()
        return switched is not None and switched.is_on

    def set(self, value: bool) -> None:
        switched = self.switched()
        if switched is None:
            return
        if value and not switched.is_on:
            switched.is_on = True
            switched.begin()
        elif switched.is_on and not value:
            switched.cease()
            switched.is_on = False


class Switched(Scope):
    """A context manager that begins something, and ends it with the block, in several steps.

    An interrupt may come between two of them: `cease` ends whatever of it has begun, and is called again if it was
    interrupted itself.
    """

    is_on = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        switched = super().__new__(cls, *args, **kwargs)
        switched.variable = _Whether(switched)  # looked up at the end of a block, where a property could be interrupted
        return switched

    @property
    def given(self) -> Any:
        return self

    def inside(self, outer: bool) -> bool:
        if outer:
            raise RuntimeError(f"{type(self).__name__} context manager is not reentrant: make another for each block")
        self.check()
        return True

    def check(self) -> None:
        """Raise if it must not begin."""

    def begin(self) -> None:
        raise NotImplementedError("a Switched says what it begins")

    def cease(self) -> None:
        raise NotImplementedError("a Switched says how that ends")


def put_back(variable: ContextVar[Any], mine: Any, token: Any, former: Any) -> None:
    """End that a variable is `mine`, if it is: as it was when it gave the token or, without one, `former`."""
    if variable.get(None) != mine:
        return
    if token is None:
        set_value(variable, former)
    else:
        reset_variable(variable, token)


def _call_with(variable: Any, value: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What the function returns, called while the variable has that value."""
    outer = variable.get()
    try:
        variable.set(value)
        return function(*args, **kwargs)
    finally:
        variable.set(outer)


def _set_value(variable: Any, value: Any) -> None:
    """Set a variable.

    Before Python 3.12 a collection may start in the middle of `ContextVar.set`. If a destructor sets a variable then,
    it frees the table that is just being copied, and Python crashes; so a copy of the context keeps that table.
    """
    _set_for_now(variable, value)


def _set_for_now(variable: Any, value: Any) -> Any:
    """Set a variable: the token to undo that."""
    keeper = copy_context()
    token = variable.set(value)
    keeper.run(int)  # entering it has Python forget what it has cached of variables
    return token


def _reset_variable(variable: Any, token: Any) -> None:
    keeper = copy_context()
    variable.reset(token)
    keeper.run(int)


def _held(lock: Any) -> Any:
    """A context manager that holds a lock. Python's own is C already."""
    return lock


def _calls_left() -> int:
    """How many calls may still be nested in this thread; Python counts its own, and calls of C inside them."""
    frame: Any = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return sys.getrecursionlimit() - depth


#: Guards the gradients of leaves and the making of their nodes (graph/accumulate.py), the states of random generators
#: (ops/random/generator.py), and all histories of simulated devices (backend/simulated/clocks.py). See Note [One lock].
common_lock = threading.RLock()

#: how many seconds a fork waits for imports in other threads
PATIENCE_AT_FORK = 5.0


def _is_importing_elsewhere() -> bool:
    """Whether another thread is in the middle of importing one of undertow's modules."""
    own = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        inner: Any = None if thread == own else frame
        while inner is not None:
            if inner.f_code.co_name == "_find_and_load" and inner.f_locals.get("name", "").startswith("undertow"):
                return True
            inner = inner.f_back
    return False


_at_fork: list[tuple[Callable[[], None], ...]] = []
_in_this_fork: list[tuple[Callable[[], None], ...]] = []


def at_fork(
    before: Callable[[], None], after_in_parent: Callable[[], None], after_in_child: Callable[[], None]
) -> None:
    """Have these called around forks, under the lock; all of them or, if a fork is under way already, none."""
    _at_fork.append((before, after_in_parent, after_in_child))


def _before_fork() -> None:
    """Take the lock while nobody imports. (What is imported may need it: it is not held while this waits.)"""
    end = time.monotonic() + PATIENCE_AT_FORK
    common_lock.acquire()
    while _is_importing_elsewhere() and time.monotonic() < end:
        common_lock.release()
        time.sleep(1e-3)
        common_lock.acquire()
    _in_this_fork[:] = _at_fork
    for before, _, _ in reversed(_in_this_fork):
        before()


def _after_fork(place: int) -> None:
    try:
        for functions in _in_this_fork:
            functions[place]()
    finally:
        common_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=lambda: _after_fork(1), after_in_child=lambda: _after_fork(2))


set_value: Callable[[Any, Any], None] = _set_value if core is None else core.set_value
#: set_for_now(variable, value) gives the token with which reset_variable(variable, token) undoes that. A variable that
#: had no value has none again: every one that has makes reading all of them slower
set_for_now: Callable[[Any, Any], Any] = _set_for_now if core is None else core.set_for_now
reset_variable: Callable[[Any, Any], None] = _reset_variable if core is None else core.reset_variable
call_with: Callable[..., Any] = _call_with if core is None else core.call_with
held: Callable[[Any], Any] = _held if core is None else core.held
calls_left: Callable[[], int] = _calls_left if core is None else core.calls_left
