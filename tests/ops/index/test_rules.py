"""Indices and what is written at them: values that fit, values that do not, and the errors PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# ---- numbers that an integer dtype cannot hold


def by_index(L: Any, x: Any, n: Any) -> Any:
    x[0] = n
    return x


def by_list(L: Any, x: Any, n: Any) -> Any:
    x[[0]] = n
    return x


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x[0] =": by_index,
    "x[[0]] =": by_list,
    "fill_": lambda L, x, n: x[:1].fill_(n),
    "index_fill": lambda L, x, n: x.index_fill(0, L.tensor([0]), n),
    "masked_fill": lambda L, x, n: x.masked_fill(L.tensor([True, False]), n),
    "scatter": lambda L, x, n: x.scatter(0, L.tensor([0]), n),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_negative_numbers_wrap_around_in_unsigned_tensors(L: Any, write: Any) -> None:
    for number, found in ((-1, 255), (-255, 1)):
        assert write(L, L.zeros(2, dtype=L.uint8), number)[0].item() == found


@pytest.mark.parametrize("write", [w for name, w in WRITES.items() if name != "fill_"])
@pytest.mark.parametrize(("dtype", "number"), [("uint8", 300), ("uint8", -300), ("int8", 200), ("int8", -129)])
def test_numbers_out_of_range_are_refused(L: Any, write: Any, dtype: str, number: int) -> None:
    x = L.zeros(2, dtype=getattr(L, dtype))
    with pytest.raises(RuntimeError, match=r"value cannot be converted to type u?int8(_t)? without overflow"):
        write(L, x, number)
    assert x.tolist() == [0, 0]


# ---- tensors of no dimensions


@pytest.mark.parametrize("target", [(), (1,)])
@pytest.mark.parametrize("index", [(), (1,)])
@pytest.mark.parametrize("source", [(), (1,)])
def test_index_copy_of_single_elements(L: Any, target: Any, index: Any, source: Any) -> None:
    x, s = L.ones(target, requires_grad=True), L.full(source, 7.0, requires_grad=True)
    out = x.clone().index_copy_(0, L.zeros(index, dtype=L.int64), s)
    assert out.shape == x.shape
    assert out.item() == 7.0
    out.sum().backward()
    assert x.grad.item() == 0.0
    assert s.grad.shape == s.shape
    assert s.grad.item() == 1.0


@pytest.mark.parametrize(("target", "source"), [((), (1,)), ((1,), ()), ((), (1, 1, 1))])
def test_index_add_needs_slices_of_the_same_shape(L: Any, target: Any, source: Any) -> None:
    with pytest.raises(RuntimeError, match="source tensor shape must match self tensor shape, excluding the specified"):
        L.ones(target).index_add(0, L.tensor([0]), L.ones(source))


# ---- what is refused


def delete(L: Any) -> None:
    x = L.ones(3)
    del x[0]


def assign_to_mask(L: Any, values: list[Any]) -> None:
    x = L.arange(4)
    x[x > -1] = L.tensor(values)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "deletion": (delete, TypeError, "Tensor does not support deleting items"),
    "no values": (lambda L: assign_to_mask(L, []), RuntimeError, r"shape mismatch: value tensor of shape \[0\]"),
    "too few values": (lambda L: assign_to_mask(L, [1.0, 2.0]), RuntimeError, r"shape mismatch: value tensor of shape"),
    "values of another dtype": (
        lambda L: assign_to_mask(L, [1.0, 2.0, 3.0, 4.0]),
        RuntimeError,
        "Index put requires the source and destination dtypes match, got Long for the destination and Float",
    ),
    "nothing to index": (
        lambda L: L.ones(10, 0)[:, [0, 1]],
        IndexError,
        "index is out of bounds for dimension with size 0",
    ),
    "index_put without index": (lambda L: L.ones(()).index_put([], L.ones(1), True), RuntimeError, "."),
    "take_along_dim int32": (
        lambda L: L.take_along_dim(L.ones(2, 3), L.zeros(2, 3, dtype=L.int32), 0),
        RuntimeError,
        "dtype of indices should be Long but got Int",
    ),
    "unravel_index sizes": (
        lambda L: L.unravel_index(L.tensor([1]), L.tensor([1, 2])),
        TypeError,
        "expected 'shape' to be int or sequence of ints",
    ),
    "unravel_index fraction": (
        lambda L: L.unravel_index(L.tensor([1]), (1, 2.0)),
        TypeError,
        "expected 'shape' sequence to only contain ints",
    ),
    "unravel_index negative": (
        lambda L: L.unravel_index(L.tensor([1]), (2, -3)),
        ValueError,
        r"'shape' cannot have negative values, but got \(2, -3\)",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(L: Any, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(L)


# ---- gradients where kernels meet NumPy's scalars

REDUCTIONS: dict[str, Callable[[Any, Any, Any, str], Any]] = {
    "scatter_reduce": lambda L, x, s, how: L.scatter_reduce(x, 0, L.tensor(0), s, how, include_self=False),
    "index_reduce": lambda L, x, s, how: L.index_reduce(x, 0, L.tensor([0]), s, how, include_self=False),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("how", ["mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=list(REDUCTIONS))
def test_what_a_reduction_replaces_has_no_gradient(L: Any, reduce: Any, how: str) -> None:
    x, s = L.tensor(2.0, requires_grad=True), L.tensor(3.0, requires_grad=True)
    out = reduce(L, x, s, how)
    assert out.item() == 3.0
    assert [g.item() for g in L.autograd.grad(out, (x, s))] == [0.0, 1.0]


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
def test_a_single_element_can_be_scattered(L: Any, name: str) -> None:
    source = L.tensor(5.0, requires_grad=True)
    out = getattr(L.zeros(3), name)(0, L.tensor([1]), source)
    assert out.tolist() == [0.0, 5.0, 0.0]
    out.sum().backward()
    assert source.grad.item() == 1.0
    with pytest.raises(RuntimeError):
        getattr(L.zeros(3), name)(0, L.tensor([0, 1]), source)


COMPLEX_WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "fill_": lambda L, x: x.fill_(1 + 2j),
    "masked_fill": lambda L, x: x.masked_fill(x == 0, L.tensor(1 + 2j)),
    "masked_fill number": lambda L, x: x.masked_fill(x == 0, 1 + 2j),
    "index_fill": lambda L, x: x.index_fill(0, L.tensor([0]), L.tensor(1 + 2j)),
    "index_fill number": lambda L, x: x.index_fill(0, L.tensor([0]), 1 + 2j),
}


@pytest.mark.parametrize("write", COMPLEX_WRITES.values(), ids=list(COMPLEX_WRITES))
def test_complex_numbers_are_not_written_to_real_tensors(L: Any, write: Any) -> None:
    x = L.zeros(2)
    with pytest.raises(RuntimeError, match=r"without overflow|Converting complex Scalar to non-complex type"):
        write(L, x)
    assert x.tolist() == [0.0, 0.0]
    assert write(L, L.zeros(2, dtype=L.complex64))[0].item() == 1 + 2j
