"""Errors in forward say in which module: a note with its path from the outermost module, and what it was given."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.nn.module import Module

#: what layers and operations raise for arguments that do not fit
TOLD = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


class Told(NamedTuple):
    """What an error says so far. `module` is the outermost one that it has come through."""

    module: Any
    path: str
    description: str
    note: str


def tell_module(error: BaseException, module: Any, args: tuple[Any, ...]) -> None:
    """Let an error that leaves the call of a module name it; outer modules make the path longer."""
    told: Told | None = error.__dict__.get("_undertow_module")
    notes = getattr(error, "__notes__", [])
    if told is not None and is_raised_again(module, told):
        notes[:] = [note for note in notes if note != told.note]
        told = None
    path = "" if told is None else longer_path(module, told)
    description = described(module, args) if told is None else told.description
    note = f"in {f'{path}: ' if path else ''}{description}"
    if told is not None and told.note in notes:
        notes[notes.index(told.note)] = note
    else:
        error.add_note(note)
    error.__dict__["_undertow_module"] = Told(weakref.ref(module), path, description, note)


def is_raised_again(module: Module, told: Told) -> bool:
    """Whether an error that had left an outer module comes from inside it once more."""
    outer = told.module()
    return outer is None or any(part is module for part in outer.modules())


def longer_path(module: Module, told: Told) -> str:
    inner = told.module()
    name = next((name for name, part in module.named_modules() if part is inner), "")  # "": it is nobody's part
    return ".".join([part for part in (name, told.path) if part])


def described(module: Module, args: tuple[Any, ...]) -> str:
    """The module as it is printed, in one line, and the shapes that it was given."""
    shapes = ", ".join([str(list(a.shape)) if isinstance(a, Tensor) else type(a).__name__ for a in args])
    return f"{type(module).__name__}({module.extra_repr()})" + (f", called with {shapes}" if shapes else "")
