"""`x[index] = value`: what it records, and that rows can be filled one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut


def names(x: Any) -> list[str | None]:
    return [None if node is None else type(node).__name__ for node, _ in x.grad_fn.next_functions]


def fill(x: Any, index: Any, value: Any) -> None:
    x[index] = value


#: a change of x, by a row w that requires grad, and what the CopySlices then leads to
CHANGES: dict[str, tuple[Callable[[Any, Any], None], list[str | None]]] = {
    "a row": (lambda x, w: fill(x, 0, w * 2), ["MulBackward0", "MulBackward0"]),
    "a leaf": (lambda x, w: fill(x, 0, w), ["MulBackward0", "AccumulateGrad"]),
    "a number": (lambda x, w: fill(x, 0, 5.0), ["MulBackward0", None]),
    "no gradient": (lambda x, w: fill(x, 0, w.detach()), ["MulBackward0", None]),
    "a column": (lambda x, w: fill(x, (slice(None), 1), w[:2] * 2), ["MulBackward0", "MulBackward0"]),
    "a part of a row": (lambda x, w: fill(x[0], slice(1, 3), w[:2] * 2), ["MulBackward0", "MulBackward0"]),
    "to be broadcast": (lambda x, w: fill(x, 0, w[:1] * 2), ["MulBackward0", "ExpandBackward0"]),
    "of another dtype": (lambda x, w: fill(x, 0, w.double()), ["MulBackward0", "ToCopyBackward0"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_an_assignment_leads_to(L: Any, name: str) -> None:
    change, expected = CHANGES[name]
    x, w = L.ones(2, 3, requires_grad=True) * 1, L.ones(3, requires_grad=True)
    change(x, w)
    assert type(x.grad_fn).__name__ == "CopySlices" and names(x) == expected


def test_the_first_row_of_a_tensor_without_history_leads_to_the_value_alone(L: Any) -> None:
    x = L.zeros(2, 3)
    x[0] = L.ones(3, requires_grad=True)
    assert names(x) == [None, "AccumulateGrad"]


@pytest.mark.parametrize("change", [lambda x, w: fill(x, 0, w), lambda x, w: x[0].mul_(w)], ids=["assigned", "changed"])
def test_a_history_of_slices_runs_once(L: Any, change: Any) -> None:
    x, w = L.zeros(2, 3), L.ones(3, requires_grad=True)
    change(x, w)
    loss = x.sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert w.grad.tolist() == ([2, 2, 2] if float(loss.detach()) else [0, 0, 0])


def test_hooks_of_an_assignment_see_what_they_see_in_pytorch(L: Any) -> None:
    x, w = L.ones(2, 3, requires_grad=True) * 1, L.ones(3, requires_grad=True)
    x[0] = w
    seen: list[Any] = []
    x.grad_fn.register_prehook(lambda grads: seen.append([g.tolist() for g in grads]))
    x.grad_fn.register_hook(lambda to, of: seen.append([None if g is None else g.tolist() for g in to]))
    (x * L.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    assert seen == [[[[1, 2, 3], [4, 5, 6]]], [[[0, 0, 0], [4, 5, 6]], [1, 2, 3]]]


def test_assigning_does_not_change_a_gradient_that_others_hold() -> None:
    x, w = ut.ones(2, 3, requires_grad=True), ut.ones(3, requires_grad=True)
    y = x * 1
    y[0] = w
    given = ut.ones(2, 3)
    y.backward(given, retain_graph=True)
    held: list[Any] = []
    y.register_hook(held.append)
    y.backward(given)
    assert given.tolist() == [[1, 1, 1], [1, 1, 1]] == held[0].tolist()
    assert x.grad.tolist() == [[0, 0, 0], [2, 2, 2]] and w.grad.tolist() == [2, 2, 2]


def test_second_derivatives_of_assignments(L: Any) -> None:
    w = L.tensor([1.0, 2.0, 3.0], dtype=L.float64, requires_grad=True)

    def f(w: Any) -> Any:
        x = w[None] * w[:, None]
        x[0] = w * w
        x[1][1:] = x[0, :2].clone() * w[0]
        x[:, 2] = x[1].clone() * x[0].clone()
        return (x * x).sum()

    assert L.autograd.gradcheck(f, (w,)) and L.autograd.gradgradcheck(f, (w,))


def test_an_assignment_names_its_line_in_both_errors() -> None:
    x = ut.ones(2, requires_grad=True) * 1
    y = x * x
    x[0] = 3.0
    with pytest.raises(RuntimeError, match=r"__setitem__ at .*test_assignment.py:\d+"):
        y.sum().backward()
    assert "test_assignment.py" in str(x.grad_fn.code)


def test_a_refused_assignment_changes_nothing(L: Any) -> None:
    x, w = L.ones(2, 3, requires_grad=True) * 1, L.ones(4, requires_grad=True)
    node, version = x.grad_fn, x._version
    with pytest.raises(RuntimeError):
        x[0] = w
    with pytest.raises(IndexError):
        x[5] = w[:3]
    assert x.grad_fn is node and x._version == version and x.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_thousand_rows() -> None:
    w = ut.ones(16, requires_grad=True)
    y = ut.zeros(1000, 16)
    for i in range(1000):
        y[i] = w * float(i)
    assert y._version == 1000
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full(16, 999 * 500.0))


PARTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "real": ("complex128", lambda L, x: x.real),
    "imag": ("complex128", lambda L, x: x.imag),
    "imag of a row": ("complex128", lambda L, x: x[:1].imag),
    "view_as_real": ("complex128", lambda L, x: L.view_as_real(x)),
    "view_as_complex": ("float64", lambda L, x: L.view_as_complex(x)),
    "real of view_as_complex": ("float64", lambda L, x: L.view_as_complex(x).real),
}


def write_number(L: Any, part: Any, value: Any) -> None:
    part[0] = 3


def write_tensor(L: Any, part: Any, value: Any) -> None:
    part[0] = value.to(part.dtype) * L.ones_like(part[0])


def write_columns(L: Any, part: Any, value: Any) -> None:
    part[..., :1] = 2.5
    part[0, 1:] = value.to(part.dtype)


@pytest.mark.parametrize("write", [write_number, write_tensor, write_columns])
@pytest.mark.parametrize(("dtype", "look"), PARTS.values(), ids=list(PARTS))
def test_assignments_to_parts_of_complex_numbers(torch: Any, dtype: str, look: Any, write: Any) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 2, 2))

    def gradients(L: Any) -> list[Any]:
        w = L.from_numpy(numbers).clone()
        w = (L.view_as_complex(w) if dtype == "complex128" else w).clone().requires_grad_()
        value = L.tensor(0.5, dtype=L.float64, requires_grad=True)
        x = w * 1
        part = look(L, x)
        write(L, part, value)
        loss = (x.abs() ** 2).sum() + (part.abs() ** 4).sum()
        first = L.autograd.grad(loss, (w, value), create_graph=True, allow_unused=True)
        again = sum((g.abs() ** 2).sum() for g in first if g is not None)
        second = L.autograd.grad(again, (w, value), allow_unused=True)
        return [None if g is None else np.array(g.tolist()) for g in (*first, *second)]

    for mine, expected in zip(gradients(ut), gradients(torch), strict=True):
        np.testing.assert_allclose(0 if mine is None else mine, 0 if expected is None else expected)


@pytest.mark.parametrize("index", [(), ..., slice(None), slice(0, 3), (..., slice(None))])
@pytest.mark.parametrize("value", ["tensor", "row", "number"])
def test_an_assignment_to_all_is_no_slice(L: Any, index: Any, value: str) -> None:
    x, given = L.ones(3, requires_grad=True), L.full((3,), 2.0, requires_grad=True)
    y = x * 1
    seen = y.view(3)
    y[index] = {"tensor": given, "row": given.reshape(1, 3), "number": 2.0}[value]
    assert "CopySlices" not in y.grad_fn.name() and y.tolist() == seen.tolist() == [2.0, 2.0, 2.0]
    (y * seen).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    assert value == "number" or given.grad.tolist() == [4.0, 4.0, 4.0]


def test_an_assignment_to_all_of_a_view_is_one_to_a_slice_of_its_base(L: Any) -> None:
    base, given = L.zeros(2, 3), L.ones(3, requires_grad=True)
    row = base[1]
    row[...] = given * 2
    assert base.grad_fn.name().endswith("CopySlices")
    base.sum().backward()
    assert given.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers_have_no_history_whatever_is_written_into_them(L: Any, dtype: str) -> None:
    w = L.ones(3, requires_grad=True)
    writes: list[Callable[[Any], Any]] = [
        lambda x: x.copy_(w),
        lambda x: fill(x, slice(None), w * 2),
        lambda x: fill(x, 0, w[0]),
        lambda x: x[1:].copy_(w[1:]),
        lambda x: fill(x, L.tensor([True, False, True]), w.detach().sum()),
    ]
    for write in writes:
        x = L.zeros(3, dtype=getattr(L, dtype))
        write(x)
        assert x.any() and not x.requires_grad and x.is_leaf and x.grad_fn is None


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_one_number_at_a_mask_need_not_have_the_dtype(L: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x, mask = L.zeros(2, 3), L.tensor([True, False, True])
    x[:, mask] = L.ones(shape, dtype=getattr(L, dtype))
    assert x.tolist() == [[1, 0, 1]] * 2 and x.dtype == L.float32
    with pytest.raises(RuntimeError, match="source and destination dtypes match"):
        x[:, mask] = L.ones(2, dtype=L.float64)
    with pytest.raises(RuntimeError, match=r"Converting complex|without overflow"):
        x[:, mask] = L.tensor(1j)


def test_one_number_at_a_mask_has_a_gradient_in_its_own_dtype(L: Any) -> None:
    w = L.ones(3, dtype=L.float64, requires_grad=True)
    x = L.zeros(4)
    x[L.tensor([True, False, True, True])] = (w * w).sum()
    x.sum().backward()
    assert w.grad.tolist() == [6, 6, 6] and w.grad.dtype == L.float64


def test_a_mask_may_be_what_is_filled(L: Any) -> None:
    mask = L.tensor([True, False, True])
    mask[mask] = False
    assert mask.tolist() == [False] * 3
    mask = ut.tensor([[True, False], [True, True]])  # PyTorch reads what it has written
    mask[mask[:, 0]] = False
    assert mask.tolist() == [[False] * 2] * 2
    one = L.ones(1)
    one[L.tensor([True])] = one
    assert one.tolist() == [1]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        mask = L.tensor([True, False, True])
        mask[mask] = L.tensor([True, False])


def test_true_is_one_more_dimension_and_casts_as_a_slice_does(L: Any) -> None:
    x = L.zeros(2, 3)
    x[True] = L.ones(3, dtype=L.float64)
    assert x.tolist() == [[1, 1, 1]] * 2 and x.dtype == L.float32
    x[False] = L.zeros(7)
    assert x.tolist() == [[1, 1, 1]] * 2
