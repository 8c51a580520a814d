"""Histories that in-place changes rewrite: CopySlices, replayed views, hooks, retained gradients, in-place views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut


def start(L: Any, *shape: int) -> tuple[Any, Any]:
    leaf = L.ones(*shape, requires_grad=True)
    return leaf, leaf * 2


def test_copy_slices_follow_one_another(L: Any) -> None:
    leaf, x = start(L, 4, 3)
    for k in range(4):
        x[k].mul_(k)
    x[1:3].copy_(x[:2].clone())
    x.sum().backward()
    assert leaf.grad.tolist() == [[2.0 * (0 + 0)] * 3, [2.0 * 1] * 3, [0.0] * 3, [6.0] * 3]


def test_what_is_written_gets_its_gradient_too(L: Any) -> None:
    leaf, x = start(L, 3, 2)
    row, number = L.ones(2, requires_grad=True), L.tensor(2.0, requires_grad=True)
    x[0] = row
    x[1, 0] = number
    x[2] *= row
    (x * x).sum().backward()
    assert row.grad.tolist() == [2 + 8, 2 + 8] and float(number.grad) == 4
    assert leaf.grad.tolist() == [[0, 0], [0, 8], [8, 8]]


def test_an_assignment_into_a_tensor_without_history_gives_it_one(L: Any) -> None:
    x, value = L.zeros(3), L.tensor(1.0, requires_grad=True)
    before = x[:2]
    x[1] = value * 3
    assert x.requires_grad and before.requires_grad and type(x.grad_fn).__name__ == "CopySlices"
    before.sum().backward()
    assert float(value.grad) == 3


def test_second_derivatives_go_through_copy_slices(L: Any) -> None:
    w = L.tensor([1.0, 2.0, 3.0], dtype=L.float64, requires_grad=True)

    def f(w: Any) -> Any:
        x = w * w
        x[1:].mul_(w[1:])
        x[0] = w[2] * w[1]
        x[:2].exp_()
        return (x * x).sum()

    assert L.autograd.gradcheck(f, (w,)) and L.autograd.gradgradcheck(f, (w,))


def test_only_what_is_asked_for_is_computed(L: Any) -> None:
    leaf, x = start(L, 3)
    w = L.ones(2, requires_grad=True)
    called = []
    w.register_hook(lambda g: called.append(1))
    x[:2].mul_(w)
    (only,) = L.autograd.grad(x.sum(), leaf)
    assert only.tolist() == [2, 2, 2] and not called


def test_a_gradient_that_is_none_inside_is_zero_there_and_nothing_outside() -> None:
    class Forget(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    leaf, x = start(ut, 3)
    Forget.apply(x[:1])
    x.sum().backward()
    assert leaf.grad.tolist() == [0, 2, 2]


def test_given_gradients_are_left_alone(L: Any) -> None:
    leaf, x = start(L, 3)
    x[0] = 0.0
    given = L.ones(3)
    x.backward(given, retain_graph=True)
    x.backward(given)
    assert given.tolist() == [1, 1, 1] and leaf.grad.tolist() == [0, 4, 4]


def test_a_captured_gradient_is_not_changed_by_the_nodes_below(L: Any) -> None:
    leaf, x = start(L, 3)
    x[0] = 0.0
    y = x * 1
    y[1] = 0.0
    z = y * 1
    seen = []
    y.register_hook(seen.append)
    (of_y, of_leaf) = L.autograd.grad(z.sum(), (y, leaf))
    assert of_y.tolist() == [1, 1, 1] and seen[0].tolist() == [1, 1, 1] and of_leaf.tolist() == [0, 0, 2]


def test_hooks_stay_with_the_version_they_were_registered_on(L: Any) -> None:
    _, x = start(L, 2)
    seen: dict[str, Any] = {}
    x.register_hook(lambda g: seen.__setitem__("before", g.tolist()))
    x.mul_(5)
    x.register_hook(lambda g: seen.__setitem__("after", g.tolist()))
    x.sum().backward()
    assert seen == {"before": [5, 5], "after": [1, 1]}


def test_hooks_of_a_base_survive_a_change_through_a_view(L: Any) -> None:
    _, x = start(L, 2)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x[0].mul_(5)
    x.sum().backward()
    assert seen == [[5, 1]]


def test_retained_gradients_follow_the_newest_version(L: Any) -> None:
    _, x = start(L, 2)
    x.retain_grad()
    x.mul_(5)
    x[0].mul_(7)
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_retained_gradients_of_views_follow_their_base(L: Any) -> None:
    _, x = start(L, 2)
    v, w = x[:], x[:]
    v.retain_grad()
    w.retain_grad()
    v.mul_(2)
    (v + w * 3).sum().backward()
    assert v.grad.tolist() == [1, 1] and w.grad.tolist() == [3, 3]


def test_views_of_changed_memory_are_replayed_or_found_by_memory() -> None:
    def name(replay: bool) -> str:
        with ut.autograd.force_original_view_tracking(replay):
            v = ut.ones(2, 2, requires_grad=True).clone().view(-1)
            v.add_(1)
            return type(v.grad_fn).__name__

    assert ut.autograd.is_view_replay_enabled()
    assert (name(True), name(False)) == ("ViewBackward0", "AsStridedBackward0")

    @ut.autograd.force_original_view_tracking(False)
    def inside() -> bool:
        return ut.autograd.is_view_replay_enabled()

    assert not inside() and ut.autograd.is_view_replay_enabled()


@pytest.mark.parametrize("replay", [True, False])
def test_both_ways_give_the_same_gradient(replay: bool) -> None:
    leaf = ut.arange(12.0).reshape(3, 4).clone().requires_grad_()
    with ut.autograd.force_original_view_tracking(replay):
        x = leaf * 1
        views = [x[1], x.t()[::2], x.view(2, 6)[:, 1:3], x.diagonal(), x.as_strided((2, 2), (4, 1), 2)]
        x.mul_(x.detach() + 1)
        for k, v in enumerate(views):
            v.mul_(k + 2)
        total = sum((k + 1) * (v * v).sum() for k, v in enumerate(views))
    (mine,) = ut.autograd.grad(total, leaf)
    np.testing.assert_allclose(mine.numpy(), numerical(leaf), rtol=1e-4)


def numerical(leaf: Any) -> Any:
    def run(values: Any) -> float:
        x = values.copy()
        views = [x[1], x.T[::2], x.reshape(2, 6)[:, 1:3], np.einsum("ii->i", x[:, :3])]
        views.append(np.lib.stride_tricks.as_strided(x.reshape(-1)[2:], (2, 2), (32, 8)))
        x *= fixed
        for k, v in enumerate(views):
            v *= k + 2
        return sum((k + 1) * float((v * v).sum()) for k, v in enumerate(views))

    start = leaf.detach().numpy().astype(float)
    fixed = start + 1
    found = np.zeros_like(start)
    for place in np.ndindex(*start.shape):
        step = np.zeros_like(start)
        step[place] = 1e-4
        found[place] = (run(start + step) - run(start - step)) / 2e-4
    return found


# ---- in-place view operations


IN_PLACE_VIEWS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "transpose_": (lambda x: x.transpose_(0, 1), lambda x: x.transpose(0, 1)),
    "t_": (lambda x: x.t_(), lambda x: x.t()),
    "swapaxes_": (lambda x: x.swapaxes_(0, 1), lambda x: x.swapaxes(0, 1)),
    "swapdims_": (lambda x: x.swapdims_(0, 1), lambda x: x.swapdims(0, 1)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), lambda x: x.unsqueeze(1)),
    "squeeze_": (lambda x: x.squeeze_(), lambda x: x.squeeze()),
    "as_strided_": (lambda x: x.as_strided_((2, 2), (1, 3)), lambda x: x.as_strided((2, 2), (1, 3))),
}


@pytest.mark.parametrize("of_view", [False, True])
@pytest.mark.parametrize("name", IN_PLACE_VIEWS)
def test_in_place_views_have_the_gradient_of_the_views(L: Any, name: str, of_view: bool) -> None:
    change, look = IN_PLACE_VIEWS[name]

    def gradient(step: Callable[[Any], Any]) -> Any:
        leaf, base = start(L, 2, 3)
        x = base[:, :] if of_view else base
        y = step(x)
        y.mul_(L.arange(float(y.numel())).reshape(y.shape))
        y.sum().backward()
        return tuple(y.shape), leaf.grad.tolist()

    assert gradient(change) == gradient(look)


def test_an_in_place_view_returns_the_tensor_itself_and_counts(L: Any) -> None:
    x = L.ones(2, 3)
    assert x.t_() is x and tuple(x.shape) == (3, 2) and x._version == 1


def test_views_outlive_an_in_place_view_of_their_base() -> None:
    leaf, x = start(ut, 2, 3)
    row = x[0]
    x.t_()
    row.mul_(10)
    x[2].mul_(100)
    x.sum().backward()
    assert leaf.grad.tolist() == [[20, 20, 2000], [2, 2, 200]]
    assert row.tolist() == [20, 20, 2000]


@pytest.mark.parametrize(
    ("has_history", "deep", "expected"),
    [
        (False, False, [[0, 0, 0], [10, 20, 30]]),
        (False, True, [[0, 0, 0], [0, 20, 30]]),
        (True, False, [[1, 2, 3], [80, 200, 360]]),
        (True, True, [[1, 2, 3], [10, 200, 360]]),
    ],
)
def test_a_change_through_a_view_older_than_its_bases_shape(
    L: Any, has_history: bool, deep: bool, expected: Any
) -> None:
    """The base may have no history yet, in which case the view has none to bring up to date."""
    w = L.arange(1.0, 7.0).reshape(2, 3).requires_grad_()
    x = w * 1 if has_history else L.ones(2, 3)
    v = x[1]
    x.t_()
    part, factor = (v[1:], w[1, 1:]) if deep else (v, w[1])
    part.mul_(factor)
    (x * L.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])).sum().backward()
    assert w.grad.tolist() == expected


GENERAL_CHANGES: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "an exponent of another dtype": (lambda L, x: x.pow_(L.tensor([3, 3])), 12),
    "a factor of another dtype": (lambda L, x: x.mul_(x.detach().float()), 2),
    "a function of several operations": (lambda L, x: x.clamp_(0, 3), 1),
}


@pytest.mark.parametrize("through_view", [False, True])
@pytest.mark.parametrize(("change", "slope"), GENERAL_CHANGES.values(), ids=GENERAL_CHANGES)
def test_the_former_value_is_kept_on_the_general_way(L: Any, change: Any, slope: float, through_view: bool) -> None:
    w = L.full((2,), 2.0, dtype=L.float64, requires_grad=True)
    x = w * 1
    change(L, x[:] if through_view else x)
    x.sum().backward()
    assert w.grad.tolist() == [slope, slope]


def test_an_in_place_view_of_a_view_may_look_beyond_it() -> None:
    leaf, x = start(ut, 4)
    v = x[1:2]
    v.as_strided_((3,), (1,), 1)
    v.mul_(ut.tensor([1.0, 2.0, 3.0]))
    x.sum().backward()
    assert leaf.grad.tolist() == [2, 2, 4, 6]


def test_an_in_place_view_under_no_grad_keeps_the_gradient_in_its_place() -> None:
    leaf, x = start(ut, 2, 2)
    with ut.no_grad():
        x.t_()
    (x * ut.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert leaf.grad.tolist() == [[2, 6], [4, 8]]


def test_a_leaf_seen_otherwise_under_no_grad_has_a_gradient_of_its_new_shape(L: Any) -> None:
    leaf = L.ones(2, 3, requires_grad=True)
    with L.no_grad():
        leaf.t_()
    (leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [[2, 2]] * 3


# ---- other memory


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("which", ["base", "view", "flat view"])
def test_a_flat_view_of_a_base_that_was_turned(L: Any, which: str, create_graph: bool) -> None:
    leaf = L.arange(6.0).reshape(3, 2).requires_grad_()
    base = leaf * 1
    base.t_()
    view = base.t()
    flat = view.view(6)
    flat.exp_()
    out = {"base": base, "view": view, "flat view": flat}[which]
    (grad,) = L.autograd.grad(out, leaf, out.detach(), create_graph=create_graph)
    np.testing.assert_allclose(grad.detach().numpy(), np.exp(2 * np.arange(6.0)).reshape(3, 2), rtol=1e-6)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_flat_view_whose_gradient_lies_otherwise_in_memory(L: Any, create_graph: bool) -> None:
    leaf = L.arange(6.0).reshape(2, 3).requires_grad_()
    base = leaf * 1
    base.view(6).exp_()
    turned = L.arange(6.0).reshape(3, 2).t()
    out = base * turned * turned  # the gradient of base lies as these do
    (grad,) = L.autograd.grad(out, leaf, turned, create_graph=create_graph)
    x = np.arange(6.0)
    expected = np.exp(x).reshape(2, 3) * x.reshape(3, 2).T ** 3
    np.testing.assert_allclose(grad.detach().numpy(), expected, rtol=1e-6)


def test_set_leaves_old_graphs_to_the_old_tensor(L: Any) -> None:
    x = L.ones(2, requires_grad=True)
    out = x.clone()
    with L.no_grad():
        x.set_(L.zeros(3))
    assert x.tolist() == [0, 0, 0] and x._version == 1
    with pytest.raises(RuntimeError, match="to not have been used in the graph"):
        L.autograd.grad(out.sum(), x)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_set_has_no_derivative(L: Any) -> None:
    _, x = start(L, 2)
    x.set_(L.ones(2))
    with pytest.raises(RuntimeError, match=r"derivative for .*set_.* is not implemented"):
        x.sum().backward()


def test_a_tensor_that_requires_grad_cannot_be_resized(L: Any) -> None:
    _, x = start(L, 2)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        x.resize_(3)


def test_a_view_whose_base_got_other_memory_has_lost_its_history() -> None:
    _, x = start(ut, 3)
    v = x[:2]
    x.data = ut.zeros(3)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="was given other memory"):
        v.sum().backward()


def test_set_to_a_part_of_the_memory(L: Any) -> None:
    memory, x = L.arange(10.0), L.zeros(1)
    x.set_(memory[2:], 1, (2, 3), (3, 1)) if L.__name__ == "undertow" else x.set_(
        memory.untyped_storage(), 1, (2, 3), (3, 1)
    )
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    memory[4] = -1
    assert x[1, 0].item() == -1


def test_set_to_a_size_alone_is_row_major() -> None:
    x = ut.zeros(1).set_(ut.arange(6.0), 0, (3, 2))
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]] and x.stride() == (2, 1)


def test_set_beyond_the_memory_is_refused_before_anything_changes() -> None:
    x = ut.zeros(1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.set_(ut.arange(6.0), 0, (4, 2), (2, 1))
    assert x.tolist() == [0] and x._version == 0


def test_a_view_of_a_base_that_was_changed_and_then_detached_cannot_be_changed(L: Any) -> None:
    x = L.ones(3, 3, requires_grad=True) * 1.5
    part = x.narrow(0, 0, 1)
    x.mul_(0.5)
    x.detach_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        part.sub_(0.25)
    assert not x.requires_grad and x.tolist() == [[0.75] * 3] * 3


@pytest.mark.parametrize("change", ["add_", "sub_", "mul_", "div_", "copy_", "lerp_"])
def test_a_changed_tensor_keeps_its_dtype_and_so_does_its_gradient(L: Any, change: str) -> None:
    x, w = L.ones(2), L.full((2,), 2.0, dtype=L.float64, requires_grad=True)
    if change == "lerp_":
        x.lerp_(w.float(), 0.5)
    else:
        getattr(x, change)(w)
    found = L.autograd.grad(x.double().sum(), [x, w])
    assert [g.dtype for g in found] == [L.float32, L.float64]
