"""Passes find the nodes of leaves without Python, also of leaves with hooks; what is special about a leaf counts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import undertow as ut
from undertow.compiled import core

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)


def hooked_leaf(count: int = 3) -> Any:
    leaf = ut.ones(count, requires_grad=True)
    leaf.seen = []
    leaf.register_post_accumulate_grad_hook(lambda tensor: tensor.seen.append(tensor.grad.tolist()))
    return leaf


def python_functions_of(call: Any) -> set[str]:
    """The names of the Python functions that run."""
    names: set[str] = set()
    sys.setprofile(lambda frame, event, _: names.add(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("is_hooked", [False, True])
def test_the_nodes_of_leaves_are_made_without_python(is_hooked: bool) -> None:
    leaves = [hooked_leaf() if is_hooked else ut.ones(3, requires_grad=True) for _ in range(4)]
    product = leaves[0]
    for leaf in leaves[1:]:
        product = product * leaf
    loss = product.sum()
    ran = python_functions_of(loss.backward)
    assert "execute" in ran
    assert not ran & {"resolve_leaves", "leaf_edge"}
    for leaf in leaves:
        assert leaf.grad.tolist() == [1.0, 1.0, 1.0]
        assert not is_hooked or leaf.seen == [[1.0, 1.0, 1.0]]


def test_a_leaf_with_hooks_whose_gradient_has_a_dtype_of_its_own() -> None:
    leaf = hooked_leaf()
    leaf.grad_dtype = ut.float64
    (leaf * 2).sum().backward()
    assert leaf.grad.dtype is ut.float64
    assert leaf.seen == [[2.0, 2.0, 2.0]]


def test_a_graph_that_is_older_than_the_memory_of_a_leaf_with_hooks() -> None:
    leaf = hooked_leaf(3)
    loss = (leaf * 2).sum()
    with ut.no_grad():
        leaf.set_(ut.ones(2))
    older, newer = loss.grad_fn.next_functions[0][0], (leaf * 2).grad_fn
    before, after = older.next_functions[0][0], newer.next_functions[0][0]
    assert before is not after
    assert (before.shape, after.shape) == ((3,), (2,))


def test_one_node_for_a_leaf_whoever_asks() -> None:
    leaf = hooked_leaf()
    square = leaf * leaf
    (square.sum() + leaf.sum()).backward()
    assert leaf.grad.tolist() == [3.0, 3.0, 3.0]
    assert leaf.seen == [[3.0, 3.0, 3.0]]


def test_leaves_of_other_classes_are_found_by_python() -> None:
    class Special(ut.Tensor):
        pass

    leaf = ut.ones(3).as_subclass(Special).requires_grad_()
    assert isinstance(leaf, Special)
    (leaf * 2 + hooked_leaf()).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0, 2.0]
