"""To Python numbers, to NumPy, to other dtypes; and what a tensor says about its memory."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.tensor.oracle import assert_same_as_torch, assert_same_error_as_torch
from undertow import errors

VALUES = """
i.item(), L.tensor([2.5]).item(), L.tensor(True).item(), L.tensor(1j).item(), r.sum().item(), type(i.item())
i.tolist(), x.tolist(), L.zeros(2, 0).tolist(), L.ones(2, dtype=L.float16).tolist(), r.tolist()
bool(i), bool(L.tensor([[1.0]])), bool(L.tensor(float("nan"))), bool(L.tensor(0j)), i.is_nonzero()
int(L.tensor(2.7)), int(L.tensor(-2.7)), int(L.tensor(1 + 0j)), int(L.tensor(True)), int(L.tensor([[7]]))
float(i), float(L.tensor(1 + 0j)), complex(i), complex(L.tensor(1.5)), complex(L.tensor(1j))
[1, 2, 3, 4][i], [1, 2][L.tensor([1])], [1, 2][L.tensor(True)], hex(i), range(i), operator.index(i)
len(x), len(L.zeros(0, 3)), list(x), [list(row) for row in x]
3.0 in x, 9 in x, i in x, x in x, L.ones(3) in x, True in L.tensor([1])
x.size(), x.size(1), x.size(-1), x.size(dim=0), x.size(None), x.stride(), x.stride(1), x.t().stride(), i.stride()
x[1:].storage_offset(), x[:, 1].storage_offset(), x.t()[1].storage_offset(), x.storage_offset(), i.storage_offset()
x.element_size(), x.itemsize, x.nbytes, x.numel(), x.nelement(), L.numel(x), x.dim(), x.ndimension(), x.ndim
x.is_contiguous(), x.t().is_contiguous(), x[:, :1].is_contiguous(), x[:1].t().is_contiguous(), x.t().t().is_contiguous()
x.is_floating_point(), i.is_floating_point(), L.is_floating_point(x), x.is_complex(), L.is_complex(L.tensor(1j))
x.is_cpu, x.is_cuda, x.is_meta, x.is_nested, x.is_quantized, x.is_sparse_csr, x.name
L.is_nonzero(L.ones(1)), L.is_same_size(x, x), L.is_signed(x), L.get_device(x)
x.is_signed(), L.ones(1, dtype=L.uint8).is_signed(), L.ones(1, dtype=L.complex64).is_signed()
x.is_same_size(x), x.is_same_size(r), x.get_device(), L.is_tensor(x), L.is_tensor(3)
x.type(), i.type(), L.tensor(True).type(), L.tensor(1j).type(), L.ones(1, dtype=L.uint16).type()
x.type(L.float64), x.type(L.float32) is x, r.type(L.float64), x.type("torch.DoubleTensor")
x.to(L.float32) is x, x.to("cpu") is x, x.to(x) is x
x.to() is x, x.to(dtype=None) is x, x.to(L.float32, copy=True) is x
x.to(L.float64), x.to("cpu", L.float64), x.to(L.device("cpu"), dtype=L.int32)
x.to(i), x.to(dtype=L.float64), x.to(float)
x.to(L.float64, False, True), x.to("cpu", L.float64, False, True), x.to(device="cpu", dtype=L.int8), x.to(i, copy=True)
x.t().to(L.float64).stride(), x.t().to(L.float64, memory_format=L.contiguous_format).stride()
r.to(L.float64), r.to(L.int64), r.long(), r.double()
r.cfloat(), r.float() is r, r.type_as(x) is r, r.half(), r.cdouble()
r.type_as(L.ones(1, dtype=L.float64)), x.cpu() is x, x.byte(), x.char(), x.short(), x.int(), (x - 2).bool()
L.tensor([1.9, -1.9]).long(), L.tensor([-1]).byte(), L.tensor([3, 0]).bool(), L.tensor([1 + 2j]).cdouble()
r.numpy(force=True), x.numpy(), np.asarray(x), np.array(i), x.data_ptr() == x.view(-1).data_ptr(), L.zeros(0).data_ptr()
""".strip().splitlines()


@pytest.mark.torch
@pytest.mark.parametrize("expression", VALUES)
def test_as_in_torch(torch: ModuleType, expression: str) -> None:
    assert_same_as_torch(expression, torch)


ERRORS = [
    ("x.item()", "a Tensor with 6 elements cannot be converted to Scalar"),
    ("L.tensor([]).item()", "a Tensor with 0 elements cannot be converted to Scalar"),
    ("r.numpy()", "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."),
    ("y.numpy()", "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."),
    ("np.asarray(r)", "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."),
    ("bool(x)", "Boolean value of Tensor with more than one value is ambiguous"),
    ("bool(L.tensor([]))", "Boolean value of Tensor with no values is ambiguous"),
    ("int(x)", "only one element tensors can be converted to Python scalars"),
    ("float(L.tensor([]))", "only one element tensors can be converted to Python scalars"),
    ("complex(x)", "only one element tensors can be converted to Python scalars"),
    ("int(L.tensor(float('nan')))", "cannot convert float NaN to integer"),
    ("int(L.tensor(float('-inf')))", "cannot convert float infinity to integer"),
    ("float(L.tensor(1j))", "value cannot be converted to type double"),
    ("[1, 2][L.tensor(1.0)]", "only integer tensors of a single element can be converted to an index"),
    ("[1, 2][L.tensor([1, 2])]", "only integer tensors of a single element can be converted to an index"),
    ("len(i)", "len() of a 0-d tensor"),
    ("list(i)", "iteration over a 0-d tensor"),
    ("'a' in x", "Tensor.__contains__ only supports Tensor or scalar, but you passed in a <class 'str'>."),
    ("x.size(5)", "Dimension out of range (expected to be in range of [-2, 1], but got 5)"),
    ("x.stride(-3)", "Dimension out of range (expected to be in range of [-2, 1], but got -3)"),
    ("i.size(0)", "Dimension specified as 0 but tensor has no dimensions"),
    ("x.size('a')", "must be int, not str"),
    ("x.type('foo')", "invalid type: 'foo'"),
    ("x.to(L.float64, L.float32)", "to() received an invalid combination of arguments"),
    ("x.to(L.float64, copy='yes')", "to()"),
    ("x.to('foo')", "device type at start of device string: foo"),
]


@pytest.mark.torch
@pytest.mark.parametrize(("expression", "words"), ERRORS)
def test_errors_as_in_torch(torch: ModuleType, expression: str, words: str) -> None:
    assert_same_error_as_torch(expression, words, torch)


@pytest.mark.usefixtures("no_gpu")
def test_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"device 'cuda' is not available: .* Use device='cpu'"):
        ut.ones(2).to("cuda")


def test_conversions_are_differentiated() -> None:
    x = ut.ones(2, requires_grad=True)
    (x.double() * ut.tensor([2.0, 3.0], dtype=ut.float64)).sum().backward()
    assert x.grad.dtype == ut.float32 and x.grad.tolist() == [2, 3]


def test_iteration_is_differentiated() -> None:
    x = ut.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first, second = x
    (first * second).sum().backward()
    assert x.grad.tolist() == [[3, 4], [1, 2]]


def test_numpy_shares_memory_but_not_shape() -> None:
    x = ut.zeros(4)
    array = x.numpy()
    array[0] = 7
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Setting the shape", DeprecationWarning)  # since NumPy 2.5
        array.shape = (2, 2)
    assert x.tolist() == [7, 0, 0, 0]


def test_a_number_from_a_tensor_that_requires_grad_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_already_warned", set())
    x = ut.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="Converting a tensor with requires_grad=True to a scalar"):
        float(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (float(x), int(x), complex(x), x.item(), bool(x)) == (1.0, 1, 1 + 0j, 1.0, True)


def test_equal_tensors_are_different_keys() -> None:
    a, b = ut.ones(2), ut.ones(2)
    assert len({a, b, a}) == 2


def test_an_unknown_memory_format_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"undertow\.contiguous_format"):
        ut.zeros_like(ut.ones(2), memory_format="C")


def test_negative_strides() -> None:
    x = ut.from_numpy(np.arange(3)[::-1])
    assert x.stride() == (-1,) and not x.is_contiguous() and x.numpy().tolist() == [2, 1, 0]


@pytest.mark.parametrize("call", [lambda x: x.chalf(), lambda x: ut.vmap(lambda row: row.chalf())(x)])
def test_complex_numbers_of_two_halves_are_refused_with_the_reason(call: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"NumPy has no complex numbers of 32 bits. Use x.cfloat\(\)"):
        call(ut.ones(2))
