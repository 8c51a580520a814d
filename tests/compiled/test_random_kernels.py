"""Random numbers are the same with and without the compiled core."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import kernels
from undertow.compiled import core
from undertow.ops.random.mersenne_twister import Mersenne

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

KERNELS = ["random_words", "random_singles", "random_doubles", "random_normals", "random_permutation"]


def drawn(numbers: str, count: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Numbers from one stream, twice, and the word that comes after them."""
    with monkeypatch.context() as patch:
        for name in KERNELS:
            if not compiled:
                patch.setattr(kernels, name, lambda *arguments: None)
        stream = Mersenne(7)
        return [getattr(stream, numbers)(count) for _ in range(2)] + [stream.words(1)]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 623, 624, 1300, 20000])
@pytest.mark.parametrize("numbers", ["words", "long_words", "singles", "doubles", "permutation"])
def test_the_same_numbers(numbers: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = (drawn(numbers, count, compiled, monkeypatch) for compiled in (True, False))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 15, 1001])
def test_the_same_normal_numbers_up_to_rounding(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = (drawn("normals", count, compiled, monkeypatch) for compiled in (True, False))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


def test_what_is_no_generator_and_no_count() -> None:
    capsule = np.random.MT19937().capsule
    for name in KERNELS:
        function = getattr(core, name)
        for arguments in ((capsule,), (None, 3), (capsule, "3"), (capsule, 2.0)):
            with pytest.raises((TypeError, ValueError)):
                function(*arguments)
        with pytest.raises(ValueError, match="negative"):
            function(capsule, -1)


def test_threads_that_share_a_generator_lose_no_word() -> None:
    generator, parts = ut.Generator().manual_seed(1), []

    def draw() -> None:
        for _ in range(20):
            parts.append(ut.rand(20000, generator=generator).numpy())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = ut.rand(80 * 20000, generator=ut.Generator().manual_seed(1)).numpy()
    expected = sorted(together.reshape(80, -1).tolist())
    assert sorted(part.tolist() for part in parts) == expected


def test_states_go_both_ways_with_and_without_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Mersenne(5)
    for used in (0, 1, 623, 1, 5000):
        stream.words(used)
        state = stream.pack()
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "read_twister", lambda *arguments: None)
            assert stream.pack() == state
        other, third = Mersenne(1), Mersenne(2)
        other.unpack(state)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "place_twister", lambda *arguments: None)
            third.unpack(state)
        following = stream.words(700)
        np.testing.assert_array_equal(other.words(700), following)
        np.testing.assert_array_equal(third.words(700), following)


def test_other_generators_are_drawn_from_word_by_word() -> None:
    Mersenne(0).words(1)  # by now the Twister is known
    ours, theirs = np.random.PCG64(3), np.random.PCG64(3)
    assert core.read_twister(ours.capsule) is None
    assert core.place_twister(ours.capsule, np.zeros(624, np.uint64), 0) is None
    expected = np.random.Generator(theirs).integers(0, 2**32, 1500, np.uint32)
    np.testing.assert_array_equal(core.random_words(ours.capsule, 1500), expected)


def test_states_that_are_none() -> None:
    stream = Mersenne(0)  # the capsule does not keep it alive
    capsule = stream._capsule
    words, position = core.read_twister(capsule)
    for wrong in ((words[1:], 0), (words.astype(np.int64), 0), (words, 625), (words, -1), (words, "0")):
        assert core.place_twister(capsule, *wrong) is None
    assert core.place_twister(capsule, words, position) is True


def test_blocks_of_normal_numbers() -> None:
    drawn = np.random.default_rng(0).integers(0, 2**24, 16000).astype(np.float32) / np.float32(2**24)
    drawn[:32] = [0] * 16 + [1 - 2.0**-24] * 16
    radius, angle = drawn.astype(float).reshape(-1, 2, 8).swapaxes(0, 1)
    radius, angle = np.sqrt(-2 * np.log1p(-radius)), angle * 2 * np.pi
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(core.blocks_to_normal(drawn), expected, atol=3e-6)
    assert core.blocks_to_normal(drawn[:8]) is None
    assert core.blocks_to_normal(drawn.astype(float)) is None
