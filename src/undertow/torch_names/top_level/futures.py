"""Values that are not there yet, with PyTorch's names for what can be done with them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any


class Future(concurrent.futures.Future[Any]):
    """A value that somebody will set.

    devices  accepted, without effect

    >>> future = Future()
    >>> doubled = future.then(lambda f: 2 * f.wait())
    >>> future.set_result(4)
    >>> doubled.wait()
    8
    """

    def __init__(self, *, devices: Any = None) -> None:
        super().__init__()

    def wait(self) -> Any:
        """The value, once it is there; or the error that was set."""
        return self.result()

    def value(self) -> Any:
        """The value, which must be there."""
        if not self.done():
            raise RuntimeError("Future: value() was called before the value was set. Call wait().")
        return self.result()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """What `callback` will make of this future, as a future."""
        made = Future()

        def finish(done: Any) -> None:
            try:
                made.set_result(callback(done))
            except Exception as error:
                made.set_exception(error)

        self.add_done_callback(finish)
        return made


def collect_all(futures: list[Any]) -> Future:
    """A future of the list, when all of them have their values."""
    made, left = Future(), [len(futures)]

    def finish(_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            made.set_result(futures)

    for future in futures:
        future.add_done_callback(finish)
    if not futures:
        made.set_result(futures)
    return made


def wait_all(futures: list[Any]) -> list[Any]:
    """The values of all of them."""
    return [future.wait() for future in futures]
