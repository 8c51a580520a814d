"""The search through schedules finds what a search through all of them finds, and needs fewer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.engine import schedules
from tests.engine.schedules import Cell, Deadlock, ModelLock, ModelThread, Shared, explore


class Mailbox(Shared):
    """A queue: `take` waits."""

    def __init__(self) -> None:
        super().__init__()
        self.mail: deque[int] = deque()

    def is_open(self) -> bool:
        return bool(self.mail)

    def put(self, value: int) -> None:
        schedules.scheduler.pause(self)
        self.mail.append(value)

    def take(self) -> int:
        schedules.scheduler.pause(self, waits=True)
        return self.mail.popleft()


def random_code(rng: random.Random) -> list[list[tuple[str, int]]]:
    """Two or three threads with four operations at most, in which no mailbox gives more than it gets."""
    kinds = ["get", "set", "add", "locked", "put", "put", "take"]
    while True:
        threads = rng.choice([2, 2, 3])
        code = [[(rng.choice(kinds), rng.randrange(2)) for _ in range(rng.choice([1, 2]))] for _ in range(threads)]
        flat = [operation for part in code for operation in part]
        if len(flat) <= 4 and all(flat.count(("put", k)) >= flat.count(("take", k)) for k in range(2)):
            return code


class World:
    """What the threads of a random program share, and what they have seen."""

    def __init__(self, threads: int) -> None:
        self.cells, self.lock, self.boxes = [Cell(0), Cell(0)], ModelLock(), [Mailbox(), Mailbox()]
        self.seen: list[list[Any]] = [[] for _ in range(threads)]

    def run(self, code: list[tuple[str, int]], me: int) -> None:
        for position, (kind, which) in enumerate(code):
            self.do(kind, self.cells[which], self.boxes[which], me, 10 * me + position)
        self.seen[me].append("end")

    def do(self, kind: str, cell: Cell, box: Mailbox, me: int, value: int) -> None:
        if kind == "get":
            self.seen[me].append(cell.get())
        elif kind == "set":
            cell.set(value)
        elif kind == "add":
            cell.set((cell.get(), value))
        elif kind == "locked":
            with self.lock:
                cell.set((cell.get(), value))
        elif kind == "put":
            box.put(value)
        else:
            self.seen[me].append(box.take())

    def outcome(self) -> tuple[Any, ...] | None:
        """The state in which the program has ended; None if it has not."""
        ended = all("end" in seen for seen in self.seen)
        state = (*[tuple(s) for s in self.seen], *[c.value for c in self.cells], *[tuple(b.mail) for b in self.boxes])
        return state if ended else None


def outcomes(code: list[list[tuple[str, int]]], reduce: bool) -> tuple[Any, int]:
    """Every end that a program can come to, and in how many runs they were found."""
    worlds: list[World] = []

    def program() -> list[Callable[[], None]]:
        world = World(len(code))
        worlds.append(world)
        return [partial(world.run, part, me) for me, part in enumerate(code)]

    try:
        runs = explore(program, limit=100_000, reduce=reduce)
    except Deadlock:
        return Deadlock, 0
    return {world.outcome() for world in worlds} - {None}, runs


@pytest.mark.parametrize("seed", range(30))
def test_every_end_that_all_orders_lead_to_is_found(seed: int) -> None:
    code = random_code(random.Random(seed))
    found, runs = outcomes(code, reduce=True)
    expected, all_runs = outcomes(code, reduce=False)
    assert found == expected and runs <= all_runs


def test_threads_that_share_nothing_need_one_run() -> None:
    code = [[("set", 0), ("get", 0), ("set", 0)], [("put", 1), ("take", 1), ("get", 1)]]
    found, runs = outcomes(code, reduce=True)
    assert (len(found), runs) == (1, 1) and outcomes(code, reduce=False)[1] > 20


def test_a_lost_update_is_found() -> None:
    found, _ = outcomes([[("add", 0)], [("add", 0)]], reduce=True)
    assert {state[2] for state in found} == {((0, 0), 10), ((0, 10), 0), (0, 0), (0, 10)}
    locked, _ = outcomes([[("locked", 0)], [("locked", 0)]], reduce=True)
    assert {state[2] for state in locked} == {((0, 0), 10), ((0, 10), 0)}


def test_a_deadlock_is_found() -> None:
    assert outcomes([[("take", 0), ("put", 1)], [("take", 1), ("put", 0)]], reduce=True)[0] is Deadlock


def test_a_daemon_need_not_end() -> None:
    def program() -> list[Callable[[], None]]:
        box = Mailbox()
        server = ModelThread(lambda: [box.take() for _ in range(9)], daemon=True)

        def client() -> None:
            server.start()
            box.put(1)

        return [client]

    assert explore(program) >= 1


def test_few_preemptions_are_a_part_of_all_orders() -> None:
    def count(**how: Any) -> int:
        def program() -> list[Callable[[], None]]:
            world = World(2)
            return [partial(world.run, [("set", 0)] * 3, 0), partial(world.run, [("get", 0)] * 3, 1)]

        return explore(program, **how)

    assert count(preemptions=0) == 2 < count(preemptions=1) < count(reduce=False)
