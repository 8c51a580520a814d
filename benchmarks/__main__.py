"""Command line: ``python -m benchmarks [--only NAME] [--repeats N] [--quick] [--markdown] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import memory, report
from benchmarks.cases import Case, all_cases
from benchmarks.threads import environment
from tools.figures import store
from undertow.compiled import core


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", action="append", metavar="NAME", help="only cases whose name contains this (may be given again)")
    add("--repeats", type=int, default=21, help="pairs of samples per case (default 21)")
    add("--threads", type=int, action="append", help="number of threads (may be given again; default 1 and 2)")
    add("--quick", action="store_true", help="smaller large cases, to try things out")
    add("--list", action="store_true", help="list the cases instead of measuring them")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add(
        "--update", nargs="?", const="core", metavar="NAME", help="write docs/figures/NAME.json, and docs/benchmarks.md"
    )
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    options = parser.parse_args(arguments)
    if options.repeats < 1 or min(options.threads or [1]) < 1:
        parser.error("--repeats and --threads take numbers from 1 up")
    return options


def choose(options: argparse.Namespace) -> list[Case]:
    chosen = [
        case for case in all_cases(options.quick)
        if not options.only or any(part in case.name for part in options.only)
    ]  # fmt: skip
    if not chosen:
        raise SystemExit("no case matches; --list shows them all")
    return chosen


def measure(cases: list[Case], threads: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines of a process of measurements, the description of the machine first."""
    command = [sys.executable, "-m", "benchmarks.measure", f"--threads={threads}", f"--repeats={options.repeats}"]
    command += ["--quick"] * options.quick + ["--"] + [case.name for case in cases]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(threads)) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"measuring stopped with exit code {process.returncode}")


def follow(lines: Iterator[dict[str, Any]], total: int) -> list[dict[str, Any]]:
    """Collect the lines, saying on stderr how far it has come."""
    found = []
    for line in lines:
        found.append(line)
        if "name" in line:
            print(f"[{len(found) - 1}/{total}] {'  '.join(report.cells(line))}", file=sys.stderr, flush=True)
    return found


def measure_all(chosen: list[Case], options: argparse.Namespace) -> list[dict[str, Any]]:
    """For each number of threads, the machine and the rows."""
    figures = []
    for threads in options.threads or [1, 2]:
        cases = [case for case in chosen if threads == 1 or case.threads]
        if cases:
            machine, *rows = follow(measure(cases, threads, options), len(cases))
            figures.append({**machine, "rows": rows})
    return figures


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    chosen = choose(options)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    figures = measure_all(chosen, options)
    kept = None if options.only else memory.table()
    print(report.tables(figures, kept, report.as_markdown if options.markdown else report.as_text), end="")
    if options.update:
        command = shlex.join(["python", "-m", "benchmarks", *(sys.argv[1:] if arguments is None else arguments)])
        setting = "" if core is not None else "UNDERTOW_PURE=1 "
        store(options.update, "core", setting + command, {"tables": figures, "memory": kept})
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
