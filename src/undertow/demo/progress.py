"""A progress bar: one line that is redrawn on a terminal, an occasional plain line elsewhere."""

from __future__ import annotations

import math
import shutil
import time
from typing import TextIO


class Progress:
    """Tells how far a loop of `total` steps has come.

    On a terminal the line is redrawn at most every `interval` seconds and fits its width, however narrow. In a file or
    a pipe, ten lines are written in all.
    """

    def __init__(self, total: int, stream: TextIO, interval: float = 0.05) -> None:
        self.total, self.stream, self.interval = total, stream, interval
        self.started = time.perf_counter()
        self.drawn = 0.0
        self.on_terminal = stream.isatty()

    def update(self, done: int, note: str) -> None:
        """`done` steps are finished; `note` is shown behind the bar."""
        now = time.perf_counter()
        if not self.on_terminal:
            if done * 10 // self.total > (done - 1) * 10 // self.total:
                self.stream.write(f"  step {self.count(done)}  {note}  {self.remaining(done, now)}\n")
        elif done == self.total or now - self.drawn >= self.interval:
            self.drawn = now
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r" + self.line(done, note, now, width) + ("\n" if done == self.total else ""))
            self.stream.flush()

    def line(self, done: int, note: str, now: float, width: int) -> str:
        """The bar, the count, the note and the time left, in `width` characters; what does not fit is left out."""
        words = [self.count(done), note, self.remaining(done, now)]
        while words and len("  ".join(words)) > width - 2:
            words.pop()
        text = "  ".join(words)
        room = width - len(text) - 6
        bar = f"[{'#' * (room * done // self.total):.<{room}}]  " if room >= 4 else ""
        return f"  {bar}{text}"[:width].ljust(width)

    def count(self, done: int) -> str:
        return f"{done:>{len(str(self.total))}}/{self.total}"

    def remaining(self, done: int, now: float) -> str:
        elapsed = now - self.started
        if done == self.total:
            return f"{elapsed:.1f} s"
        return f"{math.ceil(elapsed / done * (self.total - done))} s left"
