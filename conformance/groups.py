"""The list of tests: which group each belongs to and what it needs, read from groups.toml."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CLASSES = ("A", "B", "G1", "G2", "X")


@dataclass(frozen=True)
class Test:
    id: str
    group: str
    kind: str
    needs: str = ""


@dataclass(frozen=True)
class Deviation:
    reason: str
    better: str = ""


def load_titles() -> dict[str, str]:
    """Group name -> title, in the order of the data file."""
    return {name: group["title"] for name, group in _read("groups.toml")["groups"].items()}


def load_tests() -> dict[str, Test]:
    """Test id (``Class.test_name``) -> Test, in the order of the data file."""
    tests: dict[str, Test] = {}
    for name, group in _read("groups.toml")["groups"].items():
        for test_id, entry in group["tests"].items():
            if test_id in tests:
                raise ValueError(f"{test_id} is listed in groups {tests[test_id].group} and {name}")
            tests[test_id] = Test(test_id, name, entry["class"], entry.get("needs", ""))
    return tests


def load_deviations() -> dict[str, Deviation]:
    """Test id -> why undertow does not follow it."""
    return {test_id: Deviation(**entry) for test_id, entry in _read("deviations.toml").items()}


def count(tests: dict[str, Test], group: str | None = None) -> Counter[str]:
    """How many tests of each class there are, in one group or in all."""
    return Counter(test.kind for test in tests.values() if group is None or test.group == group)


def _read(name: str) -> dict:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))
