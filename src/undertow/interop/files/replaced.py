"""Putting a file in the place of another.

Guarantees: a regular file is replaced as a whole or not at all, whatever goes wrong meanwhile (an error, an interrupt,
a full disk, a crash), and keeps its mode and, where that is allowed, its owner. Symbolic links stay links: what they
lead to is replaced. What is no regular file (a device such as /dev/null, a FIFO, a socket) is written to, and stays.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_replacement(path: Path, write: Callable[[str], None]) -> None:
    """Have `write` write a file, given a name, and put that file into the place of the one called `path`."""
    target = os.path.realpath(path)
    try:
        former = os.stat(target)
    except FileNotFoundError:
        former = None
    if former is None or stat.S_ISREG(former.st_mode):
        _replace(target, former, write)
    else:
        _write_through(target, write)


def _replace(target: str, former: os.stat_result | None, write: Callable[[str], None]) -> None:
    temporary = f"{target}.{secrets.token_hex(4)}.part"
    try:
        # nobody else may read it while it is unfinished, if not everybody might read what was there
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if former is None else 0o600))
        write(temporary)
        if former is not None:
            _make_alike(temporary, former)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _make_alike(name: str, former: os.stat_result) -> None:
    """Give a file the owner of the former one, if that may be, and its mode."""
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):
            os.chown(name, former.st_uid, former.st_gid)
    os.chmod(name, stat.S_IMODE(former.st_mode))


def _write_through(target: str, write: Callable[[str], None]) -> None:
    """Write what is to be written elsewhere, and then copy it: archives need a file in which one can go back."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, os.path.basename(target))
        write(name)
        with open(name, "rb") as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
