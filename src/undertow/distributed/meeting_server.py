"""The process that MPI asks who is there, for processes that no launcher has started: rank 0 starts it as a program.

It stands outside Python's threads because MPI holds the interpreter's lock while it starts. What it speaks is PMI-1, of
lines `cmd=name key=value ...`, over one connection of each rank. Over another one a rank says first who it is, and
while that is open the rank lives: when one ends without leaving MPI this process ends, which ends the others.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

#: seconds between the end of a rank and that of all, in which others report what they have seen
GRACE = 1.0
#: MPI's own limits for names and values
LIMITS = "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024"


def parse(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


class Server:
    """`size` ranks of this machine, of whom all must have come within `limit` seconds."""

    def __init__(self, size: int, limit: float) -> None:
        self.size, self.limit, self.key = size, limit, secrets.token_hex(16)
        self.host = socket.gethostname()
        # MPI names its shared memory by this, so no two meetings of the machine may have it
        self.name = f"undertow-{os.getpid()}-{secrets.token_hex(4)}"
        self.lock = threading.Lock()
        self.lives: dict[int, socket.socket] = {}
        self.left = 0
        self.is_aborted = False
        self.values: dict[str, str] = {}
        self.barrier = threading.Barrier(size)

    def serve(self, listener: socket.socket) -> None:
        threading.Thread(target=self.watch_the_clock, daemon=True).start()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def watch_the_clock(self) -> None:
        time.sleep(self.limit)
        with self.lock:
            missing = [str(rank) for rank in range(self.size) if rank not in self.lives]
            if missing:
                self.refuse_all(f"rank {', '.join(missing)} of {self.size} did not come within {self.limit:g} s")

    def answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r") as lines:
            first = parse(lines.readline())
            if first.get("cmd") == "join":
                self.join(connection, lines, first)
            elif first.get("key") == self.key:
                self.manage(connection, lines)

    # ---- who is there

    def join(self, connection: socket.socket, lines: Any, said: dict[str, str]) -> None:
        rank = int(said["rank"])
        with self.lock:
            wrong = self.what_is_wrong(rank, said)
            if wrong:
                connection.sendall(f"cmd=refused {wrong}\n".encode())
                return
            self.lives[rank] = connection
            if len(self.lives) == self.size:
                for life in self.lives.values():
                    life.sendall(f"cmd=joined key={self.key}\n".encode())
        try:
            has_left = "leave" in lines.read()
        except OSError:
            has_left = False
        self.ended(rank, said["pid"], has_left)

    def what_is_wrong(self, rank: int, said: dict[str, str]) -> str:
        if int(said["size"]) != self.size:
            return f"rank 0 says that there are {self.size} processes, and rank {rank} says {said['size']}"
        if rank in self.lives or not 0 <= rank < self.size:
            return (
                f"there is one process of each rank from 0 to {self.size - 1}, and this is another one of rank {rank}"
            )
        if said["host"] != self.host:
            return f"rank {rank} is on {said['host']}, and rank 0 on {self.host}: across machines, start it by mpiexec"
        return ""

    def refuse_all(self, why: str) -> None:
        for life in self.lives.values():
            with suppress(OSError):
                life.sendall(f"cmd=refused {why}\n".encode())
        os._exit(1)

    def ended(self, rank: int, pid: str, has_left: bool) -> None:
        with self.lock:
            if len(self.lives) < self.size:
                self.refuse_all(f"rank {rank} ended before all {self.size} had come")
            self.left += has_left
            if self.left == self.size:
                os._exit(0)
            if has_left:
                return
        if not self.is_aborted:
            print(
                f"undertow.distributed: rank {rank} (process {pid}) ended and had not left the group; all are stopped",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(GRACE)
        os._exit(1)

    # ---- what MPI asks

    def manage(self, connection: socket.socket, lines: Any) -> None:
        for line in lines:
            asked = parse(line)
            answer = self.said_to(asked)
            if answer:
                connection.sendall(f"{answer}\n".encode())

    def said_to(self, asked: dict[str, str]) -> str:
        command = asked.get("cmd")
        if command == "init":
            return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
        if command == "get_maxes":
            return LIMITS
        if command == "get_appnum":
            return "cmd=appnum rc=0 appnum=0"
        if command == "get_universe_size":
            return f"cmd=universe_size rc=0 size={self.size}"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname rc=0 kvsname={self.name}"
        if command == "put":
            self.values[asked["key"]] = asked["value"]
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            return self.value(asked["key"])
        if command == "barrier_in":
            self.barrier.wait()
            return "cmd=barrier_out rc=0"
        if command == "finalize":
            return "cmd=finalize_ack rc=0"
        if command == "abort":
            self.is_aborted = True
            return ""
        return f"cmd={command} rc=-1 msg=unknown"

    def value(self, key: str) -> str:
        # one machine that has all the ranks
        found = f"(vector,(0,1,{self.size}))" if key == "PMI_process_mapping" else self.values.get(key)
        return "cmd=get_result rc=-1 msg=not_found" if found is None else f"cmd=get_result rc=0 value={found}"


if __name__ == "__main__":
    Server(int(sys.argv[2]), float(sys.argv[3])).serve(socket.socket(fileno=int(sys.argv[1])))
