"""`python -m undertow demo`: a small network learns to read digits."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from undertow.data import Progress
from undertow.demo import plotting
from undertow.demo.digits import SIDE
from undertow.demo.drawing import curve, images_beside
from undertow.demo.plotting import draw_losses, draw_units
from undertow.demo.training import BATCH, IMAGES, SHARES, Trained, answers, check_gradients, saved_and_loaded, train

NEXT = f"""Where to look next:
  {Path(__file__).parent}
                                  the program that just ran: training.py and digits.py
  help(undertow.nn.Linear)        what something does and takes, with an example; so for all functions and classes
  python -m undertow info         versions, devices, threads
  python -m undertow run FILE     a program written for PyTorch, as it is
And in undertow's repository:
  docs/index.md                   the start of the documentation; `make docs` builds a site that can be searched
  docs/examples.md                more programs, with plots
  docs/from-pytorch.md            for those who come from there; docs/from-numpy.md for the others
"""


def run_demo(
    epochs: int,
    hidden: int,
    seed: int,
    quiet: bool = False,
    save: str | None = None,
    plot: str | None = None,
    stream: TextIO | None = None,
) -> int:
    """Train, save, load, check the gradients, and say how it went. The exit code: 0, or 1 if something failed.

    save   the file that the trained network goes to; None: one that is deleted again
    plot   the file that a plot goes to, if it is wanted
    """
    out = sys.stdout if stream is None else stream
    started = time.perf_counter()
    steps = epochs * -(-int(IMAGES * SHARES[0]) // BATCH)
    if not quiet:
        out.write(introduction(hidden))
    trained = train(epochs, hidden, seed, show=None if quiet else shown_on(out, steps))
    if not quiet:
        out.write("".join(f"{line}\n" for line in pictures(trained)))
    if plot is not None:
        save_plot(plot, trained)
    complaint, same = check_gradients(seed), comes_back(trained, save)
    out.write(summary(trained, complaint, save, same))
    if not quiet:
        out.write(f"\n{NEXT}\nDone in {time.perf_counter() - started:.1f} s.\n")
    return 0 if trained.improved and complaint is None and same else 1


def introduction(hidden: int) -> str:
    return (
        f"{IMAGES} images of digits, {SIDE} x {SIDE} points; a network {SIDE * SIDE}-{hidden}-10 learns to read them, "
        f"by Adam.\n\n"
    )


def shown_on(stream: TextIO, steps: int) -> Callable[[int, float], None]:
    progress = Progress(steps, stream)
    return lambda step, loss: progress.update(step, f"loss {loss:.4f}")


def pictures(trained: Trained) -> list[str]:
    """How the loss fell, and some images with the network's answers, as many as suit the terminal."""
    columns = shutil.get_terminal_size().columns - 4
    count = max(1, min(4, (columns + 2) // (2 * SIDE + 2)))
    images, labels = trained.some(count)
    pairs = zip(answers(trained.model, images).tolist(), labels.tolist(), strict=True)
    titles = [f"reads {answer}" + ("" if answer == label else f" (is {label})") for answer, label in pairs]
    lines = ["The loss:", "", *curve(trained.losses, max(10, min(60, columns - 10)), 12)]
    lines += ["", "Images it has not seen:", "", *images_beside(images[:, 0], titles)]
    return ["", *[f"  {line}".rstrip() for line in lines], ""]


def save_plot(file: str, trained: Trained) -> None:
    def draw(left: Any, right: Any) -> None:
        draw_losses(left, trained.losses)
        draw_units(right, trained.model[1].weight.detach())

    plotting.plot(file, draw, panels=2)


def comes_back(trained: Trained, save: str | None) -> bool:
    """Whether the network gives the same answers after it was written to a file and read again."""
    images, _ = trained.some(len(trained.unseen))
    with tempfile.TemporaryDirectory() as folder:
        found = saved_and_loaded(trained.model, Path(folder, "digits.npz") if save is None else Path(save))
    return answers(found, images).equal(answers(trained.model, images))


def summary(trained: Trained, complaint: str | None, save: str | None, same: bool) -> str:
    verdict = "agree with finite differences (float64)" if complaint is None else "WRONG: " + complaint
    direction = "fell" if trained.improved else "DID NOT FALL:"
    first, last = trained.losses[0], trained.losses[-1]
    place = "a file" if save is None else save
    return (
        f"loss       {direction} from {first:.4f} to {last:.4f}\n"
        f"accuracy   {trained.accuracy:.1%} of images it has not seen\n"
        f"saved      to {place}, and loaded again: {'the same answers' if same else 'OTHER ANSWERS'}\n"
        f"gradients  {verdict}\n"
        f"speed      {1000 * trained.seconds / len(trained.losses):.2f} ms per step: forward, backward and update\n"
    )
