"""A progress bar: one line that is redrawn on a terminal, an occasional plain line elsewhere."""

from __future__ import annotations

import math
import shutil
import time
import warnings
from typing import Any, TextIO


class Progress:
    """Tells how far a loop of `total` steps has come; None where the number of steps is not known.

    On a terminal the line is redrawn at most every `interval` seconds and fits its width, however narrow. In a file or
    a pipe, ten lines are written in all (without a total: one each time the number of steps has doubled).

    unit    the name of what is counted, which is shown with its rate: "12.0 batches/s"
    stream  where it writes

    >>> import undertow as ut
    >>> import io
    >>> out = io.StringIO()
    >>> bar = ut.data.Progress(2, out)
    >>> bar.update(1)
    >>> bar.update(2, "loss 0.5")
    >>> out.getvalue().split()[:3]
    ['step', '1/2', '1']
    """

    def __init__(self, total: int | None, stream: TextIO, interval: float = 0.05, unit: str = "") -> None:
        self.total, self.stream, self.interval, self.unit = total, stream, interval, unit
        self.started = time.perf_counter()
        self.drawn = 0.0
        self.done = 0
        self.note = ""
        self.on_terminal = stream.isatty()
        self.line_is_open = False

    def update(self, done: int, note: str = "") -> None:
        """`done` steps are finished; `note` is shown behind the bar."""
        now = time.perf_counter()
        self.done, self.note = done, note
        if not self.on_terminal:
            if self.is_milestone(done):
                self.stream.write("  ".join(["  step " + self.count(done), *self.words(done, note, now)]) + "\n")
        elif done == self.total or now - self.drawn >= self.interval:
            self.draw(now)

    def close(self) -> None:
        """The loop has ended, perhaps early: leave the cursor on a new line of the terminal."""
        if self.line_is_open:
            self.draw(time.perf_counter())
            if self.line_is_open:
                self.stream.write("\n")
            self.line_is_open = False

    def draw(self, now: float) -> None:
        self.drawn = now
        width = shutil.get_terminal_size().columns - 1
        finished = self.done == self.total
        self.stream.write("\r" + self.line(self.done, self.note, now, width) + ("\n" if finished else ""))
        self.stream.flush()
        self.line_is_open = not finished

    def line(self, done: int, note: str, now: float, width: int) -> str:
        """The bar, the count, the note and the time left, in `width` characters; what does not fit is left out.

        done, now  how many steps are done, and the time, by `time.monotonic`
        """
        words = [self.count(done), *self.words(done, note, now)]
        while words and len("  ".join(words)) > width - 2:
            words.pop()
        text = "  ".join(words)
        room = width - len(text) - 6
        bar = f"[{'#' * (room * done // self.total):.<{room}}]  " if self.total and room >= 4 else ""
        return f"  {bar}{text}"[:width].ljust(width)

    def is_milestone(self, done: int) -> bool:
        if self.total is None:
            return done > 0 and done & (done - 1) == 0
        return done * 10 // self.total > (done - 1) * 10 // self.total

    def count(self, done: int) -> str:
        return str(done) if self.total is None else f"{done:>{len(str(self.total))}}/{self.total}"

    def words(self, done: int, note: str, now: float) -> list[str]:
        words = [note, self.remaining(done, now)]
        if self.unit:
            words = [word for word in (note, self.rate(done, now), words[1]) if word]
        return words

    def rate(self, done: int, now: float) -> str:
        return f"{done / max(now - self.started, 1e-9):.1f} {self.unit}/s"

    def remaining(self, done: int, now: float) -> str:
        elapsed = now - self.started
        if self.total is None or done == self.total:
            return f"{elapsed:.1f} s"
        return f"{math.ceil(elapsed / done * (self.total - done))} s left"


class TqdmProgress:
    """A bar of tqdm's, under the names of Progress."""

    def __init__(self, tqdm: Any, total: int | None, unit: str) -> None:
        self.bar = tqdm(total=total, unit=f" {unit}")

    def update(self, done: int, note: str = "") -> None:
        if note:
            self.bar.set_postfix_str(note, refresh=False)
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        self.bar.close()


def find_tqdm() -> Any:
    """tqdm's function, or None where it is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # where widgets are missing, it says so, and draws by letters
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
