"""Large arrays of half precision are read, computed in float32 and rounded block by block, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.backend.blocks import in_blocks
from undertow.backend.dtypes import as_dtype
from undertow.compiled import core
from undertow.tensor import Tensor

pytestmark = pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler")

F = ut.nn.functional


@pytest.fixture(params=["float16", "bfloat16"])
def half(request: pytest.FixtureRequest) -> Any:
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return getattr(ut, request.param)


@contextmanager
def as_a_whole() -> Iterator[None]:
    before = core.set_large(1 << 60)
    try:
        yield
    finally:
        core.set_large(before)


def numbers(seed: int, *shape: int) -> Any:
    """Also such as are beyond its range, too small for it, and none."""
    x = np.random.default_rng(seed).standard_normal(shape).astype("f") * 10
    x.flat[::97], x.flat[1::97], x.flat[2::97], x.flat[3::97] = 7e4, 1e-7, np.nan, -np.inf
    return x


def bits(x: Tensor) -> Any:
    """Of all that is no nan, whose sign means nothing."""
    x = x.detach()
    return x.view(ut.int16).masked_fill(x.isnan(), 0x7FFF).numpy() if x.dtype.itemsize == 2 else x.numpy()


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "a multiple": lambda x, y: ut.add(x, y, alpha=0.3),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "a number": lambda x, y: x * 0.1,
    "tanh": lambda x, y: x.tanh(),
    "gelu": lambda x, y: F.gelu(x),
    "less": lambda x, y: x < y,
    "maximum": ut.maximum,
    "addcmul": lambda x, y: ut.addcmul(x, x, y, value=0.3),
    "negative": lambda x, y: -x,
}

PAIRS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "alike": lambda x, y: (x, y),
    "columns": lambda x, y: (x.t(), y.t()),
    "a column": lambda x, y: (x, y[:, :1]),
    "a row": lambda x, y: (x[:1], y),
    "one number": lambda x, y: (x, y[3, 4]),
    "with gaps": lambda x, y: (x[:, ::2], y[:, 1::2]),
    "every other row": lambda x, y: (x[::2], y[1::2]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forwards(name: str, pair: str, half: Any) -> None:
    x, y = PAIRS[pair](*[ut.tensor(numbers(seed, 130, 1026)).to(half) for seed in (1, 2)])
    found = FUNCTIONS[name](x, y)
    with as_a_whole():
        wanted = FUNCTIONS[name](x, y)
    assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    np.testing.assert_array_equal(bits(found), bits(wanted))


def test_a_program_reads_half_precision_and_rounds(half: Any) -> None:
    dtype = as_dtype(half)
    x = numbers(1, 70_001)
    x[0::97] = 6e4
    x = x.astype(dtype)
    program = in_blocks(lambda xp, x: xp.tanh(x) * 3 + x, widens=True)
    found, wide = program(x), x.astype("f")
    assert found is not NotImplemented and found.dtype == dtype
    wanted = (cpu.tanh(wide) * np.float32(3) + wide).astype(dtype)
    np.testing.assert_array_equal(found.view("i2"), wanted.view("i2"))
    assert in_blocks(lambda xp, x: x.astype("d"), widens=True)(x) is NotImplemented
    assert in_blocks(lambda xp, x: x, widens=True)(x) is NotImplemented  # a result is no operand
    assert in_blocks(lambda xp, g: g, is_rule=True, widens=True)(x) is x
    assert in_blocks(lambda xp, x: x > 1, widens=True)(x).dtype == bool


def gradients(function: Callable[[Any, Any], Any], x: Tensor, y: Tensor) -> list[Any]:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    out = function(x, y)
    out.backward(ut.tensor(numbers(3, *out.shape)).to(out.dtype))
    return [None if leaf.grad is None else bits(leaf.grad) for leaf in (x, y)]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "less"])
def test_gradients(name: str, pair: str, half: Any) -> None:
    x, y = PAIRS[pair](*[ut.tensor(numbers(seed, 130, 1026)).to(half) for seed in (1, 2)])
    found = gradients(FUNCTIONS[name], x, y)
    with as_a_whole():
        wanted = gradients(FUNCTIONS[name], x, y)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_gradients_are_not_widened_as_a_whole(half: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a sum goes on as it is; what is broadcast is added up in float32."""
    x, y = (ut.ones(300, 300, dtype=half, requires_grad=True) for _ in range(2))
    row = ut.zeros(300, dtype=half, requires_grad=True)
    g = ut.full((300, 300), 2.0**-10, dtype=half)
    g[0] = 1
    seen: list[Any] = []
    out = x + y
    out.grad_fn.register_hook(lambda inputs, outputs: seen.extend(inputs))
    (out + row).backward(g)
    assert [grad._array is g._array for grad in seen] == [True, True]
    assert ut.equal(row.grad, g.float().sum(0).to(half))
