"""Random tensors: reproducible, of the right distribution, shape and dtype, and safe to draw in threads."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.tensor.oracle import assert_same_as_torch, assert_same_error_as_torch

DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda g: ut.rand(5, generator=g),
    "rand half": lambda g: ut.rand(5, generator=g, dtype=ut.float16),
    "rand complex": lambda g: ut.rand(5, generator=g, dtype=ut.complex64),
    "randn": lambda g: ut.randn(2, 3, generator=g),
    "randint": lambda g: ut.randint(100, (5,), generator=g),
    "randperm": lambda g: ut.randperm(10, generator=g),
    "rand_like": lambda g: ut.rand_like(ut.zeros(5), generator=g),
    "randn_like": lambda g: ut.randn_like(ut.zeros(5), generator=g),
    "randint_like": lambda g: ut.randint_like(ut.zeros(5), 100, generator=g),
    "bernoulli": lambda g: ut.bernoulli(ut.full((50,), 0.5), generator=g),
    "poisson": lambda g: ut.poisson(ut.full((20,), 9.0), generator=g),
    "binomial": lambda g: ut.binomial(ut.full((20,), 9.0), ut.full((20,), 0.5), generator=g),
    "normal": lambda g: ut.normal(ut.zeros(3), ut.ones(3), generator=g),
    "normal with size": lambda g: ut.normal(0.0, 1.0, (3,), generator=g),
    "multinomial": lambda g: ut.multinomial(ut.ones(20), 8, generator=g),
    "multinomial with replacement": lambda g: ut.multinomial(ut.ones(20), 8, replacement=True, generator=g),
    "uniform_": lambda g: ut.zeros(5).uniform_(-1, 1, generator=g),
    "normal_": lambda g: ut.zeros(5).normal_(generator=g),
    "exponential_": lambda g: ut.zeros(5).exponential_(generator=g),
    "cauchy_": lambda g: ut.zeros(5).cauchy_(generator=g),
    "log_normal_": lambda g: ut.zeros(5).log_normal_(generator=g),
    "geometric_": lambda g: ut.zeros(20).geometric_(0.2, generator=g),
    "random_": lambda g: ut.zeros(5).random_(generator=g),
    "bernoulli_": lambda g: ut.zeros(50).bernoulli_(0.5, generator=g),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_seed_repeats_the_numbers_and_a_second_draw_does_not(draw: Callable[[Any], Any]) -> None:
    g = ut.Generator().manual_seed(1)
    first, second = draw(g).tolist(), draw(g).tolist()
    assert first == draw(g.manual_seed(1)).tolist() != second
    ut.manual_seed(1)
    assert draw(None).tolist() == first  # the default generator is like any other


def test_states() -> None:
    g = ut.Generator().manual_seed(5)
    ut.randint(100, (3,), generator=g, dtype=ut.int32)  # leaves half a word in the generator
    state = g.get_state()
    expected = ut.randint(100, (3,), generator=g, dtype=ut.int32).tolist()
    others = [g.clone_state().set_state(state), pickle.loads(pickle.dumps(ut.Generator().set_state(state)))]
    others.append(copy.deepcopy(others[0]))
    for other in others:
        assert other.initial_seed() == 5
        assert ut.randint(100, (3,), generator=other, dtype=ut.int32).tolist() == expected


def test_the_default_generator_is_put_back_after_a_fork() -> None:
    from undertow.ops.random.generator import fork_rng

    ut.manual_seed(2)
    with fork_rng():
        inside = ut.rand(3).tolist()
        ut.manual_seed(77)
    assert ut.rand(3).tolist() == inside


def test_seed_is_not_foreseeable_and_can_be_repeated() -> None:
    seeds = {ut.seed(), ut.seed()}
    assert len(seeds) == 2
    last = ut.seed()
    numbers = ut.rand(3).tolist()
    assert ut.initial_seed() == last and ut.manual_seed(last) is ut.default_generator
    assert ut.rand(3).tolist() == numbers


def test_threads_share_a_generator_without_repeating_numbers() -> None:
    g, found = ut.Generator(), []

    def draw() -> None:
        for _ in range(200):
            found.append(ut.rand(3, generator=g, dtype=ut.float64).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = ut.rand(800 * 3, generator=ut.Generator(), dtype=ut.float64).tolist()
    assert sorted(x for row in found for x in row) == sorted(alone)


# ---- distributions: n draws lie within five standard errors of what they should average to

N = 20000
MOMENTS: dict[str, tuple[Callable[[], Any], float, float]] = {
    "rand": (lambda: ut.rand(N), 1 / 2, 1 / 12),
    "rand half": (lambda: ut.rand(N, dtype=ut.float16).double(), 1 / 2, 1 / 12),
    "randn": (lambda: ut.randn(N), 0, 1),
    "randint": (lambda: ut.randint(1, 7, (N,)).double(), 3.5, 35 / 12),
    "bernoulli": (lambda: ut.bernoulli(ut.full((N,), 0.3)), 0.3, 0.21),
    "bernoulli with p": (lambda: ut.bernoulli(ut.zeros(N), 0.3), 0.3, 0.21),
    "poisson": (lambda: ut.poisson(ut.full((N,), 4.0)), 4, 4),
    "binomial": (lambda: ut.binomial(ut.full((N,), 10.0), ut.tensor(0.3)), 3, 2.1),
    "normal": (lambda: ut.normal(ut.full((N,), 2.0), 3.0), 2, 9),
    "normal of std": (lambda: ut.normal(2.0, ut.full((N,), 3.0)), 2, 9),
    "uniform_": (lambda: ut.empty(N).uniform_(-1, 3), 1, 16 / 12),
    "exponential_": (lambda: ut.empty(N).exponential_(2.0), 1 / 2, 1 / 4),
    "geometric_": (lambda: ut.empty(N).geometric_(0.25), 4, 12),
    "log_normal_": (lambda: ut.empty(N).log_normal_(1.0, 0.5).log(), 1, 0.25),
    "random_": (lambda: ut.empty(N).random_(1, 7), 3.5, 35 / 12),
    "random_ uint8": (lambda: ut.empty(N, dtype=ut.uint8).random_().double(), 127.5, (256**2 - 1) / 12),
    "multinomial": (lambda: ut.multinomial(ut.tensor([1.0, 2.0, 5.0]), N, True).double(), 1.5, 0.5),
}


@pytest.mark.parametrize(("draw", "mean", "variance"), MOMENTS.values(), ids=MOMENTS)
def test_mean_and_variance(draw: Callable[[], Any], mean: float, variance: float) -> None:
    values = draw().numpy().astype(float)
    assert abs(values.mean() - mean) < 5 * (variance / N) ** 0.5
    fourth = ((values - values.mean()) ** 4).mean()
    assert abs(values.var() - variance) < 5 * (fourth / N) ** 0.5


def test_complex_normals_share_the_variance_between_their_parts() -> None:
    z = ut.randn(N, dtype=ut.complex64).numpy()
    assert abs(z.real.var() - 0.5) < 0.03 and abs(z.imag.var() - 0.5) < 0.03 and abs((z.real * z.imag).mean()) < 0.03


def test_the_median_of_cauchy() -> None:
    values = ut.empty(N, dtype=ut.float64).cauchy_(3.0, 2.0).numpy()
    assert abs(np.median(values) - 3) < 0.15 and abs(np.quantile(values, 0.75) - 5) < 0.3


def test_weights_decide_the_first_draw_without_replacement() -> None:
    first = ut.multinomial(ut.tensor([[1.0, 2.0, 5.0]]).expand(N, 3), 2)[:, 0].numpy()
    np.testing.assert_allclose(np.bincount(first) / N, [1 / 8, 2 / 8, 5 / 8], atol=0.02)


def test_draws_without_replacement_are_distinct_and_never_of_weight_zero() -> None:
    drawn = ut.multinomial(ut.tensor([[1.0, 0.0, 5.0, 2.0]]).expand(500, 4), 3).numpy()
    assert (np.sort(drawn, axis=1) == [0, 2, 3]).all()


def test_upper_bounds_are_never_reached() -> None:
    for dtype in (ut.float16, ut.float32):
        assert ut.rand(N, dtype=dtype).max().item() < 1
        assert ut.empty(N, dtype=dtype).uniform_(1, 1.01).max().item() < np.asarray(1.01, dtype)
    assert ut.randint(3, (N,)).max().item() == 2


def test_randperm_is_a_permutation() -> None:
    assert sorted(ut.randperm(50).tolist()) == list(range(50)) and ut.randperm(0).shape == (0,)


# ---- gradients


def test_samples_have_zero_gradients() -> None:
    p = ut.full((4,), 0.5, requires_grad=True)
    for sample in (ut.bernoulli(p), ut.poisson(p), ut.normal(p, p), ut.normal(p), ut.normal(0.0, p)):
        (gradient,) = ut.autograd.grad(sample.sum(), p)
        assert gradient.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "fill",
    ["uniform_()", "normal_()", "exponential_()", "cauchy_()", "log_normal_()", "geometric_(0.5)", "random_(9)",
     "bernoulli_()"],
)  # fmt: skip
def test_filling_cuts_the_gradient_and_counts_a_version(fill: str) -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 1
    z = eval(f"y.{fill}")
    assert z is y and y._version == 1
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        eval(f"x.{fill}")


SHAPES = """
L.rand(2, 3).shape, L.rand((2, 3), dtype=L.float64).dtype, L.rand(2, dtype=L.complex64).dtype, L.rand(()).shape
L.randn(2, requires_grad=True).requires_grad, L.randn(2, dtype=L.complex128).dtype, L.randn(size=(2, 0)).shape
L.randint(3, (2,)).dtype, L.randint(1, 3, (2,)).shape, L.randint(low=1, high=3, size=(2,)).shape, L.randint(1, 2, (2,))
L.randint(high=3, size=(2,)).shape, L.randint(3, (2,), dtype=L.float32).dtype, L.randint(-2**63, 2**63 - 1, (2,)).dtype
L.randperm(5).dtype, L.randperm(5, dtype=L.float32).dtype, L.randperm(0)
L.bernoulli(L.ones(3)), L.bernoulli(L.zeros(3))
L.bernoulli(x, 0.5).shape, L.bernoulli(i, 1.0), type(L.bernoulli(r).grad_fn).__name__
L.normal(0.0, 1.0, (2,)).shape, L.normal(0, 1, (2,)).dtype, L.normal(L.zeros(2), L.ones(3, 1)).shape, L.normal(x, 0.0)
L.normal(L.zeros(2, dtype=L.float64), L.ones(2)).dtype, L.normal(L.zeros(2), L.ones(2, dtype=L.float64)).dtype
[type(t.grad_fn).__name__ for t in (L.normal(r), L.normal(0.0, r), L.normal(r, r), L.poisson(r))]
[type(t.grad_fn).__name__ for t in (y.uniform_(), y.normal_())]
L.multinomial(L.ones(3), 2).dtype
L.multinomial(L.ones(4, 3), 2).shape, L.multinomial(L.ones(3), 5, replacement=True).shape
L.multinomial(L.tensor([0.0, 1.0, 0.0]), 1)
L.multinomial(L.tensor([0.0, 0.0, 1.0]), 4, True), L.multinomial(r, 2).requires_grad
L.poisson(L.zeros(2)), L.rand_like(x).shape
L.randn_like(i, dtype=L.float64).dtype, L.rand_like(x, requires_grad=True).requires_grad
L.randint_like(x, 3).dtype, L.randint_like(x, 1, 2)
L.randint_like(x, low=1, high=2, dtype=L.int64), L.randn_like(x.t()).stride()
x.bernoulli_(L.ones(3)), i.bernoulli_(0.0)
L.ones(2).uniform_(3, 3), L.ones(2).random_(3, 4), L.tensor(True).random_(0, 1)
""".strip().splitlines()


@pytest.mark.torch
@pytest.mark.parametrize("expression", SHAPES)
def test_as_in_torch(torch: ModuleType, expression: str) -> None:
    assert_same_as_torch(expression, torch)


ERRORS = [
    ("L.Generator().manual_seed('a')", "manual_seed expected a long, but got str"),
    ("L.Generator().manual_seed(2**64)", "Overflow when unpacking long long"),
    ("L.Generator().set_state(3)", "ByteTensor, but got int"),
    ("L.Generator().set_state(L.zeros(3, dtype=L.uint8))", "but found the input RNG state size to be 3"),
    ("L.rand(2, generator=3)", "generator"),
    ("L.rand()", "rand()"),
    ("L.rand(2, dtype=L.int64)", "\"check_uniform_bounds\" not implemented for 'Long'"),
    ("L.randn(2, dtype=L.int64)", "\"normal_kernel_cpu\" not implemented for 'Long'"),
    ("L.rand_like(i)", "\"check_uniform_bounds\" not implemented for 'Long'"),
    ("L.randint(3, 3, (2,))", "random_ expects 'from' to be less than 'to', but got from=3 >= to=3"),
    ("L.randint(3, 2)", "must be tuple of ints, not int"),
    ("L.randint(1.5, (2,))", "must be int, not float"),
    ("L.randint(300, (2,), dtype=L.uint8)", "to - 1 is out of bounds for u"),
    ("L.randint(-5, 3, (2,), dtype=L.uint8)", "from is out of bounds for u"),
    ("L.randint(3, (2,), requires_grad=True)", "Only Tensors of floating point and complex dtype"),
    ("L.randint(3, (2,), dtype=L.complex64)", "check_random_bounds handles only integral"),
    ("L.randperm(-1)", "Trying to create tensor with negative dimension -1: [-1]"),
    ("L.randperm(300, dtype=L.uint8)", "value cannot be converted to type uint8"),
    ("L.bernoulli(L.tensor([1.5]))", "Expected p_in >= 0 && p_in <= 1 to be true"),
    ("L.bernoulli(L.tensor([float('nan')]))", "Expected p_in >= 0 && p_in <= 1 to be true"),
    ("L.bernoulli(i)", "\"bernoulli_tensor_cpu_p_\" not implemented for 'Long'"),
    ("L.bernoulli(x, 1.5)", "bernoulli_ expects p to be in [0, 1], but got p=1.5"),
    ("L.normal(0.0, 1.0)", "normal() received an invalid combination of arguments"),
    ("L.normal(x, -1.0)", "normal expects std >= 0.0, but found std -1"),
    ("L.normal(x, -L.ones(3))", "normal expects all elements of std >= 0.0"),
    ("L.multinomial(L.ones(3), 5)", "cannot sample n_sample > prob_dist.size(-1) samples without replacement"),
    ("L.multinomial(L.zeros(2), 1)", "invalid multinomial distribution (sum of probabilities <= 0)"),
    ("L.multinomial(-L.ones(2), 1)", "probability tensor contains either `inf`, `nan` or element < 0"),
    ("L.multinomial(L.ones(2) / 0, 1)", "probability tensor contains either `inf`, `nan` or element < 0"),
    ("L.multinomial(L.tensor([1, 1]), 1)", "multinomial only supports floating-point dtypes for input, got: Long"),
    ("L.multinomial(L.ones(2), 0)", "cannot sample n_sample <= 0 samples"),
    ("L.multinomial(L.ones(2, 2, 2), 1)", "prob_dist must be 1 or 2 dim"),
    ("L.poisson(L.tensor([-1.0]))", "invalid Poisson rate, expected rate to be non-negative"),
    ("L.poisson(i)", "\"poisson_cpu\" not implemented for 'Long'"),
    ("x.uniform_(2, 1)", "uniform_ expects to return a [from, to) range, but found from=2 > to=1"),
    ("x.uniform_(0, float('inf'))", "to is out of bounds for float"),
    ("x.exponential_(0.0)", "exponential_ expects lambda > 0.0, but found lambda=0"),
    ("i.exponential_()", "dtype must be a floating point but you specified Long"),
    ("x.cauchy_(0, -1)", "cauchy_ expects sigma > 0.0, but found sigma=-1"),
    ("x.log_normal_(0, -1)", "log_normal_ expects std > 0.0, but found std=-1"),
    ("x.geometric_(0)", "geometric_ expects p to be in (0, 1), but got p=0"),
    ("x.random_(5, 3)", "random_ expects 'from' to be less than 'to', but got from=5 >= to=3"),
    ("L.ones(2, dtype=L.complex64).random_()", "\"random_kernel_cpu\" not implemented for 'ComplexFloat'"),
]


@pytest.mark.torch
@pytest.mark.parametrize(("expression", "words"), ERRORS)
def test_errors_as_in_torch(torch: ModuleType, expression: str, words: str) -> None:
    assert_same_error_as_torch(expression, words, torch)


def test_too_few_categories_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="not enough non-negative category to sample"):
        ut.multinomial(ut.tensor([0.0, 1.0, 0.0]), 2)


@pytest.mark.torch
def test_bounds_have_pytorchs_names() -> None:
    """`from` is no name of a parameter in Python, and neither it nor `to` was taken."""
    import torch

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("uniform_", (), {"from": 3.0, "to": 4.0}), ("uniform_", (), {"to": 0.1}), ("uniform_", (2,), {"to": 3}),
        ("uniform_", (), {"from": 0.5}), ("random_", (), {"to": 5}), ("random_", (), {"from": 1, "to": 3}),
        ("random_", (1,), {"to": 3}),
    ]  # fmt: skip
    for name, bounds, named in calls:
        found = []
        for L in (ut, torch):
            L.manual_seed(0)
            found.append(getattr(L.ones(3), name)(*bounds, **named).tolist())
        assert found[0] == found[1]
    for name, bounds, named in (
        ("uniform_", (1, 2), {"from": 1}),
        ("random_", (), {"from": 3}),
        ("random_", (), {"low": 1}),
    ):
        with pytest.raises(TypeError, match="from"):
            getattr(ut.ones(3), name)(*bounds, **named)
