"""What can go wrong on a simulated device: its memory is full, or it fails at a chosen operation."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Namespace
from undertow.backend.simulated.clocks import LOCK
from undertow.errors import OutOfMemoryError as OutOfMemory
from undertow.scopes import held

if TYPE_CHECKING:
    from undertow.backend.interface import Device


class OutOfMemoryError(OutOfMemory):
    """A simulated device has not enough memory left.

    device, requested, allocated, limit   the facts, the last three in bytes

    >>> import undertow as ut
    >>> issubclass(ut.sim.OutOfMemoryError, RuntimeError)
    True
    """

    def __init__(self, device: Device | str | int, requested: int, allocated: int, limit: int) -> None:
        self.device, self.requested, self.allocated, self.limit = device, requested, allocated, limit
        super().__init__(
            f"{device} out of memory. Tried to allocate {requested} bytes; {allocated} of {limit} bytes are in use. "
            "Free tensors that are no longer needed, or raise the limit with undertow.sim.set_memory_limit."
        )


class DeviceFailure(RuntimeError):
    """A simulated device failed at an operation, because it was told to.

    device, operation   where, and at what

    >>> import undertow as ut
    >>> issubclass(ut.sim.DeviceFailure, RuntimeError)
    True
    """

    def __init__(self, device: Device | str | int, operation: str) -> None:
        self.device, self.operation = device, operation
        super().__init__(f"{device} failed at {operation}, as undertow.sim.inject_failure told it to")


class Memory:
    """How much of a device's memory is in use.

    Memory is given back by destructors, which must not wait for a lock: they leave a note, read at the next `take`.
    """

    def __init__(self, space: Namespace) -> None:
        self.space = space
        self.limit: int | None = None
        self._allocated = 0
        self._returned: deque[int] = deque()

    def take(self, nbytes: int) -> None:
        with held(LOCK):
            allocated = self._settle()
            if self.limit is not None and allocated + nbytes > self.limit:
                raise OutOfMemoryError(self.space.device, nbytes, allocated, self.limit)
            self._allocated += nbytes

    def give_back(self, nbytes: int) -> None:
        self._returned.append(nbytes)

    def allocated(self) -> int:
        with held(LOCK):
            return self._settle()

    def _settle(self) -> int:
        while self._returned:
            self._allocated -= self._returned.popleft()
        return self._allocated


class Failure:
    """A failure that waits for its operation; `remove()`, or the end of a `with` block, calls it off.

    after   how many fitting operations still pass
    op      the name of the operation it waits for; None for any
    error   what is raised; None for a DeviceFailure
    sticky  whether every later operation fails too
    """

    def __init__(self, space: Any, after: int, op: str | None, error: Any, sticky: bool) -> None:
        self.space, self.after, self.op, self.error, self.sticky = space, after, op, error, sticky
        self.count = 0
        with held(LOCK):
            space.failures.append(self)

    def remove(self) -> None:
        with held(LOCK):
            if self in self.space.failures:
                self.space.failures.remove(self)

    def __enter__(self) -> Failure:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def meet_failures(space: Any, operation: str) -> BaseException | None:
    """The failure that waits for this operation, if there is one; it is raised if launches block.

    If they do not, the host learns of it when it next turns to the device.
    """
    raise_late_failure(space)
    if not space.failures:
        return None
    with held(LOCK):
        due = next((f for f in space.failures if is_due(f, operation)), None)
        if due is None:
            return None
        if not due.sticky:
            space.failures.remove(due)
        error: BaseException = DeviceFailure(space.device, operation) if due.error is None else due.error
        if not space.options.launch_blocking:
            space.late_failure = error
            return error
    raise error


def raise_late_failure(space: Any) -> None:
    """Raise what went wrong on a device since somebody last asked it for something. See Options.launch_blocking."""
    if space.late_failure is not None:
        with held(LOCK):
            error, space.late_failure = space.late_failure, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame, which must not hold it


def is_due(failure: Failure, operation: str) -> bool:
    if failure.op not in (None, operation):
        return False
    failure.count += 1
    return failure.count > failure.after
