"""Corners of single operations, each computed by both libraries: values, dtypes, kinds of results, shared memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut

pytestmark = pytest.mark.torch


def shares(function: Any, x: Any) -> bool:
    return function(x).data_ptr() == x.data_ptr()


def image(lib: Any) -> Any:
    return lib.arange(18.0).reshape(1, 2, 3, 3)


def saved_names(node: Any) -> list[str]:
    return [name for name in dir(node) if name.startswith("_saved")]


CORNERS: dict[str, Any] = {
    "logspace of integers": lambda lib: lib.logspace(0.3, 2.7, 5, dtype=lib.int32),
    "logspace of integers, base 2": lambda lib: lib.logspace(0, 1.5, 4, base=2, dtype=lib.int64),
    "linspace of integers": lambda lib: lib.linspace(0.5, 4.7, 4, dtype=lib.int64),
    "vander of one number": lambda lib: lib.linalg.vander(lib.tensor(2.0), N=3),
    "masked product of truth values": lambda lib: lib.masked.prod(lib.tensor([True, False]), dim=0),
    "masked product of a single truth value": lambda lib: lib.masked.prod(lib.tensor(True)),
    "sum_to_size of a single truth value": lambda lib: lib.tensor(True).sum_to_size(()),
    "sum_to_size, the same size": lambda lib: shares(lambda x: x.sum_to_size(2, 3), lib.ones(2, 3)),
    "sum_to_size, no dimensions": lambda lib: shares(lambda x: x.sum_to_size(()), lib.tensor(1.0)),
    "diff, no times": lambda lib: shares(lambda x: lib.diff(x, n=0), lib.ones(3)),
    "pixel_shuffle by 1": lambda lib: shares(lambda x: lib.pixel_shuffle(x, 1), image(lib)),
    "pixel_unshuffle by 1": lambda lib: shares(lambda x: lib.pixel_unshuffle(x, 1), image(lib)),
    "channel_shuffle of one group": lambda lib: shares(lambda x: lib.channel_shuffle(x, 1), image(lib)),
    "gradient": lambda lib: lib.gradient(lib.arange(4.0) ** 2),
    "gradient, spacing None": lambda lib: lib.gradient(lib.arange(4.0) ** 2, spacing=None),
    "pow by a number saves": lambda lib: saved_names(lib.ones(2, requires_grad=True).pow(2).grad_fn),
    "pow by a tensor saves": lambda lib: saved_names(lib.ones(2, requires_grad=True).pow(lib.ones(2)).grad_fn),
    "addr of truth values": lambda lib: lib.addr(
        lib.zeros(2, 2, dtype=lib.bool), lib.tensor([True, False]), lib.tensor([True, True]), alpha=2, beta=3
    ),
    "inverse of nothing": lambda lib: tuple(lib.linalg.inv_ex(lib.zeros(2, 0, 0))),
    "Cholesky factor of nothing": lambda lib: tuple(lib.linalg.cholesky_ex(lib.zeros(0, 0))),
    "LU of nothing": lambda lib: tuple(lib.linalg.lu_factor_ex(lib.zeros(0, 0))),
}


def described(value: Any) -> Any:
    """Whatever can be compared across libraries."""
    if isinstance(value, tuple | list):
        return type(value).__name__, [described(v) for v in value]
    if hasattr(value, "tolist"):
        return str(value.dtype).removeprefix("torch."), tuple(value.shape), value.tolist()
    return value


@pytest.mark.parametrize("name", CORNERS)
def test_corners(torch: ModuleType, name: str) -> None:
    assert described(CORNERS[name](ut)) == described(CORNERS[name](torch))


@pytest.mark.parametrize("which", [0, 1])
def test_binomial_has_no_derivative(torch: ModuleType, which: int) -> None:
    for lib in (ut, torch):
        leaves = [lib.tensor([3.0]), lib.tensor([0.5])]
        leaves[which].requires_grad_()
        out = lib.binomial(*leaves)
        assert out.requires_grad
        with pytest.raises(RuntimeError, match=r"derivative for .*binomial.* is not implemented"):  # or a kind of it
            out.sum().backward()
