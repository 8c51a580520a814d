"""Formulas over large arrays: evaluated in blocks they give what the functions themselves give."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, all_cases
from tests.rows import rows
from undertow import ops
from undertow.backend import blocks, cpu
from undertow.backend.blocks import in_blocks
from undertow.compiled import core
from undertow.ops.declare.rules import ELEMENTWISE

pytestmark = [
    pytest.mark.skipif(core is None, reason="undertow was installed without a C compiler"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(blocks, "MANY", 0)  # not even one quick function is left to NumPy
    yield
    ut.set_num_threads(ut.get_num_threads())


def normal(seed: int, *shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def slope(xp: Any, g: Any, x: Any) -> Any:
    return g * (1 - xp.tanh(x) * xp.tanh(x))


def check(function: Callable[..., Any], *arguments: Any) -> None:
    found, expected = in_blocks(function)(*arguments), function(cpu, *arguments)
    assert found is not NotImplemented
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# ---- operands of all kinds


@pytest.mark.parametrize("dtype", ["f", "d", "e"])
@pytest.mark.parametrize("size", [1, 31, 2047, 2048, 2049, 70_001])
def test_sizes(size: int, dtype: str) -> None:
    check(slope, normal(1, size, dtype=dtype), normal(2, size, dtype=dtype))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.T,
    "backwards": lambda x: x[::-1],
    "both backwards": lambda x: x[::-1, ::-1],
    "every second": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "one row": lambda x: x[:1],
    "one column": lambda x: x[:, :1],
    "a vector": lambda x: x[0],
    "a number": lambda x: x[0, 0, ...],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@rows("second", VIEWS)
@rows("first", VIEWS)
def test_strides(first: str, second: str) -> None:
    a, b = VIEWS[first](normal(1, 130, 130)), VIEWS[second](normal(2, 130, 130))
    check(slope, np.asarray(a), np.asarray(b))


@rows("second", VIEWS)
@rows("first", VIEWS)
def test_strides_of_long_rows(first: str, second: str) -> None:
    a, b = VIEWS[first](normal(1, 530, 530)), VIEWS[second](normal(2, 530, 530))
    check(slope, np.asarray(a), np.asarray(b))
    check(lambda xp, a, b: a * b, np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("shape", [(3, 5, 2500), (5, 1, 20_000), (2, 2, 512)])
def test_rows_of_several_blocks(shape: tuple[int, ...]) -> None:
    x, (a, b, c) = normal(1, *shape), shape
    for y in (normal(2, c), normal(2, a, 1, 1), normal(2, b, 1), normal(2, a, 1, c), normal(2, a, b, 2 * c)[..., ::2]):
        check(slope, x, y)
        check(slope, y, x[::-1])
        check(lambda xp, a, b: a + b, x, y)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_results_lie_as_their_operands(order: tuple[int, ...]) -> None:
    a = normal(1, 20, 30, 40).transpose(order)
    for b in (a, a[:, :1], a[:1, :, :1], a[..., :1], np.float32(2) * a[:, :, :1]):
        found = in_blocks(lambda xp, a, b: a + b)(a, b)
        program_free = np.add(a, b)
        np.testing.assert_array_equal(found, program_free)
        assert found.strides == program_free.strides


def test_operands_of_several_dtypes() -> None:
    x, mask, whole = normal(1, 300, 300), normal(2, 300, 300) > 0, np.arange(300)
    check(lambda xp, x, mask: x * mask, x, mask)
    check(lambda xp, x, whole: x + whole, x, whole)
    check(lambda xp, x, y: xp.where(x > y, x, 0), x, x.astype("d"))
    check(lambda xp, mask, x: xp.where(mask, x, 1.5) - 2, mask, x)
    check(lambda xp, x: (x > 0) & ~(x > 1), x)
    check(lambda xp, whole: whole * 2 + whole, np.arange(100_000))
    check(lambda xp, z: z + xp.conj(z) * 2, (normal(3, 200, 200) + 1j * normal(4, 200, 200)).astype("F"))


def test_shapes_that_do_not_fit_are_left_to_numpy() -> None:
    assert in_blocks(slope)(normal(1, 400, 100), normal(2, 100, 400)) is NotImplemented
    with pytest.raises(RuntimeError, match="must match"):
        ut.ones(400, 100) * ut.ones(100, 400)
    assert in_blocks(slope)(np.zeros((0, 3), "f"), np.zeros((0, 3), "f")) is NotImplemented


def test_unusual_memory_is_left_to_numpy() -> None:
    swapped = normal(1, 50_000).astype(">f4")
    assert in_blocks(lambda xp, x: x + x * x)(swapped) is NotImplemented
    unaligned = np.zeros(200_001, "u1")[1:].view("f4")
    assert in_blocks(lambda xp, x: x + x * x)(unaligned) is NotImplemented


# ---- functions


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: x if x[0] > 0 else -x,
        lambda xp, x: xp.sum(x) + x,
        lambda xp, x: x.reshape(-1) * 2,
        lambda xp, x: x * x.shape[0],
        lambda xp, x: xp.exp(x, x),
        lambda xp, x: (x, x * 2),
        lambda xp, x: np.ones(50_000, "f") * x,
        lambda xp, x: 3,
    ],
)
def test_what_is_not_elementwise_is_called(function: Any) -> None:
    assert in_blocks(function)(normal(1, 50_000)) is NotImplemented


def test_a_value_that_is_returned_as_it_came_stays_itself() -> None:
    x, y = normal(1, 50_000), normal(2, 50_000)
    assert in_blocks(lambda xp, x, y: y)(x, y) is y


def test_programs_are_kept_by_dtypes_and_numbers() -> None:
    calls = []

    def scaled(xp: Any, x: Any, factor: float) -> Any:
        calls.append(factor)
        return x * factor + x if factor != 1 else x + x

    function, x = in_blocks(scaled), normal(1, 40_000)
    for factor in (2.0, 1, 2.0, 1, 1.0, True):
        np.testing.assert_array_equal(function(x, factor), scaled(cpu, x, factor))
    assert len(calls) == 6 + 4  # True, 1 and 1.0 are equal, but not of one type
    for factor in range(300):
        function(x, factor)
    assert len(function) == 64  # the others are forgotten
    np.testing.assert_array_equal(function(x, 0), x)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (-0.0, 0.0), (0j, -0j, 0.0), ((0.0, 1), (-0.0, 1), (-0.0, True))])
def test_a_program_is_not_used_for_numbers_that_are_only_equal(numbers: tuple[Any, ...]) -> None:
    seen = []

    def noted(xp: Any, x: Any, number: Any) -> Any:
        seen.append(number)
        return x + x

    function, x = in_blocks(noted), normal(1, 40_000)
    for number in numbers * 2:
        function(x, number)
    assert list(map(repr, seen)) == list(map(repr, numbers))


def test_the_sign_of_a_zero_is_kept_in_large_arrays() -> None:
    x = ut.ones(200_000, requires_grad=True)
    for zero in (0.0, -0.0, 0.0):
        assert math.copysign(1, (x * zero)[0].item()) == math.copysign(1, zero)
        assert ut.copysign(x, zero)[0].item() == math.copysign(1, zero)
        (slope,) = ut.autograd.grad(ut.copysign(x, zero).sum(), x)
        assert slope[0].item() == math.copysign(1, zero)


def test_what_cannot_be_told_apart_is_not_kept() -> None:
    function, x = in_blocks(lambda xp, x, other: x + x), normal(1, 40_000)
    assert function(x, object()) is NotImplemented
    assert function(x, [1.0]) is NotImplemented
    assert len(function) == 0


def test_many_intermediate_results() -> None:
    def polynomial(xp: Any, x: Any) -> Any:
        total, power = x, x
        for k in range(2, 16):
            power = power * x
            total = total + power / k
        return total

    check(polynomial, normal(1, 33_000) * 0.5)


def test_numbers_do_not_depend_on_threads() -> None:
    function, x, y = in_blocks(slope), normal(1, 700, 701), normal(2, 701)
    core.set_threads(1)
    expected = function(x, y).tobytes()
    for number in (2, 3, 7):
        core.set_threads(number)
        assert function(x, y).tobytes() == expected


# ---- what the processor notes


def test_infinite_results_are_those_of_the_functions() -> None:
    def risky(xp: Any, x: Any) -> Any:
        return xp.log(x) * (1 / x)

    x = np.ones(100_000, "f")
    x[77_777] = 0
    function = in_blocks(risky)
    found = function(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, risky(cpu, x))
    x[77_777] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(x)


# ---- operations


def outcome(case: Case) -> list[Any]:
    """What an operation gives for the arrays of a row, and the gradients."""
    fresh = Case(case.sample, case.complex, case.id)
    with np.errstate(all="ignore"):
        return [*fresh.forward(fresh.arrays), *(fresh.gradient if fresh.has_gradient() else [])]


def goes_in_blocks(case: Case) -> bool:
    op = ops.REGISTRY.get(case.sample.op)
    return getattr(op, "batch", None) is ELEMENTWISE or getattr(op, "map_reduce", False)


ROWS = [case for case in all_cases() if goes_in_blocks(case)]


@rows("case", ROWS, ids=repr)
def test_operations(case: Case) -> None:
    """Every row of an elementwise operation, or of a loss, as small arrays, and with everything taken for large."""
    before = core.set_large(1 << 60)
    try:
        expected = outcome(case)
        core.set_large(before)
        small = outcome(case)
        core.set_large(1)
        large = outcome(case)
    finally:
        core.set_large(before)
    for found in (small, large):
        compare(found, expected)


def compare(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        if wanted is None or not isinstance(wanted, np.ndarray):
            assert got is None if wanted is None else got == wanted
        else:
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=3e-15 if wanted.dtype.char in "dD" else 1e-6, atol=1e-300)


def test_results_do_not_depend_on_what_was_computed_before() -> None:
    """However many kinds of arguments came meanwhile: to the last bit."""
    x = ut.from_numpy(np.random.default_rng(0).standard_normal(37).astype("f"))

    def found(slope: float) -> Any:
        return ut.nn.functional.celu(x, slope).numpy()

    first = found(1.5)
    for k in range(200):
        found(2.0 + k)
    np.testing.assert_array_equal(found(1.5), first)


@rows("function", ["logaddexp", "logaddexp2", "where", "lerp", "addcmul", "addcdiv", "nan_to_num", "hypot"])
def test_elements_are_the_same_in_small_and_large_arrays(function: str) -> None:
    call = {
        "where": lambda a, b: ut.where(a > 0, a, b),
        "lerp": lambda a, b: ut.lerp(a, b, b),
        "addcmul": lambda a, b: ut.addcmul(a, a, b),
        "addcdiv": lambda a, b: ut.addcdiv(a, a, b),
        "nan_to_num": lambda a, b: ut.nan_to_num(a / b.round()),
    }.get(function, getattr(ut, function))
    for dtype in (ut.float32, ut.float64):
        a, b = (ut.tensor(3 * normal(seed, 40_000)).to(dtype) for seed in (1, 2))
        large = call(a, b)
        for size in (3, 100, 3000):
            np.testing.assert_array_equal(call(a[:size].clone(), b[:size].clone()).numpy(), large[:size].numpy())


@pytest.mark.parametrize("shape", [(700, 111), (111, 700), (77_777,)])
def test_a_program_of_large_tensors(shape: tuple[int, ...]) -> None:
    def program(x: Any, y: Any) -> Any:
        z = ut.tanh(x * y + 1) * ut.sigmoid(-x) + ut.nn.functional.softplus(y).log1p()
        return (z.clamp(-1, 1) * ut.where(x > 0, x, y * 0.5)).relu()

    def gradients() -> list[Any]:
        x = ut.tensor(normal(1, *shape), requires_grad=True)
        y = ut.tensor(normal(2, *shape[-1:]), requires_grad=True)
        out = program(x, y)
        out.sum().backward()
        return [out.detach().numpy(), x.grad.numpy(), y.grad.numpy()]

    before = core.set_large(1 << 60)
    try:
        expected = gradients()
    finally:
        core.set_large(before)
    for found, wanted in zip(gradients(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)


# ---- in place


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_changes_in_place(name: str, dtype: str) -> None:
    x, y = normal(1, 300_001, dtype=dtype), normal(2, 300_001, dtype=dtype)
    ufunc = {"add_": np.add, "sub_": np.subtract, "mul_": np.multiply, "div_": np.divide}[name]
    for other in (y, 0.3, 2):
        for threads in (1, 3):
            core.set_threads(threads)
            tensor = ut.tensor(x)
            assert getattr(tensor, name)(ut.tensor(other) if other is y else other) is tensor
            np.testing.assert_array_equal(tensor.numpy(), ufunc(x, other))
            assert tensor._version == 1
    itself = ut.tensor(x)
    getattr(itself, name)(itself)
    np.testing.assert_array_equal(itself.numpy(), ufunc(x, x))


def test_operands_that_overlap_in_place() -> None:
    x = normal(1, 400_000)
    base = ut.tensor(x)
    ut.from_numpy(base.numpy()).add_(ut.from_numpy(base.numpy()[::-1]))
    np.testing.assert_array_equal(base.numpy(), x + x[::-1])
    array = ut.tensor(x).numpy()
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        ut.from_numpy(array[:-1]).add_(ut.from_numpy(array[1:]))
    np.testing.assert_array_equal(array, x)


def test_changes_in_place_are_silent() -> None:
    x = ut.ones(200_000)
    with np.errstate(divide="raise"):
        x.div_(ut.zeros(200_000))
    assert x._version == 1
    assert x.isinf().all()


def test_sums_of_large_gradients() -> None:
    x = ut.tensor(normal(1, 500, 500), requires_grad=True)
    y = x * 1.5
    (y * 2 + y * 3 + y.exp() * 0 + y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full((500, 500), 9), rtol=1e-6)


def test_what_counts_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    original = blocks.Trace.program

    def program(trace: Any, result: Any) -> Any:
        made.append(tuple([d.num for d in trace.inputs]))
        return original(trace, result)

    monkeypatch.setattr(blocks.Trace, "program", program)
    ones, number = (1,) * 7, np.dtype("f").num  # no other test multiplies arrays of nine dimensions
    ut.ones(*ones, 128, 100) * ut.ones(*ones, 128, 100)
    ut.ones(*ones, 18, 10) * ut.ones(*ones, 18, 10)
    ut.ones(*ones, 180, 180) * 2.123
    assert not made
    assert (ut.ones(*ones, 10, 1) * ut.ones(*ones, 1, 10)).shape == (*ones, 10, 10)  # broadcast, of whatever size
    assert (ut.ones(*ones, 1000, 1) * ut.ones(*ones, 1, 1000)).shape == (*ones, 1000, 1000)
    assert made == [(number, number)]
    ut.ones(*ones, 40, 1000) * 2.123
    assert made == [(number, number), (number,)]


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_angles_and_logarithms_of_sums_of_powers(dtype: str) -> None:
    """Angles to the bit; the logarithms, by other functions, within 2.5 units in the last place of the largest."""
    x = normal(1, 200_000, dtype=dtype) * 20
    y = x + normal(2, 200_000, dtype=dtype) * np.repeat([0.01, 1, 10, 60], 50_000).astype(dtype)
    x[:8] = [np.inf, -np.inf, np.inf, -np.inf, np.nan, 1, 0, -0.0]
    y[:8] = [np.inf, -np.inf, -np.inf, 1, 1, np.nan, -0.0, 0]
    wide = np.dtype({"f": "d", "d": "g"}[dtype])
    with np.errstate(all="ignore"):
        expected, angles = np.logaddexp2(x.astype(wide), y.astype(wide)), np.angle(x + 0)
    logarithms = in_blocks(ops.REGISTRY["logaddexp2"].forward)(x, y)
    np.testing.assert_array_equal(logarithms[:8], expected[:8].astype(dtype))
    largest = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(expected).astype(dtype))[8:]
    assert (np.abs(logarithms[8:] - expected[8:]) / np.spacing(largest)).max() < 2.5
    found = in_blocks(ops.REGISTRY["angle"].forward)(x)
    np.testing.assert_array_equal(found.view(f"i{x.itemsize}")[5:], angles.view(f"i{x.itemsize}")[5:])
    np.testing.assert_array_equal(found, angles)


@pytest.mark.parametrize("dtype", ["f", "d", "i", "F"])
def test_a_forward_computes_a_part_of_its_work_in_blocks(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (normal(1, 700, 300) * 9).astype(dtype)
    if dtype != "i":
        x[::3, ::7] = np.nan

    def without_nan(xp: Any, x: Any) -> Any:
        assert xp is not cpu, "not in blocks"
        return xp.where(xp.isnan(x), x.dtype.type(0), x)

    for array in (x, x.T, x[:, ::2]):
        found = blocks.elementwise(without_nan)(cpu, array)
        assert found.dtype == x.dtype and found.strides == np.positive(array).strides
        np.testing.assert_array_equal(found, np.where(np.isnan(array), 0, array))
        sums = ut.from_numpy(array).nansum(0)
        with monkeypatch.context() as patch:
            patch.setattr(blocks, "MANY", 1 << 60)
            assert ut.from_numpy(array).nansum(0).equal(sums)
