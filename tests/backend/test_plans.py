"""Plans of simulated kernels: the arrays they promise are those that NumPy makes, and nothing else is promised."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from undertow.backend.cpu import sum_to
from undertow.backend.simulated.plans import filling, plan

RNG = np.random.default_rng(0)


def layouts(*shape: int) -> list[Any]:
    """Arrays of one shape that lie in memory in different ways."""
    turned = RNG.random(shape[::-1]).T
    holes = RNG.random((*shape[:-1], 2 * shape[-1]))[..., ::2]
    swapped = np.moveaxis(RNG.random((shape[-1], *shape[:-1])), 0, -1)
    return [RNG.random(shape), turned, holes, swapped, np.broadcast_to(RNG.random(shape[-1]), shape), turned[::-1]]


def check(function: Any, *args: Any, **kwargs: Any) -> None:
    """The plan's targets have NumPy's shapes, dtypes and strides, and its call gives them NumPy's values."""
    expected = function(*args, **kwargs)
    found = plan(function, args, kwargs)
    assert found is not None
    found.call()
    results = expected if isinstance(expected, tuple) else (expected,)
    assert len(results) == len(found.targets) == found.returns
    for target, result in zip(found.targets, results, strict=True):
        result = np.asarray(result)
        assert (target.shape, target.dtype) == (result.shape, result.dtype)
        assert steps(target) == steps(result)
        assert np.array_equal(target, result, equal_nan=True)
        assert target.base is None


def steps(array: Any) -> list[int]:
    """The strides that matter."""
    return [stride for n, stride in zip(array.shape, array.strides, strict=True) if n > 1 and array.size]


UFUNCS = [np.add, np.true_divide, np.maximum, np.less, np.arctan2, np.divmod, np.hypot]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1), (5,)], ids=str)
def test_ufuncs_of_two_arrays(ufunc: Any, shape: tuple[int, ...]) -> None:
    for a, b in product(layouts(*shape), layouts(*shape)):
        check(ufunc, a, b)


OTHERS = [2, 2.5, True, np.float32(1.5), np.float64(3), np.ones(3, np.int8), np.ones((4, 1), np.float16), 1j]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "i1", "i8", "u2", "?"])
def test_promotion(dtype: str) -> None:
    for other in OTHERS:
        check(np.multiply, np.ones((4, 3), dtype), other)
        check(np.add, other, np.ones(3, dtype))
        if type(other) is not bool:
            check(np.where, np.array([True, False, True]), np.ones((4, 3), dtype), other)


def test_ufuncs_of_one_array() -> None:
    for a in layouts(2, 3, 4):
        check(np.sin, a)
        check(np.isnan, a)
        check(np.modf, a)
        check(np.conjugate, a + 1j)
        check(np.absolute, a + 1j)
    check(np.exp, np.array(2.0))
    check(np.exp, np.zeros((0, 3)))


REDUCTIONS = [np.sum, np.prod, np.max, np.min, np.mean, np.any, np.all, np.add.reduce, np.maximum.reduce,
              np.ndarray.sum, np.ndarray.max]  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=[str(k) for k in range(len(REDUCTIONS))])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "c8", "?"])
def test_reductions(reduction: Any, dtype: str) -> None:
    x = (10 * RNG.random((2, 3, 4))).astype(dtype)
    for axis in (None, 0, -1, (0, 2), (1,), ()):
        check(reduction, x, axis=axis)
        check(reduction, x, axis=axis, keepdims=True)
    check(reduction, x)
    check(reduction, x.T, axis=(0, 1))


def test_a_reduction_with_a_dtype() -> None:
    check(np.sum, np.ones((2, 3), np.float32), axis=1, dtype=np.float64)
    check(np.add.reduce, np.ones((2, 3), np.int8), 1, dtype=np.int8)


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,))], ids=str)
def test_products(shapes: Any) -> None:
    a, b = [RNG.random(shape) for shape in shapes]
    for function in (np.matmul, np.dot):
        check(function, a, b)
        check(function, np.asfortranarray(a), np.asfortranarray(b))
    check(np.matmul, a.astype("f4"), b)


def test_products_of_stacks() -> None:
    a, b = RNG.random((2, 3, 4)), RNG.random((2, 4, 5))
    for x, y in product([a, RNG.random((2, 4, 3)).swapaxes(1, 2)], [b, RNG.random((2, 5, 4)).swapaxes(1, 2), b[:1]]):
        check(np.matmul, x, y)
    check(np.matmul, RNG.random((5, 1, 3, 4)), b)


def test_copies_and_casts() -> None:
    for a in layouts(2, 3, 4):
        for order in "CFK":
            check(np.ndarray.copy, a, order=order)
            check(np.ndarray.astype, a, np.float32, order=order)
        check(np.copy, a)
        check(np.ndarray.copy, a)
        check(np.ndarray.astype, a, "i4")
        check(np.array, a, None)
        check(np.ones_like, a)
        check(np.zeros_like, a, dtype=np.int8)
        check(np.full_like, a, 3, shape=(2, 2))
        check(sum_to, a, (4,))
    check(sum_to, np.ones((2, 3, 4)), (3, 1))


def test_new_arrays_and_joined_ones() -> None:
    check(np.zeros, (2, 3))
    check(np.ones, 4, np.int8)
    check(np.ones, (2,), dtype=bool)
    check(np.full, (2, 3), 7)
    check(np.full, (2,), 7.5, dtype=np.float32)
    check(np.full, (2,), 1 + 2j)
    a, b = np.ones((2, 3)), np.zeros((2, 3), np.float32)
    for axis in (0, 1, -1):
        check(np.concatenate, [a, b], axis=axis)
        check(np.stack, (a, b), axis)
    check(np.concatenate, [a, np.zeros((4, 3))])


# ---- changes


def check_change(function: Callable[..., Any], target: Any, *args: Any, **kwargs: Any) -> None:
    expected = target.copy(order="K")
    function(expected, *args, **kwargs)
    found = plan(function, (target, *args), kwargs)
    assert found is not None and found.targets == []
    found.call()
    assert np.array_equal(target, expected)


def test_changes_in_place() -> None:
    for index in (0, (1, 2), slice(None), (slice(0, 1), None), (..., 1), (), np.int64(1)):
        check_change(np.ndarray.__setitem__, np.zeros((2, 3)), index, 4)
    check_change(np.ndarray.__setitem__, np.zeros((2, 3)), (slice(None), 1), np.arange(2))
    check_change(np.ndarray.__setitem__, np.zeros((2, 3), np.int8), 0, np.array([1.5, 2.5, 3.5]))
    check_change(np.ndarray.fill, np.zeros(3), 2)
    check_change(np.copyto, np.zeros((2, 3)), np.arange(3))
    x = np.arange(6.0).reshape(2, 3)
    found = plan(np.add, (x, 1), {"out": (x,)})
    assert found is not None and found.returns == 1
    found.call()
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_overlapping_changes() -> None:
    x = np.arange(5.0)
    expected = x.copy()
    expected[1:] = expected[:-1].copy()
    found = plan(np.ndarray.__setitem__, (x, slice(1, None), x[:-1]), {})
    assert found is not None
    found.call()
    assert np.array_equal(x, expected)


# ---- what is left to NumPy, which may raise


def frozen() -> Any:
    x = np.zeros(3)
    x.setflags(write=False)
    return x


X, I8 = np.zeros((2, 3)), np.zeros(3, np.int8)
WITHOUT_PLAN = {
    "shapes that do not fit": (np.add, (X, np.zeros(2)), {}),
    "a number out of range": (np.add, (I8, 300), {}),
    "a negative power": (np.power, (I8, I8), {}),
    "a cast that is not allowed": (np.add, (I8, 1.5), {"out": (I8,)}),
    "a result that does not fit": (np.add, (X, X), {"out": (np.zeros(3),)}),
    "an array that cannot be written": (np.add, (frozen(), 1), {"out": (frozen(),)}),
    "a mask": (np.ndarray.__getitem__, (X, X > 0), {}),
    "a list of indices": (np.ndarray.__setitem__, (X, [0, 1], 1.0), {}),
    "a truth value as an index": (np.ndarray.__setitem__, (X, True, 1.0), {}),
    "an index out of range": (np.ndarray.__setitem__, (X, 5, 1.0), {}),
    "nan for an integer": (np.ndarray.__setitem__, (I8, 0, float("nan")), {}),
    "a complex number for a real one": (np.ndarray.fill, (X, 1j), {}),
    "a value that is too large": (np.ndarray.__setitem__, (X, 0, np.zeros(4)), {}),
    "the largest of nothing": (np.max, (np.zeros((0, 3)),), {}),
    "an axis that is not there": (np.sum, (X,), {"axis": 2}),
    "a product of the wrong sizes": (np.matmul, (X, X), {}),
    "objects": (np.add, (np.array([None]), 1), {}),
    "where with one argument": (np.where, (X,), {}),
    "parts of different sizes": (np.concatenate, ([X, np.zeros((2, 2))],), {}),
    "a sum into an array": (np.sum, (X,), {"out": np.zeros(())}),
    "only some places": (np.add, (X, X), {"where": X > 0}),
    "a function that is not known": (np.linalg.norm, (X,), {}),
}  # fmt: skip


@pytest.mark.parametrize("call", WITHOUT_PLAN.values(), ids=WITHOUT_PLAN)
def test_no_plan_where_numpy_must_be_asked(call: Any) -> None:
    assert plan(*call) is None


def test_a_function_that_gives_something_else_than_planned_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"was expected to give float64 \[2\], and gave float64 \[3\]"):
        filling(np.ones, (3,), {}, (2,), np.float64).call()
