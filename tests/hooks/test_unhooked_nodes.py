"""Nodes that hooks have no business with: those that packed nothing, and Functions with attributes of any name."""

from __future__ import annotations

from typing import Any

import undertow as ut


def test_a_node_that_packs_nothing_stays_an_ordinary_one() -> None:
    x = ut.ones(3, requires_grad=True)
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        scaled = x * 2.0
        curved = scaled.tanh()
    assert scaled.grad_fn is not None
    assert curved.grad_fn is not None
    assert scaled.grad_fn.extra is None
    assert curved.grad_fn.extra is not None
    curved.sum().backward()
    assert x.grad is not None
    assert ut.allclose(x.grad, 2 * (1 - ut.tanh(ut.full((3,), 2.0)) ** 2))


def test_hooks_of_a_tensor_that_a_function_keeps_do_not_see_its_gradients() -> None:
    class Scale(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: Any) -> Any:
            ctx.variable = by
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.variable, None

    x, by = ut.ones(3, requires_grad=True), ut.full((3,), 2.0, requires_grad=True)
    by.register_hook(lambda grad: None if grad is None else grad * 100)
    y = Scale.apply(x, by)
    y.register_hook(lambda grad: grad)  # hooks are looked for
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_hooks_that_unpacking_registers_see_the_results() -> None:
    x, seen = ut.ones(3, requires_grad=True), []

    def unpack(tensor: Any) -> Any:
        node = y.grad_fn
        assert node is not None
        node.register_hook(lambda results, gradients: seen.append((len(results), gradients)))
        return tensor

    with ut.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.tanh()
    y.sum().backward()
    assert seen == [(1, (None,))]
