"""Groups of processes over MPI, which is imported when the first group is made and not before.

The processes are started by `python -m undertow.distributed.run`, `mpiexec` or `srun`, or by the program itself;
`init_process_group` joins them.
"""

from __future__ import annotations

import datetime
import functools
import importlib.util
import os
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array, DType
from undertow.distributed.debug_level import DebugLevel, get_debug_level
from undertow.distributed.direct import tried_reader
from undertow.distributed.errors import DistError, DistMismatchError, DistTimeoutError
from undertow.distributed.joining import errors_stop_all, join, make_board
from undertow.distributed.launched import told
from undertow.distributed.meeting import asked_for
from undertow.distributed.status_board import Board, line_of
from undertow.distributed.work import Work, finish_in_background, seconds_of

#: PyTorch's default, in seconds
DEFAULT_TIMEOUT = 1800.0
START = "python -m undertow.distributed.run -n 2 program.py"


class ProcessGroup:
    """Some processes, in an order: what collectives are called with.

    comm          MPI's communicator; `check` is another one of the same processes, for what must not meet the exchanges
    ranks         the ranks of its members among all processes
    backend       the name that the program called MPI by
    allow_pickle  whether exchanges of objects may be of any class
    mpi           MPI, as mpi4py has it
    board         where processes of one machine see what others do

    Example: `dist.group.WORLD.size()`
    """

    backend = "mpi"
    allow_pickle = False

    def __init__(self, mpi: Any, comm: Any, ranks: list[int], timeout: float, name: str, board: Board | None) -> None:
        self.mpi, self.comm, self.check, self.ranks = mpi, comm, comm.Dup(), ranks
        self.timeout, self.group_name, self.board = timeout, name, board
        self.number = self.monitored = self.batches = 0  # exchanges, monitored barriers, and batches of pipelines
        self.spare: dict[Any, list[Any]] = {}  # scratch memory of exchanges, which is used again
        self.lock = threading.Lock()
        self.read = tried_reader(self.check)  # of the others' memory, where that is possible: see direct.py

    def rank(self) -> int:
        return int(self.comm.rank)

    def size(self) -> int:
        return int(self.comm.size)

    def name(self) -> str:
        return self.backend

    def __repr__(self) -> str:
        return f"<group {self.group_name!r} of {self.size()} processes, rank {self.rank()}>"

    def member(self, rank: int, what: str) -> int:
        """The place in the group of a rank among all processes.

        what  the call, for the error if it is none
        """
        if rank not in self.ranks:
            raise ValueError(
                f"{what}: global rank {rank} is not part of group {self.group_name!r}, which has {self.ranks}"
            )
        return self.ranks.index(rank)

    # ---- exchanges

    def tag(self) -> int:
        """The first of four tags for messages of the exchange that is being started, among those under way."""
        return self.number % 4096 * 4

    def borrow(self, size: int, dtype: DType) -> Array:
        """Memory to receive into, used again: fresh pages would cost more than the message.

        size, dtype  how many elements, of which kind
        """
        kept = self.spare.setdefault(dtype, [])
        while kept:
            found = kept.pop()
            if found.size >= size:
                return found
        return cpu.empty(size, dtype=dtype)

    def give_back(self, spare: Array) -> None:
        self.spare.setdefault(spare.dtype, []).append(spare)

    def start(
        self, what: str, steps: Iterator[Any], result: Any, async_op: bool, given: Sequence[Array] = ()
    ) -> Work | None:
        """An exchange: its name, with what must be the same everywhere, its steps, and the tensors it writes into.

        given     what this process gives, for profiles
        result    what it gives
        async_op  return at once
        """
        work = Work(self, what, steps, result, given)
        if not async_op:
            work.wait()
            return None
        if not work.is_completed() and self.mpi.Query_thread() == self.mpi.THREAD_MULTIPLE:
            finish_in_background(work)
        return work

    def enter(self, what: str) -> tuple[int, int]:
        """Count an exchange, and let the others see it: its number and its fingerprint.

        what  its name, with what must be the same everywhere
        """
        mark = fingerprint(what)
        with self.lock:
            self.number = number = self.number + 1
        if self.board is not None:
            self.board.start(number, mark, what)
        if get_debug_level() is DebugLevel.DETAIL:
            self.compare(number, mark, what)
        return number, mark

    def leave(self, work: Work) -> None:
        if self.board is not None:
            self.look(work, 0, 1)  # it may have "worked", on what does not fit
            self.board.finish(work.number)

    def look(self, work: Work, waited: float, limit: float) -> None:
        """Raise if the others are in another exchange, or if it has taken too long.

        work           the exchange
        waited, limit  seconds that it has taken, and may take
        """
        if self.board is not None:
            others = self.board.differing(work.number, work.fingerprint)
            if others:
                time.sleep(0.7)  # until the lines on the board are those of now
                raise DistMismatchError(
                    f"the ranks disagree on exchange #{work.number}: rank {self.rank()} is in {work.what}, "
                    f"{named(others)} in another one. All ranks must start the same exchanges in the same order, with "
                    f"tensors of the same shape and dtype:\n{self.board.lines()}"
                )
        if waited > limit:
            raise DistTimeoutError(
                f"rank {self.rank()}: exchange #{work.number} {work.what} of group {self.group_name!r} was not "
                f"finished after {waited:.1f} s; its timeout is {limit:g} s{self.roll_call(work.number)}"
            )

    def roll_call(self, number: int) -> str:
        """Lines on who has come to the exchange of this number, as far as it is known here."""
        return "" if self.board is None else f"\n{self.board.roll_call(number)}"

    def compare(self, number: int, mark: int, what: str) -> None:
        """UNDERTOW_DISTRIBUTED_DEBUG=DETAIL: a small exchange before each says whether all are about to do the same.

        number, mark, what  of this process: the number of the exchange, its fingerprint, its name
        """
        where = line_of(sys._getframe())
        marks = self.gathered(mark, f"the comparison before {what}")
        if len(set(marks)) > 1:
            found = self.gathered((what, where), f"the comparison before {what}")
            lines = "\n".join([f"  rank {r}: {w} at {line}" for r, (w, line) in zip(self.ranks, found, strict=True)])
            raise DistMismatchError(f"the ranks disagree on exchange #{number} of group {self.group_name!r}:\n{lines}")

    def gathered(self, value: Any, what: str) -> list[Any]:
        """Everybody's value: small plain ones of our own, apart from the exchanges, within the limit of time.

        value  this process's
        what   the call, for errors
        """
        started = time.monotonic()
        barrier = self.check.Ibarrier()
        while not barrier.Test():
            if time.monotonic() - started > self.timeout:
                raise DistTimeoutError(
                    f"rank {self.rank()}: {what} was not finished after {self.timeout:g} s{self.roll_call(self.number)}"
                )
            time.sleep(1e-4)
        return list(self.check.allgather(value))


@functools.lru_cache(4096)
def fingerprint(what: str) -> int:
    return zlib.crc32(what.encode())


def named(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"


# ---- the group of all processes

_world: ProcessGroup | None = None


class GroupMember:
    """Stands for a group in what `new_group` returns to processes that do not belong to it.

    Example: `dist.group.WORLD.rank()`
    """

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


group = GroupMember


def is_available() -> bool:
    """Whether processes can be joined: mpi4py is installed.

    Example: `dist.is_available()`
    """
    return importlib.util.find_spec("mpi4py") is not None


def is_initialized() -> bool:
    """Whether this process belongs to a group.

    Example: `dist.is_initialized()`
    """
    return _world is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    *,
    allow_pickle: bool = False,
) -> None:
    """Join the processes that were started together.

    backend           "mpi", or None for it; "gloo" is another name for it
    init_method       where processes of this machine meet that no launcher has started: "tcp://127.0.0.1:29500", or
                      "env://", which is the default, for MASTER_ADDR and MASTER_PORT
    timeout           how long an exchange may take, and the others to come: a timedelta, or seconds; half an hour if it
                      is not given
    world_size, rank  needed there, if RANK and WORLD_SIZE are not in the environment. Under a launcher they are only
                      compared with what MPI says
    allow_pickle      let exchanges of objects take objects of any class. Whoever sends one can then run anything in the
                      process that receives it: only for programs that trust all their processes
    store, group_name, pg_options, device_id  accepted, without effect

    Example: `dist.init_process_group('mpi')`
    """
    global _world
    if _world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    backend = check_backend("init_process_group", backend)
    chosen = os.environ.get("UNDERTOW_DISTRIBUTED_TIMEOUT") if timeout is None else timeout
    limit = DEFAULT_TIMEOUT if chosen is None else seconds_of(chosen)
    mpi, board = join(asked_for(init_method, rank, world_size), limit)
    comm = mpi.COMM_WORLD
    for name, given, found in (("WORLD_SIZE", world_size, comm.size), ("RANK", rank, comm.rank)):
        given = given if given >= 0 else int(told(name) or -1)
        if given not in (-1, found):
            raise ValueError(
                f"init_process_group: {name.lower()} is {given}, but MPI started {comm.size} process(es), and this is "
                f"rank {comm.rank}. Start the program as: {START}; with Slurm, srun --mpi=list shows what the MPI that "
                "mpi4py uses may go by. Processes that no launcher has started need MASTER_ADDR and MASTER_PORT, or "
                "init_method='tcp://127.0.0.1:29500', before MPI is imported, and MPICH"
            )
    board.clear()
    comm.Barrier()  # nobody may look before all have cleared theirs
    _world = GroupMember.WORLD = ProcessGroup(mpi, comm.Dup(), list(range(comm.size)), limit, "world", board)
    _world.backend, _world.allow_pickle = backend or "mpi", allow_pickle
    errors_stop_all.hold()


def check_backend(what: str, backend: str | None) -> str | None:
    """The backend's name in small letters; MPI is the only one, and may be called gloo."""
    name = None if backend is None else str(backend).lower().removeprefix("cpu:")
    if name not in (None, "mpi", "gloo"):
        raise ValueError(f"{what}: the backend is 'mpi', not {name!r}: exchanges are between CPUs")
    return name


def destroy_process_group(group: Any = None) -> None:
    """Leave a group; that of all processes if none is given. `init_process_group` may be called again.

    Example: `dist.destroy_process_group()`
    """
    global _world
    if group is None or group is _world:
        world()
        _world = GroupMember.WORLD = None
        errors_stop_all.release()


def world() -> ProcessGroup:
    if _world is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group. (A program "
            f"of several processes is started as: {START})"
        )
    return _world


def resolve(group: Any, what: str) -> ProcessGroup | None:
    """The group that is meant; None, with a warning, where this process does not belong to it."""
    if group is None:
        return world()
    if group == GroupMember.NON_GROUP_MEMBER:
        from undertow.graph.user_lines import warn_user

        warn_user(f"Running {what} on global rank {world().rank()} which does not belong to the given group.")
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{what}: group must be what new_group returned, not {type(group).__name__}")
    return group


# ---- questions


def get_rank(group: Any = None) -> int:
    """The place of this process in a group, or -1.

    Example: `dist.get_rank()`
    """
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return (world() if group is None else group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes a group has, or -1 if this one is not among them.

    Example: `dist.get_world_size()`
    """
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return (world() if group is None else group).size()


def asked(group: Any, what: str) -> ProcessGroup:
    """The group that a question is about, of which this process must be a member."""
    if group is None:
        return world()
    if not isinstance(group, ProcessGroup):
        raise ValueError(f"{what}: this process does not belong to the group, and knows nothing of it")
    return group


def get_backend(group: Any = None) -> str:
    """What exchanges go by, in the word of the program: "mpi", or "gloo" if it has called it so.

    Example: `dist.get_backend()`
    """
    return asked(group, "get_backend").name()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of a group's members among all processes.

    Example: `dist.get_process_group_ranks(None)`
    """
    return list(asked(group, "get_process_group_ranks").ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place in the group of a rank among all processes.

    global_rank  the rank among all processes

    Example: `dist.get_group_rank(dist.group.WORLD, 0)`
    """
    return asked(group, "get_group_rank").member(global_rank, "get_group_rank")


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank among all processes of a place in the group.

    group_rank  the place in the group

    Example: `dist.get_global_rank(dist.group.WORLD, 0)`
    """
    group = asked(group, "get_global_rank")
    if not 0 <= group_rank < group.size():
        raise ValueError(f"get_global_rank: group rank {group_rank} is not part of group {group.group_name!r}")
    return group.ranks[group_rank]


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: datetime.timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some of the processes. All processes call it, in the same order, also those that will not be in it.

    ranks                      its members among all processes; all of them if it is not given
    timeout                    how long its exchanges may take; as long as those of all processes if it is not given
    group_desc                 its name in errors
    sort_ranks                 False: its members' places in it are those in `ranks`
    backend                    as `init_process_group` takes it
    pg_options, device_id      accepted, without effect
    use_local_synchronization  True is an error

    Example: `dist.new_group([0])`
    """
    whole = world()
    check_backend("new_group", backend)
    if use_local_synchronization:
        raise ValueError("new_group: use_local_synchronization=True is not there over MPI: let all processes call it")
    given = range(whole.size()) if ranks is None else ranks
    chosen = sorted(given) if sort_ranks else list(given)
    if len(set(chosen)) != len(chosen) or any([not 0 <= r < whole.size() for r in chosen]):
        raise ValueError(
            f"new_group: ranks must be different numbers from 0 to {whole.size() - 1}, not {list(ranks or [])}"
        )
    if len({tuple(found) for found in whole.gathered(tuple(chosen), "new_group")}) > 1:
        raise DistError(f"new_group: the ranks ask for different groups; rank {whole.rank()} for {chosen}")
    inside = whole.rank() in chosen
    place = chosen.index(whole.rank()) if inside else 0
    comm = whole.check.Split(0 if inside else whole.mpi.UNDEFINED, place)
    if not inside:
        return GroupMember.NON_GROUP_MEMBER
    limit = whole.timeout if timeout is None else seconds_of(timeout)
    made = ProcessGroup(whole.mpi, comm, chosen, limit, group_desc or f"ranks {chosen}", make_board(whole.mpi, comm))
    made.backend, made.allow_pickle = whole.backend, whole.allow_pickle
    return made


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: datetime.timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """The processes in groups of one size, in the order of their ranks: this process's group, and all of them.

    All processes call it.

    group_size  how many processes each has; it divides the number of all
    group       the processes; all if None
    backend     as `init_process_group` takes it
    pg_options  accepted, without effect
    group_desc  their name in errors

    Example: `dist.new_subgroups(1)[0].size()`
    """
    if group_size is None:
        raise ValueError("new_subgroups: pass group_size; the number of GPUs is no default where there are none")
    members = asked(group, "new_subgroups")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if members.size() % group_size:
        raise ValueError(f"The world size ({members.size()}) must be divisible by 'group_size={group_size}'")
    parts = [members.ranks[k : k + group_size] for k in range(0, members.size(), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: datetime.timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the processes with these ranks: this process's group, or None, and all of them.

    All processes call it. No rank may be in two of the groups.

    backend                  as `init_process_group` takes it
    pg_options               accepted, without effect
    ranks_per_subgroup_list  for each group, its ranks
    timeout                  how long an exchange may take; as long as those of all processes if it is not given
    group_desc               their name in errors

    Example: `dist.new_subgroups_by_enumeration([[0]])`
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    owners: dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in owners:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {owners[rank]} and {ranks}")
            owners[rank] = ranks
    made = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((found for found in made if isinstance(found, ProcessGroup)), None), made
