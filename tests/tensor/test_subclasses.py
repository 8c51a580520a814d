"""Subclasses of Tensor that programs define: operations give tensors of their class, and gradients flow."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import undertow as ut
from undertow.tensor.tensor import SUBCLASSES


class Labelled(ut.Tensor):
    """As libraries write them: made in `__new__`, with an attribute of its own."""

    @staticmethod
    def __new__(cls, data, label="none", **kwargs):
        return ut.Tensor._make_subclass(cls, data, kwargs.get("requires_grad", False))

    def __init__(self, data, label="none", **kwargs):
        super().__init__()
        self.label = label


class Derived(Labelled): ...


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x * 2, lambda x: 2 - x, lambda x: x @ x.t(), lambda x: x.sum(), lambda x: x[0], lambda x: x.view(-1),
        lambda x: ut.softmax(x, -1), lambda x: x.exp().mean(0), lambda x: x.t(), lambda x: ut.add(ut.ones(3), x),
        lambda x: x.max(0).values, lambda x: x.chunk(3)[1], lambda x: x.clone(), lambda x: x.add_(1),
        lambda x: x.detach(), lambda x: ut.cat([ut.ones(1, 3), x]), lambda x: ut.stack([x, x]),
    ],
)  # fmt: skip
def test_results_keep_the_class(compute) -> None:
    x = Labelled(ut.rand(3, 3), "mine")
    assert type(compute(x)) is Labelled and x.label == "mine"
    assert type(compute(ut.rand(3, 3))) is ut.Tensor


def test_the_most_derived_class_wins_and_parameters_do_not_count() -> None:
    x, y = Labelled(ut.ones(2)), Derived(ut.ones(2))
    assert type(x + y) is type(y + x) is Derived
    parameter = ut.nn.Parameter(ut.ones(2))
    assert type(parameter * 2) is ut.Tensor and type(parameter * x) is Labelled

    class Own(ut.nn.Parameter): ...

    assert type(Own(ut.ones(2)) * 2) is ut.Tensor


def test_gradients_flow_through_it() -> None:
    leaf = ut.ones(2, requires_grad=True)
    (leaf.as_subclass(Labelled) ** 2).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0]
    own = Labelled(ut.ones(2), requires_grad=True)
    (own * 3).sum().backward()
    assert own.is_leaf and own.grad.tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match=r"as_subclass\(\): argument 'cls' must be a subclass of Tensor, not <c"):
        leaf.as_subclass(int)


def test_memory_is_shared() -> None:
    data = ut.zeros(2)
    made = Labelled(data)
    made.add_(1)
    assert data.tolist() == [1.0, 1.0] and data._version == made._version == 1


def test_a_class_that_nobody_holds_is_forgotten() -> None:
    class Passing(ut.Tensor): ...

    for results in (ut.ones(2).as_subclass(Passing) * 2, ut.ones(2).as_subclass(Passing).unbind()):
        assert type(results if isinstance(results, ut.Tensor) else results[0]) is Passing
    gone, known = weakref.ref(Passing), len(SUBCLASSES)
    del Passing, results
    gc.collect()
    assert gone() is None
    assert len(SUBCLASSES) == known - 1


def test_arguments_are_for_new() -> None:
    class Wrapped(ut.Tensor):
        @staticmethod
        def __new__(cls, data, source=frozenset()):
            made = ut.Tensor.__new__(cls)
            made.inner, made.source = data, source
            return made

    made = Wrapped(ut.ones(2), frozenset({"a"}))
    assert made.inner.tolist() == [1.0, 1.0] and made.source == {"a"} and made.shape == (0,)


class Sized(ut.nn.Parameter):
    """Made in `__new__`, of more than a Parameter is, and without an `__init__`."""

    def __new__(cls, data, size=0, *, unit="m"):
        made = ut.Tensor._make_subclass(cls, data, True)
        made.size_and_unit = size, unit
        return made


def test_arguments_of_new_need_no_init() -> None:
    x = Sized(ut.ones(2), 3, unit="kg")
    assert x.size_and_unit == (3, "kg") and x.requires_grad and x.tolist() == [1, 1]
    assert isinstance(x, ut.nn.Parameter) and type(x) is Sized


def test_data_is_of_the_class() -> None:
    x = Labelled(ut.ones(2))
    assert type(x.data) is Labelled and x.data._array is x._array
    assert type(ut.nn.Parameter(ut.ones(2)).data) is ut.Tensor


def test_the_constructor_keeps_the_history_of_a_tensor() -> None:
    class Plain(ut.Tensor): ...

    leaf = ut.ones(2, requires_grad=True)
    for cls in (ut.Tensor, Plain):
        leaf.grad, product = None, leaf * 2
        made = cls(product)
        assert type(made) is cls and made.requires_grad and not made.is_leaf
        made.mul_(3)
        assert product.tolist() == [6.0, 6.0]
        (made * product).sum().backward()
        assert leaf.grad.tolist() == [72.0, 72.0]
    assert not cls(ut.ones(2)).requires_grad


def test_a_class_that_hands_data_to_new(L: Any) -> None:
    class Tagged(L.Tensor):
        def __new__(cls, source: Any, *, tag: str = "none") -> Any:
            return super().__new__(cls, source)

        def __init__(self, source: Any, *, tag: str = "none") -> None:
            self.tag = tag

    class Bare(L.Tensor):
        def __new__(cls, *sizes: int) -> Any:
            return L.Tensor.__new__(cls, *sizes)

    leaf = L.ones(2, requires_grad=True)
    assert not L.nn.Buffer(L.ones(2), persistent=False).persistent and L.nn.Parameter(data=L.ones(2)).requires_grad
    alias = Tagged(leaf, tag="mine")
    assert type(alias) is type(alias * 2) is Tagged and alias.tag == "mine" and alias.data_ptr() == leaf.data_ptr()
    (alias * 3).sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0]
    assert Tagged([1, 2]).tolist() == [1.0, 2.0] and Tagged([1, 2]).tag == "none"
    assert Bare(2, 3).shape == (2, 3) and Bare().shape == (0,) and L.Tensor(2).shape == (2,)
