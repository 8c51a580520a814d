"""Type checkers, run on a user's programs in an environment where undertow is installed from this checkout."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Report:
    """What a checker says, by (file, line)."""

    errors: dict[tuple[str, int], str] = field(default_factory=dict)
    warnings: dict[tuple[str, int], str] = field(default_factory=dict)
    revealed: dict[tuple[str, int], str] = field(default_factory=dict)


def environment(folder: Path) -> Path:
    """An interpreter that finds undertow's source and NumPy, as after `pip install -e .`; nothing is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / ("Lib/site-packages" if os.name == "nt" else f"lib/{version}/site-packages")
    places = [str(ROOT / "src"), sysconfig.get_path("purelib"), *site.getsitepackages()]
    (packages / "undertow.pth").write_text("\n".join(dict.fromkeys(places)) + "\n")
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(folder: Path, *command: str | Path) -> str:
    """The output of a checker; its own cache and the caller's PYTHONPATH are out of the way."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path, programs: list[Path]) -> Report:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    python = environment(folder / "environment")
    options = ["--config-file=", f"--cache-dir={folder / 'cache'}", f"--python-executable={python}"]
    report = Report()
    for line in run(folder, sys.executable, "-m", "mypy", *options, *programs).splitlines():
        found = re.match(r"(.*?):(\d+): (error|note): (.*)", line)
        if found:
            place, (kind, text) = (Path(found[1]).name, int(found[2])), found.groups()[2:]
            if kind == "error":
                report.errors[place] = text
            elif text.startswith("Revealed type is"):
                report.revealed[place] = text.split('"')[1]
    return report


def pyright(folder: Path, programs: list[Path]) -> Report:
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    probe = subprocess.run([sys.executable, "-m", "pyright", "--version"], capture_output=True, text=True)
    if probe.returncode:  # the package fetches the checker itself when it first runs
        pytest.skip(f"pyright cannot run: {probe.stderr.strip()[-200:]}")
    python = environment(folder / "environment")
    output = run(folder, sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python, *programs)
    report = Report()
    for entry in json.loads(output[output.index("{") :])["generalDiagnostics"]:
        place = Path(entry["file"]).name, entry["range"]["start"]["line"] + 1
        if entry["severity"] == "information":
            report.revealed[place] = entry["message"].rpartition(' is "')[2].rstrip('"')
        else:
            (report.errors if entry["severity"] == "error" else report.warnings)[place] = entry["message"]
    return report
