"""Kernels that divide their work among threads give the same numbers with any number of them, and leave none behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")


@pytest.fixture(autouse=True)
def _number_of_threads() -> Iterator[None]:
    yield
    ut.set_num_threads(ut.get_num_threads())


def normal(seed: int, *shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def work(examples: int, groups: int, dtype: str) -> list[bytes]:
    """Results of all kernels that divide their work."""
    x, weight = normal(1, examples, 16, 40, 40, dtype=dtype), normal(2, 28, 16 // groups, 3, 3, dtype=dtype)
    rest = ((2, 1), (1, 1), (1, 1), groups)
    y = core.convolve(x, weight, normal(3, 28, dtype=dtype), *rest)
    found = [y, core.convolve_transposed(y, weight, None, (40, 40), *rest), core.convolve_weight(x, y, (3, 3), *rest)]
    large = normal(4, 700, 700, dtype=dtype)
    found += [core.gelu(large, False), core.gelu_gradient(large, large, False)]
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("examples", "groups"), [(1, 1), (5, 1), (3, 4), (2, 2)])
def test_numbers_do_not_depend_on_threads(examples: int, groups: int, dtype: str) -> None:
    core.set_threads(1)
    expected = work(examples, groups, dtype)
    for number in (2, 3, 7, 1000):
        core.set_threads(number)
        assert work(examples, groups, dtype) == expected


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="only Linux shows the threads of a process")
def test_threads_end_with_the_work() -> None:
    before = set(os.listdir("/proc/self/task"))
    core.set_threads(4)
    work(4, 1, "f")
    # A joined thread has ended, but the kernel may list it a moment longer.
    patience = time.monotonic() + 10
    while (left := set(os.listdir("/proc/self/task")) - before) and time.monotonic() < patience:
        time.sleep(0.001)
    assert not left


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork() -> None:
    core.set_threads(3)
    expected = work(2, 1, "f")
    child = os.fork()
    if child == 0:
        os._exit(0 if work(2, 1, "f") == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_set_num_threads_reaches_kernels() -> None:
    core.set_threads(1)
    ut.set_num_threads(ut.get_num_threads())
    assert core.set_threads(1) == ut.get_num_threads()
    for wrong in ("2", 1.5, None):
        with pytest.raises(TypeError):
            core.set_threads(wrong)
    core.set_threads(0)
    assert core.set_threads(1) == 1
    assert ut.conv2d(ut.ones(1, 1, 3, 3), ut.ones(1, 1, 3, 3)).item() == 9
