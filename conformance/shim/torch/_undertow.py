"""Finding undertow's names: at once where they exist, with an error in the test that uses them where not."""

from __future__ import annotations

import importlib
from typing import Any

import undertow


def lookup(*paths: str) -> Any:
    """The first of these dotted paths under undertow that exists."""
    for path in paths:
        try:
            return _follow(path)
        except AttributeError:
            continue
    raise AttributeError(f"undertow has no {paths[0]}")


def _follow(path: str) -> Any:
    value, walked = undertow, "undertow"
    for part in path.split("."):
        walked = f"{walked}.{part}"
        if not hasattr(value, part):
            _import_submodule(walked)
        value = getattr(value, part)
    return value


def _import_submodule(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or ""):
            raise


class _Absent(type):
    """A class that can be named, imported and inherited from, and does nothing else."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(cls.reason)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(cls.reason)


def late(*paths: str) -> Any:
    """`lookup`, but a stand-in that raises when used instead of an error now: for names that files import."""
    try:
        return lookup(*paths)
    except Exception as error:  # also what a broken submodule raises when it is imported
        return _Absent(paths[0].rpartition(".")[2], (), {"reason": str(error)})


def forward(*prefixes: str) -> Any:
    """A module's `__getattr__` that looks names up under undertow, with and without leading underscore."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        spellings = dict.fromkeys((name, name.lstrip("_")))
        return lookup(*(f"{prefix}{spelling}" for spelling in spellings for prefix in prefixes))

    return __getattr__
