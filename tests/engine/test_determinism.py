"""Deterministic mode: the gradient of a leaf has the same bits whichever pass came first."""

from __future__ import annotations

import gc
import itertools
import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow as ut
from undertow import sim
from undertow.backend import cpu
from undertow.graph import exact_sums
from undertow.graph.exact_sums import ExactSum

#: numbers whose sum depends on the order in any floating-point dtype
FACTORS = (1e8, 1.0, -1e8, 3e-9, 0.1)


@pytest.fixture
def deterministic() -> Iterator[None]:
    ut.use_deterministic_algorithms(True)
    yield
    ut.use_deterministic_algorithms(False)


# ---- exact sums

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_the_sum_is_that_of_real_numbers_rounded_once(rows: list[tuple[float, ...]]) -> None:
    total = ExactSum(cpu, np.array(rows[0]))
    for row in rows[1:]:
        total.add(np.array(row))
    assert total.rounded().tolist() == [math.fsum(column) for column in zip(*rows, strict=True)]


def test_half_way_cases_are_rounded_by_what_lies_below() -> None:
    ulp = 2.0**-52
    for numbers in itertools.permutations([1.0, ulp / 2, ulp**2, -(ulp**3)]):
        total = ExactSum(cpu, np.array(numbers[0]))
        for number in numbers[1:]:
            total.add(np.array(number))
        assert total.rounded() == float(sum(map(Fraction, numbers))) == 1 + ulp


def test_the_parts_stay_few() -> None:
    rng = np.random.default_rng(0)
    total = ExactSum(cpu, rng.standard_normal(1000))
    for _ in range(300):
        total.add(rng.standard_normal(1000))
    assert len(total.parts) <= 3


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan])
def test_infinities_and_nans_are_what_they_are_in_any_order(special: float) -> None:
    found = set()
    with np.errstate(invalid="ignore"):
        for numbers in itertools.permutations([special, 1.0, 1e300, -math.inf]):
            total = ExactSum(cpu, np.array([numbers[0], 1.0]))
            for number in numbers[1:]:
                total.add(np.array([number, 1.0]))
            found.add(total.rounded().tobytes())
    (bits,) = found
    assert np.array_equal(np.frombuffer(bits), [special - math.inf, 4], equal_nan=True)


def test_a_sum_that_is_too_large_is_infinite() -> None:
    total = ExactSum(cpu, np.array([1e308, 1.0]))
    with np.errstate(all="ignore"):
        for _ in range(3):
            total.add(np.array([1e308, 1.0]))
    assert total.rounded().tolist() == [math.inf, 4] and len(total.parts) == 1


# ---- passes, one after the other


def bits_after(factors: Any, dtype: Any, device: str, base: float | None = None) -> bytes:
    x = ut.ones(3, dtype=dtype, device=device, requires_grad=True)
    if base is not None:
        x.grad = ut.full_like(x, base)
    for factor in factors:
        (x * factor).backward(ut.ones_like(x))
    bits: bytes = x.grad.cpu().numpy().tobytes()
    return bits


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_the_order_of_passes_does_not_matter(dtype: str, device: str, deterministic: None) -> None:
    factors = (1e4, 1.0, -1e4, 1e-3) if dtype == "float16" else (1e17, 1.0, -1e17, 3e-9)
    orders = list(itertools.permutations(factors))
    assert len({bits_after(order, getattr(ut, dtype), device) for order in orders}) == 1
    assert len({bits_after(order, getattr(ut, dtype), device, base=0.1) for order in orders}) == 1
    ut.use_deterministic_algorithms(False)
    assert len({bits_after(order, getattr(ut, dtype), device) for order in orders}) > 1


def test_looking_at_the_gradient_changes_nothing(deterministic: None) -> None:
    x, y = (ut.ones(2, requires_grad=True) for _ in range(2))
    for factor in FACTORS:
        (x * factor).sum().backward()
        (y * factor).sum().backward()
        assert x.grad.sum().item() == x.grad.clone().sum().item()
    assert x.grad.numpy().tobytes() == y.grad.numpy().tobytes()
    assert x.grad[0].item() == np.float32(math.fsum(float(np.float32(f)) for f in FACTORS))


def double(x: Any) -> None:
    x.grad.mul_(2)


def assign(x: Any) -> None:
    x.grad = x.grad * 2


def double_behind_our_back(x: Any) -> None:
    x.grad.numpy()[...] *= 2


def double_as_a_constant(x: Any) -> None:
    x.grad = (x.grad[0] * 2).expand(2)


@pytest.mark.parametrize("change", [double, assign, double_behind_our_back, double_as_a_constant])
def test_a_gradient_that_was_changed_is_added_to_as_it_is(change: Any, deterministic: None) -> None:
    x = ut.ones(2, requires_grad=True)
    for factor in (1e8, 1.0):
        (x * factor).sum().backward()
    change(x)
    (x * -2e8).sum().backward()
    assert x.grad.tolist() == [0, 0]  # 2e8 + 2 was rounded when it was doubled: the 2 is gone for good


def test_adding_counts_as_a_change(deterministic: None) -> None:
    x = ut.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    grad, version = x.grad, x.grad._version
    (x * 2).sum().backward()
    assert x.grad is grad and grad._version > version


def test_the_sums_die_with_their_gradients(deterministic: None) -> None:
    leaves = [ut.ones(2, requires_grad=True) for _ in range(3)]
    for _ in range(2):
        sum(leaf.sum() for leaf in leaves).backward()
    assert len(exact_sums._sums) == 3
    leaves[0].grad = None
    del leaves[1]
    gc.collect()
    assert len(exact_sums._sums) == 1
    ut.use_deterministic_algorithms(False)
    assert not exact_sums._sums


def test_real_and_complex_gradients_of_one_leaf(deterministic: None) -> None:
    x = ut.ones(2, requires_grad=True)
    x.grad_dtype = None
    x.grad = ut.ones(2)
    (x * ut.tensor([1 + 2j, 3j])).sum().real.backward()
    assert x.grad.tolist() == [2 - 2j, 1 - 3j]


def test_sparse_gradients_are_summed_as_without_it(deterministic: None) -> None:
    table = ut.ones(4, 2, requires_grad=True)
    for _ in range(3):
        ut.nn.functional.embedding(ut.tensor([1, 2, 1]), table, sparse=True).sum().backward()
    assert table.grad.to_dense().tolist() == [[0, 0], [6, 6], [3, 3], [0, 0]]


# ---- passes of several threads at once


def concurrent_bits(seed: int, devices: tuple[str, ...]) -> bytes:
    """Every thread records and runs passes of its own over one leaf, at moments that depend on the seed."""
    rng = random.Random(seed)
    x = ut.tensor([1.0, 2.0], requires_grad=True)

    def work(factors: list[float], device: str, delays: list[float]) -> None:
        for factor, delay in zip(factors, delays, strict=True):
            time.sleep(delay)
            (x.to(device) * factor).sum().cpu().backward()

    threads = []
    for number, device in enumerate(devices):
        factors = [factor * (number + 1) for factor in FACTORS]
        threads.append(threading.Thread(target=work, args=(factors, device, [rng.random() / 500 for _ in factors])))
    rng.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bits: bytes = x.grad.numpy().tobytes()
    return bits


@pytest.mark.parametrize("devices", [("cpu",) * 4, ("sim:0", "sim:1", "sim:0", "cpu")], ids=["cpu", "devices"])
def test_threads_give_the_same_bits_under_every_seed(devices: tuple[str, ...], deterministic: None) -> None:
    with sim.configure(latency=(0, 2e-5), real_time=True):
        assert len({concurrent_bits(seed, devices) for seed in range(15)}) == 1


def stirred_bits() -> bytes:
    """Threads that record and run passes over shared leaves at once; in each pass, gradients of devices meet."""
    rng = np.random.default_rng(0)
    w = ut.tensor(rng.standard_normal(5).astype(np.float32), requires_grad=True)
    v = ut.tensor(rng.standard_normal(5).astype(np.float32), device="sim:0", requires_grad=True)
    numbers = rng.standard_normal((4, 3, 5)).astype(np.float32) * 10.0 ** rng.integers(-6, 7, (4, 3, 1))
    everybody = threading.Barrier(len(numbers))

    def work(mine: Any) -> None:
        everybody.wait(60)
        for row in mine.astype(np.float32):
            factor = ut.tensor(row)
            parts = [(w * factor).to(f"sim:{k}") * (v.to(f"sim:{k}") * (k + 1)).sin() for k in range(3)]
            sum(part.cpu() for part in parts).sum().backward()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    bits: bytes = w.grad.numpy().tobytes() + v.grad.cpu().numpy().tobytes()
    return bits


@pytest.mark.slow
def test_every_run_gives_the_same_bits_however_threads_switch(deterministic: None) -> None:
    expected = stirred_bits()
    sys.setswitchinterval(1e-6)
    for seed in range(25):
        with sim.configure(seed=seed, launch_blocking=seed % 2 == 0):
            assert stirred_bits() == expected, seed


def test_without_the_mode_some_run_does_not() -> None:
    first = stirred_bits()
    sys.setswitchinterval(1e-6)
    assert any(stirred_bits() != first for _ in range(300))


def forced_bits(order: tuple[int, ...]) -> bytes:
    """Passes that are all under way at once, and come to the leaf in the order given."""
    x = ut.tensor([1.0], requires_grad=True)
    turns = [threading.Event() for _ in range(len(order) + 1)]
    everybody = threading.Barrier(len(order))

    def work(number: int) -> None:
        y = x * FACTORS[number]

        def wait_for_turn(grad: Any) -> None:
            everybody.wait(60)
            assert turns[order.index(number)].wait(60)

        y.register_hook(wait_for_turn)
        y.backward()
        turns[order.index(number) + 1].set()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(order))]
    turns[0].set()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bits: bytes = x.grad.numpy().tobytes()
    return bits


def test_overlapping_passes_that_come_in_every_order(deterministic: None) -> None:
    orders = list(itertools.permutations(range(4)))
    assert len({forced_bits(order) for order in orders}) == 1
    ut.use_deterministic_algorithms(False)
    assert len({forced_bits(order) for order in orders}) > 1
