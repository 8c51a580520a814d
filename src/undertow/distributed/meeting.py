"""How processes that no launcher has started find each other: rank 0 serves an address that all know."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from undertow.distributed import meeting_server
from undertow.distributed.errors import DistNetworkError, DistTimeoutError

#: by which MPI knows that a launcher has started the process
OF_LAUNCHERS = ("PMI_FD", "PMI_PORT", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")

#: Linux's F_SETSIG, which Python's fcntl does not name
SIGNAL_OF_FILE = 10


class Meeting(NamedTuple):
    """Where the processes meet, and which of them this one is."""

    host: str
    port: int
    rank: int
    size: int

    def where(self) -> str:
        return f"{self.host}:{self.port}"


def asked_for(init_method: str | None, rank: int, size: int) -> Meeting | None:
    """What the arguments of init_process_group and the environment say; None if a launcher has started the process."""
    if any([name in os.environ for name in OF_LAUNCHERS]):
        return None
    url = urllib.parse.urlparse(init_method or "env://")
    query = dict(urllib.parse.parse_qsl(url.query))
    known = {"rank": rank, "world_size": size}
    for name, given in known.items():
        known[name] = given if given >= 0 else int(query.get(name) or os.environ.get(name.upper()) or -1)
    is_by_environment = url.scheme == "env"
    host = os.environ.get("MASTER_ADDR") if is_by_environment else url.hostname
    port = os.environ.get("MASTER_PORT") if is_by_environment else url.port
    if known["rank"] < 0 or known["world_size"] < 2 or not host or not port:
        return None
    return Meeting(host, int(port), known["rank"], known["world_size"])


_life: socket.socket | None = None


@contextmanager
def met(meeting: Meeting, limit: float) -> Iterator[None]:
    """MPI that is started inside has all the processes of the meeting."""
    if meeting.rank == 0:
        serve(meeting, limit)
    life = come(meeting, limit)
    key = answer_to(life, meeting, limit)
    manager = connect(meeting, limit)
    manager.sendall(f"cmd=manage key={key}\n".encode())
    manager.settimeout(None)
    settings = {"PMI_FD": manager.detach(), "PMI_RANK": meeting.rank, "PMI_SIZE": meeting.size}
    os.environ.update({name: str(value) for name, value in settings.items()})
    try:
        with ended_by(life):
            yield
    finally:
        for name in settings:
            del os.environ[name]  # processes that this one starts are not of these
    global _life
    _life = life
    threading.Thread(target=end_with_the_others, args=(life,), daemon=True).start()


@contextmanager
def ended_by(life: socket.socket) -> Iterator[None]:
    """Inside, Linux ends this process with the server: MPI has Python's lock while it starts, which may be for ever."""
    if sys.platform != "linux":
        yield
        return
    import fcntl

    before = fcntl.fcntl(life, fcntl.F_GETFL)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, SIGNAL_OF_FILE, signal.SIGTERM)
    fcntl.fcntl(life, fcntl.F_SETFL, before | fcntl.FASYNC)
    try:
        yield
    finally:
        fcntl.fcntl(life, fcntl.F_SETFL, before)


_server: Any = None  # kept, so that nobody warns of a process that is still running


def serve(meeting: Meeting, limit: float) -> None:
    global _server
    try:
        listener = socket.create_server((meeting.host, meeting.port), backlog=meeting.size * 2)
    except OSError as error:
        raise DistNetworkError(
            f"init_process_group: rank 0 cannot listen at {meeting.where()}: {error}. MASTER_ADDR is an address of the "
            "machine of rank 0, and MASTER_PORT a port that no other program uses"
        ) from error
    with listener:
        number = listener.fileno()
        program = [sys.executable, "-I", "-S", meeting_server.__file__, str(number), str(meeting.size), str(limit)]
        _server = subprocess.Popen(program, pass_fds=[number], stdout=subprocess.DEVNULL, start_new_session=True)


def connect(meeting: Meeting, limit: float) -> socket.socket:
    until = time.monotonic() + limit
    while True:
        try:
            return socket.create_connection((meeting.host, meeting.port), timeout=limit)
        except OSError as error:
            if time.monotonic() > until:
                raise DistTimeoutError(
                    f"init_process_group: rank {meeting.rank} found nobody at {meeting.where()} within {limit:g} s "
                    f"({error}), where rank 0 of {meeting.size} listens once it has called init_process_group"
                ) from error
            time.sleep(0.05)


def come(meeting: Meeting, limit: float) -> socket.socket:
    """The connection that stands for this process: it is open as long as it lives."""
    life = connect(meeting, limit)
    host, process = socket.gethostname(), os.getpid()
    life.sendall(f"cmd=join rank={meeting.rank} size={meeting.size} host={host} pid={process}\n".encode())
    return life


def answer_to(life: socket.socket, meeting: Meeting, limit: float) -> str:
    """The word by which all that have come are known, once they are complete."""
    life.settimeout(limit + 10)  # the server itself says who is missing
    try:
        said = life.makefile("r").readline()
    except OSError as error:
        said = f"cmd=refused {error}"
    if not said.startswith("cmd=joined"):
        life.close()
        why = said.removeprefix("cmd=refused").strip() or "the one that listened has gone"
        kind = DistTimeoutError if "within" in why else DistNetworkError
        raise kind(
            f"init_process_group: rank {meeting.rank} of {meeting.size} was not joined at {meeting.where()}: {why}"
        )
    life.settimeout(None)
    return meeting_server.parse(said)["key"]


def leave() -> None:
    """Say that this process ends as it should: nothing is said by one that dies."""
    if _life is not None:
        _life.sendall(b"cmd=leave\n")


def end_with_the_others(life: socket.socket) -> None:
    """Nothing is sent any more: what comes is the end of the server, for one of the ranks has ended with an error."""
    with suppress(OSError):
        life.recv(1)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and not mpi.Is_finalized():
        os.kill(os.getpid(), signal.SIGTERM)
