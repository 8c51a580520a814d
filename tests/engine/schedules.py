"""All the schedules of a few threads: a deterministic scheduler, and the search that tries every order that matters.

The threads are real, but one runs at a time. At its yield points - the stand-ins below for locks, queues, flags - a
thread says which shared object it is about to use, and the scheduler decides who goes on. What a thread does from one
yield point to the next is a step.

`explore` runs a program again and again until every order of its steps has been tried. Two steps that use no common
object (or only read it) may be swapped without a difference, so of the orders that swaps lead from one to another, one
is enough: this is dynamic partial-order reduction, after Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial
order reduction", 2014 (their source sets and sleep sets). A schedule in which nobody can go on is a deadlock. Queues
and counts tell more exactly which of their uses can be swapped (`QueueUse`, `CountUse`), the sections of a lock may be
single steps (`AtomicLock`), and to set a variable to what it is is to read it.

Guarantees: if a program is deterministic but for the order of its steps, and shares only what it declares, every state
in which its threads can end has been seen. `tests/engine/test_schedules.py` compares with a search that swaps nothing.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, ClassVar, NamedTuple

Name = tuple[Any, ...]


class Deadlock(AssertionError):
    pass


class Abandoned(BaseException):
    """Ends the threads of a schedule that has been given up."""


class Access(NamedTuple):
    """A use of a shared object.

    was_open  whether one who waits for the object could have gone on before this use
    use       None, or what tells more exactly than `writes` with which other uses this one can be swapped
    """

    name: Name
    writes: bool
    was_open: bool
    use: Any = None

    def conflicts(self, other: Access) -> bool:
        if self.name != other.name:
            return False
        if self.use is not None and other.use is not None:
            return bool(self.use.conflicts(other.use))
        return self.writes or other.writes

    def needs(self, earlier: Access) -> bool:
        """Whether this use, which had to wait, could not have gone on without an earlier one."""
        if self.use is not None and earlier.use is not None:
            return bool(self.use.bound and self.use.item is earlier.use.item)
        return not earlier.was_open


class QueueUse:
    """A use of a queue that gives the item with the lowest place first, and equals in the order they came.

    place, item  what it puts in or takes out
    alike        of a push: whether nobody can tell its item from another in the same place
    others       of a pop: the items that it could have given else; None if it is a push
    bound        of a pop: whether, without the step that pushed its item, it would have had to wait

    Two pushes can be swapped, unless one could tell which came first. A push and a pop that gives another item can, if
    that item comes first in any case, and if the pop was not bound to it: else it may as well have had the pushed one.
    """

    def __init__(self, place: Any, item: Any, alike: bool = False, others: list[Any] | None = None) -> None:
        self.place, self.item, self.alike, self.others = place, item, alike, others
        self.bound = False

    def conflicts(self, other: QueueUse) -> bool:
        if (self.others is None) == (other.others is None):
            return self.others is not None or (self.place == other.place and not self.alike)
        push, pop = (self, other) if self.others is None else (other, self)
        return push.item is pop.item or push.place < pop.place or pop.bound


class CountUse:
    """A change of a count by one, of which nobody sees more than whether it made the count 0."""

    def __init__(self, change: int, result: int) -> None:
        self.change, self.result = change, result

    def conflicts(self, other: CountUse) -> bool:
        return self.change < 0 and other.change < 0 and min(self.result, other.result) <= 1


class Step:
    """What one thread did from a yield point to the next. `before` has a bit for every step that must precede it."""

    def __init__(self, thread: Name, before: int) -> None:
        self.thread, self.before = thread, before
        self.accesses: list[Access] = []

    def conflicts(self, accesses: Iterable[Access]) -> bool:
        return any(a.conflicts(b) for a in self.accesses for b in accesses)


class Choice:
    """A point where the scheduler had to choose. `sleep`: whose turn here leads to nothing new, and what it would do.

    to_try   the threads whose turn has to be tried here
    """

    def __init__(self, able: list[Name], sleep: dict[Name, list[Access]]) -> None:
        self.able, self.sleep = able, sleep
        self.to_try: set[Name] = set()
        self.chosen: Name = ()

    def next(self) -> Name | None:
        return next((name for name in self.able if name in self.to_try and name not in self.sleep), None)


def closed_gate() -> Any:
    """A lock that one thread waits at until another opens it."""
    gate = allocate_lock()
    gate.acquire()
    return gate


class Body:
    """A real thread, which is used again: to make one takes longer than most runs."""

    idle: ClassVar[list[Body]] = []

    def __init__(self) -> None:
        self.gate = closed_gate()
        self.job: Callable[[], None] = lambda: None
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        while True:
            self.gate.acquire()
            self.job()

    @classmethod
    def start(cls, job: Callable[[], None]) -> Body:
        body = cls.idle.pop() if cls.idle else cls()
        body.job = job
        body.gate.release()
        return body


class ModelThread:
    """Stands for threading.Thread. A `daemon` need not come to an end."""

    def __init__(self, target: Any = None, args: Any = (), daemon: bool = False, **ignored: Any) -> None:
        self.target, self.args, self.daemon = target, args, daemon
        self.turn, self.ended = closed_gate(), closed_gate()
        self.finished = False
        self.name: Name = ()
        self.named = 0  # how many threads and objects it has made
        self.known = 0  # a bit for every step that must precede its next one
        self.wanted: Any = self  # what it is about to use
        self.waits = False  # whether that has to be open first

    def start(self) -> None:
        scheduler.add(self)
        self.body = Body.start(self.live)

    def live(self) -> None:
        self.turn.acquire()
        try:
            if not scheduler.abandoned:
                Context().run(self.target, *self.args)
        except Abandoned:
            pass
        except BaseException as error:
            scheduler.failure = scheduler.failure or error
        if not scheduler.abandoned:
            scheduler.touch(self.name, writes=True, was_open=False)
        self.finished = True
        if not scheduler.abandoned:
            scheduler.hand_over()
        self.ended.release()

    def is_open(self) -> bool:
        return self.finished

    def join(self, timeout: Any = None) -> None:
        scheduler.pause(self, waits=True)


class Scheduler:
    """One run of a program. `choices` is how it has to begin; it is continued as the run goes on."""

    def __init__(self, choices: list[Choice], reduce: bool) -> None:
        self.choices, self.reduce = choices, reduce
        self.threads: dict[Name, ModelThread] = {}
        self.current: ModelThread | None = None
        self.steps: list[Step] = []
        self.uses: dict[Name, list[tuple[int, Access]]] = {}  # object -> (number of the step, access)
        self.over = closed_gate()
        self.undivided = False  # whether the running thread is inside an AtomicLock
        self.failure: BaseException | None = None
        self.abandoned = False
        self.named = 0

    # ---- names: the same in every run in which the threads do the same

    def new_name(self) -> Name:
        owner = self if self.current is None else self.current
        owner.named += 1
        return (*(() if self.current is None else self.current.name), owner.named)

    def add(self, thread: ModelThread) -> None:
        thread.name = self.new_name()
        thread.known = 0 if self.current is None else self.current.known
        self.threads[thread.name] = thread

    # ---- running

    def run(self) -> None:
        self.hand_over()
        assert self.over.acquire(timeout=30), "a thread does not come back to the scheduler"
        self.abandoned = True
        for thread in self.threads.values():
            if not thread.finished:
                thread.turn.release()
            assert thread.ended.acquire(timeout=30), "a thread does not end"
            Body.idle.append(thread.body)
        if self.failure is not None:
            raise self.failure

    def pause(
        self,
        wanted: Any,
        writes: bool | Callable[[], bool] = True,
        waits: bool = False,
        use: Callable[[], QueueUse] | None = None,
    ) -> None:
        """A yield point: the running thread is about to use `wanted`, once it is open if it `waits`.

        writes, use   functions are asked when its turn has come
        """
        if self.abandoned:
            raise Abandoned
        me = self.current
        if me is None:
            return  # the program is still being built
        if not self.undivided:
            me.wanted, me.waits = wanted, waits
            self.hand_over()
            me.turn.acquire()
            if self.abandoned:
                raise Abandoned
        writes = writes() if callable(writes) else writes
        self.touch(wanted.name, writes, wanted.is_open(), waits, None if use is None else use())

    def hand_over(self) -> None:
        chosen = self.current = None if self.failure else self.choose()
        if chosen is None:
            self.over.release()
        else:
            self.steps.append(Step(chosen.name, chosen.known))
            chosen.known |= 1 << len(self.steps) - 1
            chosen.turn.release()

    def choose(self) -> ModelThread | None:
        alive = [t for t in self.threads.values() if not t.finished]
        able = [t.name for t in alive if not t.waits or t.wanted.is_open()]
        if not able:
            waiting = [t for t in alive if not t.daemon]
            if waiting:
                self.failure = Deadlock(f"{len(waiting)} threads wait for what nobody will do")
            return None
        number = len(self.steps)
        if number == len(self.choices):
            self.choices.append(Choice(able, self.still_asleep()))
            self.open_choice(self.choices[-1])
        choice = self.choices[number]
        assert choice.able == able, "the program is not deterministic"
        return self.threads[choice.chosen] if choice.chosen else None  # None: everybody sleeps

    def still_asleep(self) -> dict[Name, list[Access]]:
        """Those who slept at the last choice, and whom the step since then has not woken."""
        if not self.steps or not self.reduce:
            return {}
        last, former = self.steps[-1], self.choices[-1]
        return {name: does for name, does in former.sleep.items() if not last.conflicts(does)}

    def open_choice(self, choice: Choice) -> None:
        awake = [name for name in choice.able if name not in choice.sleep]
        if awake:
            same = self.steps[-1].thread if self.steps else awake[0]
            choice.chosen = same if same in awake else awake[0]
            choice.to_try = {choice.chosen} if self.reduce else set(awake)

    # ---- what happened before what

    def touch(self, name: Name, writes: bool, was_open: bool, waits: bool = False, use: Any = None) -> None:
        """The running step uses an object: note the races with what others did to it, and what it now comes after."""
        number = len(self.steps) - 1
        step, uses = self.steps[number], self.uses.setdefault(name, [])
        mine = Access(name, writes, was_open, use)
        if isinstance(use, QueueUse) and use.others is not None:
            self.bind(use, uses)
        after = covered = 0
        for other, access in reversed(uses):
            if other != number and mine.conflicts(access):
                earlier = self.steps[other]
                before = step.before | after
                after |= earlier.before | 1 << other
                # a use that has let this one go on cannot come after it; one that lies behind another race waits for it
                if not (step.before | covered) >> other & 1 and not (waits and mine.needs(access)):
                    covered |= earlier.before
                    self.note_race(other, step, before)
        step.accesses.append(mine)
        uses.append((number, mine))
        step.before |= after
        self.threads[step.thread].known |= after

    def bind(self, pop: QueueUse, uses: list[tuple[int, Access]]) -> None:
        """Find out whether a pop, which is about to happen, is bound to its item."""
        pushes = {id(a.use.item): k for k, a in uses if isinstance(a.use, QueueUse) and a.use.others is None}
        source = pushes.get(id(pop.item))
        steps = [pushes[id(item)] for item in pop.others or () if id(item) in pushes]
        pop.bound = source is not None and all(k == source or self.steps[k].before >> source & 1 for k in steps)

    def note_race(self, earlier: int, step: Step, before: int) -> None:
        """See to it that `step` is tried before the step numbered `earlier`, too, by whoever may begin the way.

        before   a bit for every step that `step` comes after, as far as is known
        """
        steps, choice = self.steps, self.choices[earlier]
        way = [k for k in range(earlier + 1, len(steps)) if not steps[k].before >> earlier & 1]
        beginners = {}
        passed = 0
        for k in way:
            if not (before if steps[k] is step else steps[k].before) & passed:
                beginners[steps[k].thread] = None
            passed |= 1 << k
        able = [name for name in (step.thread, *beginners) if name in beginners and name in choice.able]
        if able and not any(name in choice.to_try or name in choice.sleep for name in able):
            choice.to_try.add(able[0])


scheduler: Scheduler


class Shared:
    """A shared object, which a waiting thread can always use."""

    def __init__(self) -> None:
        self.name = scheduler.new_name()

    def is_open(self) -> bool:
        return True


class Cell(Shared):
    """A variable that several threads use."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self) -> Any:
        scheduler.pause(self, writes=False)
        return self.value

    def set(self, value: Any) -> None:
        scheduler.pause(self, writes=lambda: bool(self.value != value))  # what is so already may as well be read
        self.value = value


class ModelLock(Shared):
    """Stands for threading.RLock."""

    def __init__(self) -> None:
        super().__init__()
        self.holder: Any = None
        self.depth = 0

    def is_open(self) -> bool:
        return self.holder is None

    def __enter__(self) -> None:
        if self.holder is None or self.holder is not scheduler.current:
            scheduler.pause(self, waits=True)
            self.holder = scheduler.current
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.holder = None
            if scheduler.current is not None and not scheduler.abandoned:
                scheduler.touch(self.name, writes=True, was_open=False)

    def _is_owned(self) -> bool:
        return self.holder is not None and self.holder is scheduler.current


class AtomicLock(ModelLock):
    """A lock whose sections are single steps, which can be swapped if what they use can be.

    Right for a lock that guards all that is shared in its sections, and in which nobody waits: then no order in which
    steps of two threads lie between each other leads to something new.
    """

    def __enter__(self) -> None:
        if not self.depth:
            scheduler.pause(self, writes=False)
            self.holder = scheduler.current
            scheduler.undivided = self.holder is not None
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.holder = None
            scheduler.undivided = False


class Count(Shared):
    """A number that is changed in sections of an AtomicLock, and only asked whether it has become 0."""

    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value

    def change_to(self, value: int) -> None:
        use = CountUse(value - self.value, value)
        scheduler.pause(self, use=lambda: use)
        self.value = value


def explore(program: Callable[[], Iterable[Callable[[], None]]], limit: int = 20_000, reduce: bool = True) -> int:
    """Run `program`, which returns the functions of its threads, in every order; how many runs that took.

    reduce   False: swap nothing, try simply everything
    """
    global scheduler
    choices: list[Choice] = []
    for count in range(1, limit):
        scheduler = Scheduler(choices, reduce)
        for target in program():
            ModelThread(target).start()
        scheduler.run()
        while choices:
            last = choices[-1]
            if last.chosen:
                last.sleep[last.chosen] = scheduler.steps[len(choices) - 1].accesses
            following = last.next()
            if following is not None:
                last.chosen = following
                break
            choices.pop()
        if not choices:
            return count
    raise AssertionError(f"more than {limit} schedules")
