"""What reductions, scans and sorting refuse, in PyTorch's words; and the named results they return."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows


class Refusal(NamedTuple):
    """A call (`ns` is undertow or torch) with a 2 x 3 tensor of floats, and the error it must raise."""

    call: Any
    error: type[Exception]
    words: str


RANGE = "Dimension out of range (expected to be in range of [-2, 1], but got 5)"
TWICE = "dim 0 appears multiple times in the list of dims"

REFUSALS = {
    **{
        f"{op}, dim": Refusal(lambda ns, x, op=op: getattr(ns, op)(x, dim=5), IndexError, RANGE)
        for op in (
            "sum",
            "mean",
            "prod",
            "nansum",
            "amax",
            "amin",
            "aminmax",
            "max",
            "min",
            "argmax",
            "any",
            "all",
            "var",
            "std",
            "median",
            "mode",
            "logsumexp",
            "count_nonzero",
            "cumsum",
            "cumprod",
            "cummax",
            "logcumsumexp",
            "sort",
            "argsort",
            "diff",
        )
    },
    **{
        f"{op}, dim twice": Refusal(lambda ns, x, op=op: getattr(ns, op)(x, dim=(0, -2)), RuntimeError, TWICE)
        for op in ("sum", "mean", "nansum", "amax", "any", "var", "logsumexp", "count_nonzero")
    },
    **{
        f"{op}, dims": Refusal(lambda ns, x, op=op: getattr(ns, op)(x, dim=(0, 1)), TypeError, "must be int, not tuple")
        for op in ("argmax", "median", "mode", "cumsum", "cummax", "aminmax")
    },
    "mean of integers": Refusal(
        lambda ns, x: ns.mean(x.long()),
        RuntimeError,
        "Input dtype must be either a floating point or complex dtype. Got: Long",
    ),
    "mean of bools": Refusal(lambda ns, x: ns.mean(x > 0, 1), RuntimeError, "Got: Bool"),
    "nanmean of integers": Refusal(
        lambda ns, x: ns.nanmean(x.int()),
        RuntimeError,
        "expected input to have floating point or complex dtype but got Int",
    ),
    "var of integers": Refusal(
        lambda ns, x: ns.var(x.long()),
        RuntimeError,
        "std and var only support floating point and complex dtypes",
    ),
    "std_mean of integers": Refusal(
        lambda ns, x: ns.std_mean(x.long()),
        RuntimeError,
        "std_mean only support floating point and complex dtypes",
    ),
    "norm of integers": Refusal(
        lambda ns, x: ns.norm(x.long()),
        RuntimeError,
        "linalg.vector_norm: Expected a floating point or complex tensor as input.",
    ),
    "norm of unknown order": Refusal(lambda ns, x: ns.norm(x, "foo"), RuntimeError, "Order foo not supported"),
    "logsumexp without dim": Refusal(lambda ns, x: ns.logsumexp(x, None), TypeError, "must be tuple of ints"),
    "amax of complex": Refusal(
        lambda ns, x: ns.amax(x + 0j), NotImplementedError, "not implemented for 'ComplexFloat'"
    ),
    "max of complex": Refusal(lambda ns, x: ns.max(x + 0j), NotImplementedError, "not implemented for 'ComplexFloat'"),
    "cummin of complex": Refusal(
        lambda ns, x: ns.cummin(x + 0j, 0), NotImplementedError, "not implemented for 'ComplexFloat'"
    ),
    "median of bools": Refusal(
        lambda ns, x: ns.median(x > 0), NotImplementedError, "\"median_cpu\" not implemented for 'Bool'"
    ),
    "sort of complex": Refusal(
        lambda ns, x: ns.sort(x + 0j), RuntimeError, "Sort does not support complex dtypes on CPU"
    ),
    "topk of bools": Refusal(lambda ns, x: ns.topk(x > 0, 1), RuntimeError, "topk does not support bool dtypes on CPU"),
    "argmax of bools": Refusal(lambda ns, x: ns.argmax(x > 0), RuntimeError, "argmax(): does not support bool input"),
    "logcumsumexp of integers": Refusal(
        lambda ns, x: ns.logcumsumexp(x.long(), 0),
        NotImplementedError,
        "\"logcumsumexp_out_cpu\" not implemented for 'Long'",
    ),
    "amax of nothing": Refusal(
        lambda ns, x: ns.amax(x[:0]),
        RuntimeError,
        "amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
        "reduction dim with the 'dim' argument.",
    ),
    "amax along nothing": Refusal(
        lambda ns, x: ns.amax(x[:0], 0), IndexError, "amax(): Expected reduction dim 0 to have non-zero size."
    ),
    "max of nothing": Refusal(lambda ns, x: ns.max(x[:0]), RuntimeError, "Expected reduction dim to be specified"),
    "min along nothing": Refusal(
        lambda ns, x: ns.min(x[:0], 0), IndexError, "min(): Expected reduction dim 0 to have non-zero size."
    ),
    "argmax of nothing": Refusal(lambda ns, x: ns.argmax(x[:0]), IndexError, "Expected reduction dim to be specified"),
    "aminmax of nothing": Refusal(
        lambda ns, x: ns.aminmax(x[:0]), RuntimeError, "cannot compute aminmax over an empty dimension"
    ),
    "mode along nothing": Refusal(
        lambda ns, x: ns.mode(x[:0], 0), IndexError, "mode(): Expected reduction dim 0 to have non-zero size."
    ),
    "norm inf of nothing": Refusal(
        lambda ns, x: ns.norm(x[:0], float("inf")),
        RuntimeError,
        "cannot compute the inf norm on an empty tensor",
    ),
    "topk too many": Refusal(lambda ns, x: ns.topk(x, 4), RuntimeError, "selected index k out of range"),
    "kthvalue too many": Refusal(
        lambda ns, x: ns.kthvalue(x, 4),
        RuntimeError,
        "kthvalue(): selected number k out of range for dimension 1",
    ),
    "kthvalue zero": Refusal(
        lambda ns, x: ns.kthvalue(x, 0, 0),
        RuntimeError,
        "kthvalue(): selected number k out of range for dimension 0",
    ),
    "diff of a number": Refusal(
        lambda ns, x: ns.diff(x[0, 0]), RuntimeError, "diff expects input to be at least one-dimensional"
    ),
    "diff backwards": Refusal(lambda ns, x: ns.diff(x, -1), RuntimeError, "order must be non-negative but got -1"),
    "diff, other ends": Refusal(
        lambda ns, x: ns.diff(x, prepend=x[0]),
        RuntimeError,
        "diff expects prepend or append to be the same dimension as input",
    ),
    "trapezoid, other places": Refusal(
        lambda ns, x: ns.trapezoid(x, x[:, 0]),
        RuntimeError,
        "There must be one `x` value for each sample point",
    ),
    "trapezoid of a number": Refusal(
        lambda ns, x: ns.trapezoid(x[0, 0]),
        IndexError,
        "Dimension specified as -1 but tensor has no dimensions",
    ),
    "trapezoid of bools": Refusal(
        lambda ns, x: ns.trapezoid(x > 0),
        RuntimeError,
        "received a bool input for `y`, but bool is not supported",
    ),
    "quantile beyond": Refusal(
        lambda ns, x: ns.quantile(x, 1.5),
        RuntimeError,
        "quantile() q must be in the range [0, 1] but got 1.5",
    ),
    "quantiles beyond": Refusal(
        lambda ns, x: ns.quantile(x, x[0] + 2),
        RuntimeError,
        "quantile() q values must be in the range [0, 1]",
    ),
    "quantile of integers": Refusal(
        lambda ns, x: ns.quantile(x.long(), 0.5),
        RuntimeError,
        "quantile() input tensor must be either float or double dtype",
    ),
    "quantile of nothing": Refusal(
        lambda ns, x: ns.quantile(x[:0], 0.5), RuntimeError, "quantile() input tensor must be non-empty"
    ),
    "quantile, other dtype": Refusal(
        lambda ns, x: ns.quantile(x, x[0].double()),
        RuntimeError,
        "quantile() q tensor must be same dtype as the input tensor",
    ),
    "quantile, q of two dims": Refusal(
        lambda ns, x: ns.quantile(x, x), RuntimeError, "quantile() q must be a scalar or 1D tensor"
    ),
    "quantile, interpolation": Refusal(
        lambda ns, x: ns.quantile(x, 0.5, interpolation="foo"),
        RuntimeError,
        "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got foo",
    ),
    "searchsorted, rows": Refusal(
        lambda ns, x: ns.searchsorted(x, x[0]),
        RuntimeError,
        "boundaries tensor should be 1 dimension or the first N-1 dimensions of",
    ),
    "searchsorted, number": Refusal(
        lambda ns, x: ns.searchsorted(x, 1.0),
        RuntimeError,
        "input value can be a scalar only when boundaries tensor dimension is 1",
    ),
    "searchsorted, side": Refusal(
        lambda ns, x: ns.searchsorted(x[0], x, side="up"),
        RuntimeError,
        "side can only be 'left' or 'right' but got up",
    ),
    "searchsorted, sides": Refusal(
        lambda ns, x: ns.searchsorted(x[0], x, side="left", right=True),
        RuntimeError,
        "side and right can't be set to opposites",
    ),
    "bucketize": Refusal(
        lambda ns, x: ns.bucketize(x, x),
        RuntimeError,
        "boundaries tensor must be 1 dimension, but got dim(2)",
    ),
    "unique of complex": Refusal(
        lambda ns, x: ns.unique(x + 0j), NotImplementedError, "\"unique\" not implemented for 'ComplexFloat'"
    ),
    "unique of nothing": Refusal(
        lambda ns, x: ns.unique(x[:0], dim=1),
        RuntimeError,
        "There are 0 sized dimensions, and they aren't selected",
    ),
    "bincount of floats": Refusal(
        lambda ns, x: ns.bincount(x[0]), NotImplementedError, "\"bincount_cpu\" not implemented for 'Float'"
    ),
    "bincount of a matrix": Refusal(
        lambda ns, x: ns.bincount(x.long()),
        RuntimeError,
        "bincount only supports 1-d non-negative integral inputs.",
    ),
    "bincount of negatives": Refusal(
        lambda ns, x: ns.bincount(x[0].long() - 5),
        RuntimeError,
        "bincount only supports 1-d non-negative integral inputs.",
    ),
    "bincount, weights": Refusal(
        lambda ns, x: ns.bincount(x[0].long(), x),
        RuntimeError,
        "weights should be 1-d and have the same length as input",
    ),
    "histc, range": Refusal(lambda ns, x: ns.histc(x, 4, min=3, max=1), RuntimeError, "max must be larger than min"),
    "histc, bins": Refusal(lambda ns, x: ns.histc(x, 0), RuntimeError, "bins must be > 0"),
    "histc of integers": Refusal(
        lambda ns, x: ns.histc(x.long()), NotImplementedError, "\"histogram_cpu\" not implemented for 'Long'"
    ),
    "histc, NaN": Refusal(lambda ns, x: ns.histc(x / 0), RuntimeError, "is not finite"),
    "cdist, columns": Refusal(
        lambda ns, x: ns.cdist(x, x[:, 1:]),
        RuntimeError,
        "X1 and X2 must have the same number of columns. X1: 3 X2: 2",
    ),
    "cdist of vectors": Refusal(
        lambda ns, x: ns.cdist(x[0], x), RuntimeError, "cdist only supports at least 2D tensors, X1 got: 1D"
    ),
    "cdist of integers": Refusal(
        lambda ns, x: ns.cdist(x.long(), x),
        RuntimeError,
        "cdist only supports floating-point dtypes, X1 got: Long",
    ),
    "cdist, negative p": Refusal(
        lambda ns, x: ns.cdist(x, x, -1.0), RuntimeError, "cdist only supports non-negative p values"
    ),
}

each = rows("refusal", REFUSALS.values(), ids=list(REFUSALS))


def check(ns: Any, refusal: Refusal) -> None:
    x = ns.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    with np.errstate(all="ignore"), pytest.raises(refusal.error, match=re.escape(refusal.words)):
        refusal.call(ns, x)


@each
def test_refusal(refusal: Refusal) -> None:
    check(ut, refusal)


@each
def test_refusal_is_that_of_pytorch(torch: ModuleType, refusal: Refusal) -> None:
    check(torch, refusal)


def test_unique_has_no_derivative_and_says_so() -> None:
    x = ut.tensor([1.0, 2.0, 1.0], requires_grad=True)
    with pytest.raises(NotImplementedError, match="the derivative for 'unique' is not implemented"):
        (ut.unique(x).sum() + x.sum()).backward()
    with pytest.raises(NotImplementedError, match="the derivative for 'unique_consecutive' is not"):
        ut.unique_consecutive(x).sum().backward()


def test_a_variance_is_either_unbiased_or_corrected() -> None:
    with pytest.raises(TypeError, match="either unbiased or correction"):
        ut.var(ut.ones(3), unbiased=False, correction=0)


# ---- named results


def test_named_results() -> None:
    x = ut.tensor([[1.0, 3.0], [4.0, 2.0]])
    found = ut.max(x, 1)
    values, indices = found
    assert found.values is values and found.indices is indices and found[1] is indices
    assert values.tolist() == [3.0, 4.0] and indices.tolist() == [1, 0]
    assert repr(found) == "undertow.return_types.max(\nvalues=tensor([3., 4.]),\nindices=tensor([1, 0]))"
    assert isinstance(found, tuple) and type(found)(found) == found
    assert ut.aminmax(x).max.item() == 4.0


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "mode", "cummax", "cummin", "sort"])
def test_every_name_is_its_own_type(name: str) -> None:
    found = getattr(ut, name)(ut.tensor([[1.0, 3.0], [4.0, 2.0]]), dim=1)
    assert type(found).__name__ == name
    assert found.values.shape == found.indices.shape


def test_two_tensors() -> None:
    x, y = ut.tensor([1.0, 4.0]), ut.tensor([3.0, 2.0])
    assert ut.max(x, y).tolist() == ut.max(x, other=y).tolist() == [3.0, 4.0]
    assert ut.min(x, y).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "amax", "amin", "logsumexp", "var", "std", "norm", "prod"])
def test_a_list_of_dimensions_may_be_changed_afterwards(name: str) -> None:
    x = ut.arange(24, dtype=ut.float64).reshape(2, 3, 4).requires_grad_()
    dims = [0, 2]
    out = getattr(ut, name)(x + 1, dim=dims)
    dims[:] = [1]
    (found,) = ut.autograd.grad(out.sum(), x)
    (expected,) = ut.autograd.grad(getattr(ut, name)(x + 1, dim=(0, 2)).sum(), x)
    assert found.tolist() == expected.tolist()
