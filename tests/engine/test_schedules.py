"""The search through schedules finds what a search through all of them finds, and needs fewer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.engine import schedules
from tests.engine.schedules import AtomicLock, Cell, Count, Deadlock, ModelLock, ModelThread, QueueUse, Shared, explore


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


class Heap(Shared):
    """A queue that gives what has the lowest place first; of what has place 0, nobody can tell one from another."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[int, int, Any]] = []
        self.pushed = 0

    def is_open(self) -> bool:
        return bool(self.entries)

    def push(self, place: int, value: int) -> None:
        item = (value,) if place else object()
        use = QueueUse(place, item, alike=place == 0)
        schedules.scheduler.pause(self, use=lambda: use)
        self.pushed += 1
        self.entries.append((place, self.pushed, item))

    def pop(self) -> Any:
        schedules.scheduler.pause(self, waits=True, use=self.next_pop)
        place, _, item = entry = min(self.entries)
        self.entries.remove(entry)
        return item if place else "any"

    def next_pop(self) -> QueueUse:
        (place, _, item), *others = sorted(self.entries)
        return QueueUse(place, item, others=[entry[2] for entry in others])

    def content(self) -> list[Any]:
        return [item if place else "any" for place, _, item in sorted(self.entries)]


KINDS = ["get", "set", "add", "locked", "put", "put", "take"]
#: with a heap: `push 0` pushes something with place 0, and so on; `pop` takes from the only heap there is
WITH_HEAP = ["get", "set", "push", "push", "push", "pop", "pop"]


#: in sections that are single steps: `down` counts down, and the one who comes to 0 writes; `swap` is `locked`
WITH_SECTIONS = ["get", "set", "down", "down", "down", "swap"]


def random_code(rng: random.Random, kinds: list[str], most: int = 4) -> list[list[tuple[str, int]]]:
    """Two or three threads with few operations, in which no mailbox gives more than it gets."""
    while True:
        threads = rng.choice([2, 2, 3])
        code = [[(rng.choice(kinds), rng.randrange(2)) for _ in range(rng.choice([1, 2, 3]))] for _ in range(threads)]
        flat = [operation for part in code for operation in part]
        names = [kind for kind, _ in flat]
        fed = all(flat.count(("put", k)) >= flat.count(("take", k)) for k in range(2))
        if len(flat) <= most and fed and names.count("push") >= names.count("pop"):
            return code


class World:
    """What the threads of a random program share, and what they have seen."""

    def __init__(self, threads: int, downs: int = 0) -> None:
        self.cells, self.lock, self.boxes = [Cell(0), Cell(0)], ModelLock(), [Mailbox(), Mailbox()]
        self.heap, self.section, self.left = Heap(), AtomicLock(), Count(downs)
        self.seen: list[list[Any]] = [[] for _ in range(threads)]

    def run(self, code: list[tuple[str, int]], me: int) -> None:
        for position, (kind, which) in enumerate(code):
            if kind in ("push", "pop"):
                self.use_heap(kind, which, me, 10 * me + position)
            elif kind in ("down", "swap"):
                self.do_at_once(kind, self.cells[which], me, 10 * me + position)
            else:
                self.do(kind, self.cells[which], self.boxes[which], me, 10 * me + position)
        self.seen[me].append("end")

    def use_heap(self, kind: str, place: int, me: int, value: int) -> None:
        if kind == "push":
            self.heap.push(place, value)
        else:
            self.seen[me].append(self.heap.pop())

    def do_at_once(self, kind: str, cell: Cell, me: int, value: int) -> None:
        with self.section:
            if kind == "down":
                self.left.change_to(self.left.value - 1)
            if kind == "swap" or self.left.value == 0:
                cell.set((cell.get(), value))

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
        mail = [*[tuple(b.mail) for b in self.boxes], tuple(self.heap.content())]
        state = (*[tuple(s) for s in self.seen], *[c.value for c in self.cells], *mail)
        return state if ended else None


def outcomes(code: list[list[tuple[str, int]]], reduce: bool) -> tuple[Any, int]:
    """Every end that a program can come to, and in how many runs they were found."""
    worlds: list[World] = []

    def program() -> list[Callable[[], None]]:
        world = World(len(code), sum(kind == "down" for part in code for kind, _ in part))
        worlds.append(world)
        return [partial(world.run, part, me) for me, part in enumerate(code)]

    try:
        runs = explore(program, limit=100_000, reduce=reduce)
    except Deadlock:
        return Deadlock, 0
    return {world.outcome() for world in worlds} - {None}, runs


@pytest.mark.parametrize("seed", range(30))
def test_every_end_that_all_orders_lead_to_is_found(seed: int) -> None:
    code = random_code(random.Random(seed), KINDS)
    found, runs = outcomes(code, reduce=True)
    expected, all_runs = outcomes(code, reduce=False)
    assert found == expected and runs <= all_runs


@pytest.mark.parametrize("block", range(4))
def test_and_every_end_of_programs_with_a_queue_of_places(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        code = random_code(random.Random(seed), WITH_HEAP, most=5)
        found, runs = outcomes(code, reduce=True)
        expected, all_runs = outcomes(code, reduce=False)
        assert found == expected and runs <= all_runs, code


@pytest.mark.parametrize("block", range(4))
def test_and_every_end_of_programs_with_sections(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        code = random_code(random.Random(seed), WITH_SECTIONS, most=5)
        found, runs = outcomes(code, reduce=True)
        expected, all_runs = outcomes(code, reduce=False)
        assert found == expected and runs <= all_runs, code


def test_what_can_be_swapped_needs_one_run() -> None:
    pushes = [[("push", 0), ("push", 1)], [("push", 0)], [("push", 0), ("get", 0)]]
    assert outcomes(pushes, reduce=True)[1] == 1
    assert outcomes([[("push", 1)], [("push", 1)]], reduce=True)[1] == 2
    assert outcomes([[("set", 1)], [("push", 0), ("pop", 0), ("set", 0)]], reduce=True)[1] == 1


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
