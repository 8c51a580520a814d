"""`python -m undertow demo`: a small network learns to tell the arms of a spiral apart."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from undertow.data import Progress
from undertow.demo.model import ARMS
from undertow.demo.training import POINTS, Trained, check_gradients, picture, train

NEXT = """Where to look next:
  undertow/demo/model.py, training.py    the program that just ran
  docs/index.md                          the start of the documentation
  docs/architecture.md                   how it works, room by room
  python -m undertow info                versions, devices, threads
"""


def run_demo(steps: int, hidden: int, seed: int, quiet: bool = False, stream: TextIO | None = None) -> int:
    """Train, check the gradients, and say how it went. The exit code: 0, or 1 if one of them failed."""
    out = sys.stdout if stream is None else stream
    started = time.perf_counter()
    if not quiet:
        out.write(introduction(hidden))
    trained = train(steps, hidden, seed, show=None if quiet else shown_on(out, steps))
    if not quiet:
        rows = "".join(f"  {row}\n" for row in drawn(trained))
        out.write(f"\nThe plane as the network sees it now:\n\n{rows}\n")
    complaint = check_gradients(seed)
    out.write(summary(trained, steps, complaint))
    if not quiet:
        out.write(f"\n{NEXT}\n")
        out.write(f"Done in {time.perf_counter() - started:.1f} s.\n")
    return 0 if trained.improved and complaint is None else 1


def introduction(hidden: int) -> str:
    return f"{ARMS} spiral arms, {POINTS} points; a network 2-{hidden}-{hidden}-{ARMS}, trained by Adam.\n\n"


def shown_on(stream: TextIO, steps: int) -> Callable[[int, float, float], None]:
    progress = Progress(steps, stream)
    return lambda step, loss, accuracy: progress.update(step, f"loss {loss:.4f}  accuracy {accuracy:4.0%}")


def drawn(trained: Trained) -> list[str]:
    """The picture in the largest size that suits the terminal: characters are twice as high as wide."""
    columns = max(10, min(54, shutil.get_terminal_size().columns - 4))
    return picture(trained.params, columns, columns * 20 // 54)


def summary(trained: Trained, steps: int, complaint: str | None) -> str:
    verdict = "agree with finite differences (float64)" if complaint is None else "WRONG: " + complaint
    direction = "fell" if trained.improved else "DID NOT FALL:"
    return (
        f"loss       {direction} from {trained.first_loss:.4f} to {trained.last_loss:.4f}\n"
        f"accuracy   {trained.accuracy:.1%} of points it has not seen\n"
        f"gradients  {verdict}\n"
        f"speed      {1000 * trained.seconds / steps:.2f} ms per step: forward, backward and update\n"
    )
