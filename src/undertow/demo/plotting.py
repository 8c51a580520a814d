"""Plots in files, by matplotlib where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import undertow as ut
from undertow.demo.digits import SIDE


def plot(file: str, draw: Callable[..., None], panels: int = 1) -> None:
    """Draw on the axes of a new figure, as many as it has panels, and save it."""
    try:
        import matplotlib
    except ImportError:
        print("No plot: matplotlib is not installed.")
        return
    matplotlib.use("Agg")  # into a file, whether or not there is a screen
    from matplotlib import pyplot

    figure, _ = pyplot.subplots(1, panels, figsize=(6.4 if panels == 1 else 9.6, 4.2), layout="constrained")
    draw(*figure.axes)
    figure.savefig(file, dpi=80)
    pyplot.close(figure)
    print(f"The plot is in {file}.")


def draw_losses(axes: Any, losses: Sequence[float], label: str = "loss") -> None:
    """The losses, pale, and the means of some that follow each other."""
    width = max(1, len(losses) // 25)
    means = [sum(losses[k - width : k]) / width for k in range(width, len(losses) + 1)]
    axes.semilogy(losses, color="tab:blue", alpha=0.3)
    middle = range(width // 2, width // 2 + len(means))
    axes.semilogy(middle, means, color="tab:blue", label=f"mean of {width} steps")
    axes.set(title="How it learned", xlabel="step", ylabel=label)
    axes.legend()


def draw_units(axes: Any, weight: Any, columns: int = 8) -> None:
    """The weights of hidden units as images: red where ink speaks for a unit, blue where it speaks against it."""
    count = max(1, min(32, len(weight)) // columns) * columns
    units = ut.pad(weight[:count].reshape(-1, SIDE, SIDE), (1, 1, 1, 1), value=float("nan"))
    units = ut.cat([units, ut.full((-len(units) % columns, *units.shape[1:]), float("nan"))])
    grid = units.reshape(-1, columns, *units.shape[1:]).permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
    most = weight.abs().max().item() / 2  # few are larger
    shown = axes.imshow(grid.numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(title=f"What {min(count, len(weight))} hidden units look for", xticks=[], yticks=[])
    axes.figure.colorbar(shown, ax=axes, orientation="horizontal", label="weight of a point", shrink=0.6)
