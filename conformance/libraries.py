"""Tests of libraries written for PyTorch, run with undertow: ``python -m conformance.libraries --at PATH [NAME]``.

PATH is a checkout of the library that the reader has fetched; NAME says which one it is, if its folder does not. The
tests run in a process of their own, under `python -m undertow run -m pytest`, or with the installed PyTorch
(--reference). libraries.toml says how, and docs/libraries.md what came of it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from conformance.every import EVERY

COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)")


def libraries() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("libraries.toml").read_text())


def chosen(name: str | None, folder: Path) -> dict[str, Any]:
    """What libraries.toml says of a library."""
    known = libraries()
    found = name or next((n for n in known if folder.name in (n, known[n]["source"].rpartition("/")[2])), None)
    if found not in known:
        raise SystemExit(f"which library is {folder}? Name one of: {', '.join(known)}")
    return known[found]


def command(library: dict[str, Any], reference: bool, extra: list[str]) -> list[str]:
    runner = [] if reference else ["-m", "undertow", "run"]
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-rfE"]
    options += ["-p", "conformance.every"] if "every" in library else []
    return [sys.executable, *runner, "-m", "pytest", *options, *library["tests"], *extra]


def environment(library: dict[str, Any], folder: Path) -> dict[str, str]:
    paths = [str(folder / part) for part in library.get("path", [])]
    inherited = os.environ.get("PYTHONPATH")
    together = os.pathsep.join([*paths, *([inherited] if inherited else []), str(Path(__file__).parents[1])])
    chosen = {EVERY: str(library["every"])} if "every" in library else {}
    return {**os.environ, "PYTHONPATH": together, **chosen, **library.get("environment", {})}


def counted(text: str) -> dict[str, int]:
    """What pytest's last line says: `{"passed": 127}`."""
    lines = [line for line in text.splitlines() if COUNTS.search(line)]
    return {kind.rstrip("s"): int(n) for n, kind in COUNTS.findall(lines[-1])} if lines else {}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.libraries", description=__doc__)
    parser.add_argument("name", nargs="?", help="the library, as libraries.toml calls it")
    parser.add_argument("--at", type=Path, required=True, help="a checkout of it")
    parser.add_argument("--reference", action="store_true", help="run the installed PyTorch instead of undertow")
    parser.add_argument("--pytest", action="append", default=[], help="an argument for pytest (may be given again)")
    options = parser.parse_args(argv)
    folder = options.at.resolve()
    if not folder.is_dir():
        raise SystemExit(f"there is no folder {folder}; give --at a checkout of the library")
    library = chosen(options.name, folder)
    done = subprocess.run(
        command(library, options.reference, options.pytest),
        cwd=folder,
        env=environment(library, folder),
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout, end="")
    counts = counted(done.stdout)
    total = sum([counts.get(kind, 0) for kind in ("passed", "failed", "error")])
    print(f"{counts.get('passed', 0)} of {total} pass with {'PyTorch' if options.reference else 'undertow'}")
    return 0 if total and counts.get("passed") == total else 1


if __name__ == "__main__":
    sys.exit(main())
