"""The namespace of the Python array API standard, with gradients through it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.interop import array_api

X = ut.tensor([[1.0, 4.0], [2.0, 3.0]], requires_grad=True)


def standardize(x: Any) -> Any:
    """Written against the standard, for any library."""
    xp = x.__array_namespace__()
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)


def test_a_function_for_any_library_is_differentiated() -> None:
    array = np.array([[1.0, 4.0], [2.0, 3.0], [5.0, 1.0]])
    x = ut.tensor(array, requires_grad=True)
    np.testing.assert_allclose(standardize(x).detach().numpy(), standardize(array))
    (gradient,) = ut.autograd.grad(standardize(x)[0].sum(), x)
    for place in np.ndindex(array.shape):
        ends = [standardize(array + step * (np.arange(6).reshape(3, 2) == place[0] * 2 + place[1]))[0].sum()
                for step in (1e-6, -1e-6)]  # fmt: skip
        np.testing.assert_allclose(gradient[place].item(), (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-8)


CALLS = """
xp.sum(X, axis=0)  xp.prod(X)  xp.cumulative_sum(X, axis=1, include_initial=True)  xp.cumulative_prod(X, axis=0)
xp.clip(X, 1.5, 3.5)  xp.clip(X)  xp.where(X > 2, X, xp.zeros_like(X))  xp.concat([X, X], axis=1)  xp.sort(X, axis=1)
xp.matmul(X, X)  xp.tensordot(X, X)  xp.vecdot(X, X)  xp.linalg.inv(X)  xp.linalg.slogdet(X)  xp.linalg.svdvals(X)
xp.linalg.cross(xp.ones(3), xp.concat([X[0, ...], X[1, :1]]))  xp.linalg.vector_norm(X)  xp.fft.rfft(X)
xp.broadcast_to(X, (3, 2, 2))  xp.broadcast_arrays(X, xp.ones(2))  xp.meshgrid(X[0, ...], X[1, ...])
xp.astype(X, xp.float64)  xp.permute_dims(X, (1, 0))  xp.take_along_axis(X, xp.argsort(X, axis=1), axis=1)
xp.add(X, xp.ones((), dtype=xp.float64))  xp.pow(X, 2)  xp.atan2(X, X)  xp.logaddexp(X, X)  xp.unstack(X)
xp.sort(X, descending=True)  xp.reshape(X, (4,))  xp.roll(X, 1)  xp.tile(X, (2, 1))  xp.unique_values(X)
"""


@pytest.mark.parametrize("code", [c for line in CALLS.strip().splitlines() for c in line.split("  ")])
def test_results_require_grad(code: str) -> None:
    found = eval(code, {"xp": array_api, "X": X})
    tensors = found if isinstance(found, (list, tuple)) else [found]
    assert all(isinstance(t, ut.Tensor) for t in tensors) and any(t.requires_grad for t in tensors)


def test_dtypes_are_promoted_whatever_the_dimensions() -> None:
    single, double = ut.ones(2, dtype=ut.float32), ut.ones((), dtype=ut.float64)
    assert array_api.add(single, double).dtype == ut.float64
    assert (single + double).dtype == ut.float32  # PyTorch's rule
    assert array_api.result_type(single, double) == ut.float64
    assert array_api.sum(ut.ones(2, dtype=ut.uint8)).dtype == ut.uint64
    assert array_api.sum(ut.ones(2, dtype=ut.int8)).dtype == ut.int64


def test_what_the_namespace_says_of_itself() -> None:
    info = array_api.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == array_api.zeros(2).dtype == array_api.asarray(1.0).dtype
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert info.default_device() in info.devices() and info.capabilities()["boolean indexing"]
    assert array_api.finfo(ut.float32).eps == 2.0**-23 and array_api.iinfo(ut.int8).max == 127
    assert array_api.isdtype(ut.int8, "integral") and array_api.can_cast(ut.int8, ut.int16)
    assert array_api.pi == math.pi and array_api.newaxis is None


def test_versions() -> None:
    assert X.__array_namespace__(api_version="2023.12") is array_api
    with pytest.raises(ValueError, match="not of 1999"):
        X.__array_namespace__(api_version="1999")


def test_devices() -> None:
    assert X.to_device("cpu").requires_grad
    with pytest.raises(ValueError, match="stream"):
        X.to_device("cpu", stream=1)


def test_asarray() -> None:
    array = np.ones(2)
    shared, copied = array_api.asarray(array), array_api.asarray(array, copy=True)
    array[0] = 5
    assert shared.tolist() == [5, 1] and copied.tolist() == [1, 1]
    assert array_api.asarray(X) is X and array_api.asarray(X, copy=True).requires_grad
    for value, dtype in (([1.0], None), (X, ut.float64)):
        with pytest.raises(ValueError, match="copy"):
            array_api.asarray(value, dtype=dtype, copy=False)


def test_new_tensors() -> None:
    xp = array_api
    made = {"arange": xp.arange(3), "linspace": xp.linspace(0, 1, 3), "full": xp.full(2, 7), "eye": xp.eye(2, 3, k=1)}
    assert {name: t.tolist() for name, t in made.items()} == {
        "arange": [0, 1, 2], "linspace": [0, 0.5, 1], "full": [7, 7], "eye": [[0, 1, 0], [0, 0, 1]],
    }  # fmt: skip
    assert made["arange"].dtype == ut.int64 and made["linspace"].dtype == ut.float32
    likes = [xp.zeros_like(X), xp.ones_like(X), xp.full_like(X, 3), xp.empty_like(X)]
    assert not any(t.requires_grad for t in likes) and {t.shape for t in likes} == {(2, 2)}
    assert xp.fft.fftfreq(4).tolist() == [0, 0.25, -0.5, -0.25]
