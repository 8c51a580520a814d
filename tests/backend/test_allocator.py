"""The allocator switch concerns the whole process, so it is tried in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import undertow as ut

# page faults of making and dropping a large temporary, after a few rounds to warm up
FAULTS = """
import resource
import numpy as np
import undertow as ut
{choice}
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    np.ones(1 << 23)
before = faults()
for _ in range(6):
    np.ones(1 << 23)
print(ut.get_cpu_allocator(), faults() - before)
"""


def run(choice: str, **environment: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(choice=choice)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    kind, faults = done.stdout.split()
    return kind, int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's options")
def test_caching_removes_page_faults() -> None:
    kind, faults = run("")
    assert kind == "default" and faults > 100
    for caching in (run('ut.set_cpu_allocator("caching")'), run("", UNDERTOW_CPU_ALLOCATOR="caching")):
        assert caching[0] == "caching" and caching[1] < faults / 10


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="takes one of 'default', 'caching', not 'fast'"):
        ut.set_cpu_allocator("fast")
    assert ut.get_cpu_allocator() == "default"
    ut.set_cpu_allocator("default")
