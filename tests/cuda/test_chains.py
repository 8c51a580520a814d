"""Elementwise launches that are joined: the bits of single launches, whatever lies where, and whoever keeps what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut

N = 4096  # the smallest arrays that are read in vectors


@pytest.fixture(autouse=True)
def joins_at_once() -> Iterator[None]:
    ut.ones(1, device="cuda")
    from undertow import _cuda

    before = _cuda.set_joining(1, 0)
    yield
    _cuda.set_joining(*before)
    ut.cuda.set_launch_mode("queue")


def numbers(dtype: Any = ut.float32, seed: int = 0) -> Any:
    return ut.tensor(np.random.default_rng(seed).normal(size=N), device="cuda", dtype=dtype)


def joined(program: Callable[[], Any], times: int = 3) -> int:
    """How many launches of a program were left out, when it is run again; its results are those of single launches."""

    def bits() -> list[bytes]:
        for dtype in (ut.float64, ut.float32, ut.bfloat16):  # what free memory holds is nothing that is expected
            dirty = [ut.full((N,), 9, dtype=dtype, device="cuda") for _ in range(6)]
            dirty.clear()
        ut.cuda.synchronize()
        found = program()
        return [t.cpu().double().numpy().tobytes() for t in (found if isinstance(found, tuple) else (found,))]

    ut.cuda.set_launch_mode("direct")
    wanted = bits()
    ut.cuda.set_launch_mode("queue")
    for _ in range(times):
        before = ut.cuda.launch_stats()["joined"]
        assert bits() == wanted
    return ut.cuda.launch_stats()["joined"] - before


def test_a_chain_is_one_launch() -> None:
    x = numbers()
    assert joined(lambda: (x * x + x).tanh()) == 2

    def in_half_precision() -> Any:
        y = x.bfloat16()
        return ((y * y + y) * 3).float() - x  # each rounded, as if it had been written

    assert joined(in_half_precision) == 5


def test_what_somebody_keeps_is_written() -> None:
    x, y = numbers(), numbers(seed=1)

    def keeping() -> Any:
        square = x * x
        return (square + y) * 2, square

    assert joined(keeping) == 2

    def backward() -> Any:
        a = x.detach().requires_grad_()
        (out,) = ut.autograd.grad((a * y + 1).tanh().sum(), a)
        return out

    assert joined(backward) >= 2


def test_changes_in_place() -> None:
    x, y = numbers(), numbers(seed=1)

    def changing() -> Any:
        z = x * 1
        old = z + y
        z.mul_(y).add_(old)
        return z - y, z, old

    assert joined(changing) == 4


def test_arrays_that_lie_across_each_other_are_not_joined() -> None:
    x, y = numbers(), numbers(seed=1)

    def one_element() -> Any:
        z = x * y
        return z - z[5]

    assert joined(one_element) == 0

    def shifted() -> Any:
        z = ut.cat([x, y, x])
        z[16 : N + 16].mul_(2)  # a part that was written by an earlier launch
        z[:N].add_(z[N : 2 * N])  # and one that lies across it
        return z

    assert joined(shifted) == 0

    def written_where_others_read() -> Any:
        z = ut.cat([x, y, x])
        z[:N].add_(z[16 : N + 16] * 2)
        return z

    assert joined(written_where_others_read) == 0

    def other_dtype() -> Any:
        z = x * y
        return z.view(ut.int32) + 1

    assert joined(other_dtype) == 0


def test_memory_that_is_free_and_used_again() -> None:
    x, y = numbers(ut.float64), numbers(seed=1)

    def reusing() -> Any:
        a = x * 2  # of 8 bytes
        b = (a + 1).float()  # whose memory is asked for while that of a is in use
        del a
        c = b.double() * 3  # takes the memory of a
        del b
        return c - x, (c * y).float()

    assert joined(reusing) > 0


def test_other_work_comes_between() -> None:
    x, index = numbers(), ut.arange(N, device="cuda").flip(0)

    def between() -> Any:
        z = x * 2 + 1
        turned = z[index]
        z.mul_(3)
        return turned - z, z.sum()

    assert joined(between) >= 1


def test_streams_have_chains_of_their_own() -> None:
    x, side = numbers(), ut.cuda.Stream()

    def crossing() -> Any:
        y = x * 2 + 1
        side.wait_stream(ut.cuda.current_stream())
        with ut.cuda.stream(side):
            z = y * 3 - 1
        ut.cuda.current_stream().wait_stream(side)
        z.record_stream(ut.cuda.current_stream())
        return z + y, y

    assert joined(crossing) >= 2


def test_small_arrays_and_new_chains_are_left_alone() -> None:
    from undertow import _cuda

    x = numbers()
    _cuda.set_joining(N + 1, 0)
    assert joined(lambda: x.sin() * 7 + 3) == 0
    _cuda.set_joining(N, 2)
    assert joined(lambda: x.sin() * 7 + 3) == 0
    assert joined(lambda: x.sin() * 7 + 3) == 2


def test_a_chain_is_bounded() -> None:
    x = numbers()

    def long() -> Any:
        y = x
        for _ in range(20):
            y = y + x
        return y

    assert joined(long, 8) == 20 - 3  # eight launches each


# ---- what reads a chain's result


def test_sums_and_their_like_end_a_chain() -> None:
    x, y = numbers(), numbers(seed=1)
    assert joined(lambda: (x * y).sum()) == 1
    assert joined(lambda: ((x - y).abs() + 1).mean()) == 3
    assert joined(lambda: (x * y + x).view(64, 64).amax(1)) == 2
    assert joined(lambda: (x * y + x).view(64, 64).sum(0)) == 2
    assert joined(lambda: (x * y).view(16, 16, 16).prod(1)) == 1
    assert joined(lambda: (x > y).any()) == 1
    half, other = x.bfloat16(), y.bfloat16()
    assert joined(lambda: (half * other + x).bfloat16().view(64, 64).sum(1)) == 4
    assert joined(lambda: (half * other).view(64, 64).sum(0)) == 1
    assert joined(lambda: (x.double() * x).sum()) == 1 + (joined(lambda: x.double() * x))

    def keeping() -> Any:
        z = x * y
        return z.sum(), z

    assert joined(keeping) == 1


def test_a_sum_in_two_steps_ends_a_chain() -> None:
    x = ut.arange(1 << 20, device="cuda", dtype=ut.float32) / 1000
    assert joined(lambda: (x.sin() * x).sum()) == 2
    assert joined(lambda: (x.sin() * x).bfloat16().mean()) == 4

    def kept_and_changed() -> Any:
        z = x * 2
        z.add_(x)
        total = z.sum()
        return total, z

    assert joined(kept_and_changed) == 2


def test_what_must_not_end_a_chain() -> None:
    x, y = numbers(), numbers(seed=1)

    def a_part() -> Any:
        return (x * y)[: N // 2].sum()

    assert joined(a_part) == 0

    def turned() -> Any:
        return (x * y).view(64, 64).t().sum(1)  # which is copied first

    assert joined(turned) == 0

    def not_the_last() -> Any:
        z = x * y
        w = z + 1
        return z.sum(), w

    assert joined(not_the_last) == 1  # the two products alone


def test_kernels_of_rows_end_a_chain() -> None:
    x, y, w = numbers().view(64, 64), numbers(seed=1).view(64, 64), numbers(seed=2)[:64].clone()
    F = ut.nn.functional
    assert joined(lambda: (x * 0.5 + y).softmax(-1)) == 2
    assert joined(lambda: (x * 0.5 + y).bfloat16().log_softmax(-1)) == 3
    assert joined(lambda: F.layer_norm(x + y, (64,), w, w)) == 1
    assert joined(lambda: F.rms_norm(x * y + x, (64,), w)) == 2

    def both_ways() -> Any:
        a = (x * 1).requires_grad_()
        b = (w * 1).requires_grad_()
        hidden = F.layer_norm(a * y, (64,), b)
        (hidden.softmax(-1) * y).sum().backward()
        return a.grad, b.grad, hidden.detach()

    assert joined(both_ways) >= 3

    def a_weight_of_the_chain() -> Any:
        z = x * y
        return F.layer_norm(z, (64,), z[0], z[1])  # which is read by all rows

    assert joined(a_weight_of_the_chain) == 0

    long = x.view(1, N).repeat(1, 3)

    def long_rows() -> Any:
        return (long * 0.5).softmax(-1)  # more than a block of a GPU keeps: read more than once

    assert joined(long_rows) == 0


def test_memory_of_operands_that_an_end_would_write() -> None:
    x = numbers().view(64, 64)

    def in_the_place_of_an_operand() -> Any:
        a = x.flip(0)
        b = a * 2
        del a  # whose memory softmax takes: each element is read before it is written
        return b.softmax(-1)

    assert joined(in_the_place_of_an_operand) == 1

    def a_sum_in_the_place_of_an_operand() -> Any:
        a = x.flip(0)
        b = a.exp()
        del a  # whose memory the sums of columns take, while other columns are read
        return b.view(1, N).expand(1, N).sum(0)

    assert joined(a_sum_in_the_place_of_an_operand) == 0
