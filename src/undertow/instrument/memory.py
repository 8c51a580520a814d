"""Which memory is alive when: every array that an operation or a node makes, until the last reference to it is gone."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from threading import RLock
from time import perf_counter_ns
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.saved_tensors.ledger import storage_of
from undertow.tensor import Tensor

if TYPE_CHECKING:
    pass


class Maker(NamedTuple):
    """What made an array: an Op or a name, the line of the program, and the path of the module it ran in."""

    what: Any
    code: CodeType | None
    lasti: int
    module: str


class Change(NamedTuple):
    """Memory that was taken (bytes above 0) or given back, and which array it is."""

    time: int
    bytes: int
    number: int


def owners(value: Any) -> list[Any]:
    """The arrays that own the memory of a tensor or an array, or of those in a list."""
    values = value if type(value) in (tuple, list) else (value,)
    arrays = [each._array if isinstance(each, Tensor) else each for each in values]
    return [storage_of(array) for array in arrays if hasattr(array, "nbytes")]


class Allocations:
    """Counts the arrays that it is shown, and notices when they go.

    changes  what happened; with several threads not quite in order
    makers   by the number of the array: what made it
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.makers: list[Maker] = []
        self.is_on = False
        # Guards _known, makers and changes: threads of a pass note arrays at once. Re-entrant, because an array may go,
        # and `gone` be called, wherever Python runs: also inside `note_memory`.
        self._lock = RLock()
        self._known: dict[int, Any] = {}  # by the address of the array: its weak reference

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False
        self._known.clear()

    def note(self, result: Any, maker: Maker, now: int, given: Iterable[Any] = ()) -> int:
        """How many bytes of new memory a result takes: memory of what was given, which it may share, is older."""
        new = [owner for owner in owners(result) if id(owner) not in self._known]
        if new:
            older = {id(owner) for value in given for owner in owners(value)}
            new = [owner for owner in new if id(owner) not in older]
        return sum([self.note_memory(owner, maker, now) for owner in new])

    def note_memory(self, owner: Any, maker: Maker, now: int) -> int:
        address = id(owner)
        try:
            reference = weakref.ref(owner, lambda _: self.gone(address))
        except TypeError:  # a scalar, or memory that another library owns
            return 0
        with self._lock:
            if address in self._known:
                return 0
            size, number = int(owner.nbytes), len(self.makers)
            self._known[address] = reference, size, number
            self.makers.append(maker)
            self.changes.append(Change(now, size, number))
        return size

    def gone(self, address: int) -> None:
        with self._lock:
            found = self._known.pop(address, None)
        if found is not None and self.is_on:
            _, size, number = found
            self.changes.append(Change(perf_counter_ns(), -size, number))

    def curve(self) -> list[tuple[int, int]]:
        """How many bytes are alive after each change, by time."""
        found, alive = [], 0
        for change in sorted(self.changes, key=lambda change: change.time):
            alive += change.bytes
            found.append((change.time, alive))
        return found
