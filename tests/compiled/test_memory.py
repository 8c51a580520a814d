"""Memory of large arrays that the core has made: kept when they are gone, within a limit, and used again."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.compiled import core

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = core.keep_memory(64 * MEGABYTE)
    core.keep_memory(0)
    core.keep_memory(64 * MEGABYTE)
    yield
    core.keep_memory(0)
    core.keep_memory(before)


def large(megabytes: int = 4) -> Any:
    """An array that the core makes."""
    return ut.full((megabytes * MEGABYTE // 4,), 2.0)._array


def kept() -> int:
    return ut.memory_stats()["kept"]


def test_memory_is_used_again() -> None:
    array = large()
    place = array.ctypes.data
    assert place % 64 == 0
    assert kept() == 0
    del array
    assert kept() == 4 * MEGABYTE
    again = large()
    assert again.ctypes.data == place
    assert kept() == 0
    assert np.all(again == 2)


def test_views_keep_their_memory() -> None:
    part = large()[5:]
    other = large()
    assert not np.shares_memory(part, other)
    assert np.all(part == 2)


def test_there_is_a_limit() -> None:
    arrays = [large(k) for k in (3, 5, 7, 11, 13, 17, 19)]
    del arrays
    assert 32 * MEGABYTE < kept() <= 64 * MEGABYTE
    core.keep_memory(10 * MEGABYTE)
    assert kept() <= 10 * MEGABYTE
    array = large(11)
    del array
    assert kept() <= 10 * MEGABYTE
    many = [large(1) for _ in range(200)]
    del many
    assert kept() <= 10 * MEGABYTE
    core.keep_memory(0)
    assert kept() == 0
    with pytest.raises((OverflowError, TypeError)):
        core.keep_memory(-1)


def test_what_is_done_to_arrays() -> None:
    array = large()
    array.resize(3 * array.size, refcheck=False)
    assert np.all(array[:MEGABYTE] == 2)
    assert not np.any(array[MEGABYTE:])
    array.resize(10, refcheck=False)
    assert np.all(array == 2)
    copy = pickle.loads(pickle.dumps(large()))
    assert np.all(copy == 2)


def test_the_handler_of_others_stays() -> None:
    name = np._core.multiarray.get_handler_name
    before = name()
    array = large()
    assert name(array) == "undertow"
    assert name() == before
    assert name(np.ones(MEGABYTE)) == before


def test_arrays_that_end_on_other_threads() -> None:
    def work() -> None:
        for _ in range(50):
            x = ut.ones(MEGABYTE // 4) * 2
            assert float((x + x)[-1]) == 4

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept() <= 64 * MEGABYTE


def test_tracemalloc_sees_them() -> None:
    tracemalloc.start()
    try:
        array = large()
        assert tracemalloc.get_traced_memory()[0] > 4 * MEGABYTE
        del array
        assert tracemalloc.get_traced_memory()[0] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_what_is_counted_and_given_back() -> None:
    before = ut.memory_stats()
    arrays = [large(), large(), large(1)]
    now = ut.memory_stats()
    assert now["used"] - before["used"] == 9 * MEGABYTE and now["peak"] >= now["used"]
    assert now["made"] + now["reused"] - before["made"] - before["reused"] == 3
    arrays.clear()
    assert ut.memory_stats()["used"] == before["used"] and kept() == 9 * MEGABYTE
    assert ut.memory_stats()["limit"] == 64 * MEGABYTE
    again = large()
    assert ut.memory_stats()["reused"] == now["reused"] + 1
    ut.empty_cache()
    assert kept() == 0 and ut.memory_stats()["limit"] == 64 * MEGABYTE
    assert np.all(again == 2)
