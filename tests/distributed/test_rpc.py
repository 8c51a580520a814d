"""Processes that call each other, and backward passes that go through them."""

from __future__ import annotations

import pickle

import pytest

import undertow as ut
from tests.distributed.conftest import Run
from undertow.distributed.workers.future import Future, collect_all, wait_all
from undertow.distributed.workers.values import NotPlainError, read, written


def test_calls_and_gradients(run: Run) -> None:
    done = run("rpc.py", ranks=3)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(3)])


# ---- without processes


def test_no_message_runs_code() -> None:
    for named in (eval, print, pytest.raises):
        with pytest.raises(NotPlainError, match="this program takes no pickled objects"):
            read(pickle.dumps(named), [])
    with pytest.raises(NotPlainError, match="has not imported"):
        read(written(pytest.raises).tree.replace(b"_pytest", b"_pebble"), [])


def test_one_tensor_twice_is_one_tensor() -> None:
    x = ut.ones(2)
    message = written([x, {"again": x}])
    value, tensors = read(message.tree, [bytearray(a.tobytes()) for a in message.arrays])
    assert value[0] is value[1]["again"] and len(tensors) == 1


def test_futures() -> None:
    first, second = Future(), Future()
    whole = collect_all([first, second])
    text = first.then(lambda f: f"got {f.value()}")
    failed = first.then(lambda f: 1 // 0)
    with pytest.raises(RuntimeError, match="has no result yet"):
        first.value()
    with pytest.raises(TimeoutError):
        first.wait(0.01)
    first.set_result(1)
    assert first.done() and text.wait() == "got 1" and not whole.done()
    with pytest.raises(ZeroDivisionError):
        failed.wait()
    with pytest.raises(RuntimeError, match="only once"):
        first.set_result(2)
    second.set_exception(ValueError("no"))
    assert whole.wait() == [first, second]
    with pytest.raises(ValueError, match="no"):
        wait_all([first, second])
    assert wait_all([]) == []
