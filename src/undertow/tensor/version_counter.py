"""VersionCounter: how often the memory behind a tensor was changed in place."""

from __future__ import annotations

from typing import Any

from undertow.own_files import user_frame


class VersionCounter:
    """How often the memory behind a tensor was changed in place, and by which operation and line it was last done.

    One counter is shared by a base, its views and its detached twins. It is made when first needed: a tensor without
    one is at version 0 and shares its memory with no other tensor.
    """

    __slots__ = ("code", "lasti", "operation", "value")

    def __init__(self) -> None:
        self.value = 0
        self.operation: str | None = None
        self.code: Any = None
        self.lasti = 0

    def bump(self, operation: str | None = None) -> None:
        """Count a change, made by `operation`, and note the line of the user's program that runs it."""
        self.value += 1
        self.operation = operation
        frame = user_frame()
        self.code, self.lasti = frame.f_code, frame.f_lasti

    def note(self, operation: str, code: Any, lasti: int) -> None:
        """Count a change, made by `operation` at a line that is known already."""
        self.value += 1
        self.operation, self.code, self.lasti = operation, code, lasti

    def last_change(self) -> str | None:
        """The operation and the line that made the last change, or None."""
        if self.code is None:
            return None
        positions = list(self.code.co_positions())
        line = positions[self.lasti // 2][0] if self.lasti // 2 < len(positions) else None
        by = "made" if self.operation is None else f"made by {self.operation}"
        return f"{by} at {self.code.co_filename}:{line or self.code.co_firstlineno} in {self.code.co_name}"


class NoCounter(VersionCounter):
    """The counter of every inference tensor: it counts nothing, and so nobody may rely on it."""

    __slots__ = ()

    def __init__(self) -> None:
        self.operation = self.code = None
        self.lasti = 0

    def bump(self, operation: str | None = None) -> None:
        pass

    def note(self, operation: str, code: Any, lasti: int) -> None:
        pass

    @property
    def value(self) -> int:  # type: ignore[override]
        raise RuntimeError(
            "Inference tensors cannot be saved for backward: nobody would notice if they were changed before it runs. "
            "Please do not use Tensors created in inference mode in computation tracked by autograd. To work around "
            "this, make a clone() to get a normal tensor, or use no_grad() instead of inference_mode()."
        )


NO_COUNTER = NoCounter()
