"""Covariances and correlations of variables: matrices, of the rows of a matrix."""

from __future__ import annotations

import warnings
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.linalg.matmul import matmul
from undertow.ops.pointwise.arithmetic import mul, sub
from undertow.ops.pointwise.complex import complex as complex_of
from undertow.ops.pointwise.division import true_divide
from undertow.ops.pointwise.powers import sqrt
from undertow.ops.pointwise.where_clamp import clamp
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.ops.views.clone import to_dtype
from undertow.ops.views.dimensions import squeeze
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor


@composite(variants="function method")
@example_by_example
def cov(input: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None) -> Tensor:
    """The covariances of the rows of `input`, whose columns are observations.

    correction   what is subtracted from the number of observations
    fweights     how often each observation was made; aweights: how much it counts

    >>> import undertow as ut
    >>> ut.cov(ut.tensor([[0.0, 2.0], [1.0, 5.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    input = as_operand("cov", "input", input)
    _check_observations(input)
    rows = input if input.ndim == 2 else reshape(input, (1, -1))
    if not dtypes.is_differentiable(rows.dtype):
        rows = to_dtype(rows, dtypes.default_dtype())
    count = rows.shape[1]
    fweights = _observation_weights("fweights", fweights, count, "integral", "biu")
    aweights = _observation_weights("aweights", aweights, count, "floating point", "f")
    weights = aweights if fweights is None else fweights if aweights is None else mul(fweights, aweights)
    whole: Any = count if weights is None else sum_of(weights)
    if weights is not None and count and not float(whole._array):
        raise ZeroDivisionError("cov(): weights sum to zero, can't be normalized")
    weighted = rows if weights is None else mul(rows, weights)
    mean = true_divide(sum_of(weighted, 1, keepdim=True), whole)
    centred = sub(rows, mean)
    other = centred if weights is None else mul(centred, weights)
    products = matmul(centred, recorded.conj(recorded.swapaxes(other, 0, 1)))
    return squeeze(true_divide(products, _freedom(whole, correction, weights, aweights)))


def _check_observations(input: Array) -> None:
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    if input.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")


def _observation_weights(name: str, weights: Array | None, count: int, kind: str, kinds: str) -> Array | None:
    if weights is None:
        return None
    weights = as_operand("cov", name, weights)
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.ndim} dimensions"
        )
    if dtypes.kind_of(weights.dtype) not in kinds:
        found = dtypes.SCALAR_NAMES[weights.dtype]
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {found} dtype")
    size = weights._array.size
    if size != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {size} != "
            f"{count}"
        )
    if (weights._array < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")
    return weights


def _freedom(whole: Array, correction: int, weights: Array | None, aweights: Array | None) -> Any:
    """What the sums of products are divided by; 0 where there are too few observations."""
    if aweights is None or correction == 0:
        found = whole - correction
    else:
        found = whole - correction * sum_of(mul(weights, aweights)) / whole
    value = float(getattr(found, "_array", found))
    if value <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of "
                      "observations.", stacklevel=4)  # fmt: skip
        return 0.0
    return found


@composite(variants="function method")
def corrcoef(input: Array) -> Tensor:
    """The correlations of the rows of `input`: covariances divided by both standard deviations.

    >>> import undertow as ut
    >>> ut.corrcoef(ut.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    input = as_operand("corrcoef", "input", input)
    if input.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    covariances = cov(input)
    if covariances.ndim == 0:
        return true_divide(covariances, covariances)
    deviations = sqrt(recorded.real(recorded.diagonal(covariances)))
    ratios = true_divide(true_divide(covariances, reshape(deviations, (-1, 1))), reshape(deviations, (1, -1)))
    if ratios.dtype.kind == "c":
        return complex_of(clamp(recorded.real(ratios), -1, 1), clamp(recorded.imag(ratios), -1, 1))
    return clamp(ratios, -1, 1)
