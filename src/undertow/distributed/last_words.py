"""How a rank ended, told by a small process beside it: one that is killed cannot say it, and mpiexec does not know it.

Each process that `python -m undertow.distributed.run` starts forks before it does anything. The child is the rank. The
parent hands on what the child writes to stderr and what signals it gets itself, and notes how the child ended in a file
that the launcher reads. It ends as the child did, and the child never outlives it.
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: in the environment of ranks: the folder of the notes
FOLDER = "UNDERTOW_LAST_WORDS"
#: whether there is a process beside each rank, which also notes that it has ended well
WATCHED = sys.platform.startswith("linux")
#: of Linux, <sys/prctl.h>: which signal a process gets when its parent ends
PR_SET_PDEATHSIG = 1
#: seconds between looks at a child that says nothing
LOOKS_EVERY = 0.1
#: characters of last words that are shown
LENGTH = 300
#: how lines of MPI's own begin, which say less than the one before
OF_MPI = ("Abort(", "application called MPI_Abort")


class Ending(NamedTuple):
    """When and how a rank ended: `status` is its exit code, or minus the number of a signal."""

    when: float
    rank: int
    pid: int
    host: str
    status: int
    line: str

    def who(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host}) ended {in_words(self.status)}"

    def code(self) -> int:
        """The exit code, as a shell gives it."""
        return self.status if self.status >= 0 else 128 - self.status


def in_words(status: int) -> str:
    return f"with code {status}" if status >= 0 else f"by {signal.Signals(-status).name}"


def last_of(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line and not line.startswith(OF_MPI)), "")


def note(status: int, line: str, pid: int | None = None) -> None:
    """Leave word of how this rank ends, if a launcher wants it. The first word counts."""
    folder = os.environ.get(FOLDER)
    if folder is None or not os.path.isdir(folder):
        return
    facts = time.time(), os.getpid() if pid is None else pid, socket.gethostname(), status, line[:LENGTH]
    try:
        with open(os.path.join(folder, os.environ.get("RANK", "0")), "x", encoding="utf-8") as file:
            file.write(shlex.join(map(str, facts)))
    except FileExistsError:
        pass


def notes(folder: str) -> Iterator[Ending]:
    for path in Path(folder).iterdir():
        when, pid, host, status, line = shlex.split(path.read_text(encoding="utf-8"))
        yield Ending(float(when), int(path.name), int(pid), host, int(status), line)


# ---- the process beside a rank


def stand_by() -> None:
    """Return in a child, which is the rank; the parent stays here until it has ended, and ends as it did."""
    if FOLDER not in os.environ or not WATCHED:
        return
    reads, writes = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before it could be asked to take this one along
            os._exit(1)
        os.dup2(writes, 2)
        os.close(reads)
        os.close(writes)
        return
    os.close(writes)
    hand_on_signals(child)
    # mpiexec's descriptor stays open here: by its end mpiexec sees that a rank has ended, and kills all before a note
    status, text = watch(child, reads)
    note(status, last_of(text) if status else "", child)
    end_like(status)


def hand_on_signals(child: int) -> None:
    """An interrupt reaches the child as well, which is in the same group; other signals are handed on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: os.kill(child, number))


def watch(child: int, reads: int) -> tuple[int, str]:
    """Hand on what the child says until it ends; how it ended, and the end of what it said."""
    tail, status = b"", None
    while True:
        ready = select.select([reads], [], [], 0 if status is not None else LOOKS_EVERY)[0]
        said = os.read(reads, 65536) if ready else b""
        if said:
            os.write(2, said)
            tail = (tail + said)[-8192:]
        elif status is not None:  # ended, and all is read: others of its own may keep the pipe open
            return os.waitstatus_to_exitcode(status), tail.decode(errors="replace")
        elif ready:  # it has closed its stderr
            status = os.waitpid(child, 0)[1]
        else:
            pid, found = os.waitpid(child, os.WNOHANG)
            status = found if pid else None


def end_like(status: int) -> None:
    if status < 0 and -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)
