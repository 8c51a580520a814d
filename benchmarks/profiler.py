"""What a profile adds to operations and nodes: `python -m benchmarks.profiler [--update]`.

Nanoseconds per operation on 4 x 4 matrices, which is all overhead; the smallest of many turns, with a profile and
without one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import setitem
from time import process_time
from typing import Any

import undertow as ut
from benchmarks.report import as_markdown, as_text
from tools.figures import store

HEADER = ["", "without", "in a profile", "added"]


def operations() -> dict[str, Callable[[], Any]]:
    x, y = ut.randn(4, 4), ut.randn(4, 4)
    w = ut.randn(4, 4, requires_grad=True)
    return {
        "x + y": lambda: x + y,
        "x * y": lambda: x * y,
        "x * y, recorded": lambda: w * y,
        "ut.matmul(x, y), over mm": lambda: ut.matmul(x, y),
        "x.relu()": lambda: x.relu(),
        "x.sum()": lambda: x.sum(),
        "x.add_(0.0)": lambda: x.add_(0.0),
        "x.reshape(16), over view": lambda: x.reshape(16),
        "ut.cat([x, y])": lambda: ut.cat([x, y]),
        "x[0]": lambda: x[0],
        "x[0] = 1.0": lambda: setitem(x, 0, 1.0),
        "x.detach()": lambda: x.detach(),
    }


def seconds_of_operation(run: Callable[[], Any], count: int) -> float:
    begin = process_time()
    for _ in range(count):
        run()
    return (process_time() - begin) / count


def seconds_of_node(count: int) -> float:
    w = out = ut.ones(4, 4, requires_grad=True)
    for _ in range(count):
        out = out * w
    loss = out.sum()
    begin = process_time()
    loss.backward()
    return (process_time() - begin) / count


def least(measure: Callable[[], float], inside: Callable[[], AbstractContextManager[Any]], turns: int) -> float:
    found = []
    for _ in range(turns):
        with inside():
            found.append(measure())
    return min(found)


def rows(turns: int, count: int) -> list[list[Any]]:
    cases: dict[str, Callable[[], float]] = {
        name: (lambda run=run: seconds_of_operation(run, count)) for name, run in operations().items()
    }
    cases["a node of a backward pass"] = lambda: seconds_of_node(count)
    found = []
    for name, measure in cases.items():
        measure()
        pairs = [(least(measure, nullcontext, 1), least(measure, ut.profiler.profile, 1)) for _ in range(turns)]
        found.append([name, *(1e9 * min(times) for times in zip(*pairs, strict=True))])
    return found


def table(found: list[list[Any]]) -> list[list[str]]:
    return [HEADER, *[[name, f"{off:.0f} ns", f"{on:.0f} ns", f"{on - off:.0f} ns"] for name, off, on in found]]


def as_page(figures: list[list[Any]]) -> str:
    return as_markdown(table(figures))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiler", description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--count", type=int, default=2000, help="operations in a turn")
    parser.add_argument("--update", action="store_true", help="write docs/figures/profiler.json, and docs/seeing.md")
    options = parser.parse_args(arguments)
    found = rows(options.turns, options.count)
    print(as_text(table(found)), end="")
    if options.update:
        store("profiler", "profiler", "python -m benchmarks.profiler --update", found)


if __name__ == "__main__":
    main()
