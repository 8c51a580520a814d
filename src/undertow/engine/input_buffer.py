"""InputBuffer: the gradients arriving at a node, one slot per output of the operation it stands for.

The first gradient of a slot is kept as it is, so it may belong to somebody else and is never changed; the second makes
a sum of the buffer's own, into which the rest are added in place (out of place when the pass is recorded).
"""

from __future__ import annotations

from typing import Any


class InputBuffer:
    __slots__ = ("owned", "slots")

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.owned = [False] * size

    def add(self, nr: int, grad: Any, xp: Any, in_place: bool) -> None:
        """Add a gradient (None: nothing flowed, nothing changes) to slot `nr`."""
        if grad is None:
            return
        old = self.slots[nr]
        if old is None:
            self.slots[nr] = grad
        elif in_place and self.owned[nr]:
            xp.add(old, grad, out=old)
        else:
            self.slots[nr] = total = xp.add(old, grad)
            if in_place:
                self.slots[nr] = xp.asarray(total)
                self.owned[nr] = True

    def received(self) -> list[Any] | None:
        """The gradients, or None when nothing flowed into any slot."""
        return self.slots if any(g is not None for g in self.slots) else None
