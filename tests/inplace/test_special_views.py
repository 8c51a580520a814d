"""Views made in a special way keep that through every further view, also through the in-place ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut


def by_function(L: Any, x: Any) -> Any:
    class First(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[0]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.expand(2, 2, 2)

    return First.apply(x)


def in_block(block: str) -> Callable[[Any, Any], Any]:
    def make(L: Any, x: Any) -> Any:
        with getattr(L, block)():
            return x[0]

    return make


SPECIAL: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "one of several": (lambda L, x: x.unbind()[0], "output of a function that returns multiple views"),
    "made under no_grad": (in_block("no_grad"), "created in no_grad mode and is being modified inplace"),
    "made in inference mode": (in_block("inference_mode"), "created in inference mode and is being modified inplace"),
    "made in a custom Function": (by_function, "This view was created inside a custom Function"),
}

IN_PLACE_VIEWS: dict[str, Callable[[Any], Any]] = {
    "as_strided_": lambda v: v.as_strided_((2,), (1,)),
    "squeeze_": lambda v: v.squeeze_(),
    "swapaxes_": lambda v: v.swapaxes_(0, 1),
    "swapdims_": lambda v: v.swapdims_(0, 1),
    "t_": lambda v: v.t_(),
    "transpose_": lambda v: v.transpose_(0, 1),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
}

FURTHER_VIEWS: dict[str, Callable[[Any], Any]] = {
    "x[0]": lambda v: v[0],
    "view": lambda v: v.view(-1),
    "t": lambda v: v.t(),
    "expand_as": lambda v: v.expand_as(v),
    "two": lambda v: v[:1].view(-1),
}


def special(L: Any, kind: str) -> Any:
    x = L.ones(2, 2, 2, requires_grad=True) * 1
    return SPECIAL[kind][0](L, x)


@pytest.mark.parametrize("how", IN_PLACE_VIEWS)
@pytest.mark.parametrize("kind", SPECIAL)
def test_in_place_views_keep_how_a_view_came_to_be(L: Any, kind: str, how: str) -> None:
    v = special(L, kind)
    with pytest.raises(RuntimeError, match=SPECIAL[kind][1]):
        IN_PLACE_VIEWS[how](v)
        v.mul_(2)
    assert v.sum().item() == v.numel()


@pytest.mark.parametrize("how", FURTHER_VIEWS)
@pytest.mark.parametrize("kind", SPECIAL)
def test_views_of_special_views_are_special(L: Any, kind: str, how: str) -> None:
    v = FURTHER_VIEWS[how](special(L, kind))
    with pytest.raises(RuntimeError, match="modified inplace"):
        v.mul_(2)
    assert v.sum().item() == v.numel()


@pytest.mark.parametrize("how", [*IN_PLACE_VIEWS, *FURTHER_VIEWS])
def test_without_recording_they_may_be_changed(L: Any, how: str) -> None:
    v = special(L, "one of several")
    with L.no_grad():
        {**IN_PLACE_VIEWS, **FURTHER_VIEWS}[how](v).mul_(2)
    assert v._version > 0 and v._base.sum().item() > 8


def test_the_base_of_a_view_of_a_temporary_lives_in_the_view(L: Any) -> None:
    w = L.ones(4, requires_grad=True)
    v = w.clone().view(2, 2)
    v.mul_(3)
    assert tuple(v._base.shape) == (4,) and type(v._base.grad_fn).__name__ == "CopySlices"
    v.sum().backward()
    assert w.grad.tolist() == [3, 3, 3, 3]


def test_a_view_of_a_leaf_may_not_be_turned_in_place(L: Any) -> None:
    v = L.ones(2, 2, requires_grad=True).view(2, 2)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        v.t_()


def test_the_version_of_an_inference_tensor_may_be_incremented_to_no_effect(L: Any) -> None:
    with L.inference_mode():
        x = L.ones(2)
    L.autograd.graph.increment_version(x)
    assert x.is_inference()


def test_what_is_read_by_index_is_not_saved(L: Any) -> None:
    w = L.ones(3, requires_grad=True)
    x = w * 1
    y = x[L.tensor([0, 0, 1])]
    x.zero_()
    y.sum().backward()
    assert w.grad.tolist() == [2, 1, 0]


def test_a_tensor_that_cannot_say_its_history_is_printed_all_the_same(L: Any) -> None:
    x = L.ones(2, 2, requires_grad=True) * 1
    part = x.unbind()[0]
    x.mul_(2)
    assert repr(part) == "tensor([2., 2.], grad_fn=<Invalid>)"


WRONG_PLACES: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "a float": (lambda L, x: x.narrow(0, L.tensor(0.0), 1), RuntimeError, "start must be an 0-dim integral Tensor"),
    "a row": (lambda L, x: x.narrow(0, L.tensor([0]), 1), RuntimeError, "start must be an 0-dim integral Tensor"),
    "a part of a section": (lambda L, x: x.tensor_split(1.5), TypeError, r"tensor_split\(\)"),
    "a matrix": (lambda L, x: x.tensor_split(L.ones(2, 2).long()), RuntimeError, "but got a tensor with 2 dims"),
}


@pytest.mark.parametrize(("call", "error", "words"), WRONG_PLACES.values(), ids=WRONG_PLACES)
def test_where_no_view_begins(L: Any, call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(L, L.ones(4))


@pytest.mark.parametrize("size", [1, 2])
def test_as_strided_of_a_view_without_history_has_none(size: int) -> None:
    x = ut.arange(6.0).reshape(2, 3).clone().requires_grad_()
    with ut.no_grad():
        column = x[:, 1]
    shown = column.as_strided((size,), (1,))  # the second element does not lie in the column
    assert shown.tolist() == [1.0, 2.0][:size]
    assert ut.autograd.grad(shown.sum(), x, allow_unused=True) == (None,)


def test_a_complex_view_that_was_changed_has_second_derivatives(L: Any) -> None:
    """Its slice of the base's history is found on something that lies as complex numbers do."""
    x = L.tensor([0.3, 0.4, 0.6, 0.7], requires_grad=True)
    y = x.clone()
    L.view_as_complex(y.view(2, 2)).exp_()
    (grad,) = L.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = L.autograd.grad((grad**2).sum(), x)
    assert np.allclose(second.numpy(), [4 * np.exp(0.6), 0, 4 * np.exp(1.2), 0], atol=1e-5)
