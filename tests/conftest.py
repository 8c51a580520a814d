"""What every test gets: fixed seeds, restored interpreter state, and the oracle where it is installed."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# A shell starts background jobs with interrupts ignored, and Python leaves it at that. Tests that interrupt themselves
# need the handler that a program in the foreground has.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `torch` or `cuda` where what they need is absent."""
    absent = {"torch": _absence_of_torch, "cuda": _absence_of_cuda}
    for marker, find_absence in absent.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = find_absence() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _absence_of_torch() -> str | None:
    return None if importlib.util.find_spec("torch") else "PyTorch is not installed"


def _absence_of_cuda() -> str | None:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    cupy = importlib.import_module("cupy")
    return None if cupy.is_available() else "CuPy finds no CUDA device"


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


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Start every test from the same random state, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    for name in ("undertow", "torch"):
        seed = getattr(sys.modules.get(name), "manual_seed", None)
        if seed is not None:
            seed(0)


@pytest.fixture(autouse=True)
def restored_interpreter() -> Iterator[None]:
    """Let a test switch the collector off or shorten the thread switch interval without undoing it."""
    enabled, threshold, interval = gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()
    sys.setswitchinterval(interval)
