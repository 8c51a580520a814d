"""When tensors, nodes and saved values die. Reference counting alone decides: the collector is off in every test."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.compiled import core


@pytest.fixture(autouse=True)
def no_collector() -> None:
    gc.disable()


def references(*objects: Any) -> list[weakref.ref[Any]]:
    return [weakref.ref(o) for o in objects]


def alive(found: list[weakref.ref[Any]]) -> list[bool]:
    return [reference() is not None for reference in found]


# ---- tensors and nodes


def test_a_graph_dies_with_its_last_tensor() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 2
    z = y * y
    nodes = references(y.grad_fn, z.grad_fn)
    del y
    assert alive(nodes) == [True, True]
    del z
    assert alive(nodes) == [False, False]


def test_an_edge_holds_the_nodes_but_not_the_tensors() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 2
    z = y.exp()
    found = references(y, z, y.grad_fn)
    edge = ut.autograd.graph.get_gradient_edge(z)
    del y, z
    assert alive(found) == [False, False, True]
    del edge
    assert alive(found) == [False, False, False]


def test_a_tensor_in_the_middle_dies_while_its_node_lives() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x + 1
    z = y + 1  # add saves nothing
    tensor, node = references(y, y.grad_fn)
    del y
    assert (tensor() is None, node() is not None) == (True, True)
    z.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_the_leaf_owns_its_node_weakly_and_the_node_the_leaf() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 2
    (node,) = references(y.grad_fn.next_functions[0][0])
    del y
    assert node() is None  # and will be made again
    y = x * 2
    held = y.grad_fn.next_functions[0][0]
    assert held is (x * 3).grad_fn.next_functions[0][0]
    (leaf,) = references(x)
    del x
    assert leaf() is not None and held.variable is leaf()
    del y, held
    assert leaf() is None


def test_a_leaf_dies_with_its_gradient() -> None:
    x = ut.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    found = references(x, x.grad)
    del x
    assert alive(found) == [False, False]


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt", "reciprocal"])
def test_a_saved_output_makes_no_cycle(name: str) -> None:
    y = getattr(ut.ones(2, requires_grad=True), name)()
    found = references(y, y.grad_fn)
    assert y.grad_fn._saved_result.tolist() == y.tolist()
    del y
    assert alive(found) == [False, False]


def test_a_saved_output_that_is_changed_makes_no_cycle() -> None:
    x = ut.ones(4, requires_grad=True)
    y = x * 1
    y.exp_()
    z = x * 1
    z[:2].exp_()
    found = references(y, y.grad_fn, z, z.grad_fn)
    del y, z
    assert alive(found) == [False] * 4


def test_several_outputs_share_their_node() -> None:
    x = ut.ones(3, requires_grad=True)
    one, two, three = (x * 1).unbind(0)
    (node,) = references(one.grad_fn)
    del one, three
    assert node() is not None
    del two
    assert node() is None


def test_deep_graphs_are_freed() -> None:
    x = y = ut.ones(1, requires_grad=True)
    for _ in range(100_000):
        y = y + 1
    found = references(y.grad_fn, x)
    del x, y
    assert alive(found) == [False, False]


@pytest.mark.skipif(core is None, reason="without the core nodes are objects like all others")
def test_to_the_collector_edges_are_part_of_their_node() -> None:
    x = ut.ones(3, requires_grad=True)
    node = (x * 1.0).sin().grad_fn
    below = node.recorded_edges[0]
    assert not gc.is_tracked(node.recorded_edges)
    assert any(found is below for found in gc.get_referents(node))


def test_nodes_that_take_the_place_of_others_are_new() -> None:
    x = ut.ones(1, requires_grad=True)
    for k in range(300):
        y = x.sin() if k % 2 else x * x
        node = y.grad_fn
        assert node.metadata == {} and node.next_functions[0][0].variable is x
        found = references(node)
        node.metadata["k"] = k
        node.register_hook(lambda inputs, outputs: None)
        del y, node
        assert alive(found) == [False]


def test_many_graphs_are_freed_at_once_wherever_they_meet() -> None:
    x = ut.ones(1, requires_grad=True)
    graphs = []
    for k in range(200):
        y = x * 2
        for _ in range(k):
            y = ut.cat([y.exp().log(), y])[:1]
        graphs.append(y)
    found = references(*graphs, *(y.grad_fn for y in graphs))
    del graphs, y
    assert not any(alive(found))


# ---- saved values


def saved_input(x: Any) -> tuple[Any, Any]:
    """An inner tensor, and an output that saved it."""
    inner = x * 2
    return inner, inner.sin()


def test_saved_tensors_die_in_the_pass() -> None:
    x = ut.ones(2, requires_grad=True)
    inner, y = saved_input(x)
    found = references(inner)
    del inner
    assert alive(found) == [True]
    y.sum().backward(retain_graph=True)
    assert alive(found) == [True]
    y.sum().backward()
    assert alive(found) == [False]
    assert y.grad_fn is not None


def test_they_die_as_soon_as_their_node_has_run() -> None:
    x = ut.ones(2, requires_grad=True)
    inner, y = saved_input(x)
    found, seen = references(inner), []
    inner.register_hook(lambda grad: None)
    x.register_hook(lambda grad: seen.append(alive(found)))
    del inner
    y.sum().backward()
    assert seen == [[False]]


@pytest.mark.parametrize("hooked", [False, True])
def test_packed_objects_die_with_them(hooked: bool) -> None:
    class Packed:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        made = Packed(tensor.detach())
        packed.append(weakref.ref(made))
        return made

    x = ut.ones(2, requires_grad=True)
    with ut.autograd.graph.saved_tensors_hooks(pack, lambda made: made.tensor):
        y = x.exp() * x
    if hooked:
        y.register_hook(lambda grad: None)
    assert alive(packed) == [True] * 3
    y.sum().backward()
    assert alive(packed) == [False] * 3


def test_a_graph_that_was_never_run_frees_its_saved_tensors() -> None:
    inner, y = saved_input(ut.ones(2, requires_grad=True))
    array = weakref.ref(inner._array)
    del inner, y
    assert array() is None


def test_the_pass_itself_is_gone(L: ModuleType) -> None:
    captured: list[Any] = []
    x = L.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: captured.append(weakref.ref(grad)))
    y.sum().backward()
    assert alive(captured) == [False]


# ---- hooks and retain_grad


def test_hooks_and_retain_grad_own_no_tensor(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda grad: None)
    z = y + 1
    found = references(y)
    del y
    assert alive(found) == [False]
    z.sum().backward()


def test_a_hook_dies_with_its_node(L: ModuleType) -> None:
    class Hook:
        def __call__(self, *arguments: Any) -> None:
            pass

    hooks = [Hook() for _ in range(4)]
    found = references(*hooks)
    x = L.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(hooks[0])
    y.grad_fn.register_prehook(hooks[1])
    handle = y.grad_fn.register_hook(hooks[2])
    x.register_post_accumulate_grad_hook(hooks[3])
    del hooks
    assert alive(found) == [True] * 4
    del y
    assert alive(found) == [False, False, False, True]
    del x
    assert alive(found) == [False] * 4
    handle.remove()


def test_a_removed_hook_is_let_go(L: ModuleType) -> None:
    class Hook:
        def __call__(self, grad: Any) -> None:
            pass

    hook = Hook()
    (found,) = references(hook)
    y = L.ones(2, requires_grad=True) * 2
    handle = y.register_hook(hook)
    del hook
    handle.remove()
    assert found() is None


# ---- views


def test_a_view_keeps_its_base_but_not_the_other_way_round(L: ModuleType) -> None:
    base = L.ones(4, requires_grad=True) * 1
    view, other = base[:2], base[2:]
    found = references(base, other)
    del base, other
    assert alive(found) == [True, False]
    del view
    assert alive(found) == [False, False]


def test_detach_drops_the_base() -> None:
    base = ut.ones(4, requires_grad=True) * 1
    found = references(base, base.grad_fn)
    alias = base[:2].detach()
    del base
    assert alive(found) == [False, False]
    assert alias.tolist() == [1.0, 1.0]


def test_changes_through_views_make_no_cycle() -> None:
    base = ut.ones(4, requires_grad=True) * 1
    view = base[:2]
    view.mul_(3)
    view[0] = 5.0
    base.add_(1)
    assert view.grad_fn is not None
    found = references(base, view, base.grad_fn, view.grad_fn)
    del base, view
    assert alive(found) == [False] * 4


# ---- double backward


def test_a_recorded_pass_leaves_only_its_graph() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x.exp()
    (g,) = ut.autograd.grad(y.sum(), x, create_graph=True)
    found = references(y.grad_fn, g.grad_fn)
    del y
    assert alive(found) == [True, True]  # the gradient's graph needs exp's result
    del g
    assert alive(found) == [False, False]


def test_a_gradient_with_a_graph_is_let_go_with_grad() -> None:
    x = ut.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the cycle, once per process
        (x * x).sum().backward(create_graph=True)
    found = references(x, x.grad.grad_fn)
    x.grad = None  # the cure that the warning names
    del x
    assert alive(found) == [False, False]


# ---- memory


def test_a_training_loop_keeps_nothing() -> None:
    w = ut.ones(1000, requires_grad=True)
    made: list[weakref.ref[Any]] = []

    def step() -> None:
        inner = (w * 2).sin()
        loss = (inner * w).sum()
        loss.backward()
        with ut.no_grad():
            w.sub_(w.grad, alpha=0.01)
        made.extend(references(inner, inner._array, inner.grad_fn, loss, w.grad, w.grad._array))
        w.grad = None

    for _ in range(3):
        step()
    assert alive(made) == [False] * 18


def test_given_gradients_are_released() -> None:
    seed = ut.ones(1000)
    count = sys.getrefcount(seed._array)
    x = ut.ones(1000, requires_grad=True)
    (x * 2).backward(seed)
    after = sys.getrefcount(seed._array)
    assert after == count
    np.testing.assert_array_equal(seed.numpy(), np.ones(1000))
