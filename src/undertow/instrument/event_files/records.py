"""The records of an event file: length, its checksum, content, its checksum."""

from __future__ import annotations

import struct


def _table() -> list[int]:
    """What each byte does to the checksum CRC-32C, whose polynomial is 0x1EDC6F41 (here with its bits reversed)."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return found


_TABLE = _table()


def crc32c(content: bytes) -> int:
    """
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table, crc = _TABLE, 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(content: bytes) -> bytes:
    """The checksum as it stands in the file: turned and shifted, so that a checksum of checksums is none."""
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)
