"""The emulated GPU for all tests here: the same C and the same kernels, compiled by g++ when they are first used.

`UNDERTOW_CUDA=real python -m pytest tests/cuda` runs them on the GPU of the machine.
"""

from __future__ import annotations

import os
import shutil

import pytest

REAL = os.environ.get("UNDERTOW_CUDA") == "real"


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    if not REAL:
        if shutil.which("g++") is None:
            pytest.skip("the emulated GPU needs g++")
        monkeypatch.setenv("UNDERTOW_CUDA", "emulate")
        monkeypatch.setenv("UNDERTOW_CUDA_DEVICES", "2")
    pytest.importorskip("undertow._cuda")
