"""The status board: what every process of a machine is doing, in memory that they share and MPI knows nothing of.

A process that waits too long reads here where the others are, and one that starts another exchange than its peers is
found here before anything hangs; neither costs a message. One record for each process: its pid, the exchanges it has
started and finished, and when; the last of them in words; the line of the user's program that it is at, renewed twice a
second by a thread; and a ring with the fingerprints of its last exchanges.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
import sys
import threading
import time
from typing import Any

from undertow.own_files import OWN_FILES

#: how many fingerprints are kept, and bytes of a text
RING, TEXT = 64, 200
HEAD = struct.Struct("=qqqd")  # pid, started, finished, when
WORD = struct.Struct("=q")
FIRST = HEAD.size + 2 * TEXT
RECORD = FIRST + RING * WORD.size
#: what a process does, and Linux's letters for it
RUNNING, STOPPED, ENDED = "running", "stopped", "ended"
CONDITIONS = {"Z": ENDED, "X": ENDED, "T": STOPPED, "t": STOPPED}
#: which text is where
EXCHANGE, LINE = 0, 1


@functools.lru_cache(256)
def as_field(text: str) -> bytes:
    """A text as it lies on the board; kept, because a program starts the same exchanges again and again."""
    return text.encode()[: TEXT - 1].ljust(TEXT, b"\0")


class Board:
    """The records of a group's processes on this machine, of which one is our own.

    whole  the board of all processes of the machine, if this is not it; the lines of their programs are there only
    """

    def __init__(self, path: str, place: int, ranks: list[int], whole: Board | None = None) -> None:
        self.place, self.ranks, self.pid, self.whole = place, ranks, os.getpid(), whole
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, RECORD * len(ranks))
            self.memory = mmap.mmap(descriptor, RECORD * len(ranks))
        finally:
            os.close(descriptor)
        self.base = place * RECORD
        self.clear()

    # ---- what this process does

    def clear(self) -> None:
        """Forget this process's exchanges: others, which are counted anew, must not be taken for them."""
        self.finished = 0
        self.memory[self.base : self.base + RECORD] = bytes(RECORD)
        HEAD.pack_into(self.memory, self.base, self.pid, 0, 0, time.time())

    def start(self, number: int, fingerprint: int, text: str) -> None:
        self.write(EXCHANGE, text)
        # number and fingerprint in one word, stored at once: a reader must never see the one without the other
        WORD.pack_into(self.memory, self.base + self.word(number), packed(number, fingerprint))
        HEAD.pack_into(self.memory, self.base, self.pid, number, self.finished, time.time())

    def finish(self, number: int) -> None:
        self.finished = max(number, self.finished)
        WORD.pack_into(self.memory, self.base + 16, self.finished)

    def write(self, which: int, text: str) -> None:
        at = self.base + HEAD.size + which * TEXT
        self.memory[at : at + TEXT] = as_field(text)

    # ---- what the others do

    def word(self, number: int) -> int:
        return FIRST + number % RING * WORD.size

    def text(self, place: int, which: int) -> str:
        at = place * RECORD + HEAD.size + which * TEXT
        return self.memory[at : at + TEXT].split(b"\0")[0].decode(errors="replace")

    def line(self, rank: int) -> str:
        """Where the program of a process is."""
        board = self.whole or self
        return board.text(board.ranks.index(rank), LINE) or "?"

    def differing(self, number: int, fingerprint: int) -> list[int]:
        """The ranks that started another exchange under this number; those that have not come there do not count."""
        mine, found = packed(number, fingerprint), []
        for place, rank in enumerate(self.ranks):
            (word,) = WORD.unpack_from(self.memory, place * RECORD + self.word(number))
            if word != mine and word >> 32 == mine >> 32:
                found.append(rank)
        return found

    def lines(self) -> str:
        """Each rank's exchange, and where its program is."""
        return "\n".join([
            f"  rank {rank}: {self.text(place, EXCHANGE) or 'nothing yet'}; now at {self.line(rank)}"
            for place, rank in enumerate(self.ranks)
        ])  # fmt: skip

    def roll_call(self, number: int) -> str:
        """Who has not come to the exchange of this number, and what became of everybody."""
        return "\n".join([f"  rank {rank}: {self.state(place, number)}" for place, rank in enumerate(self.ranks)])

    def state(self, place: int, number: int) -> str:
        pid, started, finished, when = HEAD.unpack_from(self.memory, place * RECORD)
        exchange = f"#{started} {self.text(place, EXCHANGE)}" if started else "no exchange yet"
        condition = condition_of(pid)
        if condition == ENDED:
            return f"HAS DIED (process {pid}); its last was {exchange}"
        where = f"{'waits in' if started > finished else 'has finished'} {exchange} for {time.time() - when:.1f} s"
        where = f"HAS NOT COME: it {where}" if started < number else where
        where = f"IS STOPPED (process {pid}, by a signal or a debugger): it {where}" if condition == STOPPED else where
        return f"{where}; its program is at {self.line(self.ranks[place])}"


def packed(number: int, fingerprint: int) -> int:
    return number % 2**31 << 32 | fingerprint


def condition_of(pid: int) -> str:
    """What a process does; one that has ended and was not waited for has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return CONDITIONS.get(file.read().rpartition(")")[2].split()[0], RUNNING)
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except OSError:
        return ENDED
    return ENDED if os.path.isdir("/proc/self") else RUNNING


# ---- where the program is


def line_of(frame: Any) -> str:
    """The innermost line that is the user's, as text."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not (OWN_FILES[file] or "site-packages" in file or file.startswith("<frozen") or "/lib/python" in file):
            return f"{os.path.basename(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


def keep_line_current(board: Board, seconds: float = 0.5) -> threading.Event:
    """Write the main thread's line on the board, again and again, until the event is set."""
    ended, main = threading.Event(), threading.main_thread().ident

    def renew() -> None:
        while not ended.wait(seconds):
            board.write(LINE, line_of(sys._current_frames().get(main)))  # type: ignore[arg-type]

    threading.Thread(target=renew, name="status board", daemon=True).start()
    return ended
