"""A seed gives the numbers that it gives in PyTorch: integers and fractions exactly, normal numbers up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows

pytestmark = pytest.mark.torch

EXACT: dict[str, Callable[[Any], Any]] = {
    "rand": lambda t: t.rand(3, 7),
    "rand double": lambda t: t.rand(5, dtype=t.float64),
    "rand half": lambda t: t.rand(50, dtype=t.float16),
    "rand complex": lambda t: t.view_as_real(t.rand(5, dtype=t.complex64)),
    "randint": lambda t: t.randint(10, (40,)),
    "randint from": lambda t: t.randint(-5, 5, (3, 4), dtype=t.int32),
    "randint wide": lambda t: t.randint(-(2**40), 2**60, (5,)),
    "randint float": lambda t: t.randint(0, 7, (5,), dtype=t.float32),
    "randperm": lambda t: t.randperm(100),
    "randperm of one": lambda t: t.randperm(1),
    "rand_like": lambda t: t.rand_like(t.zeros(4, 5)),
    "rand_like transposed": lambda t: t.rand_like(t.zeros(4, 5).t()),
    "randint_like": lambda t: t.randint_like(t.zeros(4, 5), 3),
    "uniform_": lambda t: t.empty(999).uniform_(-0.3, 0.7),
    "uniform_ double": lambda t: t.empty(99, dtype=t.float64).uniform_(-0.3, 0.7),
    "uniform_ transposed": lambda t: t.empty(4, 5).t().uniform_(-1, 1),
    "uniform_ slice": lambda t: t.zeros(4, 5)[:, 1:3].uniform_(2, 3),
    "bernoulli": lambda t: t.bernoulli(t.full((50,), 0.4)),
    "bernoulli double": lambda t: t.bernoulli(t.full((50,), 0.4, dtype=t.float64)),
    "bernoulli p": lambda t: t.bernoulli(t.zeros(50), 0.3),
    "bernoulli_": lambda t: t.empty(50).bernoulli_(0.3),
    "bernoulli_ of tensor": lambda t: t.empty(4, 5).bernoulli_(t.tensor([0.1, 0.3, 0.5, 0.7, 0.9])),
    "random_": lambda t: t.empty(9, dtype=t.int64).random_(),
    "random_ bytes": lambda t: t.empty(9, dtype=t.uint8).random_(),
    "random_ ints": lambda t: t.empty(9, dtype=t.int32).random_(),
    "random_ bools": lambda t: t.empty(9, dtype=t.bool).random_(),
    "random_ floats": lambda t: t.empty(9).random_(),
    "random_ doubles": lambda t: t.empty(9, dtype=t.float64).random_(),
    "random_ to": lambda t: t.empty(9).random_(6),
    "random_ from": lambda t: t.empty(9).random_(2, 6),
    "geometric_": lambda t: t.empty(99).geometric_(0.2),
    "multinomial": lambda t: t.multinomial(t.arange(20.0), 8),
    "multinomial once": lambda t: t.multinomial(t.tensor([[0.1, 0.2, 0.7], [3.0, 2.0, 1.0]]), 1),
    "multinomial again": lambda t: t.multinomial(t.arange(12.0).reshape(3, 4), 20, replacement=True),
    "dropout": lambda t: t.nn.functional.dropout(t.ones(5, 7), 0.3),
    "dropout transposed": lambda t: t.nn.functional.dropout(t.ones(5, 7).t(), 0.3),
    "dropout2d": lambda t: t.nn.functional.dropout2d(t.ones(5, 7, 2, 2), 0.3),
    "alpha_dropout": lambda t: t.nn.functional.alpha_dropout(t.ones(5, 7), 0.3, training=True) > 0,
    "after others": lambda t: (t.randn(3), t.rand(1), t.randn(20), t.randperm(3), t.rand(2))[-1],
    "another generator": lambda t: t.rand(3, generator=t.Generator()),
    "seeds": lambda t: t.rand(3, generator=t.Generator().manual_seed(-7)),
    "sampler": lambda t: t.tensor(list(t.utils.data.RandomSampler(range(9), num_samples=22))),
    "replacing sampler": lambda t: t.tensor(list(t.utils.data.RandomSampler(range(9), True, 70))),
    "weighted sampler": lambda t: t.tensor(list(t.utils.data.WeightedRandomSampler([1.0, 2.0, 3.0], 9))),
    "loader": lambda t: t.cat([b for _ in range(2) for b in t.utils.data.DataLoader(range(9), 2, shuffle=True)]),
    "split": lambda t: t.tensor(t.utils.data.random_split(range(20), [0.7, 0.3])[1].indices),
}

ROUNDED: dict[str, Callable[[Any], Any]] = {
    "randn": lambda t: t.randn(7, 9),
    "randn small": lambda t: t.cat([t.randn(n) for n in (1, 3, 2, 5)]),
    "randn double": lambda t: t.randn(33, dtype=t.float64),
    "randn half": lambda t: t.randn(33, dtype=t.float16),
    "randn complex": lambda t: t.view_as_real(t.randn(33, dtype=t.complex64)),
    "randn_like": lambda t: t.randn_like(t.zeros(4, 5)),
    "randn_like transposed": lambda t: t.randn_like(t.zeros(4, 5).t()),
    "normal": lambda t: t.normal(2.0, 3.0, (40,)),
    "normal of mean": lambda t: t.normal(t.arange(20.0), 3.0),
    "normal of std": lambda t: t.normal(1.0, t.arange(20.0)),
    "normal of both": lambda t: t.normal(t.arange(20.0), t.arange(20.0)),
    "normal_": lambda t: t.empty(99).normal_(2.0, 3.0),
    "normal_ small": lambda t: t.empty(9).normal_(2.0, 3.0),
    "normal_ slice": lambda t: t.zeros(9, 9)[:, 1:4].normal_(2.0, 3.0),
    "normal_ complex": lambda t: t.view_as_real(t.empty(20, dtype=t.complex128).normal_(1.0, 2.0)),
    "exponential_": lambda t: t.empty(20).exponential_(2.0),
    "cauchy_": lambda t: t.empty(20).cauchy_(1.0, 2.0),
    "log_normal_": lambda t: t.empty(20).log_normal_(1.0, 0.5),
    "xavier": lambda t: t.nn.init.xavier_normal_(t.empty(6, 7)),
    "truncated": lambda t: t.nn.init.trunc_normal_(t.empty(20, 20), std=1.5),
    "truncated far out": lambda t: t.nn.init.trunc_normal_(t.empty(20, 20), a=1.0, b=2.0),
    "orthogonal": lambda t: t.nn.init.orthogonal_(t.empty(6, 7)),
    "sparse": lambda t: t.nn.init.sparse_(t.empty(6, 7), 0.3),
    "gumbel": lambda t: t.nn.functional.gumbel_softmax(t.zeros(3, 8)),
    "Normal": lambda t: t.distributions.Normal(t.zeros(5), 2.0).sample((7,)),
    "Categorical": lambda t: t.distributions.Categorical(t.tensor([0.2, 0.3, 0.5])).sample((30,)),
    "Bernoulli": lambda t: t.distributions.Bernoulli(t.tensor([0.2, 0.3, 0.5])).sample((30,)),
    "Uniform": lambda t: t.distributions.Uniform(t.zeros(3), 2.0).sample((5,)),
    "Exponential": lambda t: t.distributions.Exponential(t.ones(3)).sample((5,)),
    "Laplace": lambda t: t.distributions.Laplace(t.zeros(3), 1.0).sample((5,)),
    "MultivariateNormal": lambda t: t.distributions.MultivariateNormal(t.zeros(3), 2 * t.eye(3)).sample((9,)),
}


class Changed:
    """Examples with random changes, drawn in the workers."""

    def __init__(self, library: ModuleType) -> None:
        self.library = library

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index + self.library.rand(1, dtype=self.library.float64), self.library.initial_seed()


def test_workers_draw_the_same_numbers(torch: ModuleType) -> None:
    def batches(library: ModuleType) -> list[Any]:
        library.manual_seed(3)
        loader = library.utils.data.DataLoader(Changed(library), batch_size=2, shuffle=True, num_workers=2)
        return [[part.tolist() for part in batch] for _ in range(2) for batch in loader]

    assert batches(ut) == batches(torch)
    assert ut.rand(1).item() == torch.rand(1).item()


def drawn(library: ModuleType, draw: Callable[[Any], Any], seed: int) -> np.ndarray:
    library.manual_seed(seed)
    return draw(library).numpy()


@rows("seed", [0, 2**40 + 11])
@rows("draw", EXACT.values(), ids=EXACT)
def test_the_same_bits(torch: ModuleType, draw: Callable[[Any], Any], seed: int) -> None:
    np.testing.assert_array_equal(drawn(ut, draw, seed), drawn(torch, draw, seed))
    assert ut.rand(1).item() == torch.rand(1).item()  # as many were drawn


@rows("seed", [1, 1234])
@rows("draw", ROUNDED.values(), ids=ROUNDED)
def test_the_same_numbers(torch: ModuleType, draw: Callable[[Any], Any], seed: int) -> None:
    mine, theirs = drawn(ut, draw, seed), drawn(torch, draw, seed)
    precision = {2: 2e-3, 4: 2e-6, 8: 1e-12}[mine.dtype.itemsize]
    np.testing.assert_allclose(mine, theirs, rtol=precision, atol=precision)
    assert ut.rand(1).item() == torch.rand(1).item()


def test_states_go_both_ways(torch: ModuleType) -> None:
    torch.manual_seed(5)
    torch.randn(3), torch.rand(7)
    ut.set_rng_state(ut.from_numpy(torch.get_rng_state().numpy()))
    assert ut.get_rng_state().tolist() == torch.get_rng_state().tolist() and ut.initial_seed() == 5
    ut.randn(2), ut.rand(700)
    torch.set_rng_state(torch.from_numpy(ut.get_rng_state().numpy()))
    assert torch.randn(1).item() == ut.randn(1).item() and torch.rand(3).tolist() == ut.rand(3).tolist()


def test_other_bytes_are_no_state() -> None:
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        ut.set_rng_state(ut.zeros(len(ut.get_rng_state()), dtype=ut.uint8))


LAYERS: dict[str, Callable[[Any], Any]] = {
    "Linear": lambda nn: nn.Linear(5, 7),
    "Bilinear": lambda nn: nn.Bilinear(3, 4, 5),
    "Conv1d": lambda nn: nn.Conv1d(4, 6, 3, groups=2),
    "Conv2d": lambda nn: nn.Conv2d(3, 4, 3),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(3, 4, 3),
    "Embedding": lambda nn: nn.Embedding(9, 4, padding_idx=2),
    "EmbeddingBag": lambda nn: nn.EmbeddingBag(9, 4),
    "RNN": lambda nn: nn.RNN(3, 4, 2),
    "LSTM": lambda nn: nn.LSTM(3, 4, 2, bidirectional=True),
    "LSTM with projection": lambda nn: nn.LSTM(3, 4, proj_size=2),
    "GRU": lambda nn: nn.GRU(3, 4),
    "LSTMCell": lambda nn: nn.LSTMCell(3, 4),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(8, 2),
    "MultiheadAttention of other sizes": lambda nn: nn.MultiheadAttention(8, 2, kdim=3, vdim=5, add_bias_kv=True),
    "TransformerEncoder": lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
    "Transformer": lambda nn: nn.Transformer(8, 2, 1, 2, 16, batch_first=True),
    "PReLU": lambda nn: nn.PReLU(),
    "AdaptiveLogSoftmaxWithLoss": lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10]),
    "weight_norm": lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)),
    "spectral_norm": lambda nn: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)),
    "old spectral_norm": lambda nn: nn.utils.spectral_norm(nn.Linear(4, 5)),
    "orthogonal": lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(4, 5)),
}


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_layers_begin_with_the_same_weights(torch: ModuleType, build: Callable[[Any], Any]) -> None:
    torch.manual_seed(3), ut.manual_seed(3)
    theirs, mine = build(torch.nn).state_dict(), build(ut.nn).state_dict()
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=2e-6, atol=2e-6, err_msg=name)
