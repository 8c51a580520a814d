"""`python -m undertow run`: a program, a module or a command, in which `import torch` finds undertow.

Processes that the program starts find it, too: a folder with a module `torch` is put at the front of PYTHONPATH.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import BuiltinImporter
from types import ModuleType

from undertow.stand_in.finder import install

#: is set for processes that are started by one in which undertow stands for PyTorch
VARIABLE = "UNDERTOW_AS_TORCH"

FOR_CHILD_PROCESSES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "for_child_processes")

USAGE = "usage: python -m undertow run (PROGRAM | -m MODULE | -c COMMAND) [ARGUMENT ...]"


def run(arguments: list[str]) -> int:
    """Run what the arguments name, as Python itself would."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{USAGE}\n\nrun a program written for PyTorch as it is: `import torch` finds undertow")
        return 0 if arguments else 2
    kind = arguments[0] if arguments[0] in ("-m", "-c") else "file"
    rest = arguments if kind == "file" else arguments[1:]
    if not rest or (kind == "file" and rest[0].startswith("-")):
        print(f"{USAGE}\nexpected a program, -m MODULE or -c COMMAND, got {' '.join(arguments)!r}", file=sys.stderr)
        return 2
    stand_in()
    {"file": run_file, "-m": run_module, "-c": run_command}[kind](rest[0], rest[1:])
    return 0


def stand_in() -> None:
    """Stand for PyTorch in this process, and in those that it starts."""
    install()
    os.environ[VARIABLE] = "1"
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [FOR_CHILD_PROCESSES, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if home not in paths:
        paths.append(home)
    os.environ["PYTHONPATH"] = os.pathsep.join([path for path in dict.fromkeys(paths) if path])
    sys.path.insert(1, FOR_CHILD_PROCESSES)  # multiprocessing gives its list to those that it spawns


def run_file(path: str, arguments: list[str]) -> None:
    if os.path.isdir(path) or not path.endswith((".py", ".pyw")):  # a folder with a __main__.py, or an archive
        sys.argv = [path, *arguments]
        sys.path[0] = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        runpy.run_path(path, run_name="__main__")
        return
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    program(code, [path, *arguments], path)


def run_command(text: str, arguments: list[str]) -> None:
    sys.path[0] = ""
    program(compile(text, "<string>", "exec"), ["-c", *arguments])


def run_module(name: str, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def program(code: object, argv: list[str], path: str | None = None) -> None:
    """Run the code in a module `__main__` that stays there, because what is pickled is looked up in it."""
    main = ModuleType("__main__")
    main.__dict__.update({"__builtins__": __builtins__, "__loader__": BuiltinImporter, "__spec__": None})
    if path is not None:
        main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = argv
    exec(code, main.__dict__)  # type: ignore[arg-type]
