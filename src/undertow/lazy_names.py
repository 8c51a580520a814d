"""What keeps `import undertow` short: parts of a package that are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from undertow.torch_names import missing


def loaded_when_used(
    package: str,
    modules: str = "",
    names: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package. All these names are plain attributes after their first use.

    modules  modules of the package, divided by blanks
    names    module -> names in it that the package has, too, divided by blanks
    others   name -> a module from elsewhere that the package has by this name

    Two threads that ask for a name at once are ordered by the lock that Python holds while a module is imported.
    """
    scope = vars(sys.modules[package])
    places = {name: f"{package}.{name}" for name in modules.split()} | dict(others or {})
    homes = {name: module for module, found in (names or {}).items() for name in found.split()}
    unknown = missing.getter(package.partition(".")[2])

    def __getattr__(name: str) -> Any:
        if name == "__all__":  # of `from package import *`
            return [n for n in __dir__() if not n.startswith("_")]
        if name in places:
            scope[name] = import_module(places[name])
        elif name in homes:
            scope[name] = getattr(import_module(homes[name]), name)
        else:
            return unknown(name)
        return scope[name]

    def __dir__() -> list[str]:
        return sorted({*scope, *places, *homes})

    return __getattr__, __dir__


@contextmanager
def without_collecting() -> Iterator[None]:
    """Declarations do not become garbage: looking for some among them would take a sixth of the import.

    So nothing is looked for meanwhile, and afterwards they are where Python keeps what it found old enough to be looked
    at seldom. Freezing brings them there; it does for the whole process, so it is left alone where a program freezes.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()
