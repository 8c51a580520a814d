"""Messages from one process to another.

MPI takes a message whose dtype is not the receiver's, and one that is too short for its memory, without a word. So the
dtype is a part of the tag, and who waits in vain looks for messages of other dtypes; sizes are compared.

MPI reads and writes the memory of a message until it has ended, whether or not the program still waits for it: one that
is dropped before (an interrupted wait, an `isend` whose result nobody keeps) is kept here until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.distributed.collectives import as_bytes, memory_of, to_write
from undertow.distributed.errors import DistMismatchError, DistTimeoutError
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.distributed.work import PATIENT_ASKS, SLEEP, SLEEPS_AFTER, profiled, seconds_of
from undertow.tensor import Tensor

#: tags of messages are behind those of exchanges; each dtype has as many
FIRST_TAG, TAGS = 16384, 8192
#: dtypes that travel, by their places here; bfloat16 stands behind them, and is made when it is asked for
DTYPES = (*dtypes.ALL,)
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def code_of(dtype: DType) -> int:
    return CODES.get(dtype, len(DTYPES))


def coded(code: int) -> DType:
    return DTYPES[code] if code < len(DTYPES) else dtypes.bfloat16()


class Message:
    """A message that is under way; what `isend` and `irecv` return."""

    #: what the program has dropped, and MPI may still be busy with
    dropped: ClassVar[list[Message]] = []

    def __init__(self, group: ProcessGroup, request: Any, what: str, name: str, array: Array) -> None:
        self.group, self.request, self.what, self.array = group, request, what, array
        self.status = group.mpi.Status()
        self.done = False
        self.profiled = profiled(f"{group.name()}:{name}", [array])
        if self.dropped:
            self.dropped[:] = [message for message in self.dropped if not message.request.Test()]

    def __del__(self) -> None:
        if not self.done:  # MPI is not asked here: the program may have ended it
            self.dropped.append(self)

    def is_completed(self) -> bool:
        if not self.done and self.request.Test(self.status):
            self.done = True
            if self.profiled is not None:
                self.profiled()
        return self.done

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it has been received, or is safe to be changed; DistTimeoutError after the limit of time."""
        limit = self.group.timeout if timeout is None else seconds_of(timeout)
        started, asked, looks = time.monotonic(), 0, SLEEPS_AFTER
        while not self.is_completed():
            asked += 1
            waited = time.monotonic() - started
            if asked > PATIENT_ASKS:
                time.sleep(SLEEP if waited > SLEEPS_AFTER else 0)
            if waited > looks:
                self.look()
                looks = 2 * waited
            if waited > limit:
                known = self.group.roll_call(0)
                raise DistTimeoutError(
                    f"rank {self.group.rank()}: {self.what} was not finished after {waited:.1f} s{known}"
                )
        return True

    def look(self) -> None:
        """Raise if it will not end well."""


class Received(Message):
    """A message that is to come, from the process at `place` of the group, with the tag that the program gave."""

    def __init__(self, group: ProcessGroup, request: Any, place: int, tag: int, array: Array) -> None:
        anybody = place == group.mpi.ANY_SOURCE
        sender = "any rank" if anybody else f"rank {group.ranks[place]}"
        super().__init__(group, request, f"a message from {sender}", "recvAnySource" if anybody else "recv", array)
        self.place, self.tag = place, tag
        self.error: DistMismatchError | None = None

    def is_completed(self) -> bool:
        if self.error is not None:
            raise self.error
        try:
            done = super().is_completed()
        except self.group.mpi.Exception as error:
            if error.Get_error_class() != self.group.mpi.ERR_TRUNCATE:
                raise
            raise self.mismatch("one of more bytes") from error
        if done and self.status.Get_count(self.group.mpi.BYTE) != self.array.nbytes:
            raise self.mismatch(f"one of {self.status.Get_count(self.group.mpi.BYTE)} bytes")
        return done

    def withdraw(self) -> None:
        """Leave the message to whoever receives next, unless it has come."""
        if self.request:
            self.request.Cancel()

    def look(self) -> None:
        code = code_of(self.array.dtype)
        for other_code in range(len(DTYPES) + 1):
            tag = self.tag + other_code * TAGS
            if other_code != code and self.group.comm.Iprobe(self.place, tag, self.status):
                raise self.mismatch(f"one of {coded(other_code)}")

    def mismatch(self, found: str) -> DistMismatchError:
        self.error = DistMismatchError(
            f"rank {self.group.rank()} receives {self.array.dtype}{list(self.array.shape)}, {self.array.nbytes} bytes, "
            f"and rank {self.source_rank()} has sent {found}. A message is received by a tensor of as many elements, "
            f"and of the same dtype{self.group.roll_call(0)}"
        )
        return self.error

    def source_rank(self) -> int:
        """Who sent what has been received."""
        place = self.status.Get_source()
        return self.group.ranks[place if place >= 0 else self.place]

    _source_rank = source_rank  # PyTorch's spelling


def tag_of(tag: int) -> int:
    """The first of the tags that this one is for MPI; dtypes follow each other."""
    if not 0 <= tag < TAGS:
        raise ValueError(f"the tag of a message is a number from 0 to {TAGS - 1}, not {tag}")
    return FIRST_TAG + tag


def other(what: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    if (rank is None) == (group_rank is None):
        raise ValueError(f"{what}: give the rank of the other process, among all or in the group")
    found = group.member(rank, what) if rank is not None else group_rank
    if found == group.rank():
        raise ValueError(
            f"Invalid {'destination' if 'send' in what else 'source'} rank: {what} from a process to itself"
        )
    return found  # type: ignore[return-value]


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Message | None:
    """Send a tensor; it must not be changed before the message has been waited for.

    dst  the receiver, by its rank among all processes

    Example: `dist.isend(ut.ones(2), dst=1).wait()`
    """
    members = resolve(group, "isend")
    if members is None:
        return None
    place = other("isend", members, dst, group_dst)
    array = memory_of("isend", tensor)
    request = members.comm.Isend(as_bytes(array), place, tag_of(tag) + code_of(array.dtype) * TAGS)
    return Message(members, request, f"a message to rank {members.ranks[place]}", "send", array)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Received | None:
    """Receive a tensor, from any process if none is named; it has the elements and the dtype of what was sent.

    src  the sender, by its rank among all processes; None: any

    Example: `dist.irecv(ut.empty(2), src=0).wait()`
    """
    members = resolve(group, "irecv")
    if members is None:
        return None
    anybody = src is None and group_src is None
    place = members.mpi.ANY_SOURCE if anybody else other("irecv", members, src, group_src)
    array = to_write("irecv", tensor)
    first = tag_of(tag)
    request = members.comm.Irecv(as_bytes(array), place, first + code_of(array.dtype) * TAGS)
    return Received(members, request, place, first, array)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor, and wait until it may be changed again.

    dst  the receiver, by its rank among all processes

    Example: `dist.send(ut.ones(2), dst=1)`
    """
    message = isend(tensor, dst, group, tag, group_dst)
    if message is not None:
        message.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor, and wait for it; the rank that sent it, or -1 where this process is not in the group.

    src  the sender, by its rank among all processes; None: any

    Example: `dist.recv(ut.empty(2), src=0)`
    """
    message = irecv(tensor, src, group, tag, group_src)
    if message is None:
        return -1
    try:
        message.wait()
    except BaseException:
        message.withdraw()
        raise
    return message.source_rank()


class P2POp:
    """One of the messages that `batch_isend_irecv` starts together.

    op                isend or irecv
    tensor            what is sent, or received into
    peer, group_peer  the other process, by its rank among all, or in the group

    Example: `dist.P2POp(dist.isend, ut.ones(2), peer=1 - dist.get_rank())`
    """

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``isend`` or ``irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Message]:
    """Start messages together: those to receive first, so that none has to wait for memory.

    p2p_op_list  a list of P2POps

    Example: `dist.batch_isend_irecv([dist.P2POp(f, ut.ones(2), 1-dist.get_rank()) for f in (dist.isend, dist.irecv)])`
    """
    if not p2p_op_list or not all([isinstance(p, P2POp) for p in p2p_op_list]):
        raise ValueError("batch_isend_irecv takes a list of P2POp, and not an empty one")
    started: dict[int, Message] = {}
    for receives in (True, False):
        for k, p in enumerate(p2p_op_list):
            if (p.op is irecv) == receives:
                started[k] = p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer)
    return [started[k] for k in sorted(started)]
