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
        return str(value.dtype).rpartition(".")[2], tuple(value.shape), value.tolist()
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


def functions(lib: Any) -> Any:
    return lib.nn.functional


#: what both libraries refuse, with the same kind of error
REFUSED: dict[str, Any] = {
    "places of another shape": lambda t: functions(t).max_unpool2d(
        t.ones(1, 1, 4, 4), t.zeros(1, 1, 4, 1, dtype=t.int64), 2
    ),
    "a word for a truth value": lambda t: t.nn.LSTM(3, 5, batch_first="False"),
    "a number for a truth value": lambda t: t.nn.GRU(3, 5, bias=1),
    "ignore_index of probabilities": lambda t: functions(t).cross_entropy(t.ones(2, 3), t.ones(2, 3), ignore_index=1),
    "eps in training": lambda t: t.nn.BatchNorm1d(3, eps=-1.0)(t.ones(2, 3)),
    "eps of zero in training": lambda t: functions(t).batch_norm(t.ones(2, 3), None, None, training=True, eps=0.0),
    "eps": lambda t: functions(t).batch_norm(t.ones(2, 3), t.zeros(3), t.ones(3), eps=-1.0),
    "slopes in the wrong order": lambda t: functions(t).rrelu(t.ones(2), 0.3, 0.1),
    "slopes that are none": lambda t: functions(t).rrelu(t.ones(2), float("nan"), 0.1),
    "a vector of kernels": lambda t: functions(t).conv1d(t.ones(1, 2, 3), t.ones(2)),
    "a matrix of kernels": lambda t: functions(t).conv1d(t.ones(1, 2, 3), t.ones(2, 2)),
    "kernels of too few dimensions": lambda t: functions(t).conv2d(t.ones(1, 2, 4, 4), t.ones(1, 2, 2)),
    "kernels of too many dimensions": lambda t: functions(t).conv2d(t.ones(1, 2, 4, 4), t.ones(1, 2, 2, 2, 2)),
    "transposed kernels": lambda t: functions(t).conv_transpose2d(t.ones(1, 2, 4, 4), t.ones(2, 1, 2)),
    "a number as table": lambda t: functions(t).embedding(t.tensor([0]), t.tensor(1.0)),
    "a list as table": lambda t: functions(t).embedding(t.tensor([0]), [[1.0, 2.0]]),
    "a list of indices": lambda t: functions(t).embedding([0], t.ones(2, 2)),
    "set_ to a number": lambda t: t.ones(2).set_(3),
    "a list of targets": lambda t: functions(t).multi_margin_loss(t.ones(2, 3), [0, 1]),
    "weights of two dimensions": lambda t: functions(t).multi_margin_loss(
        t.ones(2, 3), t.tensor([0, 1]), weight=t.ones(2, 2)
    ),
    "an unknown reduction": lambda t: functions(t).multi_margin_loss(t.ones(2, 3), t.tensor([0.0, 1]), reduction="abc"),
    "a list of boundaries": lambda t: t.bucketize(1.5, [0.0, 1.0]),
    "no boundaries": lambda t: t.bucketize(t.tensor([1.0]), None),
    "two learning rates": lambda t: t.optim.SGD([t.ones(2, requires_grad=True)], lr=t.tensor([0.1, 0.2])),
    "a dimension to roll along": lambda t: t.roll(t.tensor(1.0), 1, 0),
    "a power beyond 64 bits": lambda t: t.matrix_power(t.eye(2), 2**70),
    "a shift beyond 64 bits": lambda t: t.ones(3).roll(2**65),
    "turns beyond 64 bits": lambda t: t.ones(2, 2).rot90(-(2**65)),
    "differences beyond 64 bits": lambda t: t.diff(t.ones(3), 2**65),
    "a size beyond 64 bits": lambda t: t.eye(2**63),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_both_refuse(torch: ModuleType, name: str) -> None:
    with pytest.raises(Exception) as wanted:
        REFUSED[name](torch)
    with pytest.raises(wanted.type):
        REFUSED[name](ut)


#: functions of a tensor and a dimension
ALONG: dict[str, Any] = {
    **{name: getattr(ut, name) for name in "sum mean max min var std softmax log_softmax sort argsort cumsum".split()},
    **{name: getattr(ut, name) for name in "amax argmax prod logsumexp unbind unsqueeze squeeze flip".split()},
    "several": lambda x, dim: x.sum((0, dim)),
    "topk": lambda x, dim: x.topk(1, dim),
    "cat": lambda x, dim: ut.cat([x, x], dim),
    "stack": lambda x, dim: ut.stack([x, x], dim),
}


@pytest.mark.parametrize("name", ALONG)
def test_a_dimension_beyond_64_bits_is_none(name: str) -> None:
    for dim in (2**65, -(2**65), 2**64 - 1):
        with pytest.raises(IndexError, match="Dimension out of range"):
            ALONG[name](ut.ones(2, 3), dim)


def test_nothing_is_close_to_nothing() -> None:
    ut.testing.assert_close(ut.empty(0), ut.empty(0))
    ut.testing.assert_close(ut.empty(2, 0), ut.empty(2, 0))
    with pytest.raises(AssertionError, match="shape"):
        ut.testing.assert_close(ut.empty(0), ut.empty(0, 2))


def test_results_written_to_given_tensors() -> None:
    assert functions(ut).avg_pool2d(ut.ones(1, 4, 4), 2, out=ut.empty(0)).tolist() == [[[1, 1], [1, 1]]]
    assert functions(ut).avg_pool3d(ut.ones(1, 2, 2, 2), 2, out=ut.empty(0)).tolist() == [[[[1]]]]
    out = ut.scatter_reduce(ut.ones(2), 0, ut.tensor([0, 1]), ut.ones(2), "sum", out=ut.empty(0))
    assert out.tolist() == [2, 2]
    places = ut.empty(0), ut.empty(0), ut.empty(0, dtype=ut.int64), ut.empty(0)
    assert ut.linalg.lstsq(ut.eye(2), ut.ones(2, 1), out=places).solution is places[0]
    assert places[0].flatten().tolist() == pytest.approx([1, 1])
