"""Operation: a piece of work that was given to a stream, from its launch to its end.

Guarantees: whoever launches an operation never waits for it unless it asks to (`wait`). The device's thread runs it and
says so, in this order: what it needs is kept no longer, `finished` is true, waiting threads go on.

Note [Spoiled results]: an operation that has failed leaves the arrays it was to make without values. They are spoiled,
and so is all that is computed from them: to read one raises the failure again, whoever was told of it before. An array
that was to be changed in place keeps what it had, as it does on the CPU.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from undertow.backend.interface import Array
from undertow.backend.streams import working
from undertow.own_files import FOLDER


class Operation:
    """The count-th operation of its stream.

    name      what it is called
    call      what the device's thread runs; None when it has run
    needs     operations of other streams that must have finished before
    sources   the operations that wrote what it reads. See Note [Spoiled results].
    makes     whether its results are new arrays (not: an array that is changed in place)
    place     (simulated time at which it ends, number): the device's thread runs the operation with the smallest first
    deadline  when it ends in real time; 0 if time is not real
    awaited   whether the launching thread waits for it, and will itself be told of a failure
    errors    how the launching thread deals with floating-point errors, as np.geterr() tells
    failure   what has gone wrong, if something has
    spoiled   whether its results have no values
    result    what `call` returned, until somebody takes it
    """

    __slots__ = ("_done", "_inboxes", "awaited", "call", "count", "deadline", "errors", "failure", "finished", "makes",
                 "name", "needs", "place", "result", "site", "sources", "spoiled", "stream")  # fmt: skip

    def __init__(self, stream: Any, name: str, call: Callable[[], Any] | None = None) -> None:
        self.stream, self.name, self.call = stream, name, call
        self.count = 0
        self.needs: list[Operation] = []
        self.sources: list[Operation] = []
        self.makes = self.awaited = self.finished = self.spoiled = False
        self.place = (0.0, 0)
        self.deadline = 0.0
        self.errors: Any = None
        self.failure: BaseException | None = None
        self.result: Any = None
        self.site = launch_site()
        self._inboxes: list[Any] = []
        self._done = allocate_lock()
        self._done.acquire()

    def fail(self, error: BaseException) -> None:
        """Have it fail, now or when its turn comes; the error is told the line that launched it."""
        self.failure = error
        note = f"launched by {self.name} {described(self.site)}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def give_up(self, error: BaseException) -> None:
        """The launch has failed, at an interrupt perhaps: let nobody wait for it. The caller holds LOCK."""
        self.failure, self.spoiled = error, self.makes
        self.stream.needs += self.needs
        self.finish()

    # ---- for the device's thread

    def may_run(self, inbox: Any) -> bool:
        """Whether all it needs has finished; if not, something is put into `inbox` when that changes."""
        for other in self.needs:
            if not other.finished:
                if inbox not in other._inboxes:
                    other._inboxes.append(inbox)
                if not other.finished:  # it may have, since, without seeing the inbox
                    return False
        self.needs = []
        return True

    def run(self) -> BaseException | None:
        """Run it. What has gone wrong, unless somebody knows already."""
        spoiled = next((source.failure for source in self.sources if source.spoiled), None)
        known = spoiled or self.failure
        if known is not None:
            self.failure = known
        elif self.call is not None:
            try:
                self.result = self.call()
            except BaseException as error:
                self.fail(error)
        self.spoiled = spoiled is not None or (self.makes and self.failure is not None)
        self.call, self.sources = None, []
        return None if known is not None or self.awaited else self.failure

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            self._done.release()
            for inbox in self._inboxes:
                inbox.put(None)

    # ---- for the program

    def wait(self) -> None:
        """Wait until it has run."""
        while not self.finished:
            if self._done.acquire(timeout=1.0):  # an interrupt may keep somebody else from the next line
                self._done.release()

    def wait_a_moment(self) -> bool:
        """Wait for a hundredth of a second at most; whether it has run."""
        if not self.finished and self._done.acquire(timeout=0.01):
            self._done.release()
        return self.finished

    def outcome(self) -> Array | None:
        """Wait for what it returned, or raise what it raised."""
        self.wait()
        result, self.result = self.result, None
        failure = self.failure
        if failure is None:
            return result
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame, which must not hold it

    def is_known_to(self, clock: dict[int, int]) -> bool:
        return clock.get(self.stream.id, 0) >= self.count


# ---- the line that launched it

#: where the code lies that is no user's
_OWN = (os.path.dirname(FOLDER), os.path.dirname(np.__file__))


class _OwnFiles(dict[str, bool]):
    """Whether a file is one of these; each is judged once."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = file.startswith(_OWN)
        return own


_is_own = _OwnFiles()


def launch_site() -> tuple[Any, ...]:
    """What the engine runs on this thread, or else the code and the instruction of the nearest frame of the user's."""
    if working.node is not None:
        return working.node
    frame = sys._getframe()
    while _is_own[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def described(site: tuple[Any, ...]) -> str:
    *name, code, lasti = site
    text = f"in {name[0]}, recorded" if name else ""
    if not isinstance(code, CodeType):
        return text.removesuffix(", recorded")
    positions = list(code.co_positions())
    line = positions[lasti // 2][0] if lasti // 2 < len(positions) else code.co_firstlineno
    return f"{text} at {code.co_filename}:{line} in {code.co_name}".lstrip()
