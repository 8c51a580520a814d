"""Random numbers of GPUs: PyTorch's for a seed, drawn on the device, repeatable across streams, states and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from undertow.utils.checkpoint import checkpoint

import undertow as ut
from undertow.nn import functional as F


@pytest.fixture(autouse=True)
def on_device_alone() -> Iterator[None]:
    """What has a kernel must not go to the host; and the tests' seeds are forgotten."""
    before = ut.get_rng_state()
    ut.ones(1, device="cuda")
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")
    ut.set_rng_state(before)


def made(dtype: Any = ut.float32, count: int = 5) -> ut.Tensor:
    return ut.empty(count, device="cuda", dtype=dtype)


#: what PyTorch 2.11 draws on a GPU after manual_seed(0), and how many words each thread has used then
DRAWN: dict[str, tuple[Callable[[], Any], list[float], int]] = {
    "rand": (lambda: ut.rand(3, device="cuda"), [0.39904648065567017, 0.5166791677474976, 0.024930385872721672], 4),
    "rand of float64": (lambda: ut.rand(3, device="cuda", dtype=ut.float64),
                        [0.8805202684009383, 0.939657839052128, 0.7129273065499566], 4),
    "randn": (lambda: ut.randn(3, device="cuda"), [-0.9246624112129211, -0.42534422874450684, -2.643845796585083], 4),
    "randn of float64": (lambda: ut.randn(3, device="cuda", dtype=ut.float64),
                         [-0.3103957360003765, -0.03432813230409514, 0.17559472731904127], 4),
    "rand of float16": (lambda: ut.rand(3, device="cuda", dtype=ut.float16),
                        [0.39892578125, 0.5166015625, 0.024932861328125], 4),
    "randint": (lambda: ut.randint(0, 1000, (4,), device="cuda"), [541, 97, 191, 172], 4),
    "randint, wide": (lambda: ut.randint(0, 2**40, (2,), device="cuda"), [918609839501, 970403442346], 4),
    "randint of int32": (lambda: ut.randint(-5, 100, (4,), device="cuda", dtype=ut.int32), [56, 7, 71, 17], 4),
    "random_": (lambda: made().random_(), [2615407, 4527453, 6411889, 11078092, 2326039], 4),
    "random_ of uint8": (lambda: made(ut.uint8).random_(), [213, 225, 119, 188, 9], 4),
    "random_ of bool": (lambda: made(ut.bool, 6).random_(), [1, 1, 1, 0, 1, 0], 4),
    "exponential_": (lambda: made().exponential_(2.0), [0.45933863, 0.33016654, 1.84583377, 0.03089545, 0.02783345], 4),
    "cauchy_": (lambda: made(count=3).cauchy_(1.0, 2.0), [0.343530535, 1.104894042, -24.483655929], 4),
    "log_normal_": (lambda: made(count=3).log_normal_(0.5, 1.5), [0.411892175, 0.871084451, 0.031248975], 4),
    "geometric_": (lambda: made(ut.int64).geometric_(0.3), [3, 2, 11, 1, 1], 4),
    "uniform_": (lambda: made(count=3).uniform_(-2, 3), [-0.00476759672, 0.5833958387, -1.8753480911], 4),
    "normal_": (lambda: made(count=3).normal_(1, 2), [-0.8493248224, 0.14931154251, -4.287691593], 4),
    "bernoulli_": (lambda: made(count=6).bernoulli_(0.3), [0, 0, 1, 0, 0, 0], 4),
    "bernoulli": (lambda: ut.bernoulli(ut.full((10000,), 0.3, device="cuda"))[4990:4996], [0, 0, 1, 0, 0, 1], 12),
    "multinomial": (lambda: ut.multinomial(ut.arange(1.0, 11.0, device="cuda"), 5), [9, 4, 3, 7, 5], 4),
    "by columns": (lambda: ut.empty(3, 2, device="cuda").t().normal_()[0], [-0.92466241, -2.64384580, -0.12086640], 4),
    "complex": (lambda: ut.view_as_real(ut.randn(1, device="cuda", dtype=ut.complex64))[0],
                [-0.65383505821, -0.30076378584], 4),
    "dropout": (lambda: F.dropout(ut.ones(20, device="cuda"), 0.4).bool()[:5], [1, 0, 0, 0, 1], 4),
    "dropout, two at a time": (lambda: F.dropout(ut.ones(1026, device="cuda"), 0.4).bool()[:5], [1, 0, 1, 0, 1], 4),
    "dropout, one at a time": (lambda: F.dropout(ut.ones(5, device="cuda"), 0.4).bool(), [1, 1, 1, 0, 0], 4),
    "dropout by columns": (lambda: F.dropout(ut.ones(4, 5, device="cuda").t(), 0.4).bool().flatten()[:6],
                           [1, 0, 1, 0, 0, 1], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_gives_the_numbers_of_pytorch(name: str) -> None:
    draw, wanted, used = DRAWN[name]
    ut.manual_seed(0)
    found = draw()
    np.testing.assert_allclose(found.double().cpu().numpy(), wanted, rtol=2e-6, atol=1e-6)
    assert ut.cuda.get_rng_state().tolist() == [0] * 8 + [used] + [0] * 7


def test_half_precision_drops_eight_at_a_time() -> None:
    pytest.importorskip("ml_dtypes")
    ut.manual_seed(0)
    kept = F.dropout(ut.ones(1024, device="cuda", dtype=ut.bfloat16), 0.4).bool()
    assert int((kept * ut.arange(1024, device="cuda") % 1000).sum()) == 293803


def test_numbers_have_their_moments() -> None:
    ut.manual_seed(1)
    normal, uniform = ut.randn(200_000, device="cuda"), ut.rand(200_000, device="cuda")
    assert abs(float(normal.mean())) < 0.01 and abs(float(normal.std()) - 1) < 0.01
    assert abs(float(uniform.mean()) - 0.5) < 0.005 and float(uniform.min()) >= 0 and float(uniform.max()) < 1
    assert len(set(uniform[:50_000].tolist())) > 49_000  # all threads, and all their calls, draw other numbers
    assert sorted(ut.randperm(1000, device="cuda").tolist()) == list(range(1000))
    kept = F.dropout(ut.ones(100_000, device="cuda"), 0.3)
    assert abs(float(kept.mean()) - 1) < 0.01


def test_dropout_keeps_one_byte_for_each_element_and_has_all_derivatives() -> None:
    x = ut.randn(40, device="cuda", dtype=ut.float64, requires_grad=True)
    y = F.dropout(x, 0.25)
    assert y.grad_fn.name() == "NativeDropoutBackward0"
    (g,) = ut.autograd.grad(y.square().sum(), x, create_graph=True)
    wanted = 2 * x * (y != 0) / 0.75**2
    np.testing.assert_allclose(g.detach().cpu().numpy(), wanted.detach().cpu().numpy())
    (second,) = ut.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(second.cpu().numpy(), (2 * (y != 0) / 0.75**2).cpu().numpy())
    assert float(F.dropout(x, 1.0).abs().sum().detach()) == 0


def test_states_are_saved_and_put_back() -> None:
    state = ut.cuda.get_rng_state()
    first = ut.rand(3, device="cuda").tolist()
    ut.cuda.set_rng_state(state)
    assert ut.rand(3, device="cuda").tolist() == first
    with ut.random.fork_rng():
        inside = ut.rand(2, device="cuda").tolist()
    assert ut.rand(2, device="cuda").tolist() == inside
    ut.cuda.manual_seed(5)
    generator = ut.Generator("cuda").manual_seed(5)
    assert ut.rand(3, device="cuda").tolist() == ut.rand(3, device="cuda", generator=generator).tolist()
    assert generator.clone_state().get_state().tolist() == generator.get_state().tolist()
    assert ut.cuda.initial_seed() == 5 and ut.cuda.default_generators[0].initial_seed() == 5


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        ut.rand(3, device="cuda", generator=ut.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        ut.rand(3, generator=ut.Generator("cuda"))
    with pytest.raises(RuntimeError, match="Expected a generator state of size 16"):
        ut.cuda.set_rng_state(ut.get_rng_state())


def test_streams_draw_from_one_sequence() -> None:
    ut.manual_seed(3)
    wanted = [ut.rand(4, device="cuda").tolist() for _ in range(4)]
    ut.manual_seed(3)
    side, found = ut.cuda.Stream(), []
    for turn in range(4):
        with ut.cuda.stream(side if turn % 2 else None):
            found.append(ut.rand(4, device="cuda").tolist())
    assert found == wanted


def test_a_step_with_dropout_is_replayed_with_new_numbers() -> None:
    x = ut.ones(64, 8, device="cuda")
    seen = set()
    before = ut.cuda.launch_stats()["graphs"]
    for _ in range(8):
        seen.add(tuple((F.dropout(x, 0.5) * 2 + 1).sum(0).tolist()))
    assert len(seen) == 8
    assert ut.cuda.launch_stats()["graphs"] > before


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_drop_the_same_elements_again(reentrant: bool) -> None:
    x = ut.ones(500, device="cuda", requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=reentrant)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy(), 2 * y.detach().cpu().numpy())
