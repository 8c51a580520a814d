"""What the examples share: their options, a loop that shows its progress, and a plot if matplotlib is there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import undertow as ut
from undertow.demo.plotting import draw_losses as draw_losses
from undertow.demo.plotting import plot as plot


def options(description: str, name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line: every example has these, and seeds the random numbers."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute, with a worse result")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (0)")
    parser.add_argument("--plot", default=f"{name}.png", metavar="FILE", help=f"where the plot goes ({name}.png)")
    chosen = parser.parse_args(argv)
    ut.manual_seed(chosen.seed)
    return chosen


class Steps:
    """`range(total)` with a progress bar; what the loop puts into `note` is shown behind it."""

    def __init__(self, total: int) -> None:
        self.total, self.note = total, ""

    def __iter__(self) -> Iterator[int]:
        bar = ut.data.Progress(self.total, sys.stdout, unit="steps")
        try:
            for step in range(self.total):
                yield step
                bar.update(step + 1, self.note)
        finally:
            bar.close()
