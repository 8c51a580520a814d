"""Whole programs beside PyTorch: `python -m benchmarks.programs --threads 1 2`.

Every number of threads is a process of its own, in which the two libraries take turns; figures are medians, with one
thread of the time of the processor. With several, a turn is a loop of steps, as programs run them, and its first step
does not count: for a while, the threads of the library whose turn it was still look for work, on the same processors.
`--update` writes them to docs/figures/programs.json, with the date and the machine, and from there into
docs/benchmarks.md; `--update programs-16-cores` does so for another machine.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.large import seconds_of
from benchmarks.measure import describe, libraries
from benchmarks.program_steps import PROGRAMS, Step
from benchmarks.threads import environment
from tools.figures import store


def measure(options: argparse.Namespace) -> None:
    """Print what is known of the process, and the seconds of each program, as lines of JSON."""
    found = libraries(options.measure)
    print(json.dumps(describe(options.measure, found)), flush=True)
    for name in chosen(options.only):
        for lib in found:
            lib.manual_seed(0)
        steps = [PROGRAMS[name](lib) for lib in found]
        if options.measure == 1:  # other programs hardly disturb the time of the process, but it counts all threads
            seconds = seconds_of(steps, options.repeats, time.process_time)
        else:
            seconds = seconds_in_loops(steps, options.repeats)
        print(json.dumps([name, *seconds]), flush=True)


def seconds_in_loops(steps: list[Step], repeats: int, least: float = 0.03) -> list[float]:
    """The median time of each step in loops that take a while, and take turns."""
    taken: list[list[float]] = [[] for _ in steps]
    for _ in range(repeats):
        for step, times in zip(steps, taken, strict=True):
            step()
            end = time.perf_counter() + least
            while (start := time.perf_counter()) < end:
                step()
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def chosen(part: str) -> list[str]:
    return [name for name in PROGRAMS if part in name]


def figures_of(threads: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.programs", "--measure", str(threads)]
    command += ["--repeats", str(options.repeats), "--only", options.only]
    done = subprocess.run(command, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True)
    machine, *rows = map(json.loads, done.stdout.splitlines())
    return {"machine": machine, "seconds": {name: seconds for name, *seconds in rows}}


def ratio(seconds: list[float]) -> float:
    return seconds[0] / seconds[1] if len(seconds) > 1 else math.nan


def table(found: dict[int, dict[str, Any]]) -> list[str]:
    """A line for each program: milliseconds of both, and their ratio, for every number of threads."""
    head = (
        "| program | " + " | ".join([f"undertow, PyTorch (ms), {n} thread{'s'[: n > 1]} | ratio" for n in found]) + " |"
    )
    lines = [head, "| --- |" + " --- | --- |" * len(found)]
    for name in next(iter(found.values()))["seconds"]:
        cells = []
        for one in found.values():
            seconds = one["seconds"][name]
            cells += [", ".join([f"{1e3 * s:.2f}" for s in seconds]), f"{ratio(seconds):.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = [math.exp(sum([math.log(ratio(s)) for s in one["seconds"].values()]) / len(one["seconds"]))
             for one in found.values()]  # fmt: skip
    return [*lines, "| geometric mean | " + " | ".join([f"| {mean:.2f}" for mean in means]) + " |"]


def as_page(figures: dict[str, dict[str, Any]]) -> str:
    """As docs/benchmarks.md shows it; JSON has made text of the numbers of threads."""
    facts = next(iter(figures.values()))["machine"]
    libraries = f"undertow {facts['undertow']}, NumPy {facts['numpy']}, PyTorch {facts['torch']}."
    return "\n".join([libraries, "", *table({int(threads): one for threads, one in figures.items()})])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="programs whose names contain this")
    parser.add_argument("--update", nargs="?", const="programs", metavar="NAME", help="write docs/figures/NAME.json")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options)
        return
    found = {threads: figures_of(threads, options) for threads in options.threads}
    print("\n".join(table(found)))
    if options.update:
        store(options.update, "programs", shlex.join(["python", "-m", "benchmarks.programs", *sys.argv[1:]]), found)


if __name__ == "__main__":
    main()
