"""Result dtypes, for every pair of dtypes in every form, against PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.rows import rows
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import cpu, dtypes
from undertow.ops.arguments.operands import result_type
from undertow.tensor import LEAF, Tensor

NAMES = [
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
NUMBERS = [True, 2, 2.5, 2 + 1j]
BINARY = ["add", "mul", "true_divide", "pow", "remainder", "atan2", "xlogy", "maximum", "minimum", "eq", "lt"]
TERNARY = ["where"]
FORMS = [f"{a} {b}" for a in ("tensor", "0-d") for b in ("tensor", "0-d", "number")] + ["number tensor"]


def values(form: str) -> list[Any]:
    """Every operand of that form: Python numbers, or arrays of every dtype."""
    if form == "number":
        return NUMBERS
    return [np.ones((2,) if form == "tensor" else (), name) for name in NAMES]


def pairs(forms: str) -> Iterator[tuple[Any, Any]]:
    first, second = forms.split()
    return product(values(first), values(second))


def call(library: Any, convert: Any, op: str, a: Any, b: Any) -> Any:
    """The dtype's name, or the error."""
    operands = [convert(x) if isinstance(x, np.ndarray) else x for x in (a, b)]
    if op == "where":
        operands = [convert(np.array([True, False])), *operands]
    try:
        return name_of(getattr(library, op)(*operands).dtype)
    except (RuntimeError, TypeError) as error:
        return error


def name_of(dtype: Any) -> str:
    """The name without its library's; half-precision complex numbers, which NumPy lacks, become single."""
    return str(dtype).rpartition(".")[2].replace("complex32", "complex64")


def as_tensor(array: Any) -> Tensor:
    return Tensor(array.copy(), cpu)


@rows("forms", FORMS)
@rows("op", BINARY + TERNARY)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_result_dtypes(torch: ModuleType, op: str, forms: str) -> None:
    wrong, compared = [], 0
    for a, b in pairs(forms):
        expected = call(torch, torch.from_numpy, op, a, b)
        if isinstance(expected, Exception):
            continue  # a TypeError says that PyTorch takes no number there; others are in test_refused_dtypes
        compared += 1
        got = call(ops, as_tensor, op, a, b)
        if got != expected:
            wrong.append(f"{describe(a)}, {describe(b)}: {got}, expected {expected}")
    assert not wrong, wrong
    assert compared > 0 or takes_no_number(op, forms), "nothing was compared"


def takes_no_number(op: str, forms: str) -> bool:
    """Where PyTorch refuses Python numbers altogether."""
    if op in ("maximum", "minimum", "atan2"):
        return "number" in forms
    return op in ("eq", "lt") and forms.startswith("number")


def describe(operand: Any) -> str:
    return str(operand.dtype) if isinstance(operand, np.ndarray) else repr(operand)


@pytest.mark.parametrize("op", ["maximum", "minimum", "lt", "xlogy", "atan2", "remainder"])
def test_refused_dtypes(torch: ModuleType, op: str) -> None:
    """Complex numbers have no order, in NumPy they do."""
    for a, b in pairs("tensor tensor"):
        if "c" in (a.dtype.kind, b.dtype.kind):
            expected, got = call(torch, torch.from_numpy, op, a, b), call(ops, as_tensor, op, a, b)
            assert isinstance(expected, RuntimeError)
            assert isinstance(got, RuntimeError), f"{op}({a.dtype}, {b.dtype}) gave {got}"


@pytest.mark.parametrize("forms", FORMS)
def test_result_type(torch: ModuleType, forms: str) -> None:
    for a, b in pairs(forms):
        operands = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in (a, b)]
        expected = name_of(torch.result_type(*operands))
        assert name_of(result_type(a, b)) == expected, f"{describe(a)}, {describe(b)}"


def test_promote_types(torch: ModuleType) -> None:
    for a, b in product(NAMES, NAMES):
        expected = name_of(torch.promote_types(getattr(torch, a), getattr(torch, b)))
        assert str(dtypes.promote_types(a, b)) == expected, f"{a}, {b}"


def test_can_cast(torch: ModuleType) -> None:
    for a, b in product(NAMES, NAMES):
        assert dtypes.can_cast(a, b) == torch.can_cast(getattr(torch, a), getattr(torch, b)), f"{a} to {b}"


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_of_mixed_dtypes(torch: ModuleType, op: str) -> None:
    for a, b in product(NAMES, NAMES):
        if "complex" in a + b and op not in ("eq", "ne"):
            continue
        x, y = (np.array(v).astype(n) for n, v in ((a, [0, 1, 2, 100, 3]), (b, [0, 2, 1, 100, 3])))
        got = getattr(ops, op)(as_tensor(x), as_tensor(y))._array
        wanted = getattr(torch, op)(torch.from_numpy(x), torch.from_numpy(y))
        assert got.dtype == bool and got.tolist() == wanted.tolist(), f"{a}, {b}"


def test_numpy_scalars_promote_as_python_numbers() -> None:
    single = Tensor(np.ones(2, np.float32), cpu)
    assert ops.mul(single, np.float64(2)).dtype == np.float32
    assert ops.mul(single, np.array(2.0)).dtype == np.float32
    assert ops.mul(single, np.array([2.0])).dtype == np.float64


@pytest.mark.parametrize("op", ["mul", "true_divide", "pow", "atan2", "maximum", "add"])
def test_gradients_keep_the_dtypes_of_the_inputs(op: str) -> None:
    floats = [n for n in NAMES if n.startswith("float")]
    for a, b in product(floats, floats):
        x, y = (Tensor(np.array([1.5, 2.0], n), cpu, LEAF) for n in (a, b))
        out = getattr(ops, op)(x, y)
        found = grad([out], [x, y], [Tensor(np.ones(2, out.dtype), cpu)])
        assert [g.dtype.name for g in found] == [a, b]


def test_the_default_dtype_decides_for_integers_and_numbers() -> None:
    whole = Tensor(np.array([1, 2]), cpu)
    dtypes.set_default_dtype(np.float64)
    try:
        assert ops.sin(whole).dtype == ops.true_divide(whole, 2).dtype == np.float64
        assert ops.mul(whole, 0.5).dtype == np.float64
        assert ops.where(ops.gt(whole, 1), 1.0, 0.0).dtype == np.float64
        assert ops.mul(whole, 1j).dtype == np.complex128
    finally:
        dtypes.set_default_dtype(np.float32)
    assert ops.sin(whole).dtype == ops.where(ops.gt(whole, 1), 1.0, 0).dtype == np.float32
