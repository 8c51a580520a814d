"""Grad modes: blocks, calls, decorators of functions, generators and coroutines; one thread's mode is its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def enabled(L: ModuleType) -> bool:
    return bool(L.is_grad_enabled())


SWITCHES: dict[str, tuple[Callable[[ModuleType], Any], bool]] = {
    "no_grad": (lambda L: L.no_grad(), False),
    "enable_grad": (lambda L: L.enable_grad(), True),
    "set_grad_enabled(False)": (lambda L: L.set_grad_enabled(False), False),
    "set_grad_enabled(True)": (lambda L: L.set_grad_enabled(True), True),
}
EACH_SWITCH = pytest.mark.parametrize(("switch", "inside"), SWITCHES.values(), ids=SWITCHES)


@pytest.fixture(params=[True, False], ids=["recording", "not recording"])
def outside(request: pytest.FixtureRequest, L: ModuleType) -> Iterator[bool]:
    """The mode around the test."""
    with L.set_grad_enabled(request.param):
        yield request.param
        assert enabled(L) is request.param, "the test left another mode behind"


# ---- blocks and calls


@EACH_SWITCH
def test_a_block(L: ModuleType, outside: bool, switch: Callable[..., Any], inside: bool) -> None:
    with switch(L):
        assert enabled(L) is inside
        x = L.ones(2, requires_grad=True)
        assert (x * 2).requires_grad is inside and x.requires_grad
    assert enabled(L) is outside


@EACH_SWITCH
def test_a_block_left_by_an_exception(L: ModuleType, outside: bool, switch: Callable[..., Any], inside: bool) -> None:
    with pytest.raises(ZeroDivisionError), switch(L):
        1 / 0
    assert enabled(L) is outside


def test_blocks_nest(L: ModuleType) -> None:
    seen = []
    with L.no_grad():
        with L.enable_grad():
            with L.set_grad_enabled(False):
                seen.append(enabled(L))
            seen.append(enabled(L))
        seen.append(enabled(L))
    assert [*seen, enabled(L)] == [False, True, False, True]


@pytest.mark.parametrize("name", ["no_grad", "enable_grad"])
def test_one_object_may_be_entered_again_and_again(L: ModuleType, name: str) -> None:
    switch = getattr(L, name)()
    for _ in range(2):
        with switch:
            assert enabled(L) is (name == "enable_grad")
        assert enabled(L)


def test_set_grad_enabled_acts_when_called(L: ModuleType) -> None:
    L.set_grad_enabled(False)
    try:
        assert not enabled(L) and not (L.ones(1, requires_grad=True) * 2).requires_grad
    finally:
        L.set_grad_enabled(True)
    assert enabled(L)


def test_a_leaf_that_requires_grad_can_be_made_under_no_grad(L: ModuleType) -> None:
    with L.no_grad():
        x = L.ones(2, requires_grad=True)
        y = L.ones(2).requires_grad_()
    assert x.requires_grad and y.requires_grad and (x * y).requires_grad


def test_what_was_recorded_before_can_be_differentiated_inside(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = (x * x).sum()
    with L.no_grad():
        y.backward()
    assert x.grad.tolist() == [2, 2]


def test_in_place_changes_of_leaves_are_allowed_inside(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    with L.no_grad():
        x.mul_(3)
    assert x.tolist() == [3, 3] and x.is_leaf and x.requires_grad and x._version == 1


# ---- decorators


@EACH_SWITCH
def test_a_decorated_function(L: ModuleType, outside: bool, switch: Callable[..., Any], inside: bool) -> None:
    @switch(L)
    def f(a: int, *, b: int) -> tuple[int, int, bool]:
        """Documented."""
        return a, b, enabled(L)

    assert enabled(L) is outside, "decorating changes nothing"
    assert f(1, b=2) == (1, 2, inside) and f(3, b=4) == (3, 4, inside)
    assert (f.__name__, f.__doc__) == ("f", "Documented.")
    assert enabled(L) is outside


@pytest.mark.parametrize("name", ["no_grad", "enable_grad"])
def test_decorating_without_parentheses(L: ModuleType, outside: bool, name: str) -> None:
    @getattr(L, name)
    def f() -> bool:
        return enabled(L)

    assert f() is (name == "enable_grad") and enabled(L) is outside


def test_a_decorated_function_may_call_itself(L: ModuleType) -> None:
    @L.no_grad()
    def f(depth: int) -> list[bool]:
        return [enabled(L)] + (f(depth - 1) if depth else []) + [enabled(L)]

    assert f(3) == [False] * 8 and enabled(L)


def test_a_decorated_method(L: ModuleType) -> None:
    class Model:
        @L.no_grad()
        def f(self, x: Any) -> Any:
            return x * 2

    assert not Model().f(L.ones(1, requires_grad=True)).requires_grad


def test_decorating_a_class_is_deprecated(L: ModuleType) -> None:
    class Model:
        def __init__(self) -> None:
            self.seen = enabled(L)

    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        decorated = L.no_grad()(Model)
    assert decorated().seen is False and enabled(L)


@EACH_SWITCH
def test_a_block_binds_nothing(switch: Callable[..., Any], inside: bool) -> None:
    with switch(ut) as nothing:
        assert nothing is None


# ---- generators


@EACH_SWITCH
def test_a_decorated_generator(L: ModuleType, outside: bool, switch: Callable[..., Any], inside: bool) -> None:
    """Its own code runs in the mode; the code of whoever drives it does not."""

    @switch(L)
    def f() -> Iterator[int]:
        for i in range(3):
            assert enabled(L) is inside
            yield i
            assert enabled(L) is inside

    for i in f():
        assert enabled(L) is outside and i in (0, 1, 2)
    assert enabled(L) is outside


def test_what_is_sent_to_a_generator_arrives(L: ModuleType) -> None:
    @L.no_grad()
    def f() -> Generator[Any, Any, str]:
        seen = []
        for _ in range(3):
            seen.append((yield enabled(L)))
        return f"got {seen}"

    g = f()
    assert next(g) is False and g.send("a") is False and g.send("b") is False
    with pytest.raises(StopIteration) as stopped:
        g.send("c")
    assert stopped.value.value == "got ['a', 'b', 'c']" and enabled(L)


def test_what_is_thrown_into_a_generator_arrives(L: ModuleType) -> None:
    seen = []

    @L.no_grad()
    def f() -> Generator[str, None, None]:
        while True:
            try:
                yield "ready"
            except ValueError as error:
                seen.append((str(error), enabled(L)))
                yield "caught"

    g = f()
    next(g)
    assert g.throw(ValueError("a")) == "caught" and seen == [("a", False)] and enabled(L)
    next(g)
    with pytest.raises(KeyError):
        g.throw(KeyError("b"))
    assert enabled(L)


def test_an_exception_of_a_generator_comes_out(L: ModuleType) -> None:
    @L.no_grad()
    def f() -> Iterator[int]:
        yield 1
        raise ValueError("inside")

    g = f()
    next(g)
    with pytest.raises(ValueError, match="inside"):
        next(g)
    assert enabled(L)


def test_a_generator_cleans_up_in_its_mode(L: ModuleType) -> None:
    seen = []

    @L.no_grad()
    def f() -> Iterator[int]:
        try:
            yield 1
        finally:
            seen.append(enabled(L))

    g = f()
    next(g)
    g.close()
    h = f()
    next(h)
    del h
    assert seen == [False, False] and enabled(L)


def test_a_generator_that_was_never_started(L: ModuleType) -> None:
    @L.no_grad()
    def f() -> Iterator[int]:
        yield 1

    f().close()
    assert enabled(L)


def test_two_generators_interleave(L: ModuleType) -> None:
    def body() -> Iterator[bool]:
        for _ in range(3):
            yield enabled(L)

    off, on = L.no_grad()(body)(), L.enable_grad()(body)()
    assert [(next(off), next(on), enabled(L)) for _ in range(3)] == [(False, True, True)] * 3


# ---- coroutines (PyTorch leaves the mode before an async function runs)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_decorated_coroutine_runs_in_the_mode() -> None:
    @ut.no_grad()
    async def f() -> list[bool]:
        seen = [enabled(ut)]
        await asyncio.sleep(0)
        return [*seen, enabled(ut)]

    assert run(f()) == [False, False] and enabled(ut)


def test_a_suspended_coroutine_does_not_leave_its_mode_behind() -> None:
    seen: list[tuple[str, bool]] = []

    @ut.no_grad()
    async def off() -> None:
        for _ in range(3):
            seen.append(("off", enabled(ut)))
            await asyncio.sleep(0)

    async def on() -> None:
        for _ in range(3):
            seen.append(("on", enabled(ut)))
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(off(), on())

    run(main())
    assert sorted(set(seen)) == [("off", False), ("on", True)] and len(seen) == 6


def test_awaiting_a_decorated_coroutine_in_the_same_task() -> None:
    """While it is suspended, whoever drives the task by hand is outside the mode."""

    @ut.no_grad()
    async def f() -> str:
        await Pause()
        return "done" if not enabled(ut) else "wrong mode"

    class Pause:
        def __await__(self) -> Generator[str, None, None]:
            yield "paused"

    driven = f().__await__()
    assert next(driven) == "paused" and enabled(ut)
    with pytest.raises(StopIteration) as stopped:
        next(driven)
    assert stopped.value.value == "done" and enabled(ut)


def test_an_exception_of_a_coroutine_comes_out() -> None:
    @ut.no_grad()
    async def f() -> None:
        await asyncio.sleep(0)
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        run(f())
    assert enabled(ut)


def test_a_cancelled_coroutine_cleans_up_in_its_mode() -> None:
    seen = []

    @ut.no_grad()
    async def f() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(enabled(ut))

    async def main() -> None:
        task = asyncio.create_task(f())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert seen == [False]


def test_a_block_in_one_task_is_not_seen_by_another() -> None:
    async def switch(seen: list[bool], inside: bool) -> None:
        with ut.set_grad_enabled(inside):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(enabled(ut))

    async def main() -> tuple[list[bool], list[bool]]:
        off: list[bool] = []
        on: list[bool] = []
        await asyncio.gather(switch(off, False), switch(on, True))
        return off, on

    assert run(main()) == ([False] * 3, [True] * 3) and enabled(ut)


def test_a_decorated_async_generator() -> None:
    @ut.no_grad()
    async def f() -> AsyncIterator[bool]:
        for _ in range(2):
            yield enabled(ut)
            await asyncio.sleep(0)

    async def main() -> list[tuple[bool, bool]]:
        return [(inside, enabled(ut)) async for inside in f()]

    assert run(main()) == [(False, True)] * 2


def test_what_is_sent_to_and_thrown_into_an_async_generator_arrives() -> None:
    seen: list[Any] = []

    @ut.no_grad()
    async def f() -> Any:
        try:
            seen.append((yield "first"))
            try:
                yield "second"
            except ValueError as error:
                seen.append((str(error), enabled(ut)))
                yield "third"
        finally:
            seen.append(("closed", enabled(ut)))

    async def main() -> list[Any]:
        g = f()
        results = [await g.asend(None), await g.asend("a"), await g.athrow(ValueError("b"))]
        await g.aclose()
        return results

    assert run(main()) == ["first", "second", "third"]
    assert seen == ["a", ("b", False), ("closed", False)] and enabled(ut)


# ---- threads and contexts


def in_thread(f: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(f()))
    thread.start()
    thread.join()
    return found[0]


def test_a_new_thread_records(L: ModuleType) -> None:
    with L.no_grad():
        assert in_thread(lambda: enabled(L)) is True


def test_a_thread_does_not_switch_another(L: ModuleType) -> None:
    in_thread(lambda: L.set_grad_enabled(False))
    assert enabled(L)


def test_threads_switch_at_the_same_time(L: ModuleType) -> None:
    """Each of two threads is inside its own block while the other changes."""
    barrier = threading.Barrier(2, timeout=10)

    def f(inside: bool) -> list[bool]:
        seen = []
        for _ in range(20):
            with L.set_grad_enabled(inside):
                barrier.wait()
                seen.append(enabled(L))
                barrier.wait()
        return seen

    results: dict[bool, list[bool]] = {}
    threads = [threading.Thread(target=lambda v=v: results.update({v: f(v)})) for v in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {True: [True] * 20, False: [False] * 20}


def test_a_copied_context_carries_the_mode() -> None:
    with ut.no_grad():
        context = contextvars.copy_context()
    assert context.run(lambda: enabled(ut)) is False and enabled(ut)


# ---- multithreading switch


def test_multithreading_is_switched_like_grad_mode(L: ModuleType) -> None:
    now = L.autograd.is_multithreading_enabled
    assert now()
    with L.autograd.set_multithreading_enabled(False):
        assert not now()
        with L.autograd.set_multithreading_enabled(True):
            assert now()
        assert not now()
    assert now()
    L.autograd.set_multithreading_enabled(False)
    assert not now()
    L.autograd.set_multithreading_enabled(True)


def test_a_pass_without_multithreading_gives_the_same(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    with L.autograd.set_multithreading_enabled(False):
        (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_modes_do_not_disturb_each_other(L: ModuleType) -> None:
    """Leaving one mode keeps what was switched by another meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grad, threads = L.no_grad(), L.autograd.set_multithreading_enabled(False)
        grad.__enter__()
        threads.__enter__()
        grad.__exit__(None, None, None)
        assert enabled(L) and not L.autograd.is_multithreading_enabled()
        threads.__exit__(None, None, None)
    assert enabled(L) and L.autograd.is_multithreading_enabled()
