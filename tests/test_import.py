"""`import undertow`: what it loads, what it leaves alone, and how the rest is found when it is first used."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import undertow as ut
from undertow.torch_names.missing import INSTEAD
from undertow.torch_names.module_aliases import ALIASES

ROOMS = """accelerator amp backends cuda data distributed distributions func instrument masked nn optim profiler random
testing utils""".split()

#: besides rooms: what the first use of something loads
LATER = """autograd.checkpoint autograd.functional interop.array_api interop.files interop.numpy
interop.scipy demo""".split()

SOURCE = Path(ut.__file__).parent


def run(program: str) -> str:
    """What a program prints in a process of its own."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# ---- what is loaded


def test_rooms_are_not_loaded() -> None:
    loaded = run("import sys, undertow; print(*[m for m in sys.modules if m.startswith('undertow.')])").split()
    early = [name for name in loaded for room in ROOMS + LATER if f"{name}.".startswith(f"undertow.{room}.")]
    assert early == []
    aliases = {name for name in loaded if name.removeprefix("undertow.") in ALIASES[""]}
    assert len(set(loaded) - aliases) < 300  # files to find and read, at a tenth of a millisecond each and more


def test_libraries_that_few_programs_need_are_not_loaded() -> None:
    slow = "numpy.random numpy.fft tempfile html multiprocessing zipfile json difflib secrets".split()
    program = "import numpy, sys; before = set(sys.modules); import undertow; print(*set(sys.modules) - before)"
    assert set(run(program).split()) & set(slow) == set()


def test_declarations_are_old_at_once() -> None:
    """The garbage collector looks through nothing large meanwhile, nor when the program goes on."""
    program = """
        import gc, numpy

        def look(phase, info):
            if phase == "start":
                sizes.append(sum(len(gc.get_objects(generation=g)) for g in range(info["generation"] + 1)))

        sizes = []
        gc.callbacks.append(look)
        import undertow
        gc.collect(1)  # what the program would search next
        print(gc.get_freeze_count(), sum(sizes) < 0.3 * len(gc.get_objects()))
    """
    assert run(program).split() == ["0", "True"]


def test_what_a_program_has_frozen_stays_frozen() -> None:
    program = "import gc; gc.collect(); gc.freeze(); n = gc.get_freeze_count(); import undertow; "
    assert run(program + "print(0.9 * n < gc.get_freeze_count() <= n)").split() == ["True"]


# ---- what is left alone

GLOBAL = """
    import ctypes, gc, linecache, os, random, signal, sys, threading, warnings
    import numpy as np

    def state():
        return {
            "sys.meta_path": list(sys.meta_path),
            "sys.path_hooks": list(sys.path_hooks),
            "sys.path": list(sys.path),
            "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace()),
            "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
            "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks), gc.get_debug()),
            "signals": [signal.getsignal(s) for s in signal.valid_signals()],
            "threads": threading.active_count(),
            "numpy": (np.geterr(), np.geterrcall(), np.get_printoptions(), np._core.multiarray.get_handler_name()),
            "warnings": list(warnings.filters),
            "random": random.getstate(),
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "linecache": [name for name in linecache.cache if not name.startswith("<undertow ")],
            "modules": [m for m in sys.modules if not sys.modules[m]],
        }

    before = state()
    import undertow
    after = state()
    print(*[name for name in before if before[name] != after[name]])
"""


def test_nothing_global_is_changed() -> None:
    assert run(GLOBAL).split() == []


# ---- how rooms are found


def test_every_room_is_found_whatever_asks_first() -> None:
    """Each in a process that has loaded nothing but the package."""
    program = f"""
        import importlib, os, undertow

        def asked_by(first, name):
            wanted = {{
                "import": lambda: importlib.import_module("undertow." + name),
                "attribute": lambda: getattr(undertow, name),
                "from": lambda: __import__("undertow", fromlist=[name]).__dict__[name],
            }}
            found = [wanted[way]() for way in (first, *wanted)]
            assert all(module is found[0] for module in found) and found[0].__name__ == "undertow." + name
            assert name in dir(undertow) and name in vars(undertow)

        for name in {ROOMS}:
            assert name in dir(undertow) and name not in vars(undertow), name
            for first in ("import", "attribute", "from"):
                child = os.fork()
                if child == 0:
                    asked_by(first, name)
                    os._exit(0)
                print(os.waitpid(child, 0)[1])
    """
    assert run(program).split() == ["0"] * 3 * len(ROOMS)


def test_threads_that_ask_at_once_get_the_same() -> None:
    program = """
        import threading, undertow
        found, start = [], threading.Barrier(8)

        def ask():
            start.wait()
            found.append((undertow.nn.Linear, undertow.vmap, undertow.optim.SGD, undertow.sim))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(found)))
    """
    assert run(program).split() == ["8", "1"]


LAZY = ["", "autograd", "interop"]


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_what_there_is(package: str) -> None:
    """The imports under `if TYPE_CHECKING:` name what is loaded when used, and where it is found."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text())
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    imports = [n for block in blocks for n in block.body if isinstance(n, ast.ImportFrom)]
    module = importlib.import_module(f"undertow.{package}".rstrip("."))
    assert imports
    for found in imports:
        assert found.module is not None
        for name in found.names:
            public = getattr(module, name.asname or name.name)
            if ".top_level" not in found.module:
                assert public is getattr(importlib.import_module(found.module), name.name)
            assert (name.asname or name.name) in dir(module)


def test_everything_is_imported_by_a_star() -> None:
    names: dict = {}
    exec("from undertow import *", names)
    assert {*ROOMS, "sim", "vmap", "load", "save", "sin", "Tensor", "OpMode", "GradScaler"} <= set(names)
    assert not [name for name in names if name.startswith("_") and name != "__builtins__"]


# ---- PyTorch's names


@pytest.mark.parametrize("package", ALIASES)
def test_aliases(package: str) -> None:
    parent = f"undertow.{package}".rstrip(".")
    for name, place in ALIASES[package].items():
        module = importlib.import_module(f"{parent}.{name}")
        assert module is importlib.import_module(f"undertow.{place}")
        assert "." in name or getattr(importlib.import_module(parent), name) is module


def test_no_module_is_loaded_twice() -> None:
    for name in ROOMS + [f"{package}.{name}".lstrip(".") for package, names in ALIASES.items() for name in names]:
        importlib.import_module(f"undertow.{name}")
    files: dict[str, list[ModuleType]] = {}
    for module in set(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("undertow") and getattr(module, "__file__", None):
            files.setdefault(str(module.__file__), []).append(module)
    assert [file for file, modules in files.items() if len(modules) > 1] == []


@pytest.mark.parametrize("name", sorted(set(INSTEAD) - {"fx", "onnx"}))
def test_modules_that_are_not_here(name: str) -> None:
    parent, _, last = f"undertow.{name}".rpartition(".")
    for statement in (f"import undertow.{name}", f"from {parent} import {last}", f"from undertow.{name} import x"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named 'undertow.{name}': "):
            exec(statement)
    assert not hasattr(importlib.import_module(parent), last)
    assert f"undertow.{name}" not in sys.modules


@pytest.mark.parametrize(
    ("path", "name", "advice"),
    [("undertow", "quantize_per_tensor", "models cannot be quantized"),
     ("undertow.cuda", "graph_pool_handle", "become CUDA graphs by themselves"),
     ("undertow.utils", "benchmark", "use Python's timeit"),
     ("undertow", "export", "models are not exported: save the state_dict() with undertow.save"),
     ("undertow", "grad", "use undertow.autograd.grad(output, inputs), or undertow.func.grad"),
     ("undertow.autograd", "jacobian", "use undertow.func.jacrev"),
     ("undertow.distributed", "TCPStore", "init_process_group() needs no store")],
)  # fmt: skip
def test_names_that_are_not_here_say_what_to_do(path: str, name: str, advice: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"^module '{path}' has no attribute '{name}': .*{re.escape(advice)}.*\.$"
    ):
        getattr(importlib.import_module(path), name)


@pytest.mark.parametrize(
    ("path", "wrong", "right"),
    [("undertow", "sofmax", "softmax"), ("undertow", "no_gradd", "no_grad"), ("undertow", "optm", "optim"),
     ("undertow.nn", "Liner", "Linear"), ("undertow.autograd", "Functoin", "Function")],
)  # fmt: skip
def test_names_that_are_spelled_alike_are_suggested(path: str, wrong: str, right: str) -> None:
    message = rf"^module '{path}' has no attribute '{wrong}': did you mean .*'{right}'.*\?$"
    with pytest.raises(AttributeError, match=message):
        getattr(importlib.import_module(path), wrong)
