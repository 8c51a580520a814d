"""How a process joins those that were started with it, and how it ends: by telling the others."""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import multiprocessing.util
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from undertow.backend import cpu
from undertow.backend.threads import get_num_threads, set_num_threads
from undertow.distributed import last_words
from undertow.distributed.launched import THREADS
from undertow.distributed.meeting import Meeting, leave, met
from undertow.distributed.status_board import LINE, Board, keep_line_current
from undertow.distributed.work import is_driving

#: how long a process that ends waits for the others to end, at most
ENDING = 30.0
#: seconds between the report of an error and the end of all ranks, in which others report theirs
GRACE = 1.0
INSTALL = "pip install 'undertow[mpi]' installs mpi4py and MPICH; mpi4py over another MPI works, too"


def import_mpi() -> Any:
    """mpi4py's MPI, ready for several threads, and ended by us: MPI's own end waits for ranks that have died."""
    try:
        settings = importlib.import_module("mpi4py")
        if "mpi4py.MPI" not in sys.modules:
            settings.rc.thread_level, settings.rc.finalize = "multiple", False
        return importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(f"init_process_group needs MPI: {error}. {INSTALL}.") from error


_board: Board | None = None


def join(meeting: Meeting | None = None, limit: float = 0.0) -> tuple[Any, Board]:
    """mpi4py's MPI, and the board of this machine: the other processes are told when this one ends.

    meeting, limit  where processes that no launcher has started meet, and how long they wait for each other
    """
    global _board
    with nullcontext() if meeting is None or "mpi4py.MPI" in sys.modules else met(meeting, limit):
        mpi = import_mpi()
    if _board is None:
        _board = make_board(mpi, mpi.COMM_WORLD)
        share_cores(len(_board.ranks))
        at_the_end(end, _board, keep_line_current(_board))
        os.register_at_fork(after_in_child=be_no_rank)
    return mpi, _board


def be_no_rank() -> None:
    """In a child that the program forks: its end is not this rank's, and its errors stop nobody."""
    atexit.unregister(end)
    while errors_stop_all.holders:
        errors_stop_all.release()


def at_the_end(action: Callable[..., Any], *arguments: Any) -> None:
    """Call it when the process ends. One that multiprocessing has started may end without what atexit calls."""
    atexit.register(action, *arguments)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, action, arguments, exitpriority=0)


def make_board(mpi: Any, comm: Any) -> Board:
    """The board of a group's processes on this machine, in a file that has no name any more once all have opened it."""
    local = comm.Split_type(mpi.COMM_TYPE_SHARED)
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    path = local.bcast(os.path.join(folder, f"undertow-{os.getpid()}-{time.time_ns()}"), 0)
    board = Board(path, local.rank, local.allgather(mpi.COMM_WORLD.rank), _board)
    local.Barrier()
    if local.rank == 0:
        os.unlink(path)
    local.Free()
    return board


def share_cores(processes: int) -> None:
    """Let each process of this machine have its share of the cores, unless somebody has said how many threads to take.

    The launcher says so, in the environment. Under mpiexec nobody does, and each process would take all cores; Slurm
    may let it run on some of them only, which counts as said.
    """
    cores = os.cpu_count() or 1
    is_said = any([name in os.environ for name in THREADS]) or get_num_threads() != cores
    if processes > 1 and cores > 1 and not is_said:
        set_num_threads(max(1, cores // processes))


def end(board: Board, ended: threading.Event) -> None:
    """Wait until all processes end, and end MPI; stop all if some do not.

    MPI is left as it is if one of them has an exchange on a thread that will never be finished: MPI would take away the
    memory under that thread.
    """
    mpi = sys.modules["mpi4py.MPI"]
    if mpi.Is_finalized() or ended.is_set():
        return
    ended.set()
    if sys.exc_info()[0] is not None:
        return  # multiprocessing ends a process that has raised: the others end when they see that
    board.write(LINE, "its end")
    busy, until = cpu.array([is_driving()], dtype="int32"), time.monotonic() + ENDING
    barrier = mpi.COMM_WORLD.Iallreduce(mpi.IN_PLACE, busy, mpi.MAX)
    while not barrier.Test():
        time.sleep(1e-3)
        if time.monotonic() > until:
            print(
                f"rank {mpi.COMM_WORLD.rank} has ended, and the others have not within {ENDING:g} s: all are stopped\n"
                f"{board.roll_call(2**31)}",
                file=sys.stderr,
                flush=True,
            )
            mpi.COMM_WORLD.Abort(1)
    leave_mpi(mpi, is_left=bool(busy[0]))
    leave()


def leave_mpi(mpi: Any, is_left: bool) -> None:
    """End MPI, or leave it as it is. A launcher may then stop those that are later, so what they wrote is shown now."""
    if not is_left:
        mpi.Finalize()
        return
    if is_driving():
        print(f"rank {mpi.COMM_WORLD.rank} ends before an exchange that it takes part in", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()


# ---- errors


class ErrorsStopAll:
    """While somebody holds it, an error that ends this process ends all of them: the others may wait for it.

    Outside, and in a process on its own, errors are shown as in any program.
    """

    def __init__(self) -> None:
        self.holders = 0
        self.shown: Callable[..., Any] = sys.excepthook

    def hold(self) -> None:
        self.holders += 1
        if self.holders == 1 and sys.modules["mpi4py.MPI"].COMM_WORLD.size > 1:
            self.shown, sys.excepthook = sys.excepthook, self.report_and_abort

    def release(self) -> None:
        self.holders -= 1
        # a program that has put its own hook in front of ours keeps it, and calls ours
        if not self.holders and sys.excepthook == self.report_and_abort:
            sys.excepthook = self.shown

    def report_and_abort(self, kind: Any, error: Any, trace: Any) -> None:
        if self.shown is sys.__excepthook__:  # in one piece: another rank may stop this one while it writes
            print("".join(traceback.format_exception(kind, error, trace)), end="", file=sys.stderr, flush=True)
        else:
            self.shown(kind, error, trace)
        if not self.holders:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        code = 130 if issubclass(kind, KeyboardInterrupt) else 1
        last_words.note(code, f"{kind.__name__}: {error}".split("\n")[0])
        time.sleep(GRACE)
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


errors_stop_all = ErrorsStopAll()
