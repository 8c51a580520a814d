"""Doorbells: MPI tells nobody that a message has come, so whoever posts one rings.

A bell is a datagram socket of its process. Processes of other machines cannot ring it: for them the listener looks up
from time to time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import time

#: how long to sleep where nobody rings, in seconds: while something is expected at once, and otherwise
SOON, SELDOM = 5e-5, 1e-3
#: how long to sleep where everybody rings
LONG = 0.02


class Doorbell:
    """The bell of this process.

    place  where others ring it: its machine, and the name of its socket
    """

    def __init__(self) -> None:
        name = f"undertow-{os.getpid()}-{time.monotonic_ns()}"
        # a name that begins so is in no file system, and goes with the socket (Linux)
        path = f"\0{name}" if os.path.isdir("/proc/self") else os.path.join(tempfile.gettempdir(), name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(path)
        self.place = socket.gethostname(), path
        self.others: list[str | None] = []
        self.everybody_rings = True
        self.waiter = select.poll()
        self.waiter.register(self.socket, select.POLLIN)

    def know(self, places: list[tuple[str, str]]) -> None:
        """The places of all bells, by rank."""
        self.others = [path if machine == self.place[0] else None for machine, path in places]
        self.everybody_rings = None not in self.others

    def ring(self, rank: int) -> None:
        path = self.others[rank]
        if path is not None:
            with contextlib.suppress(OSError):  # it rings already, or its process has ended
                self.socket.sendto(b"!", path)

    def wait(self, soon: bool) -> bool:
        """Sleep until the bell rings, or until it is time to look; whether it has rung.

        soon  something is under way that makes progress only when it is looked at
        """
        limit = SOON if soon else LONG if self.everybody_rings else SELDOM
        if limit < 1e-3:
            time.sleep(limit)
            return False
        if not self.waiter.poll(limit * 1000):
            return False
        with contextlib.suppress(OSError):
            while True:
                self.socket.recv(16)
        return True

    def close(self) -> None:
        path = self.place[1]
        self.socket.close()
        if not path.startswith("\0"):
            with contextlib.suppress(OSError):
                os.unlink(path)
