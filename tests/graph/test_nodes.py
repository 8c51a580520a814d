"""The graph as a program sees it: nodes, edges, names, metadata, and calling a node by hand."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.backend import cpu
from undertow.graph.node import Node, site_of, topological_nr
from undertow.graph.user_lines import caller_site


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


def graph_of(node: Any) -> str:
    if node is None:
        return "None"
    return f"{type(node).__name__}({', '.join(graph_of(below) for below, _ in node.next_functions)})"


# ---- edges

GRAPHS: dict[str, tuple[Callable[..., Any], str]] = {
    "two inputs": (lambda x, y: x * y, "MulBackward0(AccumulateGrad(), AccumulateGrad())"),
    "a number": (lambda x, y: x + 5, "AddBackward0(AccumulateGrad(), None)"),
    "a number on the left": (lambda x, y: 5 * x, "MulBackward0(AccumulateGrad(), None)"),
    "a constant": (lambda x, y: x * y.detach(), "MulBackward0(AccumulateGrad(), None)"),
    "a constant first": (lambda x, y: y.detach() * x, "MulBackward0(None, AccumulateGrad())"),
    "the same twice": (lambda x, y: x * x, "MulBackward0(AccumulateGrad(), AccumulateGrad())"),
    "a chain": (lambda x, y: x.exp().sum(), "SumBackward0(ExpBackward0(AccumulateGrad()))"),
    "sum over a dimension": (lambda x, y: x.sum(0), "SumBackward1(AccumulateGrad())"),
    "clone": (lambda x, y: x.clone(), "CloneBackward0(AccumulateGrad())"),
    "view": (lambda x, y: x.view(1, 2), "ViewBackward0(AccumulateGrad())"),
    "sine and cosine": (lambda x, y: x.sin().cos(), "CosBackward0(SinBackward0(AccumulateGrad()))"),
    "quotient": (lambda x, y: x / y, "DivBackward0(AccumulateGrad(), AccumulateGrad())"),
    "expand": (lambda x, y: x.expand(3, 2), "ExpandBackward0(AccumulateGrad())"),
    "unbind": (lambda x, y: x.unbind()[1], "UnbindBackward0(AccumulateGrad())"),
}


@pytest.mark.parametrize(("f", "graph"), GRAPHS.values(), ids=GRAPHS)
def test_graphs(L: ModuleType, f: Callable[..., Any], graph: str) -> None:
    assert graph_of(f(leaf(L), leaf(L)).grad_fn) == graph


def test_edges_carry_the_number_of_the_output(L: ModuleType) -> None:
    first, second = leaf(L).unbind()
    assert [nr for _, nr in (second * first).grad_fn.next_functions] == [1, 0]
    assert (leaf(L) + 5).grad_fn.next_functions[1] == (None, 0)


def test_the_same_node_is_the_same_object(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    a, b = y.exp(), y.sin()
    assert a.grad_fn.next_functions[0][0] is b.grad_fn.next_functions[0][0] is y.grad_fn
    gc.collect()
    assert y.grad_fn.next_functions[0][0] is y.grad_fn.next_functions[0][0]


def test_the_graph_of_a_derivative(L: ModuleType) -> None:
    """A sum's gradient is an expand, a number is no edge, and what a leaf keeps is a copy."""
    x, y = leaf(L), leaf(L)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x**2 + y * x).sum().backward(L.tensor(1.0, requires_grad=True), create_graph=True)
    graph = graph_of(y.grad.grad_fn)
    x.grad = y.grad = None
    assert graph == "CopyBackwards(None, MulBackward0(ExpandBackward0(AccumulateGrad()), AccumulateGrad()))"


# ---- nodes


def test_a_node_is_a_node_without_inheriting_it(L: ModuleType) -> None:
    Node = L.autograd.graph.Node
    node = (leaf(L) * 2).grad_fn
    accumulate = node.next_functions[0][0]
    for each in (node, accumulate):
        assert isinstance(each, Node) and issubclass(type(each), Node) and Node not in type(each).mro()
    assert not isinstance(None, Node) and not isinstance(1, Node) and not isinstance(Node, Node)
    assert issubclass(Node, Node)


def test_names(L: ModuleType) -> None:
    y = leaf(L) * 2
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "MulBackward0"
    assert y.grad_fn.next_functions[0][0].name().endswith("::autograd::AccumulateGrad")
    assert repr(y.grad_fn).startswith("<MulBackward0 object at 0x")


def test_metadata_is_the_users(L: ModuleType) -> None:
    y, z = leaf(L) * 2, leaf(L) * 2
    assert y.grad_fn.metadata == {}
    y.grad_fn.metadata["note"] = 1
    assert y.grad_fn.metadata == {"note": 1} and z.grad_fn.metadata == {}


def test_input_metadata_describes_the_gradient(L: ModuleType) -> None:
    x = L.ones(3, 2, requires_grad=True)
    (facts,) = (x.double() * 2).grad_fn._input_metadata
    assert (tuple(facts.shape), facts.dtype, str(facts.device)) == ((3, 2), L.float64, "cpu")
    assert facts.is_nested_tensor is False
    assert [tuple(facts.shape) for facts in x.unbind()[0].grad_fn._input_metadata] == [(2,)] * 3


def test_nodes_are_hashed_by_identity(L: ModuleType) -> None:
    a, b = (leaf(L) * 2).grad_fn, (leaf(L) * 2).grad_fn
    assert a != b and len({a, b, a}) == 2


def test_a_node_is_referred_to_weakly_and_dies_with_its_tensor() -> None:
    gc.disable()
    y = leaf(ut) * 2
    alive = weakref.ref(y.grad_fn)
    assert alive() is y.grad_fn
    del y
    assert alive() is None


def test_requires_grad_of_a_node(L: ModuleType) -> None:
    assert (leaf(L) * 2).grad_fn.requires_grad is True


def test_topological_numbers() -> None:
    """The longest way down to a leaf."""
    x = leaf(ut)
    y = x * 2
    z = y + x
    w = (z * y).sum()
    numbers = [topological_nr(t.grad_fn) for t in (y, z, w)]
    assert numbers == [1, 2, 4] and topological_nr(y.grad_fn.next_functions[0][0]) == 0


# ---- calling a node


def test_a_node_can_be_called(L: ModuleType) -> None:
    x, y = leaf(L), L.tensor([3.0, 4.0], requires_grad=True)
    for_x, for_y = (x * y).grad_fn(L.ones(2))
    assert (for_x.tolist(), for_y.tolist()) == ([3, 4], [1, 2])
    assert x.exp().grad_fn(L.zeros(2)).tolist() == [0, 0]


def test_a_call_keeps_the_saved_values(L: ModuleType) -> None:
    x = leaf(L)
    node = (x * x).grad_fn
    first = [g.tolist() for g in node(L.ones(2))]
    assert [g.tolist() for g in node(L.ones(2))] == first


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_call_takes_one_gradient_per_output(L: ModuleType, count: int) -> None:
    with pytest.raises(TypeError, match=r"expected .* arguments, got .* instead"):
        (leaf(L) * 2).grad_fn(*[L.ones(2)] * count)


def test_a_call_of_a_node_with_several_outputs(L: ModuleType) -> None:
    x = L.ones(2, 3, requires_grad=True)
    node = x.unbind()[0].grad_fn
    assert node(L.ones(3), None).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_a_call_runs_no_hooks(L: ModuleType) -> None:
    seen: list[str] = []
    node = (leaf(L) * 2).grad_fn
    node.register_prehook(lambda grads: seen.append("pre"))
    node.register_hook(lambda inputs, outputs: seen.append("post"))
    assert node(L.ones(2))[0].tolist() == [2, 2]
    assert seen == []


def test_a_call_is_recorded(L: ModuleType) -> None:
    x = leaf(L)
    node = (x * x).grad_fn
    assert node(L.ones(2))[0].requires_grad
    with L.no_grad():
        assert not node(L.ones(2))[0].requires_grad


# ---- nodes made by hand


def test_a_node_made_by_hand_has_every_slot() -> None:
    before = (ut.ones(1, requires_grad=True) * 2).grad_fn
    node = Node([before, None], shape=(2,), dtype=ut.float32)
    assert node.next_functions == ((before, 0), (None, 0))
    assert (node.shape, node.dtype, node.saved, node.params) == ((2,), ut.float32, (), ())
    assert node.sequence_nr > before._sequence_nr()  # type: ignore[attr-defined]
    assert (node.extra, node.code, node.lasti) == (None, None, 0)
    unset = [name for name in Node.__slots__ if name != "__weakref__" and not hasattr(node, name)]
    assert not unset


def test_a_node_made_by_hand_is_on_the_device_of_its_outputs() -> None:
    x = ut.ones(1, device="sim:0")
    node = Node(spaces=[x._xp], sequence_nr=7, site=caller_site())
    assert node.device == x.device and node.sequence_nr == 7
    assert "test_nodes.py" in str(site_of(node))
    assert Node(spaces=[cpu, x._xp]).extra.spaces == [cpu, x._xp]  # type: ignore[union-attr]


def test_names_of_nodes_that_stand_for_no_operation(L: Any) -> None:
    x, y = L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)
    copied = (x * 1).copy_(y)
    sliced = x * 1
    sliced[0] = y[0]
    names = [t.grad_fn.name() for t in (copied, sliced)] + [(x * 1).grad_fn.next_functions[0][0].name()]
    assert names == [f"{L.__name__}::autograd::{own}" for own in ("CopyBackwards", "CopySlices", "AccumulateGrad")]
