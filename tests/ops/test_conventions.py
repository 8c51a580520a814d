"""Small conventions of PyTorch's that programs lean on: gradients at odd points, copies, types, refusals."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.torch

NAN = float("nan")


def slope(L: Any, f: Callable[[Any], Any], values: list[float]) -> list[float]:
    x = L.tensor(values, dtype=L.float64, requires_grad=True)
    found: list[float] = L.autograd.grad(f(x).sum(), x)[0].tolist()
    return found


def keeps_memory(f: Callable[[Any], Any], x: Any) -> bool:
    return bool(f(x).data_ptr() == x.data_ptr())


def with_attribute(x: Any) -> int:
    x.foo = 1
    return int(x.foo)


def shifted_onto_itself(L: Any) -> Any:
    x = L.ones(4)
    return x[1:].add_(x[:-1])


VALUES: dict[str, Callable[[Any], Any]] = {
    "the slope of a power of zero": lambda L: slope(L, lambda x: L.pow(x, L.tensor(0.0)), [5e-324, NAN, 0.0, 2.0]),
    "the sign of nan": lambda L: L.sign(L.tensor([NAN, -0.0, 0.0])).tolist(),
    "the slope of abs": lambda L: slope(L, L.abs, [NAN, -0.0, 0.0]),
    "the angle of minus zero": lambda L: L.angle(L.tensor([-0.0, 0.0, NAN])).tolist(),
    "sinc in half precision": lambda L: L.sinc(L.arange(-4, 4, 0.3, dtype=L.float16)).tolist(),
    "no differences": lambda L: keeps_memory(lambda x: L.diff(x, n=0), L.ones(3)),
    "pixels shuffled by one": lambda L: keeps_memory(lambda x: L.pixel_shuffle(x, 1), L.ones(1, 1, 2, 2)),
    "a sum to the same size": lambda L: keeps_memory(lambda x: x.sum_to_size(3), L.ones(3)),
    "several gradients": lambda L: type(L.gradient(L.ones(3))).__name__,
    "powers of ten as integers": lambda L: L.logspace(0, 3, 7, dtype=L.int64).tolist(),
    "a product of masked truths": lambda L: str(L.masked.prod(L.tensor([True, False]), 0).dtype).split(".")[1],
    "a sum of truths": lambda L: str(L.ones(2, 3, dtype=L.bool).sum_to_size(1, 3).dtype).split(".")[1],
    "an attribute of one's own": lambda L: with_attribute(L.ones(2)),
    "a variance for each row": lambda L: L.nn.functional.gaussian_nll_loss(
        L.ones(3, 2), L.zeros(3, 2), L.full((3, 1), 2.0)
    ).item(),
    "empty tensors are close": lambda L: L.testing.assert_close(L.zeros(0), L.zeros(0)),
    "an option of NumPy's": lambda L: str(L.nn.functional.softplus(L.ones(2), beta=np.log(2)).dtype).split(".")[1],
    "values beside gradients": lambda L: [
        t.requires_grad for t in L.func.vmap(L.func.grad_and_value(lambda x: (x * x).sum()), chunk_size=2)(L.ones(4, 2))
    ],
    "what is returned beside a gradient": lambda L: [
        t.requires_grad for t in L.func.vmap(L.func.grad(lambda x: ((x * x).sum(), x * 2), has_aux=True))(L.ones(4, 2))
    ],
    "a product of truths": lambda L: L.addr(*[L.ones(s, dtype=L.bool) for s in ((2, 2), 2, 2)], alpha=2).tolist(),
    "batches of ranges": lambda L: L.vmap(lambda n: L.linspace(n, n + 1, 3))(L.tensor([0.0, 1.0])).tolist(),
    "batches of masked variances": lambda L: L.vmap(lambda x: L.masked.var(x, unbiased=True, dim=0))(
        L.arange(6.0).reshape(2, 3)
    ).tolist(),
    "batches of pools undone": lambda L: L.vmap(lambda x, i: L.nn.functional.max_unpool1d(x, i, 2))(
        L.ones(2, 1, 2), L.tensor([[[0, 2]], [[1, 3]]])
    ).tolist(),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", VALUES)
def test_values(torch: ModuleType, name: str) -> None:
    np.testing.assert_equal(VALUES[name](ut), VALUES[name](torch))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "Lower bound should be less than or equal to": lambda L: L.rrelu(L.ones(2), lower=0.3, upper=0.1),
    "batch_first should be of type bool, got: str": lambda L: L.nn.LSTM(3, 5, batch_first="False"),
    "eps must be positive during training, but got -1": lambda L: L.nn.BatchNorm1d(2, eps=-1.0)(L.ones(3, 2)),
    "ignore_index is not supported for floating point target": lambda L: L.nn.functional.cross_entropy(
        L.ones(2, 3), L.ones(2, 3) / 3, ignore_index=1
    ),
    "indices to be same": lambda L: L.nn.functional.max_unpool2d(
        L.ones(1, 1, 2, 2), L.zeros(1, 1, 2, 3, dtype=L.int64), 2
    ),
    "N must be greater than 1": lambda L: L.linalg.vander(L.tensor(2.0)),
    "var is of incorrect size": lambda L: L.nn.functional.gaussian_nll_loss(L.ones(3, 2), L.zeros(3, 2), L.ones(2)),
    "weight should have at least three dimensions": lambda L: L.nn.functional.conv2d(L.ones(1, 1, 3, 3), L.ones(3, 3)),
    "'weight' must be 2-D": lambda L: L.nn.functional.embedding(L.tensor([0]), L.tensor(1.0)),
    "some elements of the input tensor and": shifted_onto_itself,
    "binomial": lambda L: slope(L, lambda p: L.binomial(L.ones(2, dtype=L.float64), p), [0.5, 0.5]),
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(L: ModuleType, words: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=words):
        REFUSED[words](L)
