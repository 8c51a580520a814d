"""The child process: imports the test files and runs the tests it is told to, one line of JSON each.

Started by `supervisor.py` as a script, so that nothing of this package is on the path of the tests.
Reads test ids from standard input; writes ``{"start": id}`` before and one result after each test to
the file descriptor given as second argument. What the tests print goes to standard error.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
import traceback
import types
import unittest
import warnings

# test_autograd imports the classes of test_complex, test_functional and test_logging into itself.
MODULES = ("test_autograd", "autograd.test_node_lifecycle")


def import_test_files(test_dir: str) -> list[types.ModuleType]:
    """Import the files from `test_dir`, shielding its folder `autograd` from an installed package."""
    sys.path.insert(0, test_dir)
    folder = types.ModuleType("autograd")
    folder.__path__ = [os.path.join(test_dir, "autograd")]
    sys.modules["autograd"] = folder
    return [importlib.import_module(name) for name in MODULES]


def collect(modules: list[types.ModuleType]) -> dict[str, unittest.TestCase]:
    """Test id -> test case, for every test class the modules hold."""
    loader = unittest.TestLoader()
    cases: dict[str, unittest.TestCase] = {}
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type) and issubclass(value, unittest.TestCase):
                for name in loader.getTestCaseNames(value):
                    cases.setdefault(f"{value.__name__}.{name}", value(name))
    return cases


class Outcome(unittest.TestResult):
    """Remembers what became of one test: status, first line of the error, where, full traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {"status": "passed"}

    def addError(self, test, err):
        self._record("failed", err)

    def addFailure(self, test, err):
        self._record("failed", err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._record("failed", err)

    def addSkip(self, test, reason):
        if self.found["status"] == "passed":
            self.found = {"status": "skipped", "error": reason}

    def addUnexpectedSuccess(self, test):
        self.found = {"status": "failed", "error": "unexpected success of an expected failure"}

    def _record(self, status: str, err) -> None:
        if self.found["status"] == "failed":
            return
        kind, value, tb = err
        lines = (str(value).strip() or "(no message)").splitlines()
        self.found = {
            "status": status,
            "error": f"{kind.__name__}: {lines[0]}",
            "where": _innermost(tb),
            "traceback": "".join(traceback.format_exception(kind, value, tb)),
        }


def _innermost(tb) -> str:
    """File and line where it was raised, not counting the assertion methods themselves."""
    places = [(frame.filename.split(os.sep), frame.lineno) for frame in traceback.extract_tb(tb)]
    telling = [place for place in places if not {"unittest", "testing"} & set(place[0])]
    if not telling:
        return ""
    path, line = telling[-1]
    return f"{os.path.join(*path[-2:])}:{line}"


def run_one(case: unittest.TestCase) -> dict[str, object]:
    outcome = Outcome()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        unittest.TestSuite([case]).run(outcome)
    return {**outcome.found, "seconds": round(time.perf_counter() - begin, 3)}


def main(test_dir: str, channel: int) -> None:
    faulthandler.enable()
    report = os.fdopen(channel, "w", buffering=1)

    def tell(**message: object) -> None:
        report.write(json.dumps(message) + "\n")

    cases = collect(import_test_files(test_dir))
    tell(collected=list(cases))
    for line in sys.stdin:
        test_id = line.strip()
        tell(start=test_id)
        # A case is run once and dropped, so that nothing it holds outlives it.
        tell(test=test_id, **run_one(cases.pop(test_id)))
    report.flush()
    # Threads a failing test left waiting must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1], int(sys.argv[2]))
