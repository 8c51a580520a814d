"""Zip archives, measured before anything in them is read.

The directory of an archive can say what it likes: that a part of a short file is long, that a thousand parts are the
same bytes, that a kilobyte unpacks to a gigabyte. `opened` looks at the directory and at the length of the file, and
refuses what cannot be or should not be; after that, reading a part takes no more memory than the part has bytes.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from undertow.errors import FileFormatError

#: how many bytes one byte of deflated data can stand for at most
DEFLATE_RATIO = 1032


def damaged(path: Any, why: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} cannot be loaded: {why}. The file is damaged, or was made by something else."
    )


def length(file: str | os.PathLike[str] | BinaryIO) -> int:
    """How many bytes a file has, by name or open; an open one stays where it is."""
    if isinstance(file, str | os.PathLike):
        return os.stat(file).st_size
    place = file.tell()
    try:
        return file.seek(0, os.SEEK_END)
    finally:
        file.seek(place)


@contextmanager
def opened(path: str | os.PathLike[str] | BinaryIO, compressed: bool) -> Iterator[zipfile.ZipFile]:
    """The archive, all parts of which are in the file, once each, and no longer than they can be.

    compressed  whether parts may be deflated
    """
    size = length(path)
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if len({info.filename for info in infos}) != len(infos):
            raise damaged(path, "it has two parts of the same name")
        for info in infos:
            _check(path, info, compressed)
        if sum([info.compress_size for info in infos]) > size:
            raise damaged(path, "its parts are said to be longer than the file is")
        yield archive


def _check(path: Any, info: zipfile.ZipInfo, compressed: bool) -> None:
    stored = info.compress_type == zipfile.ZIP_STORED
    if not stored and not (compressed and info.compress_type == zipfile.ZIP_DEFLATED):
        raise damaged(
            path, f"its part {info.filename!r} is compressed, and may need any amount of memory; store it uncompressed"
        )
    most = info.compress_size * (1 if stored else DEFLATE_RATIO)
    if info.file_size > most or min(info.compress_size, info.file_size) < 0:
        raise damaged(path, f"its part {info.filename!r} is said to be longer than it is")


@contextmanager
def writing(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """A new archive. It is ended only if all went well: to end one in the middle of a part raises an error of its own,
    which would hide what went wrong.
    """
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
    try:
        yield archive
        archive.close()
    except BaseException:
        archive.fp = None
        raise
