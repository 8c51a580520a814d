"""Version counters: who shares one, what counts, and what a saved tensor does about it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows

CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "method": lambda L, x: x.add_(1),
    "operator": lambda L, x: x.__imul__(2),
    "assignment": lambda L, x: x.__setitem__(0, 5.0),
    "mask": lambda L, x: x.__setitem__(x > 0, 5.0),
    "index": lambda L, x: x.__setitem__(L.tensor([0, 1]), 5.0),
    "copy_": lambda L, x: x.copy_(L.zeros(3)),
    "zero_": lambda L, x: x.zero_(),
    "fill_": lambda L, x: x.fill_(2),
    "random": lambda L, x: x.uniform_(),
    "out=": lambda L, x: L.exp(L.ones(3), out=x),
    "through a view": lambda L, x: x[1:].mul_(2),
    "through detach": lambda L, x: x.detach().mul_(2),
    "through a part": lambda L, x: x.unbind()[0].fill_(1.0),
    "module function": lambda L, x: L.relu_(x),
    "foreach": lambda L, x: L._foreach_add_([x], 1),
    "in-place view": lambda L, x: x.unsqueeze_(0),
    "increment": lambda L, x: ut.autograd.graph.increment_version(x) if L is ut else increment(L, x),
}


def increment(torch: ModuleType, x: Any) -> None:
    torch.autograd.graph.increment_version(x)


@rows("no_grad", [False, True])
@rows("how", CHANGES)
def test_every_change_counts_once(L: Any, how: str, no_grad: bool) -> None:
    x = L.ones(3)
    with L.set_grad_enabled(not no_grad):
        CHANGES[how](L, x)
    assert x._version == 1


def test_base_views_and_detached_twins_share_a_counter(L: Any) -> None:
    x = L.ones(4)
    v, w, d = x[1:], x[1:][1:], x.detach()
    v.add_(1)
    d.add_(1)
    assert x._version == v._version == w._version == d._version == 2


def test_data_has_a_counter_of_its_own_and_assigning_data_keeps_the_old_one(L: Any) -> None:
    x = L.ones(3)
    x.data.add_(1)
    assert x._version == 0 and x.tolist() == [2, 2, 2]
    x.add_(1)
    x.data = L.zeros(2)
    assert x._version == 1 and x.tolist() == [0, 0]


@pytest.mark.parametrize("no_grad", [False, True])
def test_a_saved_tensor_that_was_changed_is_an_error(L: Any, no_grad: bool) -> None:
    w = L.ones(3, requires_grad=True)
    x = w * 1
    y = x * x
    with L.set_grad_enabled(not no_grad):
        x.add_(1)
    with pytest.raises(RuntimeError, match=r"has been modified by an inplace operation.*version 1; expected version 0"):
        y.sum().backward()


@pytest.mark.parametrize("change", ["view", "detach", "numpy"])
def test_a_saved_tensor_changed_through_a_relative_is_an_error(L: Any, change: str) -> None:
    w = L.ones(3, requires_grad=True)
    x = w * 1
    y = x.sin()
    if change == "view":
        with L.no_grad():
            x[0].fill_(3)
    elif change == "detach":
        x.detach().fill_(3)
    else:
        x.detach().numpy()[0] = 3
        L.autograd.graph.increment_version(x)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid", "sqrt"])
def test_a_saved_output_that_was_changed_is_an_error(L: Any, op: str) -> None:
    w = L.ones(3, requires_grad=True)
    y = getattr(w, op)()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("view", [False, True])
def test_an_in_place_result_that_was_saved_and_changed_again_is_an_error(L: Any, op: str, view: bool) -> None:
    w = L.ones(3, requires_grad=True)
    x = w * 1
    y = x[1:] if view else x
    getattr(y, op + "_")()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        x.sum().backward()


@pytest.mark.parametrize("op", ["sin", "log", "square"])
def test_an_in_place_operation_keeps_the_former_value_its_rule_needs(L: Any, op: str) -> None:
    w = L.tensor([0.5, 1.5], requires_grad=True)
    x = w * 1
    getattr(x, op + "_")().add_(1)
    x.sum().backward()
    expected = L.tensor([0.5, 1.5], requires_grad=True)
    getattr(expected, op)().sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), expected.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("view", [False, True])
def test_a_tensor_may_be_changed_by_itself(view: bool) -> None:
    w = ut.full((3,), 3.0, requires_grad=True)
    for change, slope in ((lambda x: x.add_(x), 2), (lambda x: x.mul_(x), 6), (lambda x: x.addcmul_(x, x), 7)):
        base = w * 1
        x = base[:2] if view else base
        change(x)
        (grad,) = ut.autograd.grad(base.sum(), w)
        assert grad.tolist() == [slope, slope, 1 if view else slope]


def test_versions_can_be_preserved_and_set() -> None:
    x, y = ut.ones(2), ut.ones(2)
    x.add_(1)
    with ut.autograd.graph.unsafe_preserve_version_counter((x, y)):
        x.add_(1)
        y.add_(1)
    assert (x._version, y._version) == (1, 0)
    ut.autograd.graph.unsafe_set_version_counter(x, 7)
    assert x._version == 7
    with pytest.raises(RuntimeError, match="Cannot set"):
        ut.autograd.graph.unsafe_set_version_counter((x,), (-1,))


def test_by_the_names_under_which_libraries_ask_for_them(L: Any) -> None:
    x = L.ones(2)
    with L.autograd._unsafe_preserve_version_counter(x):
        x.add_(1)
    assert x._version == 0
    was = L.autograd.is_view_replay_enabled()
    with L.autograd._force_original_view_tracking(not was):
        assert L.autograd.is_view_replay_enabled() is not was
    assert L.autograd.is_view_replay_enabled() is was


def test_a_history_written_while_the_version_was_preserved_is_found_by_the_views() -> None:
    base, w = ut.zeros(3), ut.full((3,), 2.0, requires_grad=True)
    view = base[:2]
    with ut.autograd.graph.unsafe_preserve_version_counter(base):
        base.add_(w)
    view.mul_(3)
    base.sum().backward()
    assert w.grad.tolist() == [3, 3, 1]


def test_resize_counts_only_a_change(L: Any) -> None:
    x = L.ones(2)
    x.resize_(2)
    assert x._version == 0
    x.resize_(1, 3)
    assert x._version == 1 and tuple(x.shape) == (1, 3)
    x.resize_as_(L.ones(1, 3))
    assert x._version == 1


def test_a_view_that_was_resized_is_still_followed(L: Any) -> None:
    base, w = L.ones(2, 3), L.full((2,), 2.0, requires_grad=True)
    row = base[1]
    row.resize_(2)
    assert row._is_view() and row._version == base._version == 1
    row.mul_(w)
    (base * 3).sum().backward()
    assert base.tolist() == [[1, 1, 1], [2, 2, 1]] and w.grad.tolist() == [3, 3]


def test_a_view_does_not_outgrow_its_base() -> None:
    base = ut.ones(2, 3)
    row = base[1]
    with pytest.raises(RuntimeError, match=r"a view cannot get 4 elements, .* has only 3 from its first element on"):
        row.resize_(4)
    assert tuple(row.shape) == (3,) and row._version == 0


def test_resize_to_a_memory_format(L: Any) -> None:
    x = L.tensor([0.0, 1.0, 2.0, 3.0])
    x.resize_(1, 2, 2, 1, memory_format=L.channels_last)
    assert x.stride() == (4, 1, 2, 2) and x.tolist() == [[[[0], [2]], [[1], [3]]]] and x._version == 1
    for kept, strides in ((None, (4, 2, 1, 1)), (L.channels_last, (4, 1, 2, 2)), (L.preserve_format, (4, 1, 2, 2))):
        y = L.zeros(4)
        y.resize_as_(x, memory_format=kept)
        assert y.stride() == strides
    x.resize_(1, 2, 2, 1, memory_format=L.contiguous_format)
    assert x.stride() == (4, 2, 1, 1)


def test_resize_refuses_formats_that_do_not_fit(L: Any) -> None:
    x = L.zeros(4)
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        x.resize_(2, 2, memory_format=L.channels_last)
    with pytest.raises(RuntimeError, match="Unsupported memory format"):
        x.resize_(2, 2, memory_format=L.preserve_format)
    if L is ut:  # PyTorch notices too late
        assert tuple(x.shape) == (4,) and x._version == 0


def test_resize_to_another_format_counts_as_a_change() -> None:
    """The elements are seen elsewhere, so what has saved the tensor must notice."""
    x, w = ut.ones(1, 2, 2, 2), ut.ones(1, 2, 2, 2, requires_grad=True)
    y = w * x
    x.resize_(1, 2, 2, 2, memory_format=ut.channels_last)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_detach_in_place_is_seen_by_nodes_that_saved_the_tensor(L: Any) -> None:
    w = L.ones(2, requires_grad=True)
    x = w * 1
    y = x * x
    x.detach_()
    with pytest.raises(RuntimeError, match="Trying to use a saved tensor that has been detached"):
        y.sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        lambda L, x: [x.erfinv().mul_(1)],
        lambda L, x: [*L.linalg.qr(x), x.mul_(1)][:2],
        lambda L, x: [*L.linalg.qr(x.mT), x.mul_(1)][:2],
    ],
    ids=["erfinv", "qr", "qr of a wide matrix"],
)
def test_rules_do_not_need_what_they_do_not_need_in_pytorch(L: Any, change: Any) -> None:
    x = L.tensor([[0.1, 0.2], [-0.3, 0.4], [0.5, 0.6]], requires_grad=True)
    sum(y.sum() for y in change(L, x * 1)).backward()
    assert x.grad.isfinite().all()
