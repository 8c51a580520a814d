"""GradientEdge: a point of the graph without its tensor, as an input and as an output of grad() and backward()."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


def edge(L: ModuleType, tensor: Any) -> Any:
    return L.autograd.graph.get_gradient_edge(tensor)


def test_an_edge_is_as_good_as_its_tensor(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 3
    out = (y * y).sum()
    for inputs in ([y, x], [edge(L, y), x], [y, edge(L, x)], [edge(L, y), edge(L, x)]):
        for root in (out, edge(L, out)):
            found = L.autograd.grad(root, inputs, retain_graph=True)
            assert [g.tolist() for g in found] == [[6, 12], [18, 36]]
    L.autograd.backward(edge(L, out), inputs=[edge(L, x)])
    assert x.grad.tolist() == [18, 36]


def test_an_edge_keeps_the_graph_alive(L: ModuleType) -> None:
    x = leaf(L)
    root = edge(L, (x * x).sum())
    gc.collect()
    assert L.autograd.grad(root, x)[0].tolist() == [2, 4]


def test_an_edge_does_not_keep_the_tensor_alive() -> None:
    gc.disable()
    y = leaf(ut) * 2
    tensor, root = weakref.ref(y), edge(ut, y)
    del y
    assert tensor() is None and root.node.name() == "MulBackward0"


def test_edges_of_a_node_with_several_outputs(L: ModuleType) -> None:
    x = L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first, second = x.unbind()
    edges = [edge(L, first), edge(L, second)]
    assert [e.output_nr for e in edges] == [0, 1] and edges[0].node is edges[1].node
    out = (first * second).sum()
    assert [g.tolist() for g in L.autograd.grad(out, edges, retain_graph=True)] == [[3, 4], [1, 2]]
    L.autograd.backward(edges[1:], [L.tensor([5.0, 6.0])])
    assert x.grad.tolist() == [[0, 0], [5, 6]]


def test_an_edge_stays_at_its_version_of_the_tensor(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 1
    before = edge(L, y)
    y.mul_(10)
    after = edge(L, y)
    found = L.autograd.grad(y.sum(), [before, after, y])
    assert [g.tolist() for g in found] == [[10, 10], [1, 1], [1, 1]]


def test_a_root_edge_needs_a_gradient_of_its_shape(L: ModuleType) -> None:
    x = leaf(L)
    root = edge(L, x * 2)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar output"):
        L.autograd.grad(root, x)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        L.autograd.grad(root, x, L.ones(3))
    assert L.autograd.grad(root, x, L.ones(2))[0].tolist() == [2, 2]


def test_an_unused_edge(L: ModuleType) -> None:
    x, unused = leaf(L), edge(L, leaf(L) * 2)
    assert L.autograd.grad(x.sum(), unused, allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match="Set allow_unused=True"):
        L.autograd.grad(x.sum(), unused)


def test_an_edge_is_a_named_pair(L: ModuleType) -> None:
    y = leaf(L) * 2
    found = edge(L, y)
    assert (found.node, found.output_nr) == (y.grad_fn, 0) and isinstance(found, tuple)
    made = L.autograd.graph.GradientEdge(y.grad_fn, 0)
    assert L.autograd.grad(y.sum(), made)[0].tolist() == [1, 1]


def test_there_is_no_edge_without_grad(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="It is not possible to get the gradient edge for a Tensor"):
        edge(L, L.ones(2))


def test_the_edge_of_a_leaf_is_its_accumulator(L: ModuleType) -> None:
    x = leaf(L)
    found = edge(L, x)
    assert type(found.node).__name__ == "AccumulateGrad" and found.node.variable is x
    assert edge(L, x).node is found.node


def test_an_edge_of_a_leaf_as_a_root(L: ModuleType) -> None:
    x = leaf(L)
    L.autograd.backward(edge(L, x), L.tensor([3.0, 4.0]))
    assert x.grad.tolist() == [3, 4]


def test_an_edge_and_a_tensor_as_roots(L: ModuleType) -> None:
    x = leaf(L)
    y = (x * x).sum()
    L.autograd.backward([y, edge(L, y)])
    assert x.grad.tolist() == [4, 8]


def test_backward_into_an_edge_that_is_no_leaf_writes_nothing(L: ModuleType) -> None:
    """There is no tensor whose `.grad` could be written; hooks of the node run, and nothing below it does."""
    x = leaf(L)
    y = x * 3
    seen: list[Any] = []
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    (y * y).sum().backward(inputs=[edge(L, y)])
    assert seen == [[6, 12]] and x.grad is None


def test_an_edge_survives_set_of_its_tensor(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    root = edge(L, y)
    y.data = L.zeros(5)
    assert L.autograd.grad(root, x, L.ones(2))[0].tolist() == [2, 2]


def test_edges_are_equal_when_they_name_the_same_point(L: ModuleType) -> None:
    y = leaf(L) * 2
    first, second = edge(L, y), edge(L, y)
    assert (first.node, first.output_nr) == (second.node, second.output_nr)
    assert first.node is second.node


EDGES_THAT_CANNOT_BE = {
    "no such output": (lambda node: (node, 1), "MulBackward0 has no output 1"),
    "a negative output": (lambda node: (node, -1), "MulBackward0 has no output -1"),
    "no node": (lambda node: (None, 0), "has to be a grad_fn, but got NoneType"),
}


@pytest.mark.parametrize(("make", "words"), EDGES_THAT_CANNOT_BE.values(), ids=EDGES_THAT_CANNOT_BE)
def test_edges_that_cannot_be(make: Callable[..., Any], words: str) -> None:
    x = leaf(ut)  # PyTorch reads past the end of its list of outputs
    y = x * 2
    bad = ut.autograd.graph.GradientEdge(*make(y.grad_fn))
    for attempt in (
        lambda: ut.autograd.grad(y.sum(), bad),
        lambda: ut.autograd.grad(bad, x, ut.ones(2)),
        lambda: ut.autograd.backward(bad, ut.ones(2)),
        lambda: y.sum().backward(inputs=[bad]),
    ):
        with pytest.raises(RuntimeError, match=words):
            attempt()
