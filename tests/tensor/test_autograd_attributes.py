"""What a tensor says about its place in the graph, and what may be assigned: requires_grad, grad, data, detach."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


# ---- requires_grad

FACTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    # requires_grad, is_leaf, class of grad_fn, output_nr
    "constant": (lambda L, x: L.ones(2), (False, True, "NoneType", 0)),
    "leaf": (lambda L, x: x, (True, True, "NoneType", 0)),
    "result": (lambda L, x: x * 2, (True, False, "MulBackward0", 0)),
    "result of constants": (lambda L, x: L.ones(2) * 2, (False, True, "NoneType", 0)),
    "view": (lambda L, x: x.view(2, 1), (True, False, "ViewBackward0", 0)),
    "view of a constant": (lambda L, x: L.ones(2).view(2, 1), (False, True, "NoneType", 0)),
    "second output": (lambda L, x: x.unbind()[1], (True, False, "UnbindBackward0", 1)),
    "detached": (lambda L, x: (x * 2).detach(), (False, True, "NoneType", 0)),
    "data": (lambda L, x: x.data, (False, True, "NoneType", 0)),
    "integers of it": (lambda L, x: x.long(), (False, True, "NoneType", 0)),
    "comparison": (lambda L, x: x > 1, (False, True, "NoneType", 0)),
    "place of the maximum": (lambda L, x: x.max(0)[1], (False, True, "NoneType", 0)),
    "value of the maximum": (lambda L, x: x.max(0)[0], (True, False, "MaxBackward0", 0)),
}


@pytest.mark.parametrize(("make", "facts"), FACTS.values(), ids=FACTS)
def test_facts(L: ModuleType, make: Callable[..., Any], facts: tuple[Any, ...]) -> None:
    t = make(L, leaf(L))
    assert (t.requires_grad, t.is_leaf, type(t.grad_fn).__name__, t.output_nr) == facts


def test_views_know_their_base(L: ModuleType) -> None:
    x = L.ones(2, 3)
    view = x[0].view(3, 1)[1:]
    assert view._is_view() and view._base is x
    assert not x._is_view() and x._base is None and not (x * 2)._is_view() and not view.clone()._is_view()


def test_requires_grad_can_be_switched_on_a_leaf(L: ModuleType) -> None:
    x = L.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad
    assert x.requires_grad_(True).requires_grad and not x.requires_grad_(requires_grad=False).requires_grad


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_cannot_require_grad(L: ModuleType, dtype: str) -> None:
    x = L.ones(2).to(getattr(L, dtype, None) or L.bool_)
    for attempt in (
        x.requires_grad_,
        lambda: setattr(x, "requires_grad", True),
        lambda: L.ones(2, dtype=x.dtype, requires_grad=True),
        lambda: L.tensor([1, 2], dtype=x.dtype, requires_grad=True),
    ):
        with pytest.raises(RuntimeError, match="floating point"):
            attempt()
    assert not x.requires_grad
    assert x.requires_grad_(False) is x


def test_a_result_cannot_stop_requiring_grad(L: ModuleType) -> None:
    y = leaf(L) * 2
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad = True
    assert y.requires_grad_() is y and y.requires_grad and not y.is_leaf


def test_a_view_of_a_leaf_that_starts_to_require_grad(L: ModuleType) -> None:
    """What was recorded before stays as it was."""
    x = L.ones(2)
    before = x * 2
    x.requires_grad_()
    assert not before.requires_grad and (x * 2).requires_grad


# ---- grad


def test_a_gradient_can_be_assigned_and_deleted(L: ModuleType) -> None:
    x, g = leaf(L), L.ones(2)
    assert x.grad is None
    x.grad = g
    assert x.grad is g
    del x.grad
    assert x.grad is None
    x.grad = g
    x.grad = None
    assert x.grad is None


NO_GRADIENT: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "a number": (lambda L, x: 0, TypeError, "expected to be a Tensor or None"),
    "a list": (lambda L, x: [1.0, 2.0], TypeError, "expected to be a Tensor or None"),
    "itself": (lambda L, x: x, RuntimeError, "can't assign Variable as its own grad"),
    "another size": (lambda L, x: L.ones(3), RuntimeError, "attempting to assign a gradient of size"),
    "a column": (lambda L, x: L.ones(2, 1), RuntimeError, "attempting to assign a gradient of size"),
    "another dtype": (
        lambda L, x: L.ones(2, dtype=L.float64),
        RuntimeError,
        "attempting to assign a gradient with dtype",
    ),
    "integers": (lambda L, x: L.ones(2, dtype=L.int64), RuntimeError, "attempting to assign a gradient with dtype"),
}


@pytest.mark.parametrize(("make", "error", "words"), NO_GRADIENT.values(), ids=NO_GRADIENT)
def test_what_is_no_gradient(L: ModuleType, make: Callable[..., Any], error: type[Exception], words: str) -> None:
    x, before = leaf(L), L.ones(2)
    x.grad = before
    with pytest.raises(error, match=words):
        x.grad = make(L, x)
    assert x.grad is before


def test_a_constant_can_hold_a_gradient(L: ModuleType) -> None:
    x = L.zeros(2)
    x.grad = L.ones(2)
    assert x.grad.tolist() == [1, 1]


def test_reading_the_gradient_of_a_result_warns(L: ModuleType) -> None:
    y = leaf(L) * 2
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    y.sum().backward()
    assert y.grad.tolist() == [1, 1]


# ---- retain_grad


def test_retain_grad(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    (y * y).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [4, 8]
    (y * y).sum().backward()
    assert y.grad.tolist() == [8, 16]


def test_a_retained_gradient_is_a_copy(L: ModuleType) -> None:
    x, given = leaf(L), L.ones(2)
    y = x.view(2) + 0
    y.retain_grad()
    y.backward(given)
    y.grad.zero_()
    assert given.tolist() == [1, 1] and x.grad.tolist() == [1, 1]


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_retained_gradient_is_no_result_of_grad(L: ModuleType, create_graph: bool) -> None:
    y = leaf(L) * 2
    y.retain_grad()
    (g,) = L.autograd.grad(y * y, y, L.ones(2), create_graph=create_graph)
    expected = g.tolist()
    with L.no_grad():
        g.zero_()
    assert y.grad.tolist() == expected and y.grad.requires_grad == create_graph


def test_retain_grad_of_a_leaf_changes_nothing(L: ModuleType) -> None:
    x = leaf(L)
    x.retain_grad()
    assert not x.retains_grad
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_a_view_that_may_not_be_used_says_that_it_retains(L: ModuleType) -> None:
    y = leaf(L) * 2
    view = y.split(1)[0]
    view.retain_grad()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="is a view and its base"):
        _ = view.grad_fn
    assert view.retains_grad


def test_retain_grad_needs_grad(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"can't retain_grad on Tensor that has requires_grad=False"):
        L.ones(2).retain_grad()


def test_retain_grad_does_not_keep_the_tensor_alive() -> None:
    gc.disable()
    x = leaf(ut)
    y = x * 2
    y.retain_grad()
    alive, out = weakref.ref(y), (y + 1).sum()
    del y
    assert alive() is None
    out.backward()
    assert x.grad.tolist() == [2, 2]


# ---- grad_dtype


def test_grad_dtype(L: ModuleType) -> None:
    x = leaf(L)
    assert x.grad_dtype == L.float32
    x.grad_dtype = L.float16
    assert x.grad_dtype == L.float16
    with pytest.raises(RuntimeError, match=r"assign a gradient with dtype.*float.*to a tensor with grad_dtype.*Half"):
        x.grad = L.ones(2)
    x.grad = L.ones(2, dtype=L.float16)
    with pytest.raises(RuntimeError, match=r"Cannot set grad_dtype.*because there is already a gradient"):
        x.grad_dtype = L.float32
    x.grad_dtype = None
    x.grad = L.ones(2, dtype=L.float64)
    assert x.grad_dtype is None and x.grad.dtype == L.float64


def test_grad_dtype_belongs_to_leaves(L: ModuleType) -> None:
    y = leaf(L) * 2
    with pytest.raises(RuntimeError, match="grad_dtype can only be accessed on leaf tensors"):
        y.grad_dtype
    with pytest.raises(RuntimeError, match="grad_dtype can only be set on leaf tensors"):
        y.grad_dtype = L.float16


# ---- what cannot be deleted or assigned


@pytest.mark.parametrize("name", ["data", "requires_grad", "_grad_fn", "_backward_hooks"])
def test_some_attributes_cannot_be_deleted(L: ModuleType, name: str) -> None:
    with pytest.raises(RuntimeError):
        delattr(leaf(L), name)


@pytest.mark.parametrize("name", ["is_leaf", "output_nr", "grad_fn", "retains_grad", "shape", "dtype", "_version"])
def test_some_attributes_cannot_be_assigned(L: ModuleType, name: str) -> None:
    with pytest.raises((AttributeError, RuntimeError)):
        setattr(leaf(L) * 2, name, 1)


def test_volatile_is_gone(L: ModuleType) -> None:
    with pytest.warns(UserWarning, match="volatile"):
        assert leaf(L).volatile is False
    with pytest.warns(UserWarning, match="volatile was removed and now has no effect") as found:
        leaf(L).volatile = True
        L.autograd.Variable(leaf(L), volatile=True)
    assert [warning.filename for warning in found] == [__file__] * 2


# ---- detach and data


def test_detach_shares_memory_and_version(L: ModuleType) -> None:
    y = leaf(L) * 2
    z = y.detach()
    assert z.data_ptr() == y.data_ptr() and not z.requires_grad and z.is_leaf
    z.add_(1)
    assert y.tolist() == [3, 5] and y._version == z._version == 1


def test_detach_in_place(L: ModuleType) -> None:
    y = leaf(L) * 2
    assert y.detach_() is y and not y.requires_grad and y.grad_fn is None and y.is_leaf


def test_a_view_is_not_detached_in_place(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (leaf(L) * 2).view(2, 1).detach_()


def test_data_shares_memory_but_no_version(L: ModuleType) -> None:
    y = leaf(L) * 2
    z = y.data
    z.add_(1)
    assert y.tolist() == [3, 5] and y._version == 0 and z._version == 1 and not z.requires_grad


def test_assigning_data_keeps_identity_version_and_place(L: ModuleType) -> None:
    x = leaf(L)
    with L.no_grad():
        x.add_(1)
    x.data = L.zeros(3)
    assert x.tolist() == [0, 0, 0] and x.requires_grad and x.is_leaf and x._version == 1


@pytest.mark.parametrize("value", [3, None, "text"])
def test_data_must_be_a_tensor(L: ModuleType, value: Any) -> None:
    x = leaf(L)
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        x.data = value
    assert x.tolist() == [1, 2]


def test_data_of_a_tensor_that_requires_grad_must_be_differentiable(L: ModuleType) -> None:
    x = leaf(L)
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        x.data = L.ones(2, dtype=L.int64)
    assert x.tolist() == [1, 2]


# ---- versions

CHANGES: dict[str, tuple[Callable[..., Any], int]] = {
    "nothing": (lambda L, x: x, 0),
    "an operation": (lambda L, x: x + 1, 0),
    "in place": (lambda L, x: x.add_(1), 1),
    "twice": (lambda L, x: x.add_(1).mul_(2), 2),
    "augmented assignment": (lambda L, x: x.__iadd__(1), 1),
    "an element": (lambda L, x: x.__setitem__(0, 5.0), 1),
    "a view": (lambda L, x: x.view(2, 1).add_(1), 1),
    "a part": (lambda L, x: x[:1].zero_(), 1),
    "a detached twin": (lambda L, x: x.detach().add_(1), 1),
    "its data": (lambda L, x: x.data.add_(1), 0),
    "fill": (lambda L, x: x.fill_(3), 1),
    "copy": (lambda L, x: x.copy_(L.zeros(2)), 1),
    "requires_grad_": (lambda L, x: x.requires_grad_(), 0),
    "told so": (lambda L, x: L.autograd.graph.increment_version(x), 1),
}


@pytest.mark.parametrize(("change", "version"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("recording", [True, False])
def test_changes_in_place_are_counted(L: ModuleType, recording: bool, change: Callable[..., Any], version: int) -> None:
    x = L.zeros(2)
    view = x.view(2, 1)
    with L.set_grad_enabled(recording):
        change(L, x)
    assert x._version == view._version == version


def test_tensors_of_their_own_memory_count_on_their_own(L: ModuleType) -> None:
    x = L.zeros(2)
    y = x.clone()
    x.add_(1)
    assert (x._version, y._version) == (1, 0)


@pytest.mark.parametrize("several", [False, True])
def test_increment_version_of_integers_and_of_several(L: ModuleType, several: bool) -> None:
    x, y = L.zeros(2), L.zeros(2, dtype=L.int64)
    L.autograd.graph.increment_version([x, y] if several else y)
    assert (x._version, y._version) == (int(several), 1)


# ---- identity


def test_tensors_are_keys_by_identity(L: ModuleType) -> None:
    x, y = L.ones(2), L.ones(2)
    assert hash(x) == hash(x) and len({x, y, x}) == 2 and {x: 1}[x] == 1


def test_the_hash_survives_changes(L: ModuleType) -> None:
    x = L.ones(2)
    before = hash(x)
    x.add_(1)
    x.requires_grad_()
    assert hash(x) == before


def test_tensors_can_be_referred_to_weakly(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    died: list[Any] = []
    reference = weakref.ref(x, died.append)
    assert reference() is x
    del x
    gc.collect()
    assert died == [reference] and reference() is None


def test_grad_fn_is_the_same_object_every_time(L: ModuleType) -> None:
    y = leaf(L) * 2
    assert y.grad_fn is y.grad_fn and y.view(2, 1).grad_fn.next_functions[0][0] is y.grad_fn


def test_deepcopy_of_a_leaf_keeps_requires_grad(L: ModuleType) -> None:
    x = leaf(L)
    y = copy.deepcopy(x)
    assert y.requires_grad and y.is_leaf and y is not x and y.data_ptr() != x.data_ptr()


def test_a_result_cannot_be_deep_copied(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(leaf(L) * 2)


# ---- display


def test_repr_names_the_node(L: ModuleType) -> None:
    x = leaf(L)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x.clone()) == "tensor([1., 2.], grad_fn=<CloneBackward0>)"
    assert repr(x.detach()) == "tensor([1., 2.])"


def test_numpy_needs_detach(L: ModuleType) -> None:
    text = r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\).numpy\(\) instead."
    for tensor in (leaf(L), leaf(L) * 2):
        with pytest.raises(RuntimeError, match=text):
            tensor.numpy()
        assert tensor.detach().numpy().shape == (2,)


def test_hooks_need_grad(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
        L.ones(2).register_hook(lambda grad: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert L.ones(2)._backward_hooks is None
