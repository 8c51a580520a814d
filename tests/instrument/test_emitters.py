"""emit_nvtx and emit_itt: with libraries that write down what they are told."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from undertow.autograd.profiler import emit_itt, emit_nvtx, record_function

import undertow as ut

# The functions of NVTX, by their names and types. A depth below zero is the error that NVTX returns, too.
NVTX = """
#include <stdio.h>
#include <stdlib.h>
static __thread int depth;
static void note(const char *what, const char *text)
{
    FILE *file = fopen(getenv("NVTX_NOTES"), "a");
    fprintf(file, "%s%s\\n", what, text);
    fclose(file);
}
int nvtxRangePushA(const char *message) { note("push ", message); return depth++; }
int nvtxRangePop(void) { note("pop", ""); return depth > 0 ? --depth : -2; }
int depth_of_thread(void) { return depth; }
"""

ITT = """
notes = []
class domain:
    def __init__(self, name): self.name = name
class task:
    def __init__(self, name, domain): self.name, self.domain = name, domain
    def begin(self): notes.append(f"push {self.name}")
    def end(self): notes.append("pop")
"""


@pytest.fixture
def nvtx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that says what the library was told since."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library, notes = tmp_path / "nvtx.c", tmp_path / "libnvtx.so", tmp_path / "notes"
    source.write_text(NVTX)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    notes.write_text("")
    monkeypatch.setenv("UNDERTOW_NVTX_LIBRARY", str(library))
    monkeypatch.setenv("NVTX_NOTES", str(notes))

    def told() -> list[str]:
        lines = notes.read_text().splitlines()
        notes.write_text("")
        return lines

    return told


def nested(lines: list[str]) -> list[Any]:
    """Ranges as (name, those inside), without their numbers."""
    inside: list[list[Any]] = [[]]
    for line in lines:
        if line == "pop":
            inside.pop()
        else:
            name, below = line.removeprefix("push ").partition(", ")[0], list[Any]()
            inside[-1].append((name, below))
            inside.append(below)
    assert len(inside) == 1
    return inside[0]


def test_operations_nodes_and_blocks_are_ranges(nvtx: Any) -> None:
    x = ut.ones(3, requires_grad=True)
    with emit_nvtx(record_shapes=True):
        with record_function("mine"):
            y = (x * 2).sum()
        y.backward()
    lines = nvtx()
    assert nested(lines) == [
        ("mine", [("aten::mul", []), ("aten::sum", [])]), ("SumBackward0", []), ("MulBackward0", []),
        ("undertow::autograd::AccumulateGrad", []),
    ]  # fmt: skip
    numbers = {line.split(",")[0]: line.partition("seq = ")[2].split(",")[0] for line in lines}
    assert numbers["push aten::mul"] == numbers["push MulBackward0"] != numbers["push SumBackward0"]
    assert "sizes = [[3], []]" in lines[1]
    (x * 2).sum().backward()
    assert nvtx() == []


def test_ranges_are_closed_after_errors(nvtx: Any) -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: 1 / 0)
    with emit_nvtx():
        with pytest.raises(RuntimeError):
            x + ut.ones(2)
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()
        x.detach().add_(1)
    assert [name for name, _ in nested(nvtx())][-2:] == ["aten::detach", "aten::add_"]


def test_other_threads_and_other_observers(nvtx: Any) -> None:
    with emit_nvtx(), ut.profiler.profile() as prof:
        thread = threading.Thread(target=lambda: ut.ones(2) * 3)
        thread.start()
        thread.join()
        ut.ones(2).exp()
    assert [name for name, _ in nested(nvtx())][-1] == "aten::exp"
    assert [event.name for event in prof.events()][-1] == "aten::exp"


def test_tasks_of_vtune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ittapi.py").write_text(ITT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ittapi", raising=False)
    with emit_itt():
        ut.stack([ut.zeros(2).cos()])
    notes = sys.modules["ittapi"].notes  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "ittapi")
    assert [name for name, _ in nested(notes)][-2:] == ["aten::cos", "aten::stack"]


def test_without_a_library_entering_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_NVTX_LIBRARY", "/nowhere/libnvtx.so")
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "ittapi", None)
    for emitter, package in ((emit_nvtx, "nvtx"), (emit_itt, "ittapi")):
        with emitter(enabled=False):
            pass
        with pytest.raises(RuntimeError, match=f"install the package {package}.*export_chrome_trace"), emitter():
            pass


def test_one_block_at_a_time(nvtx: Any) -> None:
    emitter = emit_nvtx()
    with emitter, pytest.raises(RuntimeError, match="not reentrant"), emitter:
        pass
    with emitter:
        ut.ones(1).sin()
    assert "aten::sin" in str(nvtx())
