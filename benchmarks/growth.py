"""How time and memory grow: `python -m benchmarks.growth [--update]`.

Every point is a process of its own: the least time of some turns (the processor's; the clock's for threads), and by how
much the peak of its memory rose. `--update` writes docs/figures/growth.json, a picture beside it, and the page.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.report import as_markdown, as_text
from benchmarks.threads import environment
from tools.figures import FOLDER, store

try:
    import resource
except ImportError:  # Windows has no such counter
    resource = None  # type: ignore[assignment]

FOUR_MILLION = 1 << 22
#: memory of which much belongs to modules that are loaded when first used
LITTLE = 20e6


# ---- what grows; each takes a number, and returns a step


def numbers(n: int) -> Callable[[], Any]:
    import undertow as ut

    a, b, c = [ut.rand(n, requires_grad=True) for _ in range(3)]

    def step() -> None:
        a.grad = b.grad = c.grad = None
        ut.tanh(a * b + c).sum().backward()

    return step


def nodes(n: int) -> Callable[[], Any]:
    import undertow as ut

    x = ut.ones(1, requires_grad=True)

    def step() -> None:
        y = x
        for _ in range(n):
            y = y * 1.0
        y.backward()

    return step


def rows(n: int) -> Callable[[], Any]:
    """Assigned one by one, in place, and the way back."""
    import undertow as ut

    x = ut.rand(16, requires_grad=True)

    def step() -> None:
        table = ut.zeros(n, 16)
        for k in range(n):
            table[k] = x
        table.sum().backward()

    return step


def parameters(n: int) -> Callable[[], Any]:
    """Of ten numbers each, moved by Adam."""
    import undertow as ut

    found = [ut.nn.Parameter(ut.rand(10)) for _ in range(n)]
    for each in found:
        each.grad = ut.rand(10)
    step: Callable[[], Any] = ut.optim.Adam(found).step
    return step


def threads(n: int) -> Callable[[], Any]:
    """tanh(a * b + c).sum() of four million numbers, both ways; the process has so many threads."""
    return numbers(FOUR_MILLION)


#: by name: what grows, and how large it becomes
CURVES: dict[str, tuple[Callable[[int], Callable[[], Any]], Sequence[int]]] = {
    "numbers": (numbers, [10**3, 10**4, 10**5, 10**6, 10**7]),
    "nodes": (nodes, [10**2, 10**3, 10**4, 10**5]),
    "rows": (rows, [10**2, 10**3, 10**4, 10**5]),
    "parameters": (parameters, [10, 10**2, 10**3, 10**4]),
    "threads": (threads, [1, 2, 4, 8, 16]),
}


# ---- measuring


def peak() -> int:
    """The most memory that this process has had, in bytes; Linux counts in kilobytes."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def point(curve: str, n: int, turns: int) -> list[float]:
    """Seconds of a step, and bytes by which it and what it works on have raised the peak."""
    import undertow as ut

    if curve == "threads":
        ut.set_num_threads(n)
    before = peak()
    step = CURVES[curve][0](n)
    step()
    clock = time.perf_counter if curve == "threads" else time.process_time
    found = []
    for _ in range(turns):
        begin = clock()
        step()
        found.append(clock() - begin)
    return [min(found), peak() - before]


def measured(curve: str, n: int, turns: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--point", curve, str(n), "--turns", str(turns)]
    used = environment(n if curve == "threads" else 1)
    done = subprocess.run(command, env=used, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


# ---- showing


def table(figures: dict[str, list[list[float]]]) -> list[list[str]]:
    lines = [["what", "how many", "time", "for each", "memory", "for each"]]
    for curve, points in figures.items():
        for n, seconds, memory in points:
            each = "" if curve == "threads" else f"{1e9 * seconds / n:,.1f} ns"
            room = "" if curve == "threads" or memory < LITTLE else f"{memory / n:,.0f} bytes"
            lines.append([curve, f"{n:,.0f}", f"{1e3 * seconds:,.3f} ms", each, f"{memory / 1e6:,.1f} MB", room])
    return lines


def as_page(figures: dict[str, list[list[float]]]) -> str:
    return as_markdown(table(figures))


COLOURS = {"numbers": "#4269d0", "nodes": "#efb118", "rows": "#ff725c", "parameters": "#6cc5b0"}


def picture(figures: dict[str, list[list[float]]]) -> str:
    """Time against number, both by powers of ten: what grows in proportion is a line at the angle of the diagonals."""
    across, up = lambda n: 60 + 70 * math.log10(n), lambda s: 30 - 40 * math.log10(s)
    marks = [f'<text x="{across(10**k) - 8:.0f}" y="325">1e{k}</text>' for k in range(8)]
    marks += [f'<text x="8" y="{up(10.0**k) + 4:.0f}">1e{k} s</text>' for k in range(-7, 1)]
    for k in range(-7, 1):  # diagonals: so many seconds for each
        marks.append(
            f'<line x1="{across(1):.0f}" y1="{up(10.0**k):.0f}" x2="{across(10**-k):.0f}" y2="30" stroke="#ddd"/>'
        )
    for place, (curve, colour) in enumerate(COLOURS.items()):
        points = [(across(n), up(seconds)) for n, seconds, _ in figures.get(curve, [])]
        marks.append(f'<polyline points="{" ".join([f"{x:.1f},{y:.1f}" for x, y in points])}" stroke="{colour}"/>')
        marks += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" stroke="none"/>' for x, y in points]
        marks.append(f'<text x="{75 + 110 * place}" y="15" fill="{colour}">{curve}</text>')
    inside = "\n".join(
        [mark if "<text" not in mark else mark.replace("<text", '<text stroke="none"') for mark in marks]
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 590 335" font-family="sans-serif" font-size="11" '
        f'fill="none">\n<style>text:not([fill]) {{ fill: #777 }}</style>\n{inside}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CURVES), default=list(CURVES))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--most", type=int, default=10**9, help="leave out what is larger")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(options.point[0], int(options.point[1]), options.turns)))
        return
    found = {
        curve: [[n, *measured(curve, n, options.turns)] for n in CURVES[curve][1] if n <= options.most]
        for curve in options.only
    }
    print(as_text(table(found)), end="")
    if options.update:
        (FOLDER / "growth.svg").write_text(picture(found), encoding="utf-8")
        store("growth", "growth", shlex.join(["python", "-m", "benchmarks.growth", *sys.argv[1:]]), found)


if __name__ == "__main__":
    main()
