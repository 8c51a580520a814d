"""When queues are sent: each occasion is left out in turn, and then something goes wrong. And forgotten queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.conftest import REAL
from tests.cuda.test_streams import factors, gates, stand_still

pytestmark = pytest.mark.skipif(REAL, reason="what is left out cannot be seen safely on a GPU of the machine")


def waiting() -> int:
    return ut.cuda.launch_stats()["waiting"]


def fresh(count: int = 3) -> Any:
    """A tensor whose numbers no memory holds yet, and all of whose work is done."""
    x = ut.full((count,), float(next(factors)), device="cuda")
    gates().leave_out_flush(0)
    ut.cuda.synchronize()
    gates().leave_out_flush(current[0])
    return x


current = [0]


def look() -> bool:
    x = fresh()
    number = next(factors)
    return (x * 0 + number).tolist() == [number] * 3


def copy_in() -> bool:
    x = fresh(777)
    y = x * 2
    wanted = 2 * (next(factors) - 1)
    del x  # whose memory the copy gets
    z = ut.tensor(np.zeros(777, np.float32), device="cuda")
    return y.tolist() == [wanted] * 777 and z.sum().item() == 0


def event() -> bool:
    x, side, number = fresh(), ut.cuda.Stream(), next(factors)
    with ut.cuda.stream(side):
        y = x * 0 + number
    ut.cuda.current_stream().wait_stream(side)
    return (y + 1).tolist() == [number + 1] * 3


def lent() -> bool:
    """Memory goes back to its owner, who writes there, when nothing uses it any more: see AT_EVENT."""
    numbers = np.full(3, float(next(factors)), np.float32)
    wanted = (2 * numbers).tolist()

    class Owner:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            data = (numbers.ctypes.data, False)
            return {"shape": (3,), "typestr": "<f4", "data": data, "strides": None, "version": 3}

        def __del__(self) -> None:
            numbers[:] = -1

    x = ut.as_tensor(Owner())
    y = x * 2
    del x
    return bool(y.tolist() == wanted)


def wait() -> bool:
    x = fresh() + 1
    ut.cuda.synchronize()
    return waiting() == 0 and x.shape == (3,)


def query() -> bool:
    x, side = fresh(), ut.cuda.Stream()
    with ut.cuda.stream(side):
        stand_still()
        y = x + 1
        is_asked_behind = side.query()
    gates().open_gates()
    side.query()
    return not is_asked_behind and waiting() == 0 and y.shape == (3,)


def export() -> bool:
    x = fresh() + 1
    return x._array.__cuda_array_interface__["shape"] == (3,) and waiting() == 0


def later_copy() -> bool:
    x, number = fresh(), next(factors)
    back = (x * 0 + number).to("cpu", non_blocking=True)
    ut.cuda.synchronize()
    return back.tolist() == [number] * 3


def peer_copy() -> bool:
    x, number = ut.full((2, 3), 1.0, device="cuda:1"), next(factors)
    ut.cuda.synchronize(1)
    return (x * 0 + number).T.to("cuda:0").tolist() == [[number] * 2] * 3


def end() -> bool:
    x = fresh().requires_grad_()
    (x * 2).sum().backward()
    return waiting() == 0


#: in the order of Occasion in csrc/cuda/cuda.h
OCCASIONS: list[Any] = [None, look, copy_in, event, wait, query, export, later_copy, peer_copy, end]
CASES = [(k, program) for k, program in enumerate(OCCASIONS) if program is not None] + [(3, lent)]


@pytest.fixture(autouse=True)
def all_occasions() -> Iterator[None]:
    yield
    current[0] = 0
    assert gates().leave_out_flush(0) == len(OCCASIONS)
    gates().open_gates()
    ut.cuda.synchronize()


@pytest.mark.parametrize(("occasion", "program"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_occasion_is_needed(occasion: int, program: Callable[[], bool]) -> None:
    fresh()
    assert program()
    current[0] = occasion
    gates().leave_out_flush(occasion)
    assert not program()


def test_a_queue_is_bounded() -> None:
    x = fresh()
    for _ in range(300):
        x = x + 1
        assert waiting() <= 32
    for _ in range(3):
        ut.cat([x] * 50)
    assert ut.cuda.launch_stats()["remembered"] <= 1024


def test_a_queue_that_nobody_adds_to_is_sent() -> None:
    x = fresh()
    gates().set_watch(500)
    try:
        for _ in range(2):
            y = x + 1
            end = time.monotonic() + 30
            while waiting() and time.monotonic() < end:
                time.sleep(1e-3)
            assert waiting() == 0
            time.sleep(0.1)  # long enough for the thread to go to sleep
    finally:
        gates().set_watch(0)
    assert y.tolist() == (x + 1).tolist()
    z = x + 1
    time.sleep(0.01)
    assert waiting() > 0 and z.shape == (3,)
    with pytest.raises(ValueError, match="negative"):
        gates().set_watch(-1)


def test_an_index_error_names_its_line_and_the_device_goes_on() -> None:
    x = ut.arange(4.0, device="cuda", requires_grad=True)
    index = ut.tensor([1, 9], device="cuda")
    y = x[index]  # this line
    z = x * 2
    with pytest.raises(
        IndexError, match=r"index 9 is out of bounds .* size 4.*test_flushes\.py:\d+ in test_an"
    ) as told:
        y.sum().item()
    lines = Path(__file__).read_text().splitlines()
    number = int(str(told.value).rpartition(":")[2].split()[0])
    assert lines[number - 1].endswith("# this line")
    assert z.tolist() == [0, 2, 4, 6] and x[index - 8 * (index > 4)].tolist() == [1, 1]
