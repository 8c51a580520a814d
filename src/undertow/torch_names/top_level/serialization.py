"""Reading and writing files, under PyTorch's name for the module. Loading runs no code, so nothing need be allowed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from undertow.interop.files import load as load
from undertow.interop.files import save as save

MAP_LOCATION = FILE_LIKE = Any
DEFAULT_PROTOCOL = 2
_safe: list[Any] = []


class SourceChangeWarning(Warning):
    """The code of a module differs from what a file was written with."""


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Note what a program trusts; files here are data, and nothing in them is called."""
    _safe.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    return list(_safe)


def clear_safe_globals() -> None:
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    before = list(_safe)
    _safe.extend(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    return []


@contextlib.contextmanager
def skip_data(materialize_fake_tensors: bool = False) -> Iterator[None]:
    raise NotImplementedError("undertow, which stands for PyTorch here, has no skip_data: save the whole tensors.")
    yield


def get_default_mmap_options() -> int:
    return 2


def set_default_mmap_options(flags: int) -> None:
    """Files are read into memory."""


def get_crc32_options() -> bool:
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Checksums are always computed."""


def location_tag(storage: Any) -> str:
    return "cpu"


def default_restore_location(storage: Any, location: str) -> Any:
    return storage
