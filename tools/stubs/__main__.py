"""`python -m tools.stubs`: write the stubs; with --check, only say whether they are current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.stubs.modules import all_stubs

FOLDER = Path(__file__).parents[2] / "src" / "undertow-stubs"


def differences(folder: Path = FOLDER) -> list[str]:
    """The files that are missing, superfluous or out of date."""
    wanted = all_stubs()
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    stale = [name for name, text in wanted.items() if name in there and (folder / name).read_text() != text]
    return sorted({*stale, *(there ^ wanted.keys())})


def write(folder: Path = FOLDER) -> None:
    wanted = all_stubs()
    for name in differences(folder):
        path = folder / name
        if name not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[name])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.stubs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stub is not current")
    arguments = parser.parse_args()
    if not arguments.check:
        write()
        return 0
    stale = differences()
    for name in stale:
        print(f"not current: src/undertow-stubs/{name} (run python -m tools.stubs)")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
