"""`python -m tools.figures [--check]`: puts what was measured into the pages that show it.

A measurement writes its figures, with the date and the machine, to a file in docs/figures (`store`). A page shows them
between two markers, `<!-- figures: NAME -->` and `<!-- end of figures -->`, as a function of the program that measured
them formats them; `<!-- figures: NAME, rows of "WORDS" -->` shows those with these words in their names. So a figure is
copied by nobody, and a test compares pages with files.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"

#: by kind of figures: the module whose `as_page` formats them
FORMATS = {
    "core": "benchmarks.report",
    "programs": "benchmarks.programs",
    "profiler": "benchmarks.profiler",
    "page": "benchmarks.page",
    "growth": "benchmarks.growth",
    "cuda": "benchmarks.cuda",
    "distributed": "benchmarks.distributed",
    "direct-reads": "benchmarks.direct_reads",
    "choices": "benchmarks.choices",
    "conformance": "conformance.report",
    "samples": "conformance.samples",
}

BLOCK = re.compile(r"(<!-- figures: ([\w-]+)(?:, rows of \"([^\"]+)\")? -->\n).*?(<!-- end of figures -->)", re.S)


def store(name: str, kind: str, command: str, figures: Any, folder: Path = FOLDER) -> None:
    """Write figures to their file and into the pages."""
    head = {"kind": kind, "date": datetime.date.today().isoformat(), "command": command, "machine": machine()}
    text = json.dumps({**head, "figures": figures}, indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for page in pages():
        page.write_text(shown(page.read_text(encoding="utf-8"), folder), encoding="utf-8")


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def load(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """The file of a measurement: figures, kind, date, machine and command."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def formatted(name: str, rows: str | None, folder: Path = FOLDER) -> str:
    """What a page shows of a file: all, or the rows that have these words in their names."""
    found = load(name, folder)
    module = importlib.import_module(FORMATS[found["kind"]])
    text = module.as_page(found["figures"] if rows is None else module.rows_of(found["figures"], rows))
    return f"Measured on {found['date']} ({found['machine']}) by `{found['command']}`.\n\n{text.strip()}\n"


def shown(text: str, folder: Path = FOLDER) -> str:
    """The text of a page with the figures as they are now."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{formatted(block[2], block[3], folder)}\n{block[4]}", text)


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if BLOCK.search(page.read_text(encoding="utf-8"))]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="say which pages differ from the files, and change none")
    options = parser.parse_args(arguments)
    differ = [page for page in pages() if shown(text := page.read_text(encoding="utf-8")) != text]
    for page in differ:
        print(f"{page.relative_to(ROOT)} {'differs' if options.check else 'updated'}")
        if not options.check:
            page.write_text(shown(page.read_text(encoding="utf-8")), encoding="utf-8")
    return int(options.check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
