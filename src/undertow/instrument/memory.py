"""Which memory is alive when: every array that an operation or a node makes, until the last reference to it is gone."""

from __future__ import annotations

import weakref
from threading import RLock
from time import perf_counter_ns
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.saved_tensors.ledger import storage_of
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


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
        # and `gone` be called, wherever Python runs: also inside `note_array`.
        self._lock = RLock()
        self._known: dict[int, Any] = {}  # by the address of the array: its weak reference

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False
        self._known.clear()

    def note(self, result: Any, maker: Maker, now: int) -> int:
        """How many bytes of new memory a result takes."""
        results = result if type(result) in (tuple, list) else (result,)
        return sum([self.note_array(each, maker, now) for each in results])

    def note_array(self, value: Array | None, maker: Maker, now: int) -> int:
        array = value._array if isinstance(value, Tensor) else value
        if not hasattr(array, "nbytes"):
            return 0
        owner = storage_of(array)
        address = id(owner)
        if address in self._known:
            return 0
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
