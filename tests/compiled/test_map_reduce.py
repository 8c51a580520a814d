"""Functions that map and reduce: losses over large arrays, evaluated and added up in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import ops
from undertow.backend import cpu
from undertow.backend.blocks import in_blocks
from undertow.compiled import core
from undertow.nn import functional as F

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

SHAPE = (211, 401)
REDUCTIONS = ("mean", "sum", "none")
LOSSES: dict[str, dict[str, Any]] = {
    "mse_loss": {},
    "l1_loss": {},
    "smooth_l1_loss": {"beta": 0.7},
    "huber_loss": {"delta": 0.7},
    "binary_cross_entropy": {},
    "binary_cross_entropy_with_logits": {},
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    ut.set_num_threads(ut.get_num_threads())


def uniform(seed: int, *shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(seed).uniform(0.01, 0.99, shape or SHAPE).astype(dtype)


def squares(xp: Any, x: Any, y: Any) -> Any:
    return xp.add.reduce((x - y) * (x - y), axis=None)


def mean_of_squares(xp: Any, x: Any, y: Any) -> Any:
    return squares(xp, x, y) / xp.size(x)


# ---- programs


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("size", [1, 31, 2048, 2049, 32_769, 100_001])
def test_sums_are_those_of_the_array(size: int, dtype: str) -> None:
    x, y = uniform(1, size, dtype=dtype), uniform(2, size, dtype=dtype)
    found = in_blocks(squares, reduces=True)(x, y)
    expected = (x.astype("d") - y) ** 2
    assert found.dtype == x.dtype and found.shape == ()
    np.testing.assert_allclose(found, expected.sum(), rtol=1e-6 if dtype == "f" else 1e-14)
    np.testing.assert_allclose(in_blocks(mean_of_squares, reduces=True)(x, y), expected.mean(), rtol=2e-6)
    if size > 2048:  # the same numbers in the same order as a sum of what is in memory
        assert found == ut.tensor((x - y) * (x - y)).sum().numpy()


def test_sums_do_not_depend_on_threads() -> None:
    function, x, y = in_blocks(squares, reduces=True), uniform(1, 700_001), uniform(2, 700_001)
    core.set_threads(1)
    expected = function(x, y)
    for number in (2, 3, 7):
        core.set_threads(number)
        assert function(x, y) == expected


@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2]])
def test_layouts(turn: Any) -> None:
    x, y = turn(uniform(1)), turn(uniform(2))
    np.testing.assert_allclose(in_blocks(squares, reduces=True)(x, y), squares(cpu, x, y), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (squares, [(300, 300), (300,)]),  # a loss would warn of it
        (squares, [(), (50_000,)]),
        (lambda xp, x, y: xp.add.reduce(x, axis=None), [(50_000,)] * 2),
        (lambda xp, x, y: xp.add.reduce(x - y, axis=0), [(50_000,)] * 2),
        (lambda xp, x, y: xp.multiply.reduce(x - y, axis=None), [(50_000,)] * 2),
        (lambda xp, x, y: xp.add.reduce(x < y, axis=None), [(50_000,)] * 2),
        (lambda xp, x, y: squares(xp, x, y) / 2 / 3, [(50_000,)] * 2),
        (lambda xp, x, y: squares(xp, x, y) * 2, [(50_000,)] * 2),
    ],
)
def test_what_is_something_else_is_called(function: Any, shapes: Any) -> None:
    arrays = [uniform(k, *shape) if shape else np.array(k + 1, "f") for k, shape in enumerate(shapes)]
    assert in_blocks(function, reduces=True)(*arrays) is NotImplemented


def test_what_is_assumed() -> None:
    def root(xp: Any, x: Any) -> Any:
        if not xp.all(x >= 0):
            raise ValueError("negative")
        return xp.sqrt(x) + 1

    function, x = in_blocks(root), uniform(1, 100_000)
    np.testing.assert_array_equal(function(x), root(cpu, x))
    x[77_777] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(x) is NotImplemented
    x[77_777] = np.nan
    assert function(x) is NotImplemented


def test_overflows_are_infinite() -> None:
    x = np.full(50_000, 3e37, "f")
    with np.errstate(over="raise"):
        assert in_blocks(lambda xp, x: xp.add.reduce(x * 2, axis=None), reduces=True)(x) == np.inf


@pytest.mark.parametrize("extra", [((), "x"), ((7,), None), ((0,), None), ((), 1.0), (("a",), None)])
def test_programs_that_make_no_sense_are_refused(extra: Any) -> None:
    types, steps = (np.dtype("d").num,), ((np.greater, np.greater.types.index("dd->?"), 0, 0),)
    with pytest.raises((TypeError, ValueError)):
        core.Program(types, (), steps, *extra)


# ---- losses


def gradients(loss: str, x: Any, y: Any, **options: Any) -> list[Any]:
    input, target = ut.tensor(x, requires_grad=True), ut.tensor(y, requires_grad=True)
    out = getattr(F, loss)(input, target, **options)
    (out * (ut.arange(out.numel()).reshape(out.shape) % 7)).sum().backward() if out.ndim else out.backward()
    return [out.detach().numpy(), input.grad.numpy(), target.grad.numpy()]


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss: str, reduction: str, dtype: str) -> None:
    options = {**LOSSES[loss], "reduction": reduction}
    x, y = uniform(1, dtype=dtype), uniform(2, dtype=dtype)
    before = core.set_large(1 << 60)
    try:
        expected = gradients(loss, x, y, **options)
    finally:
        core.set_large(before)
    for threads in (1, 3):
        core.set_threads(threads)
        for found, wanted in zip(gradients(loss, x, y, **options), expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "f" else 1e-13, atol=1e-12)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "l1_loss"])
def test_losses_have_programs(loss: str) -> None:
    """They would give the same without, later."""
    name = {"binary_cross_entropy": "_bce_of_probabilities", "binary_cross_entropy_with_logits": "_bce_of_logits"}
    op = ops.REGISTRY[name.get(loss, loss)]
    x, y, parameters = uniform(1), uniform(2), ["mean", *LOSSES[loss].values()]
    assert in_blocks(op.forward, reduces=True)(x, y, *parameters).shape == ()
    rule = in_blocks(op.vjp["input"], reduces=True, is_rule=True)
    for g in (np.array(2, "f"), x):
        assert rule(g, x, y, *parameters).shape == SHAPE


def test_bad_probabilities_are_refused() -> None:
    x = uniform(1)
    for bad in (-0.1, 1.1, np.nan):
        x[200, 7] = bad
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            F.binary_cross_entropy(ut.tensor(x), ut.tensor(uniform(2)))


def test_sizes_that_differ_are_warned_of_each_time() -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="different to the input size"):
            F.mse_loss(ut.ones(300, 300), ut.ones(300))
        with pytest.warns(UserWarning, match="different to the input size"):
            F.mse_loss(ut.ones(()), ut.ones(50_000))
