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
