"""Every operation under autocast: nearly the same values, and gradients of the dtype of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, cases, every

CASES = cases()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def single(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype({"f": np.float32, "c": np.complex64}.get(array.dtype.kind, array.dtype))


def distance(got: Any, wanted: Any) -> float:
    """The largest difference, as a share of the largest value; 0 where that is not finite."""
    if type(got) is not np.ndarray or type(wanted) is not np.ndarray or not wanted.size:
        return 0.0
    if got.dtype.kind not in "fc" or not np.isfinite(wanted).all():
        return 0.0
    largest = np.abs(wanted).max()
    return float(np.abs(got.astype(complex) - wanted.astype(complex)).max() / (largest + 1e-2))


@every(CASES)
def test_autocast_is_close(case: Case) -> None:
    arrays = [single(a) for a in case.arrays]
    plain = case.forward(arrays)
    with ut.autocast("cpu", dtype=ut.float16):
        result = case.forward(arrays)
    assert max([distance(np.asarray(a), np.asarray(b)) for a, b in zip(result, plain, strict=True)], default=0) < 3e-2
    if not case.differentiable:
        return
    wanted = case.gradient_at(arrays, [single(c) for c in case.cotangents])
    cotangents = [
        np.asarray(c).astype(np.asarray(out).dtype) if np.asarray(c).dtype.kind in "fc" else c
        for c, out in zip(case.cotangents, result, strict=False)  # indices, which come last, have none
    ]
    with ut.autocast("cpu", dtype=ut.float16):
        gradient = case.gradient_at(arrays, cotangents)
    for k, (got, expected) in enumerate(zip(gradient, wanted, strict=True)):
        assert np.asarray(got).dtype == np.asarray(expected).dtype, f"gradient {k}"
        assert distance(got, expected) < 6e-2, f"gradient {k}"
