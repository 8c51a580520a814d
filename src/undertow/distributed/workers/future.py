"""Future: a result that another thread, or another process, will give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any

from undertow.scopes import held


class Future:
    """A result that is not there yet.

    devices  accepted, without effect

    >>> from undertow.distributed.workers.future import Future
    >>> future = Future()
    >>> doubled = future.then(lambda f: 2 * f.value())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # Future[Tensor], in annotations

    def __init__(self, *, devices: Any = None) -> None:
        self._lock = threading.Lock()  # guards _is_done, _value, _error and _callbacks
        self._is_done = False
        self._there: threading.Event | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], Any]] = []
        #: whether some callback is a program's own, which may wait for other results
        self.has_slow_callbacks = False

    def done(self) -> bool:
        """Whether the result, or an error in its place, is there."""
        return self._is_done

    def wait(self, timeout: float | None = None) -> Any:
        """The result, once it is there; an error in its place is raised.

        timeout  seconds, after which TimeoutError is raised; None: what gives the result has a limit of its own
        """
        self.until_done(timeout)
        return self.value()

    def until_done(self, timeout: float | None = None) -> None:
        """Wait, without looking at what has come.

        timeout  seconds; None: no limit
        """
        if not self._is_done:
            with held(self._lock):
                if self._there is None:
                    self._there = threading.Event()
                    if self._is_done:
                        self._there.set()
                there = self._there
            if not there.wait(timeout):
                raise TimeoutError(f"the result of a future was not there after {timeout:g} s")

    def value(self) -> Any:
        """The result, which must be there."""
        if not self._is_done:
            raise RuntimeError("the future has no result yet: call wait(), or value() in a callback")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """The error that is there in the result's place."""
        return self._error

    def set_result(self, result: Any) -> None:
        self._settle(result, None)

    def set_exception(self, result: BaseException) -> None:
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._settle(None, result)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        with held(self._lock):
            if self._is_done:
                raise RuntimeError("Future can only be marked completed once: it has its result already")
            self._value, self._error, self._is_done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            if self._there is not None:
                self._there.set()
        for callback in callbacks:
            callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of `callback(future)`, which is called when the result is there."""
        if not callable(callback):
            raise TypeError(f"then(): incompatible function arguments: a function is needed, not {callback!r}")
        following = Future()

        def call(future: Future) -> None:
            try:
                following.set_result(callback(future))
            except Exception as error:
                following.set_exception(error)

        self.when_done(call, slow=True)
        return following

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(future)` when the result is there; an error of it is printed."""

        def call(future: Future) -> None:
            try:
                callback(future)
            except Exception:
                import traceback

                traceback.print_exc()

        self.when_done(call, slow=True)

    def when_done(self, callback: Callable[[Future], Any], slow: bool = False) -> None:
        """Call it when the result is there, at once if it is.

        slow      it may wait for other results, so the thread that hears of these must not be kept by it
        callback  a function of the future
        """
        with held(self._lock):
            if not self._is_done:
                self._callbacks.append(callback)
                self.has_slow_callbacks |= slow
                return
        callback(self)


def collect_all(futures: Sequence[Future]) -> Future:
    """The future of the list of these futures, all done.

    Example: `rpc.collect_all([rpc.rpc_async("worker1", ut.add, (ut.ones(2), 1))]).wait()`
    """
    whole, futures = Future(), list(futures)
    lock = threading.Lock()  # guards left
    left = len(futures)
    if not left:
        whole.set_result(futures)

    def one_more(_: Future) -> None:
        nonlocal left
        with held(lock):
            left -= 1
            is_last = not left
        if is_last:
            whole.set_result(futures)

    for future in futures:
        future.when_done(one_more)
    return whole


def wait_all(futures: Sequence[Future]) -> list[Any]:
    """The results of all futures, or the error of the first that has one.

    Example: `rpc.wait_all([rpc.rpc_async("worker1", ut.add, (ut.ones(2), 1))])`
    """
    return [future.wait() for future in collect_all(futures).wait()]
