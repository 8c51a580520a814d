"""What every test gets: fixed seeds, restored interpreter state, and the oracle where it is installed.

And what every run gets: a number of processes that suits what was asked for, and `--quick`.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import importlib.util
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from tests import quick, rows, samples
from tests.seeds import seed_everything

settings.register_profile("dev", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# A shell starts background jobs with interrupts ignored, and Python leaves it at that. Tests that interrupt themselves
# need the handler that a program in the foreground has.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Some three hundred processes import the library, and each would compile it again: half a second of work.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# ---- the run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="A row of everything: see tests/quick.py")
    parser.addoption("--first-rows", action="store_true", help="One row of samples for each operation")


def pytest_configure(config: pytest.Config) -> None:
    samples.first_rows_only = config.getoption("quick") or config.getoption("first_rows")
    rows.one_at_a_time = bool(config.option.keyword)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[WATCHDOG] = Watchdog(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[WATCHDOG].look_on()


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[WATCHDOG].stop()


class Watchdog:
    """Where a test hangs for five to six minutes, show where every thread stands and end the run.

    pytest's own (faulthandler_timeout) starts a thread for each test; this one only when a minute has passed.
    """

    hangs, renewed = 300, 60  # seconds

    def __init__(self, config: pytest.Config) -> None:
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            self.stderr = os.dup(2)  # of the terminal, not what captures the output of tests
        self.started = -math.inf

    def look_on(self) -> None:
        if time.monotonic() - self.started > self.renewed:
            faulthandler.dump_traceback_later(self.hangs + self.renewed, exit=True, file=self.stderr)
            self.started = time.monotonic()

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.close(self.stderr)


WATCHDOG = pytest.StashKey[Watchdog]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """No other processes for a few files: starting them takes longer than most files do.

    Folders get every core, and one process more: tests of timeouts and of other processes wait for two minutes in all.
    A quick run has none of these.
    """
    asked = [Path(argument.partition("::")[0]) for argument in config.args]
    if config.option.collectonly or not any(path.is_dir() for path in asked):
        return 0
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return cores() + (0 if config.getoption("quick") else 1)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `torch` or `cuda` where what they need is absent; choose those of a quick run."""
    absent = {"torch": _absence_of_torch, "cuda": _absence_of_cuda}
    for marker, find_absence in absent.items():
        reason = find_absence()
        for item in items if reason else ():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    if config.getoption("quick"):
        items[:], left_out = quick.choose(items)
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is collected stays: to look for garbage in it meanwhile takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """The collector need not look at all the tests again, each time that one of them asks it to collect."""
    leave_to_themselves()


@pytest.hookimpl(trylast=True)  # when the fixtures of the file have ended
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor at what the tests of another file have loaded: PyTorch alone is 180,000 objects, a fifth of a second."""
    if nextitem is not None and nextitem.path != item.path:
        leave_to_themselves()


def leave_to_themselves() -> None:
    """Take what is alive out of the collector's sight."""
    gc.collect()
    gc.freeze()


def _absence_of_torch() -> str | None:
    return None if importlib.util.find_spec("torch") else "PyTorch is not installed"


def _absence_of_cuda() -> str | None:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    cupy = importlib.import_module("cupy")
    return None if cupy.is_available() else "CuPy finds no CUDA device"


# ---- the tests


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle; a test that asks for it is skipped where it is not installed."""
    module: ModuleType = pytest.importorskip("torch", reason="PyTorch is not installed")
    module.set_num_threads(1)
    return module


@pytest.fixture(params=["undertow", pytest.param("torch", marks=pytest.mark.torch)])
def L(request: pytest.FixtureRequest) -> ModuleType:
    """undertow, then PyTorch: a rule that both must obey is tested once, and its test proven by the original."""
    if request.param == "torch":
        return request.getfixturevalue("torch")
    return importlib.import_module("undertow")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not used the emulated GPU, which others of this run may have done before."""
    cuda = importlib.import_module("undertow.backend.cuda")
    device = importlib.import_module("undertow.backend.cuda.device")
    if device.is_emulated():
        pytest.skip("UNDERTOW_CUDA=emulate gives every process a GPU")
    if device.is_ready() and True in device._started:
        monkeypatch.setattr(device, "_started", {})
        monkeypatch.setattr(cuda, "_namespaces", {})


@pytest.fixture(autouse=True)
def same_state() -> Iterator[None]:
    """Start every test from the same random state, and let it change the collector or the thread switch interval."""
    seed_everything()
    enabled, threshold, interval = gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()
    sys.setswitchinterval(interval)
