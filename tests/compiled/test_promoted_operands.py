"""Operands of different dtypes: promoted in C as the Python functions promote them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.outcomes import outcome
from tests.rows import rows
from undertow.backend import blocks, cpu, dtypes
from undertow.compiled import core
from undertow.graph.user_lines import set_site_recording
from undertow.ops.arguments.operands import number_tensor
from undertow.ops.declare import REGISTRY
from undertow.tensor import Tensor

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)

FEW = (dtypes.bool_, dtypes.uint8, dtypes.int64, dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64)
ALL = (*FEW, dtypes.int8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.complex128, np.dtype("longlong"))
NUMBERS = (2, 2.5, True, 0, -1.5)

TWO = [
    "add", "mul", "sub", "true_divide", "pow", "remainder", "atan2", "maximum", "minimum", "fmax", "xlogy", "hypot",
    "eq", "lt", "logaddexp", "copysign", "floor_divide", "nextafter", "fmod", "bitwise_and", "logical_or", "ldexp",
]  # fmt: skip
TWO = [name for name in TWO if name in REGISTRY]
ONE = ["sin", "exp", "sqrt", "sigmoid", "erf", "reciprocal", "neg", "abs", "tanh"]

FORMS = ["tensor tensor", "tensor 0-d", "0-d tensor", "0-d 0-d", "tensor wrapped", "wrapped tensor", "0-d wrapped"]


def leaf(array: Any) -> Tensor:
    tensor = Tensor(array, cpu)
    return tensor.requires_grad_() if dtypes.is_differentiable(array.dtype) else tensor


def operand(form: str, dtype: Any, start: float) -> Any:
    """A tensor with dimensions, one without, or a Python number as a tensor."""
    if form == "wrapped":
        return number_tensor({"b": True, "u": 2, "i": 3, "f": 1.5, "c": 1j}[dtype.kind])
    return leaf(np.array(start, dtype) if form == "0-d" else np.array([start, 2, 1], dtype))


def assert_same(function: Any, call: Callable[..., Any], prepare: Callable[[], tuple[Any, ...]]) -> None:
    assert type(function) is core.Operation
    found, expected = outcome(function, call, prepare), outcome(function.function, call, prepare)
    assert repr(found) == repr(expected)


def pairs(some: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    return ((a, b) for a, b in product(some, some) if a is not b)


def run(function: Any, *tensors: Any) -> Any:
    return function(*tensors)


@pytest.mark.long
@rows("form", FORMS)
@rows("name", TWO)
def test_two_operands(name: str, form: str) -> None:
    first, second = form.split()
    for a, b in pairs(ALL if name in ("add", "true_divide") else FEW):
        assert_same(REGISTRY[name].function, run, lambda a=a, b=b: (operand(first, a, 1), operand(second, b, 3)))


@pytest.mark.parametrize("name", ["add", "mul", "true_divide", "sub", "pow", "remainder"])
def test_a_python_number(name: str) -> None:
    for number, dtype, form in product(NUMBERS, ALL, ("tensor", "0-d", "wrapped")):
        assert_same(
            REGISTRY[name].function,
            lambda f, t, number=number: f(t, number),
            lambda dtype=dtype, form=form: (operand(form, dtype, 1),),
        )


@pytest.mark.parametrize("name", ONE)
def test_integers_that_become_floats(name: str) -> None:
    for dtype, form in product(ALL, ("tensor", "0-d")):
        assert_same(REGISTRY[name].function, run, lambda dtype=dtype, form=form: (operand(form, dtype, 1),))


@pytest.fixture
def without_lines() -> Iterator[None]:
    """Nodes do not note who called: a private operation expects to be called by a public function."""
    set_site_recording(False)
    yield
    set_site_recording(True)


@pytest.mark.usefixtures("without_lines")
def test_where_whose_condition_takes_no_part() -> None:
    for (a, b), form in product(pairs(FEW), FORMS):
        first, second = form.split()
        assert_same(
            REGISTRY["_where"].function,
            run,
            lambda a=a, b=b, first=first, second=second: (
                leaf(np.array([True, False, True])), operand(first, a, 1), operand(second, b, 3),
            ),
        )  # fmt: skip


def test_three_operands() -> None:
    some = (dtypes.int64, dtypes.float32, dtypes.float64)
    for (a, b, c), form in product(product(some, some, some), ("tensor", "0-d")):
        for name in ("lerp", "addcmul"):
            assert_same(
                REGISTRY[name].function,
                run,
                lambda a=a, b=b, c=c, form=form: (
                    operand("tensor", a, 1),
                    operand("tensor", b, 3),
                    operand(form, c, 2),
                ),
            )


@pytest.mark.parametrize("default", [dtypes.float64, dtypes.float16])
def test_the_default_dtype_is_looked_up_at_every_call(default: Any) -> None:
    i, j = ut.tensor([1, 2]), ut.tensor([3, 4], dtype=ut.int32)
    assert (i / j).dtype is (i / 2).dtype is (i * 2.5).dtype is ut.sin(i).dtype == dtypes.float32
    ut.set_default_dtype(default)
    try:
        assert (i / j).dtype is (i / 2).dtype is (i * 2.5).dtype is ut.sin(i).dtype == default
    finally:
        ut.set_default_dtype(dtypes.float32)
    assert (i / j).dtype == dtypes.float32


def test_memory_order_and_strides() -> None:
    def prepare() -> tuple[Any, ...]:
        return leaf(np.arange(6.0).reshape(2, 3).T), leaf(np.arange(12, dtype="f").reshape(3, 4)[:, ::2])

    for name in ("mul", "atan2"):
        assert_same(REGISTRY[name].function, run, prepare)


def test_large_numbers_overflow_silently() -> None:
    large = np.array([1e300, 2.0])
    assert_same(
        REGISTRY["add"].function, run, lambda: (operand("tensor", dtypes.float32, 1), leaf(large[0:1].reshape(())))
    )
    assert_same(REGISTRY["mul"].function, run, lambda: (operand("tensor", dtypes.float16, 1), leaf(large)))


def test_other_byte_orders_are_pythons() -> None:
    def prepare() -> tuple[Any, ...]:
        return leaf(np.ones(3, ">f8")), leaf(np.ones(3, "<f4"))

    assert_same(REGISTRY["add"].function, run, prepare)


def test_many_numbers() -> None:
    for n in (0, 1, 1024, 1025, 5000):
        assert_same(REGISTRY["mul"].function, run, lambda n=n: (leaf(np.arange(n) % 7), leaf(np.arange(n) / 3)))


def test_results_are_written_into_out() -> None:
    a, b, out = ut.ones(3), ut.ones(3, dtype=ut.float64), ut.zeros(3, dtype=ut.float64)
    assert ut.add(a, b, out=out) is out
    assert out.tolist() == [2, 2, 2]


def test_what_is_saved_is_what_was_given() -> None:
    a, b = ut.ones(3, requires_grad=True), ut.full((3,), 2.0, dtype=ut.float64, requires_grad=True)
    node = (a * b).grad_fn
    assert node._saved_self is a
    assert node._saved_other is b
    (a * b).sum().backward()
    assert a.grad.dtype == dtypes.float32
    assert b.grad.dtype == dtypes.float64


@pytest.mark.parametrize("dtype", [ut.float16, ut.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded(dtype: ut.dtype) -> None:
    ut.manual_seed(0)
    x, y = [ut.randn(5, 4).to(dtype) for _ in range(2)]
    wide, other = x.float(), y.float()
    calls = [lambda a, b: a * b, lambda a, b: a + 0.3, lambda a, b: ut.add(a, b, alpha=3), lambda a, b: a.exp() / b,
             lambda a, b: a.T.tanh(), lambda a, b: a > b, lambda a, b: ut.where(a > b, a, b), lambda a, b: a**2,
    ]  # fmt: skip
    for call in calls:
        found, expected = call(x, y), call(wide, other)
        if expected.dtype == ut.float32 and call is not calls[3]:  # that is two operations, each of which rounds
            expected = expected.to(dtype)
            assert ut.equal(found, expected)
        assert found.dtype == (ut.bool if expected.dtype == ut.bool else dtype)
        assert found.stride() == expected.stride()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        huge = ut.full((3,), 6e4).to(ut.float16) * 2  # no warning
    assert ut.isinf(huge).all()
    leaf = x.clone().requires_grad_()
    (leaf * y).sum().backward()
    assert leaf.grad.dtype == dtype
    assert ut.equal(leaf.grad, y)


@pytest.mark.parametrize("dtype", [ut.float16, ut.bfloat16])
def test_operations_that_are_not_elementwise_round_in_the_core(
    dtype: ut.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("Python was asked")

    ut.manual_seed(0)
    x, y = ut.randn(5, 4).to(dtype), ut.randn(4, 3).to(dtype)
    calls: list[Any] = [
        lambda x, y: x.sum(), lambda x, y: x.mean(0), lambda x, y: x.softmax(-1), lambda x, y: x @ y,
        lambda x, y: x.cumsum(1), lambda x, y: ut.nn.functional.linear(x, y.t()), lambda x, y: x.amax(1),
        lambda x, y: x.t().log_softmax(0), lambda x, y: x.argmax(1),
    ]  # fmt: skip
    wanted = [call(x.float(), y.float()) for call in calls]
    monkeypatch.setattr("undertow.ops.declare.apply.widen", refuse)
    for call, expected in zip(calls, wanted, strict=True):
        found = call(x, y)
        assert found.dtype == (ut.int64 if expected.dtype == ut.int64 else dtype)
        assert ut.equal(found, expected.to(found.dtype)) and found.stride() == expected.stride()
    found, expected = x.max(1), x.float().max(1)  # each of several results
    assert ut.equal(found.values, expected.values.to(dtype)) and ut.equal(found.indices, expected.indices)
    normed = ut.nn.functional.layer_norm(x.clone().requires_grad_(), (4,))
    assert normed.dtype == dtype and normed.grad_fn._saved_rstd.dtype == ut.float32
    leaf = x.clone().requires_grad_()
    (leaf @ y).softmax(-1).amax().backward()
    assert leaf.grad.dtype == dtype


def test_many_whole_numbers_are_computed_with_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Watched(blocks.Trace):
        def __init__(self, dtypes: Any, *others: Any) -> None:
            given.extend([d.kind for d in dtypes])
            super().__init__(dtypes, *others)

    monkeypatch.setattr(blocks, "Trace", Watched)
    i = ut.arange(200_000).reshape(*(1,) * 6, 400, 500) % 7 + 1  # no other test has so many dimensions: all is new
    calls: list[Any] = [
        lambda x: x / x, lambda x: x + 1.5, lambda x: x / 2, lambda x: x.exp(), lambda x: 2.0 * x, lambda x: x.sin()
    ]  # fmt: skip
    for call in calls:
        few = call(i[..., :1, :8])
        given.clear()
        many = call(i)
        assert many.dtype is few.dtype is ut.float32
        assert given == [] or set(given) == {"f"}
        assert many[..., :1, :8].equal(few)
    assert given, "no operation was evaluated in blocks"
    assert (i.bool() / 2).dtype is ut.float32
    assert (i + 1).dtype is ut.int64
