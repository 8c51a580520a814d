"""What views say about their memory, and which memory they refuse to show: the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut

# ---- reading memory as another dtype


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_memory_read_as_another_dtype_is_an_alias_without_history(L: Any, dtype: str) -> None:
    x = L.ones(2, 4, requires_grad=True)
    alias = x.view(getattr(L, dtype))
    assert not alias.requires_grad
    assert alias.grad_fn is None
    assert not alias._is_view()
    assert alias.data_ptr() == x.data_ptr()


def test_memory_read_as_another_dtype_shares_the_version(L: Any) -> None:
    x = L.ones(2, 4, requires_grad=True).clone()
    bits = x.view(L.int32)
    bits.add_(1)
    assert x._version == bits._version == 1
    assert type(x.grad_fn).__name__ == "CloneBackward0"


def test_a_recorded_change_of_the_alias_is_not_one_of_the_tensor(L: Any) -> None:
    x, w = L.ones(2, 4), L.ones(2, 2, dtype=L.float64, requires_grad=True)
    x.view(L.float64).mul_(w)
    assert not x.requires_grad


WIDER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "size": (lambda L: L.ones(4, 3), r"self.size\(-1\) must be divisible by 2 to view Float as Double"),
    "offset": (
        lambda L: L.ones(4, 3)[:, 1:],
        r"self.storage_offset\(\) must be divisible by 2 to view Float as Double",
    ),
    "stride": (lambda L: L.ones(4, 3)[:, :2], r"self.stride\(0\) must be divisible by 2 to view Float as Double"),
    "last stride": (lambda L: L.ones(2, 4).t(), r"self.stride\(-1\) must be 1 to view Float as Double"),
    "expanded": (lambda L: L.ones(2, 1).expand(2, 4), r"self.stride\(-1\) must be 1 to view Float as Double"),
    "no dimension": (lambda L: L.ones(()), r"self.dim\(\) cannot be 0 to view Float as Double"),
}


@pytest.mark.parametrize(("make", "message"), WIDER.values(), ids=list(WIDER))
def test_elements_read_as_wider_ones_must_lie_as_those_would(L: Any, make: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        make(L).view(L.float64)


def test_an_expanded_dimension_may_be_read_as_wider_elements(L: Any) -> None:
    x = L.arange(4, dtype=L.float32).expand(3, 4)
    assert x.view(L.int64).shape == (3, 2)
    assert x.view(L.int16).stride() == (0, 1)


def test_nothing_may_be_read_as_wider_elements(L: Any) -> None:
    assert tuple(L.ones(0, 5, 64).view(L.float64).shape) == (0, 5, 32)


# ---- pairs as complex numbers

PAIRS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "offset": (lambda L: L.ones(6)[1:5].view(2, 2), "Tensor must have a storage_offset divisible by 2"),
    "stride": (lambda L: L.ones(3, 3)[:, :2], "Tensor must have a stride divisible by 2 for all but last dimension"),
    "windows": (
        lambda L: L.ones(3, 3).as_strided((2, 2), (1, 1)),
        "Tensor must have a stride divisible by 2 for all but last dimension",
    ),
    "last stride": (lambda L: L.ones(2, 2).t(), "Tensor must have a last dimension with stride 1"),
    "expanded": (lambda L: L.ones(3, 1).expand(3, 2), "Tensor must have a last dimension with stride 1"),
}


@pytest.mark.parametrize(("make", "message"), PAIRS.values(), ids=list(PAIRS))
def test_pairs_must_lie_as_complex_numbers_would(L: Any, make: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        L.view_as_complex(make(L))


def test_a_dimension_of_size_one_may_have_an_odd_stride(L: Any) -> None:
    assert L.view_as_complex(L.ones(1, 3)[:, :2]).shape == (1,)


def test_gradients_of_pairs_may_lie_anywhere() -> None:
    """In PyTorch the gradient given here is refused."""
    x = ut.arange(6.0).view(3, 2).requires_grad_()
    weights = ut.view_as_complex(ut.arange(6.0).view(3, 2))
    parts = ut.view_as_real(ut.view_as_complex(x) * weights)
    (g,) = ut.autograd.grad(parts, x, ut.ones(9)[1:7].view(3, 2), create_graph=True)
    assert g.tolist() == [[1.0, -1.0], [5.0, -1.0], [9.0, -1.0]]


# ---- strides

STRIDES: dict[str, Callable[[Any], Any]] = {
    "a new first dimension": lambda L: L.ones(3, 4).unsqueeze(0),
    "a new last dimension": lambda L: L.ones(3, 4)[:, ::2].unsqueeze(2),
    "in between": lambda L: L.ones(3, 4).t().unsqueeze(1),
    "of a number": lambda L: L.ones(()).unsqueeze(0),
    "by None": lambda L: L.ones(3, 4)[:, None],
    "of nothing": lambda L: L.ones(0, 4)[:, None],
    "expanded around": lambda L: L.ones(4, 3)[:, :1].expand(2, 4, 1),
    "expanded in front": lambda L: L.ones(5).expand(3, 1, 5),
    "expanded and not": lambda L: L.ones(5, 1).expand(1, 5, 3),
}


@pytest.mark.parametrize("make", STRIDES.values(), ids=list(STRIDES))
def test_strides_of_dimensions_of_size_one(torch: Any, make: Any) -> None:
    assert make(ut).stride() == make(torch).stride()


def test_a_tensor_is_its_own_strided_view(L: Any) -> None:
    for x in (L.arange(12).view(3, 4)[1:, 2:], L.arange(12)[3:].detach()[2:], L.arange(6).view(2, 3).t()):
        assert L.equal(x, x.as_strided(x.size(), x.stride(), x.storage_offset()))


def test_an_alias_knows_where_it_begins(L: Any) -> None:
    x = L.arange(12)[3:]
    assert x.detach().storage_offset() == x.detach().view(3, 3)[1:].storage_offset() - 3 == 3


# ---- sizes that no memory has

TOO_LARGE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "resize_": (lambda L: L.ones(()).resize_([2, 4, 2**29, 2**29]), "Storage size calculation overflowed with sizes="),
    "resize_ elements": (lambda L: L.ones(()).resize_([8, 8, 2**29, 2**29]), "numel: integer multiplication overflow"),
    "resize_ nothing": (lambda L: L.ones(()).resize_([0, 4, 2**61]), "Stride calculation overflowed"),
    "offset": (lambda L: L.ones(6).as_strided([1], [1], 2**63 - 1), "Storage size calculation overflowed with sizes="),
    "stride": (lambda L: L.ones(6).as_strided([2**40], [2**40]), "Storage size calculation overflowed with sizes="),
    "storage": (lambda L: L.ones(6).as_strided([1], [1], 2**50), "setStorage: sizes .* are out of bounds for storage"),
}


@pytest.mark.parametrize(("call", "message"), TOO_LARGE.values(), ids=list(TOO_LARGE))
def test_sizes_that_no_memory_has(L: Any, call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(L)


# ---- shapes that do not go together

SHAPES: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "negative": ((1, (1, -12)), ValueError, "Attempting to broadcast a dimension with negative length!"),
    "no integer": ((1.5,), RuntimeError, "Input shapes should be of type ints, a tuple of ints, or a list of ints"),
    "two": (((3,), (5,)), RuntimeError, r"expected shape should be broadcastable to \[3\]"),
    "three": (((2, 1), (1, 3), (5,)), RuntimeError, r"expected shape should be broadcastable to \[2, 3\]"),
}


@pytest.mark.parametrize(("shapes", "error", "message"), SHAPES.values(), ids=list(SHAPES))
def test_shapes_that_do_not_broadcast(L: Any, shapes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        L.broadcast_shapes(*shapes)


# ---- copies of views

COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "alias": lambda L, x: L.alias_copy(x),
    "permute": lambda L, x: L.permute_copy(x, (2, 0, 1)),
    "slice": lambda L, x: L.slice_copy(x, 0, 0, 2),
    "split": lambda L, x: L.split_copy(x, 2)[0],
    "transpose": lambda L, x: L.transpose_copy(x, 0, 1),
    "view": lambda L, x: L.view_copy(x, (4, 3, 5)),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=list(COPIES))
def test_copies_of_views_are_contiguous(L: Any, make: Any) -> None:
    assert make(L, L.ones(3, 4, 5).transpose(0, 1)).is_contiguous()


SEVERAL: dict[str, Callable[..., Any]] = {
    "split_copy": lambda L, x, **out: L.split_copy(x, 2, **out),
    "split_with_sizes_copy": lambda L, x, **out: L.split_with_sizes_copy(x, (1, 3), 1, **out),
    "unbind_copy": lambda L, x, **out: L.unbind_copy(x, **out),
}


@pytest.mark.parametrize("make", SEVERAL.values(), ids=list(SEVERAL))
def test_several_copies_can_be_written_into_given_tensors(L: Any, make: Any) -> None:
    x = L.arange(16.0).view(4, 4)
    expected = make(L, x)
    out = [L.empty(part.shape) for part in expected]
    make(L, x, out=out)
    assert all(L.equal(a, b) for a, b in zip(out, expected, strict=True))


# ---- methods


def test_where_as_a_method_keeps_its_own_elements(L: Any) -> None:
    x, mask = L.tensor([1.0, 2.0], requires_grad=True), L.tensor([True, False])
    out = x.where(mask, L.tensor([5.0, 6.0]))
    assert out.tolist() == [1.0, 6.0]
    out.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]
    assert x.where(mask, 7).tolist() == [1.0, 7.0]
    assert mask.where(L.tensor([False, False]), L.tensor([False, True])).tolist() == [False, True]


def test_a_reversed_tensor(L: Any) -> None:
    x = L.arange(6.0).view(2, 3).requires_grad_()
    out = reversed(x)
    assert out.tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]
    (out * L.tensor([[1.0], [2.0]])).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3, [1.0] * 3]
    assert reversed(L.tensor(3)).item() == 3


def test_a_number_to_the_power_of_a_tensor_has_one_edge(L: Any) -> None:
    x = L.tensor([1.0, 3.0], requires_grad=True)
    node = (2.0**x).grad_fn
    assert type(node).__name__ == "PowBackward2"
    assert len(node.next_functions) == 1
    assert node._saved_self == 2.0
    assert node._saved_exponent is x


METHODS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "permute": (lambda L: L.ones(2, 2).permute(), TypeError, "missing 1 required positional arguments: .dims"),
    "flip": (lambda L: L.ones(2, 2).flip(), TypeError, "missing 1 required positional arguments: .dims"),
    "unflatten": (
        lambda L: L.ones(2, 4).unflatten("A", (2, 2)),
        TypeError,
        r"unflatten\(\): argument 'dim' \(position 1\) must be int, not str",
    ),
    "unflatten of a number": (
        lambda L: L.tensor(1.0).unflatten(0, (1, -1)),
        RuntimeError,
        "Dimension specified as 0 but tensor has no dimensions",
    ),
    "index_select of nothing": (
        lambda L: L.index_select(L.ones(0, 3), 0, L.tensor([0, 1])),
        RuntimeError,
        "self indexing axis dim should be positive",
    ),
    "index_select out of bounds": (
        lambda L: L.index_select(L.ones(0, 3), 1, L.tensor([0, 5])),
        RuntimeError,
        "INDICES element is out of DATA bounds, id=5 axis_dim=3",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), METHODS.values(), ids=list(METHODS))
def test_what_methods_refuse(L: Any, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(L)


@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "rand_like"])
def test_tensors_like_others_in_a_memory_format(L: Any, name: str) -> None:
    made = getattr(L, name)(L.ones(2, 3, 4, 5), memory_format=L.channels_last)
    assert made.stride() == (60, 1, 15, 3)
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        getattr(L, name)(L.ones(2, 3), memory_format=L.channels_last)


def test_the_trace_of_small_integers_is_an_int64(L: Any) -> None:
    for dtype in (L.uint8, L.int16, L.int64):
        assert L.full((3, 3), 100, dtype=dtype).trace().dtype == L.int64


@pytest.mark.filterwarnings("ignore:torch.qr is deprecated")
def test_factors_can_be_written_into_given_tensors(L: Any) -> None:
    a = L.tensor([[2.0, 1.0], [1.0, 3.0]])
    q, r = L.empty(0), L.empty(0)
    L.qr(a, out=(q, r))
    assert L.allclose(q @ r, a)
    packed, tau = L.empty(0), L.empty(0)
    L.geqrf(a, out=(packed, tau))
    assert L.allclose(L.linalg.householder_product(packed, tau), q)


def test_a_product_of_no_reflections_has_gradients(L: Any) -> None:
    for dtype, lead, m, n in ((L.float64, (), 3, 3), (L.complex128, (2,), 4, 2)):
        a = L.full((*lead, m, n), 2.0, dtype=dtype).requires_grad_()
        tau = L.zeros(*lead, 0, dtype=dtype, requires_grad=True)
        q = L.linalg.householder_product(a, tau)
        assert L.equal(q.detach(), L.eye(m, n, dtype=dtype).expand(q.shape))
        by_a, by_tau = L.autograd.grad(q.real.sum(), (a, tau), allow_unused=True)  # PyTorch's have none
        assert (by_a is None or not by_a.any()) and (by_tau is None or by_tau.shape == tau.shape)


# ---- the memory of copies

EXPANDED: dict[str, Callable[[Any], Any]] = {
    "a new first dimension": lambda L: L.ones(2, 3).expand(4, 2, 3),
    "in between": lambda L: L.ones(3, 1, 2).expand(3, 4, 2),
    "at both ends": lambda L: L.ones(1, 3, 1).expand(2, 3, 4),
    "of a transposed tensor": lambda L: L.ones(2, 3).t().unsqueeze(0).expand(4, 3, 2),
    "transposed": lambda L: L.ones(3, 1).expand(3, 4).t(),
}
COPYING: dict[str, Callable[[Any, Any], Any]] = {
    "clone": lambda L, x: x.clone(),
    "double": lambda L, x: x.double(),
    "zeros_like": lambda L, x: L.zeros_like(x),
    "rand_like": lambda L, x: L.rand_like(x),
    "deepcopy": lambda L, x: __import__("copy").deepcopy(x.clone()),
}


@pytest.mark.parametrize("copy", COPYING.values(), ids=list(COPYING))
@pytest.mark.parametrize("make", EXPANDED.values(), ids=list(EXPANDED))
def test_copies_of_expanded_tensors_lie_as_in_pytorch(torch: Any, make: Any, copy: Any) -> None:
    assert copy(ut, make(ut)).stride() == copy(torch, make(torch)).stride()


def test_a_copy_of_an_expanded_tensor_can_be_viewed(L: Any) -> None:
    x = L.arange(6.0).view(2, 3).requires_grad_()
    out = x.expand(4, 2, 3).clone().view(4, 6)
    out[1].mul_(2)
    out.sum().backward()
    assert x.grad.tolist() == [[5.0] * 3] * 2


REARRANGED: dict[str, Callable[[Any, Any], Any]] = {
    "repeat": lambda L, x: x.repeat(2, 1, 1),
    "roll": lambda L, x: x.roll(1, 0),
    "tril": lambda L, x: x.tril(),
    "triu": lambda L, x: x.triu(),
}


@pytest.mark.parametrize("move", REARRANGED.values(), ids=list(REARRANGED))
def test_rearranged_elements_are_contiguous(L: Any, move: Any) -> None:
    assert move(L, L.ones(2, 3, 4).transpose(0, 2)).is_contiguous()
