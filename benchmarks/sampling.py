"""Samplers: functions that time some work once and return the seconds per unit of it.

A sample lasts about `seconds`, so that the clock and a short interruption matter little. The garbage collector is on,
as users have it, and collects before every sample, so that all samples start alike.

`clock` is the CPU time of the process where one thread works, which other programs on the machine do not disturb, and
the wall clock where several do.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

Sampler = Callable[[], float]


def clock() -> Callable[[], float]:
    return time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter


def statement(code: str, names: dict[str, Any], units: int = 1, seconds: float = 0.02) -> Sampler:
    """Times a statement, as often as fits."""
    timer = timeit.Timer(code, "gc.enable()", clock(), globals={**names, "gc": gc})
    number = repetitions(timer.timeit, seconds)

    def sample() -> float:
        gc.collect()
        return timer.timeit(number) / (number * units)

    return sample


def fresh(prepare: Callable[[], Any], code: str, units: int = 1, seconds: float = 0.02) -> Sampler:
    """Times a statement on a `subject` that is made anew each time, outside of the measurement."""
    timer = timeit.Timer(code, "gc.enable(); subject = prepare()", clock(), globals={"prepare": prepare, "gc": gc})
    number = repetitions(lambda n: sum(timer.timeit(1) for _ in range(n)), seconds)

    def sample() -> float:
        gc.collect()
        return sum(timer.timeit(1) for _ in range(number)) / (number * units)

    return sample


def import_of(module: str) -> Sampler:
    """Times the import of a module in a new interpreter."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    return lambda: printed_by("-c", code)


def alone(library: str, model: str) -> Sampler:
    """Times a step of a model in a process that imports one library only."""
    return lambda: printed_by("-m", "benchmarks.alone", library, model)


def printed_by(*arguments: str) -> float:
    """The number that a new interpreter prints."""
    found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return float(found.stdout)


def repetitions(time_of: Callable[[int], float], seconds: float) -> int:
    """How often to repeat so that it takes about `seconds`; the growing trials warm everything up."""
    time_of(1)  # the first call of an operation compiles it
    number = 1
    while (taken := time_of(number)) < seconds / 4:
        number *= 2 if taken > seconds / 40 else 10
    return max(1, round(number * seconds / taken))


class Figures(NamedTuple):
    """What was measured: median seconds per unit, for each library, and the ratios of the pairs of samples."""

    ours: float
    theirs: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def interleave(ours: Sampler, theirs: Sampler | None, repeats: int) -> Figures:
    """Sample both in turn. The ratio is the median over pairs, which a change of the machine's speed leaves alone."""
    if theirs is None:
        return Figures(statistics.median(ours() for _ in range(repeats)))
    pairs = [pair(ours, theirs, swapped=bool(k % 2)) for k in range(repeats)]
    ratios = [a / b for a, b in pairs]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return Figures(medians[0], medians[1], statistics.median(ratios), low, high)


def pair(ours: Sampler, theirs: Sampler, swapped: bool) -> tuple[float, float]:
    if swapped:
        second = theirs()
        return ours(), second
    return ours(), theirs()
