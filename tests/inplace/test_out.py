"""`out=`: written into a given tensor, never recorded."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "unary": lambda L, out: L.exp(L.zeros(2, 3), out=out),
    "binary": lambda L, out: L.mul(L.ones(2, 3), L.ones(3), out=out),
    "number": lambda L, out: L.add(L.ones(2, 3), 1, out=out),
    "keyword": lambda L, out: L.add(L.ones(2, 3), L.ones(3), alpha=3, out=out),
    "reduction": lambda L, out: L.sum(L.ones(4, 2, 3), dim=0, out=out),
    "product": lambda L, out: L.matmul(L.ones(2, 2), L.ones(2, 3), out=out),
    "list": lambda L, out: L.cat([L.ones(1, 3), L.zeros(1, 3)], out=out),
    "stack": lambda L, out: L.stack([L.ones(3), L.zeros(3)], out=out),
    "composite": lambda L, out: L.clamp(L.ones(2, 3), min=2, out=out),
    "creation": lambda L, out: L.zeros(2, 3, out=out),
    "where": lambda L, out: L.where(L.ones(2, 3) > 0, L.ones(2, 3), L.zeros(2, 3), out=out),
    "cumsum": lambda L, out: L.cumsum(L.ones(2, 3), dim=1, out=out),
    "chain": lambda L, out: L.chain_matmul(L.ones(2, 2), L.ones(2, 3), out=out),
    "normalize": lambda L, out: L.nn.functional.normalize(L.ones(2, 3), p=1.0, dim=0, out=out),
}

#: results of whole numbers and truths, of an operand that asks for a gradient
WITHOUT_DERIVATIVES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "comparison": lambda L, x, out: L.gt(x, 1.0, out=out),
    "position": lambda L, x, out: L.argmax(x, 1, out=out),
    "boundaries": lambda L, x, out: L.bucketize(x, x.detach()[0], out=out),
    "composite": lambda L, x, out: L.linalg.matrix_rank(x, out=out),
}


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_the_result_is_written_into_the_given_tensor(L: Any, name: str) -> None:
    out = L.full((2, 3), -7.0)
    memory = out.data_ptr()
    expected = CALLS[name](L, L.empty(0)).tolist()
    result = CALLS[name](L, out)
    assert result is out and out.tolist() == expected and out.data_ptr() == memory and out._version == 1


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "arange": lambda L, out: L.arange(1, 4, out=out),
    "fractions": lambda L, out: L.arange(0.0, 1.5, 0.5, out=out),
    "range": lambda L, out: L.range(0, 2, out=out),
    "linspace": lambda L, out: L.linspace(0, 4, 3, out=out),
    "logspace": lambda L, out: L.logspace(0, 2, 3, out=out),
    "full": lambda L, out: L.full((3,), 2, out=out),
    "ones": lambda L, out: L.ones(3, out=out),
    "zeros": lambda L, out: L.zeros(3, out=out),
    "eye": lambda L, out: L.eye(1, 3, out=out),
    "randperm": lambda L, out: L.randperm(3, out=out),
    "randint": lambda L, out: L.randint(0, 5, (3,), out=out),
}


@pytest.mark.filterwarnings("ignore:torch.range")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_nothing_is_made_in_the_dtype_of_out(torch: Any, name: str, dtype: str) -> None:
    if (name, dtype) == ("fractions", "int64"):
        pytest.skip("int64 counts by steps of whole numbers")
    found = []
    for library in (torch, ut):
        library.manual_seed(0)
        found.append(MADE[name](library, library.empty(0, dtype=getattr(library, dtype))).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["full", "ones", "eye"])
def test_truths_are_made_of_nothing(L: Any, name: str) -> None:
    assert MADE[name](L, L.empty(0, dtype=L.bool)).dtype == L.bool


@pytest.mark.parametrize("draw", ["rand", "randn"])
@pytest.mark.parametrize(("sizes", "dtype"), [((3,), "float64"), ((5,), "float32")])
@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_numbers_are_drawn_once_and_in_the_dtype_of_out(L: Any, draw: str, sizes: Any, dtype: str) -> None:
    L.manual_seed(0)
    expected = [getattr(L, draw)(3, dtype=getattr(L, dtype)).tolist(), L.rand(2).tolist()]
    L.manual_seed(0)
    assert [getattr(L, draw)(3, out=L.empty(sizes, dtype=getattr(L, dtype))).tolist(), L.rand(2).tolist()] == expected


@pytest.mark.parametrize("what", ["input", "out"])
def test_nothing_may_require_grad(L: Any, what: str) -> None:
    x, out = L.ones(2, requires_grad=what == "input"), L.zeros(2, requires_grad=what == "out")
    with pytest.raises(RuntimeError, match=r"mul\(\): functions with out=... arguments don't support automatic diff"):
        L.mul(x, x, out=out)
    assert out.tolist() == [0, 0]
    with L.no_grad():
        L.mul(x, x, out=out)
    assert out.tolist() == [1, 1] and out.requires_grad == (what == "out")


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVES)
def test_what_has_no_derivative_is_written_for_operands_that_require_grad(L: Any, name: str) -> None:
    x = L.tensor([[0.5, 1.5], [1.0, 2.0]], requires_grad=True)
    expected = WITHOUT_DERIVATIVES[name](L, x, None)
    out = L.empty(0, dtype=expected.dtype)
    assert WITHOUT_DERIVATIVES[name](L, x, out) is out
    assert out.tolist() == expected.tolist() and not out.requires_grad


def test_one_result_of_several_that_has_a_derivative_is_enough_to_refuse(L: Any) -> None:
    x, out = L.ones(2, 2, requires_grad=True), (L.empty(2), L.empty(2, dtype=L.int64))
    with pytest.raises(RuntimeError, match="support automatic differentiation"):
        L.max(x, 1, out=out)


def test_several_results(L: Any) -> None:
    values, indices = L.empty(2), L.empty(2, dtype=L.int64)
    result = L.max(L.tensor([[1.0, 3.0], [5.0, 2.0]]), 1, out=(values, indices))
    assert values.tolist() == [3, 5] and indices.tolist() == [1, 0] and result[0] is values


def test_an_empty_tensor_takes_the_shape_and_another_is_resized_with_a_warning(L: Any) -> None:
    out = L.empty(0)
    L.exp(L.zeros(2), out=out)
    assert out.tolist() == [1, 1]
    out = L.ones(3)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        L.exp(L.zeros(2), out=out)
    assert out.tolist() == [1, 1]


def test_a_wider_dtype_is_cast_and_another_kind_refused(L: Any) -> None:
    out = L.empty(2, dtype=L.float64)
    L.exp(L.zeros(2), out=out)
    assert out.dtype == L.float64 and out.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        L.exp(L.zeros(2), out=L.empty(2, dtype=L.int64))


@pytest.mark.parametrize(
    "call",
    [
        lambda L, **out: L.gather(L.ones(2, 2), 1, L.zeros(2, 2, dtype=L.int64), **out),
        lambda L, **out: L.multinomial(L.ones(2), 2, **out),
        lambda L, **out: L.complex(L.ones(2), L.ones(2), **out),
        lambda L, **out: L.mm(L.ones(2, 2), L.ones(2, 2), **out),
        lambda L, **out: L.floor(L.ones(2), **out),
        lambda L, **out: L.linalg.inv(L.eye(2), **out),
    ],
)
def test_functions_that_do_not_convert(L: Any, call: Any) -> None:
    wide = {L.float32: L.float64, L.int64: L.float64, L.complex64: L.complex128}
    out = L.zeros_like(call(L), dtype=wide[call(L).dtype])
    with pytest.raises(RuntimeError, match=r"dtype|scalar type|expects Long"):
        call(L, out=out)
    assert not out.any()


def test_out_may_be_an_operand(L: Any) -> None:
    x = L.tensor([1.0, 2.0])
    L.mul(x, x, out=x)
    assert x.tolist() == [1, 4]


def test_a_saved_tensor_overwritten_by_out_is_an_error(L: Any) -> None:
    w, x = L.ones(2, requires_grad=True), L.ones(2)
    y = (w * x).sum()
    L.exp(L.ones(2), out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


def test_out_is_a_keyword_and_a_tensor() -> None:
    with pytest.raises(TypeError):
        ut.exp(ut.ones(2), ut.empty(2))
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not list"):
        ut.exp(ut.ones(2), out=[[1]])
    assert "out" in inspect.signature(ut.exp).parameters


def test_numpy_writes_into_tensors_by_the_same_rules() -> None:
    import numpy as np

    x, w = ut.ones(2), ut.ones(2, requires_grad=True)
    y = (w * x).sum()
    np.exp(ut.zeros(2), out=x)
    with pytest.raises(RuntimeError, match=r"modified by an inplace.*made by exp at"):
        y.backward()
    with ut.inference_mode():
        c = ut.ones(2)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        np.exp(ut.zeros(2), out=c)


# ---- in the namespaces, and of several results

OUT = {
    "linalg.inv": "(A,)", "linalg.solve": "(A, A)", "linalg.cholesky": "(A,)", "linalg.det": "(A,)",
    "linalg.norm": "(A,)", "linalg.matrix_power": "(A, 3)", "linalg.eigvalsh": "(A,)", "linalg.vecdot": "(A, A)",
    "special.entr": "(A,)", "special.zeta": "(A + 2, A)", "special.ndtr": "(A,)", "renorm": "(A, 2, 0, 1.0)",
    "frobenius_norm": "(A, (0, 1))", "view_copy": "(A, (4,))", "cholesky_solve": "(A, A)", "orgqr": "(A, A[0])",
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", OUT)
def test_out_is_written_to(name: str, torch: Any) -> None:
    found = []
    for L in (ut, torch):
        A = L.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=L.float64)
        out = L.empty(0, dtype=L.float64)
        function: Any = L
        for part in name.split("."):
            function = getattr(function, part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frobenius_norm is an old name
            assert function(*eval(OUT[name], {"A": A}), out=out) is out
        found.append(out.numpy())
    np.testing.assert_allclose(found[0], found[1])


@pytest.mark.torch
def test_out_of_several_results(torch: Any) -> None:
    for L in (ut, torch):
        A = L.tensor([[2.0, 0.5], [0.5, 1.0]])
        Q, R = L.empty(0), L.empty(0)
        found = L.linalg.qr(A, out=(Q, R))
        assert found.Q is Q
        assert found.R is R
        values, indices = L.empty(0), L.empty(0, dtype=L.int64)
        assert L.sort(A[0], out=(values, indices)).indices is indices
        assert values.tolist() == [0.5, 2.0]
        spectrum = L.empty(0, dtype=L.complex64)
        assert L.fft.fft(A[0], out=spectrum) is spectrum


def test_sums_and_products_are_computed_in_the_dtype_of_out(L: Any) -> None:
    x = L.tensor([1.5, 2.5])
    assert L.sum(x, 0, out=L.empty(0, dtype=L.int64)).tolist() == 3
    assert L.prod(x, 0, out=L.empty(0, dtype=L.int32)).tolist() == 2
    assert L.cumsum(x, 0, out=L.empty(0, dtype=L.uint8)).tolist() == [1, 3]
    assert L.cumprod(x, 0, out=L.empty(0, dtype=L.int64)).tolist() == [1, 2]
    large = L.full((3,), 2**53 + 1, dtype=L.int64)
    assert L.sum(large, 0, out=L.empty((), dtype=L.int64)).item() == 3 * (2**53 + 1)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        L.mean(x, 0, out=L.empty(0, dtype=L.int64))


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_leaf_that_out_resized_does_not_get_a_gradient_of_its_former_shape(mode: str) -> None:
    x = ut.ones(4, requires_grad=True)
    y = x * 2
    with getattr(ut, mode)(), pytest.warns(UserWarning, match="resized"):
        ut.sum(ut.ones(4), 0, out=x)
    with pytest.raises(RuntimeError, match=r"The shape of a leaf .* changed by sum\(out=\) since, to \[\]"):
        y.sum().backward()
    assert x.grad is None
    (x * 3).backward()
    assert x.grad.tolist() == 3


def test_a_leaf_that_was_resized_does_not_get_a_gradient_of_its_former_shape() -> None:
    x = ut.ones(4, requires_grad=True)
    y = x * 2
    with ut.inference_mode():
        x.resize_(1)
    with pytest.raises(RuntimeError, match=r"The shape of a leaf .* changed by resize_ since, to \[1\]"):
        y.sum().backward()
