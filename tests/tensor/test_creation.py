"""Tensors from data, from nothing, and in the likeness of others."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.tensor.oracle import assert_same_as_torch, assert_same_error_as_torch

DATA = """
L.tensor(1), L.tensor(1.5), L.tensor(True), L.tensor(1j)
L.tensor([]), L.tensor([[]]), L.tensor([[[]], [[]]]), L.tensor(())
L.tensor([True, False]), L.tensor([True, 1]), L.tensor([1, 1.0, True]), L.tensor([1, 1.0, 1j])
L.tensor([[1, 2], [3, 4]]), L.tensor(((1.0, 2.0), [3, 4])), L.tensor(range(3))
L.tensor(bytearray(b"ab")), L.tensor(memoryview(b"ab"))
L.tensor(np.float64(1)), L.tensor(np.float32(1)), L.tensor(np.int8(1)), L.tensor(np.bool_(True))
L.tensor([np.float64(1), 2]), L.tensor([np.float32(1), 2]), L.tensor([np.int32(1), 2]), L.tensor([np.float32(1), 2.5])
L.tensor([np.array([1, 2]), np.array([3, 4])]), L.tensor([np.ones(2), [1, 2]])
L.tensor([L.tensor(1), L.tensor(2.0)]), L.tensor([L.tensor(1.0, dtype=L.float64), 2]), L.tensor([L.ones(1), 2])
L.tensor([[L.tensor(1), 2], [3, 4]])
L.tensor(np.arange(6).reshape(2, 3).T), L.tensor(np.arange(6).reshape(2, 3).T).stride()
L.tensor([1.5, -1.5], dtype=L.int32), L.tensor([1, 2], dtype=float)
L.tensor([1, 0], dtype=bool), L.tensor([1.5], dtype=int)
L.tensor([1, 2], dtype=complex), L.tensor(3, dtype=L.float16), L.tensor([-1, -255], dtype=L.uint8)
L.tensor(np.array([1.5, 2.5]), dtype=L.int64), L.tensor(L.ones(2), dtype=L.int64), L.tensor(y, requires_grad=True)
L.tensor([1.0], requires_grad=True), L.tensor([1.0], dtype=L.float32, device="cpu", pin_memory=False)
L.as_tensor([1, 2]), L.as_tensor([1, 2], dtype=L.float64), L.as_tensor(np.arange(3)), L.as_tensor(np.float32(3))
L.as_tensor(r), L.as_tensor(r) is r, L.as_tensor(r, dtype=L.float64)
L.asarray(1), L.asarray(np.arange(3), dtype=L.float32)
L.asarray(L.ones(2), copy=True), L.asarray([1.0], requires_grad=True)
L.asarray(r), L.asarray(r.detach(), requires_grad=False)
L.asarray(y, requires_grad=True), L.asarray(y, requires_grad=False)
L.from_numpy(np.arange(4, dtype=np.int16)), L.from_numpy(np.array(2.0)), L.from_numpy(np.zeros((0, 3)))
L.frombuffer(bytearray(b"abcd"), dtype=L.uint8), L.frombuffer(bytearray(b"abcd"), dtype=L.uint8, count=2, offset=1)
L.scalar_tensor(3), L.scalar_tensor(3, dtype=L.int64), L.scalar_tensor(True)
""".strip().splitlines()

NOTHING = """
L.zeros(2, 3), L.zeros((2, 3)), L.zeros([2, 3]), L.zeros(()), L.zeros(size=(2,)), L.zeros(0, 3)
L.zeros(L.tensor(3)), L.zeros((L.tensor(3), 2)), L.zeros(np.int64(2)), L.zeros(2, dtype=float), L.zeros(2, dtype=None)
L.zeros(L.Size([2])), L.ones(2, dtype=L.int8), L.ones((2,), requires_grad=True), L.empty(2, 3).shape
L.full((2,), 1), L.full((2,), 1.0), L.full((2,), True)
L.full((), 1j), L.full((2,), L.tensor(3)), L.full((2,), np.int32(1))
L.full((2,), 1.5, dtype=L.int64), L.full(size=(2,), fill_value=1.0, requires_grad=True), L.full((2,), -1, dtype=L.uint8)
L.empty_strided((2, 3), (1, 2)).stride()
L.empty_strided((2, 3), (0, 1)).stride(), L.empty_strided((0, 3), (3, 1)).shape
L.eye(2), L.eye(2, 3), L.eye(2, m=1, dtype=L.int32), L.eye(0)
""".strip().splitlines()

RANGES = """
L.arange(5), L.arange(5.0), L.arange(1, 5, 2)
L.arange(1, 5, 0.5), L.arange(5, 1, -1), L.arange(3, 3)
L.arange(start=1, end=4), L.arange(end=4)
L.arange(0, 1, 0.1), L.arange(0, 1, 0.1, dtype=L.float64), L.arange(0, 3.5, 1)
L.arange(3, dtype=L.float16), L.arange(True)
L.arange(L.tensor(3)), L.arange(L.tensor(3.0)), L.arange(3.0, requires_grad=True)
L.arange(1.5, 5, dtype=L.int64), L.arange(-2.5, 3, dtype=L.int32)
L.arange(0, 10, 2.5, dtype=L.int64), L.arange(10, 0, -3)
L.arange(2**62, 2**62 + 3), L.arange(5, 0, -2, dtype=L.uint8)
L.linspace(0, 1, 5), L.linspace(0, 1, 1), L.linspace(0, 1, 0), L.linspace(0, 10, 4, dtype=L.int64), L.linspace(3, -7, 8)
L.linspace(10, 0, 4, dtype=L.int64), L.linspace(0, 5, 4, dtype=L.int32), L.linspace(-5, 5, 4, dtype=L.int32)
L.linspace(0, 1j, 3), L.linspace(L.tensor(0.0), L.tensor(1.0), 3), L.linspace(start=0, end=1, steps=3, dtype=L.float64)
L.logspace(0, 2, 3), L.logspace(0, 2, 3, base=2)
L.logspace(0, 2, 1), L.logspace(0, 3, 4, dtype=L.int64), L.logspace(-3, 3, 7)
""".strip().splitlines()

LIKENESS = """
L.zeros_like(x), L.zeros_like(x, dtype=L.int64), L.zeros_like(x, requires_grad=True), L.zeros_like(r), L.ones_like(y)
L.full_like(x, 3), L.full_like(L.ones(2, dtype=L.int64), 1.5), L.full_like(x, L.tensor(2.0)), L.empty_like(x).shape
L.ones_like(x.t()).stride(), L.ones_like(x.t(), memory_format=L.contiguous_format).stride(), L.ones_like(i)
x.new_zeros(2, 3), x.new_zeros((2,)), x.new_ones(2, dtype=L.int64), x.new_full((2,), 1), x.new_empty(2).shape
i.new_full((2,), 1.5), x.new_zeros(2, requires_grad=True), x.new_empty_strided((2, 3), (1, 2)).stride()
x.new_tensor([1, 2]), x.new_tensor(x)
x.new_tensor([1, 2], dtype=L.int64), x.new_tensor(np.array([1, 2])), i.new_tensor([1.5])
x.new([1, 2]), x.new((1, 2)), x.new().shape, x.new(2, 3).shape, x.new(L.Size([2, 3])).shape, x.new(x) is x
""".strip().splitlines()


@pytest.mark.torch
@pytest.mark.parametrize("expression", DATA + NOTHING + RANGES + LIKENESS)
def test_as_in_torch(torch: ModuleType, expression: str) -> None:
    assert_same_as_torch(expression, torch)


ERRORS = [
    ("L.tensor([[1, 2], [1, 2, 3]])", "expected sequence of length 2 at dim 1 (got 3)"),
    ("L.tensor([[[1, 2], [1, 2]], [[1, 2], [1]]])", "expected sequence of length 2 at dim 2 (got 1)"),
    ("L.tensor([[1], []])", "expected sequence of length 1 at dim 1 (got 0)"),
    ("L.tensor([np.ones(2), [1, 2, 3]])", "expected sequence of length 2 at dim 1 (got 3)"),
    ("L.tensor([[1, 2], 3])", "not a sequence"),
    ("L.tensor([1.0, [2]])", "must be real number, not list"),
    ("L.tensor('a')", "new(): invalid data type 'str'"),
    ("L.tensor(b'a')", "new(): invalid data type 'bytes'"),
    ("L.tensor([[1.0, 'b']])", "new(): invalid data type 'str'"),
    ("L.tensor(None)", "Could not infer dtype of NoneType"),
    ("L.tensor([None])", "Could not infer dtype of NoneType"),
    ("L.tensor([None], dtype=L.float32)", "must be real number, not NoneType"),
    ("L.tensor({})", "Could not infer dtype of dict"),
    ("L.tensor({1, 2})", "Could not infer dtype of set"),
    ("L.tensor(k for k in range(3))", "Could not infer dtype of generator"),
    ("L.tensor(np.array([object()]))", "can't convert np.ndarray of type numpy.object_."),
    ("L.tensor(np.array(['a']))", "can't convert np.ndarray of type numpy.str_."),
    ("L.tensor(np.ones(2, dtype=np.longdouble))", "can't convert np.ndarray of type numpy.longdouble."),
    ("L.tensor(np.array([1], dtype='M8[s]'))", "can't convert np.ndarray of type numpy.datetime64."),
    ("L.tensor(np.array([1, 2], dtype='>f4'))", "byte order different from the native byte order"),
    ("L.tensor([L.ones(2), L.ones(2)])", "only one element tensors can be converted to Python scalars"),
    ("L.tensor([1j], dtype=L.float32)", "must be real number, not complex"),
    ("L.tensor(1j, dtype=L.int32)", "'complex' object cannot be interpreted as an integer"),
    ("L.tensor(2**70)", "Overflow when unpacking long long"),
    ("L.tensor([300], dtype=L.uint8)", "value cannot be converted to type uint8"),
    ("L.tensor([-300], dtype=L.uint8)", "value cannot be converted to type uint8"),
    ("L.tensor([-200], dtype=L.int8)", "value cannot be converted to type int8"),
    ("L.tensor(float('nan'), dtype=L.int64)", "value cannot be converted to type int64"),
    ("L.tensor([1e10], dtype=L.int32)", "value cannot be converted to type int32"),
    ("L.tensor([1, 2], dtype='float')", "argument 'dtype' must be"),
    ("L.zeros(2, dtype=str)", "argument 'dtype' must be"),
    ("L.tensor([1, 2], requires_grad=True)", "Only Tensors of floating point and complex dtype can require gradients"),
    ("L.zeros(2, dtype=L.int32, requires_grad=True)", "Only Tensors of floating point and complex dtype"),
    ("L.arange(3, requires_grad=True)", "Only Tensors of floating point and complex dtype can require gradients"),
    ("L.from_numpy([1])", "expected np.ndarray (got list)"),
    ("L.from_numpy(np.array([object()]))", "can't convert np.ndarray of type numpy.object_. The only supported types"),
    ("L.asarray(np.arange(3), copy=False, dtype=L.float32)", "can't alias tensor with dtype"),
    ("L.asarray([1], copy=False)", "can't alias arbitrary sequence into a tensor."),
    ("L.zeros()", 'missing 1 required positional arguments: "size"'),
    ("L.zeros(-1)", "zeros: Dimension size must be non-negative"),
    ("L.zeros(2.0)", "must be tuple of ints, not float"),
    ("L.zeros(True)", "must be tuple of ints, not bool"),
    ("L.zeros('a')", "must be tuple of ints, not str"),
    ("L.full(2, 1)", "must be tuple of ints, not int"),
    ("L.full((2,), 'a')", "must be Number, not str"),
    ("L.full((2,), L.tensor([3]))", "must be Number, not Tensor"),
    ("L.full((2,), r.sum())", "must be Number, not Tensor"),
    ("L.full((2,), 300, dtype=L.uint8)", "value cannot be converted to type uint8"),
    ("L.full((2,), float('inf'), dtype=L.int64)", "value cannot be converted to type int64"),
    ("L.full((2,), 1j, dtype=L.float32)", "value cannot be converted to type float"),
    ("L.full_like(x, 1j)", "value cannot be converted to type float"),
    ("L.zeros_like([1])", "zeros_like(): argument 'input' (position 1) must be Tensor, not list"),
    ("L.eye(-1)", "n must be greater or equal to 0, got -1"),
    ("L.eye(2, -3)", "m must be greater or equal to 0, got -3"),
    ("L.eye(2.0)", "must be int, not float"),
    ("L.empty_strided((2, 3), (1,))", "dimensionality of sizes (2) must match dimensionality of strides (1)"),
    ("L.empty_strided((2, 3), (-1, 1))", "Storage size calculation overflowed"),
    ("L.arange(5, 1)", "upper bound and lower bound inconsistent with step sign"),
    ("L.arange(1, 5, 0)", "step must be nonzero"),
    ("L.arange(0, float('inf'))", "unsupported range: 0 -> inf"),
    ("L.arange(3, dtype=L.complex64)", "\"arange_cpu\" not implemented for 'ComplexFloat'"),
    ("L.linspace(0, 1, -1)", "number of steps must be non-negative"),
    ("L.linspace(L.tensor([0.0]), L.tensor(1.0), 3)", "only supports 0-dimensional start and end tensors"),
]


@pytest.mark.torch
@rows(("expression", "words"), ERRORS)
def test_errors_as_in_torch(torch: ModuleType, expression: str, words: str) -> None:
    assert_same_error_as_torch(expression, words, torch)


# ---- memory


def test_tensor_copies_and_as_tensor_shares() -> None:
    array = np.zeros(2)
    copied, shared = ut.tensor(array), ut.as_tensor(array)
    array[0] = 7
    assert copied.tolist() == [0, 0] and shared.tolist() == [7, 0]


def test_as_tensor_converts_when_it_must() -> None:
    array = np.zeros(2)
    converted = ut.as_tensor(array, dtype=ut.float32)
    array[0] = 7
    assert converted.tolist() == [0, 0]


def test_from_numpy_shares_memory_both_ways() -> None:
    array = np.zeros(2)
    tensor = ut.from_numpy(array)
    tensor.add_(1)
    assert array.tolist() == [1, 1]


def test_from_numpy_of_any_strides() -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = ut.from_numpy(array[::-1, ::2]).requires_grad_()
    (tensor * tensor).sum().backward()
    assert tensor.tolist() == [[3, 5], [0, 2]] and tensor.grad.tolist() == [[6, 10], [0, 4]]


def test_a_read_only_array_warns_and_stays_read_only() -> None:
    array = np.zeros(2)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="The given NumPy array is not writable"):
        tensor = ut.from_numpy(array)
    with pytest.raises(RuntimeError, match="read-only"):
        tensor.add_(1)
    assert tensor.tolist() == [0, 0]


def test_subclasses_of_ndarray() -> None:
    assert type(ut.from_numpy(np.zeros(2).view(np.recarray)).numpy()) is np.ndarray
    with pytest.raises(TypeError, match="mask would be lost"):
        ut.from_numpy(np.ma.masked_array([1, 2], [True, False]))


def test_two_names_for_one_dtype() -> None:
    tensor = ut.from_numpy(np.zeros(2, dtype=np.longlong))
    assert tensor.dtype is ut.int64


def test_copying_a_tensor_with_tensor_warns() -> None:
    source = ut.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match=r"sourceTensor\.detach\(\)\.clone\(\)"):
        copied = ut.tensor(source)
    assert not copied.requires_grad and copied.data_ptr() != source.data_ptr()


def test_objects_that_know_how_to_become_an_array() -> None:
    class Column:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.array([1.0, 2.0], dtype=np.float32)

    assert ut.tensor(Column()).dtype == ut.float32
    assert ut.tensor([Column(), Column()]).shape == (2, 2)


def test_deep_nesting_is_an_error() -> None:
    data: list[object] = []
    data.append(data)
    with pytest.raises(ValueError, match="too many dimensions 'list'"):
        ut.tensor(data)


def test_the_default_dtype_decides() -> None:
    ut.set_default_dtype(ut.float64)
    try:
        assert ut.tensor(1.5).dtype == ut.zeros(2).dtype == ut.arange(2.0).dtype == ut.rand(2).dtype == ut.float64
        assert ut.tensor(1j).dtype == ut.complex128
    finally:
        ut.set_default_dtype(ut.float32)


def test_asarray_without_gradient_shares_the_version() -> None:
    source = ut.ones(2, requires_grad=True) * 2
    alias = ut.asarray(source, requires_grad=False)
    alias.add_(1)
    assert source._version == 1 and source.tolist() == [3, 3]


def test_the_class_as_a_constructor(L: ModuleType) -> None:
    assert L.Tensor([1, 2]).dtype == L.float32
    assert L.Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert list(L.Tensor(2, 3).shape) == [2, 3] and list(L.Tensor(1, 2, 3, 4, 5).shape) == [1, 2, 3, 4, 5]
    assert list(L.Tensor(5).shape) == [5]
    assert list(L.Tensor().shape) == [0]
    assert list(L.Tensor(L.Size([2, 3])).shape) == [2, 3]
    assert L.Tensor((2, 3)).tolist() == [2, 3]
    assert L.Tensor(np.array([1, 2])).dtype == L.float32
    assert not L.Tensor([1.0]).requires_grad
    for wrong in ((2.5,), ([1, 2], 3)):
        with pytest.raises(TypeError):
            L.Tensor(*wrong)


def test_a_tensor_is_unequal_to_what_is_no_number() -> None:
    x = ut.ones(2)
    assert (x == ...) is False and (x != "a") is True and ... not in (1, x)
    assert x._cdata == x._cdata != ut.ones(2)._cdata
