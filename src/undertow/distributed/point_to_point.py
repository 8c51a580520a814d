"""Messages from one process to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend.interface import Array
from undertow.distributed.collectives import as_bytes, memory_of, to_write
from undertow.distributed.errors import DistTimeoutError
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.distributed.work import PATIENT_ASKS, SLEEP, SLEEPS_AFTER, abandoned, profiled, seconds_of
from undertow.tensor import Tensor

#: tags of messages are behind those of exchanges
FIRST_TAG, TAGS = 16384, 8192


class Message:
    """A message that is under way; what `isend` and `irecv` return."""

    def __init__(self, group: ProcessGroup, request: Any, what: str, name: str, array: Array) -> None:
        self.group, self.request, self.what = group, request, what
        self.status = group.mpi.Status()
        self.done = False
        self.profiled = profiled(f"{group.name()}:{name}", [array])

    def is_completed(self) -> bool:
        if not self.done and self.request.Test(self.status):
            self.done = True
            if self.profiled is not None:
                self.profiled()
        return self.done

    def source_rank(self) -> int:
        """Who sent what has been received."""
        return self.group.ranks[self.status.Get_source()]

    _source_rank = source_rank  # PyTorch's spelling

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it has been received, or is safe to be changed; DistTimeoutError after the limit of time."""
        limit = self.group.timeout if timeout is None else seconds_of(timeout)
        started, asked = time.monotonic(), 0
        while not self.is_completed():
            asked += 1
            waited = time.monotonic() - started
            if asked > PATIENT_ASKS:
                time.sleep(SLEEP if waited > SLEEPS_AFTER else 0)
            if waited > limit:
                abandoned.append(self)
                known = self.group.roll_call(0)
                raise DistTimeoutError(
                    f"rank {self.group.rank()}: {self.what} was not finished after {waited:.1f} s{known}"
                )
        return True


def tag_of(tag: int) -> int:
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

    Example: `dist.isend(ut.ones(2), dst=1).wait()`
    """
    members = resolve(group, "isend")
    if members is None:
        return None
    place = other("isend", members, dst, group_dst)
    array = memory_of("isend", tensor)
    request = members.comm.Isend(as_bytes(array), place, tag_of(tag))
    return Message(members, request, f"a message to rank {members.ranks[place]}", "send", array)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Message | None:
    """Receive a tensor, from any process if none is named.

    Example: `dist.irecv(ut.empty(2), src=0).wait()`
    """
    members = resolve(group, "irecv")
    if members is None:
        return None
    anybody = src is None and group_src is None
    place = members.mpi.ANY_SOURCE if anybody else other("irecv", members, src, group_src)
    array = to_write("irecv", tensor)
    request = members.comm.Irecv(as_bytes(array), place, tag_of(tag))
    sender = "any rank" if anybody else f"rank {members.ranks[place]}"
    return Message(members, request, f"a message from {sender}", "recvAnySource" if anybody else "recv", array)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor, and wait until it may be changed again.

    Example: `dist.send(ut.ones(2), dst=1)`
    """
    message = isend(tensor, dst, group, tag, group_dst)
    if message is not None:
        message.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor, and wait for it; the rank that sent it, or -1 where this process is not in the group.

    Example: `dist.recv(ut.empty(2), src=0)`
    """
    message = irecv(tensor, src, group, tag, group_src)
    if message is None:
        return -1
    message.wait()
    return message.source_rank()


class P2POp:
    """One of the messages that `batch_isend_irecv` starts together.

    op  isend or irecv

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
