"""repr(tensor), character for character as PyTorch prints it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.tensor.oracle import shown

DTYPES = ["f2", "f4", "f8", "c8", "c16", "i1", "i4", "i8", "u1", "?"]


@pytest.fixture(autouse=True)
def restored_options() -> Iterator[None]:
    before = ut.get_printoptions()
    yield
    ut.set_printoptions(**before)


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of many magnitudes, sometimes whole, sometimes with zeros, NaNs and infinities among them."""
    values = np.array(rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 10))
    if rng.random() < 0.3:
        values = np.round(values)
    where, special = rng.random(shape), rng.random()
    if special < 0.15:
        return np.where(where < 0.3, np.nan, values)
    if special < 0.3:
        return np.where(where < 0.3, np.inf, np.where(where < 0.5, -np.inf, values))
    return np.where(where < 0.5, 0, np.where(where < 0.7, -0.0, values)) if special < 0.5 else values


def random_array(rng: np.random.Generator) -> Any:
    small = rng.random() < 0.8
    shape = tuple(rng.integers(0, 6, rng.integers(0, 5)) if small else rng.integers(1, 60, rng.integers(1, 3)))
    dtype = np.dtype(str(rng.choice(DTYPES)))
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, 100, shape) * (10 ** rng.integers(0, 5) if dtype.itemsize > 1 else 1), dtype)
    values = numbers(rng, shape)
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            values = values + 1j * numbers(rng, shape)
        return np.asarray(values).astype(dtype)


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "precision": int(rng.integers(0, 8)),
        "threshold": int(rng.integers(0, 50)),
        "edgeitems": int(rng.integers(0, 4)),
        "linewidth": int(rng.integers(20, 120)),
        "sci_mode": [None, True, False][rng.integers(0, 3)],
    }


@pytest.mark.torch
@rows("seed", range(60))
def test_random_tensors_print_as_in_torch(torch: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = random_options(rng) if seed % 3 == 0 else {"profile": "default"}
    torch.set_printoptions(**options)
    ut.set_printoptions(**options)
    try:
        for _ in range(10):
            array = random_array(rng)
            requires_grad = array.dtype.kind in "fc" and rng.random() < 0.4
            expected = torch.from_numpy(array.copy()).requires_grad_(requires_grad)
            assert shown(ut.from_numpy(array).requires_grad_(requires_grad)) == shown(expected)
    finally:
        torch.set_printoptions(profile="default")


PRINTED = [
    (lambda: ut.tensor(1.5), "tensor(1.5000)"),
    (lambda: ut.tensor(3), "tensor(3)"),
    (lambda: ut.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: ut.tensor([True, False]), "tensor([ True, False])"),
    (lambda: ut.tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
    (lambda: ut.tensor([1 + 2j]), "tensor([1.+2.j])"),
    (lambda: ut.tensor([math.nan, 0.0]), "tensor([nan, 0.])"),
    (lambda: ut.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: ut.zeros(0, dtype=ut.int64), "tensor([], dtype=undertow.int64)"),
    (lambda: ut.ones(1, dtype=ut.float64), "tensor([1.], dtype=undertow.float64)"),
    (lambda: ut.ones(2, requires_grad=True), "tensor([1., 1.], requires_grad=True)"),
    (lambda: ut.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
    (lambda: ut.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (lambda: ut.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
]


@pytest.mark.parametrize(("make", "text"), PRINTED, ids=[text for _, text in PRINTED])
def test_it_prints(make: Any, text: str) -> None:
    assert repr(make()) == str(make()) == text


def test_a_history_that_cannot_be_told_is_invalid() -> None:
    from undertow.tensor.display import tensor_repr

    assert tensor_repr(ut.ones(1), grad_fn="Invalid") == "tensor([1.], grad_fn=<Invalid>)"


def test_a_subclass_prints_its_name() -> None:
    class Weight(ut.Tensor):
        pass

    assert repr(Weight(*[getattr(ut.ones(1), name) for name in ("_array", "_xp")])) == "Weight([1.])"


def test_the_default_dtype_is_not_shown() -> None:
    ut.set_default_dtype(ut.float64)
    try:
        assert repr(ut.ones(1, dtype=ut.float32)) == "tensor([1.], dtype=undertow.float32)"
        assert repr(ut.ones(1)) == "tensor([1.])"
        assert repr(ut.tensor([1j])) == "tensor([0.+1.j])"
    finally:
        ut.set_default_dtype(ut.float32)


def test_options_by_block() -> None:
    with ut.printoptions(precision=2, sci_mode=True):
        assert repr(ut.tensor([1.25])) == "tensor([1.25e+00])"
    assert repr(ut.tensor([1.25])) == "tensor([1.2500])"


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(ValueError, match="default, short, full"):
        ut.set_printoptions(profile="long")


def test_format() -> None:
    assert f"{ut.tensor(2.5):.2f}" == "2.50"
    assert f"{ut.tensor(3):05d}" == "00003"
    assert f"{ut.ones(1, requires_grad=True).sum():.1f}" == "1.0"
    assert f"{ut.tensor([1.0])}" == "tensor([1.])"
    with pytest.raises(TypeError, match=r"unsupported format string passed to Tensor\.__format__"):
        f"{ut.tensor([1.0]):.2f}"
