"""What elementwise operations refuse, in PyTorch's words; and what they leave alone."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from undertow import ops
from undertow.backend import cpu
from undertow.tensor import LEAF, Tensor

BOOLS, INTEGERS = np.array([True, False]), np.array([1, 2])
FLOATS, COMPLEX = np.array([1.0, 2.0], np.float32), np.array([1j, 2.0], np.complex64)

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("add", (np.ones(3), np.ones(2)), {}, RuntimeError,
     r"The size of tensor a \(3\) must match the size of tensor b \(2\) at non-singleton dimension 0"),
    ("pow", (np.ones((2, 3)), np.ones(2)), {}, RuntimeError,
     r"The size of tensor a \(3\) must match the size of tensor b \(2\) at non-singleton dimension 1"),
    ("where", (BOOLS, np.ones(3), np.ones(2)), {}, RuntimeError, "must match the size"),
    ("complex", (np.ones(3), np.ones(2)), {}, RuntimeError, "must match the size"),
    ("add", (FLOATS, "a"), {}, TypeError, r"add\(\): argument 'other'.* must be Tensor, not str"),
    ("sin", ("a",), {}, TypeError, r"sin\(\): argument 'input'.* must be Tensor, not str"),
    ("sub", (BOOLS, BOOLS), {}, RuntimeError,
     "Subtraction, the `-` operator, with two bool tensors is not supported"),
    ("sub", (BOOLS, True), {}, RuntimeError,
     "Subtraction, the `-` operator, with two bool tensors is not supported"),
    ("rsub", (BOOLS, BOOLS), {}, RuntimeError, "Subtraction, the `-` operator"),
    *[(name, operands, options, RuntimeError, "Subtraction, the `-` operator, with a bool tensor is not supported")
      for name in ("sub", "rsub")
      for operands, options in [((FLOATS, BOOLS), {}), ((BOOLS, FLOATS), {}), ((FLOATS, True), {}), ((BOOLS, 2.0), {}),
                                ((BOOLS, 1), {}), ((INTEGERS, True), {}), ((FLOATS, BOOLS), {"alpha": 2})]],
    ("neg", (BOOLS,), {}, RuntimeError, "Negation, the `-` operator, on a bool tensor is not supported"),
    ("positive", (BOOLS,), {}, RuntimeError, r"The `\+` operator, on a bool tensor is not supported"),
    ("add", (INTEGERS, INTEGERS), {"alpha": 2.5}, RuntimeError,
     "argument alpha must not be a floating point number"),
    ("add", (INTEGERS, 3), {"alpha": 2.5}, RuntimeError,
     "argument alpha must not be a floating point number"),
    ("add", (FLOATS, FLOATS), {"alpha": 1j}, RuntimeError, "argument alpha must not be a complex number"),
    ("pow", (INTEGERS.astype(np.uint8), 300), {}, RuntimeError, "without overflow"),
    ("pow", (INTEGERS, -1), {}, RuntimeError, "Integers to negative integer powers are not allowed"),
    ("div", (FLOATS, 2), {"rounding_mode": "up"}, RuntimeError,
     "expected rounding_mode to be one of None, 'trunc', or 'floor' but found 'up'"),
    ("floor_divide", (INTEGERS, INTEGERS - 1), {}, RuntimeError, "ZeroDivisionError"),
    ("div", (INTEGERS, 0), {"rounding_mode": "trunc"}, RuntimeError, "ZeroDivisionError"),
    ("remainder", (INTEGERS, INTEGERS - 1), {}, RuntimeError, "ZeroDivisionError"),
    ("fmod", (INTEGERS, 0), {}, RuntimeError, "ZeroDivisionError"),
    ("addcdiv", (INTEGERS, INTEGERS, INTEGERS), {}, RuntimeError,
     "Integer division with addcdiv is no longer supported"),
    ("sign", (COMPLEX,), {}, NotImplementedError, "not intended to support complex numbers"),
    ("floor", (COMPLEX,), {}, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ("round", (COMPLEX,), {}, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ("logit", (COMPLEX,), {}, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ("frac", (BOOLS,), {}, NotImplementedError, "not implemented for 'Bool'"),
    ("deg2rad", (COMPLEX,), {}, RuntimeError, "not implemented for 'ComplexFloat'"),
    ("clamp", (COMPLEX, 0, 1), {}, NotImplementedError, "complex"),
    ("clamp", (FLOATS,), {}, RuntimeError, "At least one of 'min' or 'max' must not be None"),
    ("maximum", (COMPLEX, COMPLEX), {}, RuntimeError, "maximum not implemented for complex tensors"),
    ("lt", (COMPLEX, 1), {}, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ("gt", (INTEGERS, 1j), {}, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ("bitwise_and", (FLOATS, FLOATS), {}, NotImplementedError, "not implemented for 'Float'"),
    ("bitwise_not", (FLOATS,), {}, NotImplementedError, "not implemented for 'Float'"),
    ("isposinf", (COMPLEX,), {}, RuntimeError, "isposinf does not support complex inputs"),
    ("where", (INTEGERS, FLOATS, FLOATS), {}, RuntimeError,
     "expected condition to be a boolean tensor.*Long"),
    ("isclose", (FLOATS, FLOATS.astype(float)), {}, RuntimeError, "Float did not match Double"),
    ("allclose", (FLOATS, FLOATS), {"rtol": -1}, RuntimeError,
     "rtol must be greater than or equal to zero, but got -1"),
    ("imag", (FLOATS,), {}, RuntimeError, "imag is not implemented for tensors with non-complex dtypes"),
    ("view_as_real", (FLOATS,), {}, RuntimeError, "view_as_real is only supported for complex tensors"),
    ("view_as_complex", (np.ones((2, 3)),), {}, RuntimeError, "Tensor must have a last dimension of size 2"),
    ("view_as_complex", (np.ones((2, 2)).T,), {}, RuntimeError,
     "Tensor must have a last dimension with stride 1"),
    ("view_as_complex", (np.array(1.0),), {}, RuntimeError, "Input tensor must have one or more dimensions"),
    ("view_as_complex", (np.ones((2, 2), int),), {}, RuntimeError,
     "view_as_complex is only supported for.*Long"),
    ("complex", (INTEGERS, INTEGERS), {}, RuntimeError,
     "Expected both inputs to be .*Float.* but got Long and Long"),
    ("complex", (FLOATS, FLOATS.astype(float)), {}, RuntimeError,
     "Expected object of scalar type Float but got scalar type Double for second argument"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "kind", "words"), REFUSED, ids=[f"{r[0]}-{i}" for i, r in enumerate(REFUSED)]
)
def test_refused(op: str, args: Any, kwargs: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        getattr(ops, op)(*args, **kwargs)


def test_a_number_beyond_a_narrow_dtype_wraps_around(L: ModuleType) -> None:
    x = L.tensor([5, 7, 100], dtype=L.uint8)
    assert [(x & -32).tolist(), (x + 300).tolist(), (-1 - x).tolist()] == [[0, 0, 96], [49, 51, 144], [250, 248, 155]]
    assert (x.to(L.int8) * 300).tolist() == [-36, 52, 48] and (x.int() + 2**40).tolist() == x.tolist()
    assert x.clamp(max=-1).tolist() == x.tolist() and x.clone().sub_(-1).tolist() == [6, 8, 101]
    for refused in (lambda: x.clamp(max=300), lambda: x.pow(300)):
        with pytest.raises(RuntimeError, match="without overflow"):
            refused()


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "isclose"])
def test_comparisons_record_nothing(op: str) -> None:
    x = Tensor(FLOATS.copy(), cpu, LEAF)
    out = getattr(ops, op)(x, x)
    assert out._edge is None and out.dtype == bool


@pytest.mark.parametrize(("name", "value"), [("real", [5, 2]), ("imag", [1, 5])])
def test_parts_share_memory(name: str, value: list[float]) -> None:
    z = Tensor(np.array([1 + 1j, 2 + 5j]), cpu)
    part = getattr(ops, name)(z)
    assert np.shares_memory(part._array, z._array)
    assert np.shares_memory(ops.view_as_real(z)._array, z._array)
    z._array[0] = 5 + 1j
    assert part._array.tolist() == value


def test_view_as_real_of_any_layout_shares_memory() -> None:
    array = np.arange(12).reshape(3, 4) * (1 + 2j)
    for layout in (array.T, array[::2, ::-1], array[1]):
        pairs = ops.view_as_real(Tensor(layout, cpu))._array
        assert np.shares_memory(pairs, layout)
        np.testing.assert_array_equal(pairs, np.stack([layout.real, layout.imag], -1))


def test_a_real_tensor_is_its_own_real_part_and_conjugate() -> None:
    x = Tensor(FLOATS, cpu)
    assert all(f(x) is x for f in (ops.real, ops.conj, ops.conj_physical, ops.resolve_conj, ops.positive))


def test_numbers_are_compared_exactly() -> None:
    assert ops.eq(np.array([44], np.uint8), 300)._array.tolist() == [False]
    assert ops.eq(np.array([0.1], np.float32), 0.1)._array.tolist() == [True]


def test_which_functions_take_a_number_in_front_of_a_tensor(L: ModuleType) -> None:
    def takes(name: str) -> bool:
        try:
            getattr(L, name)(4, L.tensor([4, 6]))
        except TypeError:
            return False
        return True

    names = ["remainder", "fmod", "bitwise_and", "bitwise_left_shift", "floor_divide", "atan2", "copysign", "gcd", "eq"]
    assert [name for name in names if takes(name)] == ["remainder", "bitwise_and", "bitwise_left_shift", "floor_divide"]
