"""Functions that look for places, and those made of a few kernels: NumPy's results, without the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cuda

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 6))
X[X < -0.5] = 0
SORTED = np.array([-1.0, 0.0, 0.0, 0.5, 2.0, np.nan])
ODD = np.array([np.nan, 2.0, np.inf, -np.inf, 0.5, np.nan, 2.0, -0.0, 0.0, np.inf])
COUNTS = RNG.integers(0, 7, 50)

CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    ("nonzero", lambda put: np.nonzero(put(X))),
    ("nonzero of a mask", lambda put: np.nonzero(put(X > 0))),
    ("nothing", lambda put: np.nonzero(put(np.zeros((3, 2))))),
    ("argwhere", lambda put: np.argwhere(put(X))),
    ("flatnonzero", lambda put: np.flatnonzero(put(X))),
    ("masked", lambda put: put(X)[put(X > 0)]),
    ("rows by a mask", lambda put: put(X)[put(np.array([True, False, True, True]))]),
    ("searchsorted", lambda put: np.searchsorted(put(SORTED), put(np.array([-2, 0, 0.3, np.nan, 9.0])))),
    ("to the right", lambda put: np.searchsorted(put(SORTED), put(np.array([[0.0, np.nan], [2, -1]])), side="right")),
    ("of integers", lambda put: np.searchsorted(put(np.arange(9)), put(COUNTS))),
    ("bincount", lambda put: np.bincount(put(COUNTS), minlength=10)),
    ("with weights", lambda put: np.bincount(put(COUNTS), put(RNG.integers(1, 9, 50).astype("f8") * 0 + 2.0))),
    ("round", lambda put: np.round(put(X), 2)),
    ("round to tens", lambda put: np.round(put(X * 100), -1)),
    ("sinc", lambda put: np.sinc(put(X))),
    ("angle", lambda put: np.angle(put(X - 1j * X[::-1]))),
    ("angle of real numbers", lambda put: np.angle(put(-X))),
    ("isclose", lambda put: np.isclose(put(ODD), put(ODD[::-1].copy() * (1 + 1e-6)))),
    ("nan is close to nan", lambda put: np.isclose(put(ODD), put(ODD + 1e-9), atol=1e-6, equal_nan=True)),
    ("close integers", lambda put: np.isclose(put(COUNTS), put(COUNTS[::-1].copy()), rtol=0.3)),
    ("close complex numbers", lambda put: np.isclose(put(X + 1j), put(X + 1.000001j))),
    ("unique", lambda put: np.unique(put(COUNTS))),
    ("unique, with inverse and counts", lambda put: np.unique(put(X), return_inverse=True, return_counts=True)),
    ("several nan", lambda put: np.unique(put(ODD), return_inverse=True, return_counts=True, equal_nan=False)),
    ("several nan as one", lambda put: np.unique(put(ODD), return_counts=True)),
    ("isin", lambda put: np.isin(put(X), put(X[1, :2].copy()))),
    ("not isin", lambda put: np.isin(put(COUNTS), put(np.array([9, 3, 3, 0])), invert=True)),
    ("nan isin nan", lambda put: np.isin(put(ODD), put(ODD))),
    ("isposinf", lambda put: np.isposinf(put(ODD))),
    ("isneginf", lambda put: np.isneginf(put(ODD))),
    ("trace", lambda put: np.trace(put(X), 1, 1, 2)),
    ("max from a number on", lambda put: np.max(put(-abs(X)), axis=1, initial=-0.25)),
    ("mean of complex numbers", lambda put: np.mean(put(X + 2j * X), axis=(0, 2))),
]


@pytest.fixture(autouse=True)
def not_on_the_host() -> Iterator[None]:
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in CALLS])
def test_functions_give_what_numpy_gives(call: Callable[[Any], Any]) -> None:
    space = cuda.namespace()
    wanted, found = call(lambda x: x), call(space.asarray)
    several = isinstance(wanted, tuple)
    for there, here in zip(found if several else (found,), wanted if several else (wanted,), strict=True):
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
        np.testing.assert_allclose(there.to_host(), here, rtol=1e-12)


def test_a_partition_has_its_elements_in_place() -> None:
    space = cuda.namespace()
    found = np.partition(space.asarray(X), 2, axis=1).to_host()
    np.testing.assert_array_equal(found[:, 2], np.partition(X, 2, axis=1)[:, 2])
    assert (found[:, :2] <= found[:, 2:3]).all() and (found[:, 3:] >= found[:, 2:3]).all()
