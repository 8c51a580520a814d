"""Kernels that divide their work give the same numbers with any number of threads, which sleep in between."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu
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
    found += [core.gelu(large, False), core.gelu_gradient(large, large, False), core.leaky(large, large, 0.1)]
    found += [core.softmax_rows(large), core.log_softmax_rows_gradient(large, large)]
    out, mean, rstd = core.norm_rows(large, 1, large[0], None, 1e-5, True)
    found += [out, mean, rstd, *core.norm_rows_gradient(out, large, 1, mean, rstd, large[0], (True, True, True))]
    sides, steps, edges = (3, 3), (2, 2), (1, 1)
    found += core.max_pool(x, sides, steps, edges, (1, 1), (20, 20))
    found += [core.max_pool_gradient(found[-2], found[-1], (40, 40)), *core.adaptive_max_pool(x, (7, 7))]
    found += [core.avg_pool(x, (20, 20), sides, steps, edges, True, 0)]
    found += [core.avg_pool_gradient(found[-1], (40, 40), sides, steps, edges, True, 0)]
    for of_channels in (0, 4):
        out, mean, rstd, _ = core.norm_channels(x, of_channels, large[0, :16].copy(), None, 1e-5)
        found += [out, mean, rstd]
        found += core.norm_channels_gradient(x, out, of_channels, mean, rstd, large[0, :16].copy(), (True, True, True))
    moments = [large.copy(), large.copy(), abs(large)]
    core.adam_update(moments[0], large, *moments[1:], None, *[large[0, k : k + 1].reshape(()) for k in range(7)])
    found += [*moments, *[cpu.sum_to(large, shape) for shape in ((), (700,), (700, 1))]]
    found += [ut.tensor(large).var(1).numpy(), ut.tensor(large).mean((0, 1)).numpy()]
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("examples", "groups"), [(1, 1), (5, 1), (3, 4), (2, 2)])
def test_numbers_do_not_depend_on_threads(examples: int, groups: int, dtype: str) -> None:
    core.set_threads(1)
    expected = work(examples, groups, dtype)
    for number in (2, 3, 7, 1000):
        core.set_threads(number)
        assert work(examples, groups, dtype) == expected


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def tasks_become(expected: set[str]) -> bool:
    """Whether these threads are left after a while: of one that ended, the kernel may know a moment longer."""
    patience = time.monotonic() + 10
    while tasks() != expected and time.monotonic() < patience:
        time.sleep(0.001)
    return tasks() == expected


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="only Linux shows the threads of a process")
def test_threads_stay_until_fewer_are_wanted() -> None:
    core.set_threads(1)
    before = tasks()
    core.set_threads(4)
    assert tasks() == before  # none are made before they are needed
    work(4, 1, "f")
    crew = tasks() - before
    assert 1 <= len(crew) <= 3
    work(4, 1, "f")
    assert tasks() - before >= crew  # the same ones
    core.set_threads(1)
    assert tasks_become(before)


def test_a_second_caller_works_alone() -> None:
    core.set_threads(2)
    expected = work(4, 1, "f")
    found: list[list[bytes]] = []
    callers = [threading.Thread(target=lambda: found.append(work(4, 1, "f"))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [expected] * 4


def test_the_interpreter_ends_with_sleeping_threads() -> None:
    program = """
import numpy as np
from undertow.compiled import core
core.set_threads(4)
x = np.ones((1000, 1000), "f")
core.gelu(x, False)
print(core.gelu(x, False)[0, 0] > 0.8)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


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
