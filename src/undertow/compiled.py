"""The compiled core, if there is one.

`core` is the extension module `undertow._core` (csrc/), which takes over the usual case of operations and of the
engine's loop, or None: where there was no C compiler when undertow was installed, or with UNDERTOW_PURE=1 in the
environment, everything runs as pure Python. The results are the same.
"""

from __future__ import annotations

import os
import sys
import warnings
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any


def _plan_version() -> str:
    """What the core must have been built from: a hash of ops/declare/plans.py, as csrc/plan_header.py makes it."""
    with open(os.path.join(os.path.dirname(__file__), "ops", "declare", "plans.py"), "rb") as plans:
        return f"{zlib.crc32(plans.read()):08x}"  # hashlib takes longer to import than all else here


def _load() -> tuple[Any, str]:
    """The core, or None; and what to say of it."""
    if os.environ.get("UNDERTOW_PURE", "0") not in ("", "0"):
        return None, "not used, because UNDERTOW_PURE is set"
    try:
        found: Any = import_module("undertow._core")
    except ImportError as error:
        reason = "it was not built" if isinstance(error, ModuleNotFoundError) else str(error)
        return None, f"not there ({reason}): install a C compiler and Python's headers, and undertow again"
    if getattr(found, "PLAN_VERSION", None) != _plan_version():
        warnings.warn(
            "undertow's compiled core belongs to another version of its Python files, and is not used: undertow is "
            "slower than it could be. Install undertow again: python -m pip install --force-reinstall --no-deps ...",
            RuntimeWarning,
            stacklevel=2,
        )
        return None, "not used, because it belongs to another version of undertow: install undertow again"
    has_lock = getattr(sys, "_is_gil_enabled", None)  # None before Python 3.13
    if has_lock is not None and not has_lock():  # PYTHON_GIL=0: else a free-threaded Python switches it on for the core
        return None, "not used, because it needs the interpreter's lock, which is off: leave out PYTHON_GIL=0, -X gil=0"
    told = ", with the interpreter's lock switched on" if "free-threading" in sys.version else ""
    return found, f"used ({found.__file__}){told}"


#: `status` is what `python -m undertow info` says
core: Any
core, status = _load()


def watch_nodes() -> None:
    """Whoever does what most cycles through a graph need says so: see Note [Nodes apart] in csrc/call/nodes_apart.c."""
    if core is not None:
        core.watch_nodes()


def keep_apart(node: Any) -> None:
    """The same Note: what the core does with nodes that it makes itself."""
    if core is not None:
        core.keep_apart(node)


def twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function on arrays that has a twin of the same name in the compiled core (csrc/twins/table.c).

    The twin serves the usual case, and leaves everything else to the function, which looks at its arguments alone.
    """
    if core is not None:
        return core.Twin(function)
    vars(function)["has_twin"] = True
    return function


def shortcut(*targets: Any, name: str | None = None) -> Callable[..., Any]:
    """Decorate a function that sorts out its arguments and calls operations, and whose usual case is in the core.

    targets  what csrc/call/shortcuts.c calls for it
    name     what it is called there, if not by its own name
    """

    def join(function: Callable[..., Any]) -> Callable[..., Any]:
        return function if core is None else core.Shortcut(name or function.__name__, function, targets)

    return join
