"""Which hooks fire, and in which order: one table per kind of pass, obeyed by both libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def edge_node(L: ModuleType, tensor: Any) -> Any:
    return L.autograd.graph.get_gradient_edge(tensor).node


class Watched:
    """a (leaf) -> b = 2a -> c = 3b -> sum, with every kind of hook on a, b and c writing its name into `log`."""

    def __init__(self, L: ModuleType) -> None:
        self.log: list[str] = []
        self.a = L.tensor([1.0, 2.0], requires_grad=True)
        self.b = self.a * 2
        self.c = self.b * 3
        self.loss = self.c.sum()
        self.accumulate = edge_node(L, self.a)
        # registered in the reverse of the order in which they fire
        self.accumulate.register_hook(self.saying("a node post"))
        self.a.register_post_accumulate_grad_hook(self.saying("a accumulated"))
        self.accumulate.register_prehook(self.saying("a node pre"))
        self.a.register_hook(self.saying("a"))
        for name in ("b", "c"):
            tensor = getattr(self, name)
            tensor.grad_fn.register_hook(self.saying(f"{name} node post"))
            tensor.grad_fn.register_prehook(self.saying(f"{name} node pre"))
            tensor.register_hook(self.saying(name))

    def saying(self, word: str) -> Any:
        def hook(*arguments: Any) -> None:
            self.log.append(word)

        return hook


C = ["c", "c node pre", "c node post"]
B = ["b", "b node pre", "b node post"]
A = ["a", "a node pre", "a accumulated", "a node post"]


def test_backward_fires_all(L: ModuleType) -> None:
    w = Watched(L)
    w.loss.backward()
    assert w.log == C + B + A


def test_grad_of_a_leaf_fires_its_tensor_hooks_only(L: ModuleType) -> None:
    w = Watched(L)
    L.autograd.grad(w.loss, w.a)
    assert w.log == [*C, *B, "a"]


def test_grad_of_an_inner_tensor_does_not_run_its_node(L: ModuleType) -> None:
    w = Watched(L)
    L.autograd.grad(w.loss, w.b)
    assert w.log == [*C, "b"]


def test_grad_of_both_runs_the_inner_node_for_the_leaf(L: ModuleType) -> None:
    w = Watched(L)
    L.autograd.grad(w.loss, [w.b, w.a])
    assert w.log == [*C, *B, "a"]


def test_grad_of_the_root_itself_runs_no_node(L: ModuleType) -> None:
    w = Watched(L)
    L.autograd.grad(w.c, w.c, L.ones(2))
    assert w.log == ["c"]


def test_backward_into_an_inner_tensor_runs_its_node_too(L: ModuleType) -> None:
    w = Watched(L)
    w.loss.backward(inputs=[w.b])
    assert w.log == C + B
    assert w.a.grad is None


def test_backward_into_a_leaf(L: ModuleType) -> None:
    w = Watched(L)
    w.loss.backward(inputs=[w.a])
    assert w.log == C + B + A


def test_every_pass_fires_again(L: ModuleType) -> None:
    w = Watched(L)
    w.loss.backward(retain_graph=True)
    w.loss.backward()
    assert w.log == 2 * (C + B + A)


def test_a_recorded_pass_fires_the_same_and_its_graph_has_no_hooks(L: ModuleType) -> None:
    w = Watched(L)
    (g,) = L.autograd.grad((w.c * w.c).sum(), w.c, create_graph=True)
    assert w.log == ["c"]
    w.log.clear()
    g.sum().backward()
    assert w.log == C + B + A  # g = 2c, so the pass goes through c once more


def test_what_each_hook_of_a_leaf_sees_in_grad(L: ModuleType) -> None:
    a = L.tensor([1.0], requires_grad=True)
    accumulate, seen = edge_node(L, a), []

    def look(name: str) -> Any:
        return lambda *arguments: seen.append((name, None if a.grad is None else a.grad.item()))

    a.register_hook(look("tensor"))
    accumulate.register_prehook(look("pre"))
    a.register_post_accumulate_grad_hook(look("accumulated"))
    accumulate.register_hook(look("post"))
    (a * 5).backward()
    assert seen == [("tensor", None), ("pre", None), ("accumulated", 5.0), ("post", 5.0)]


def test_retain_grad_sees_tensor_hooks_but_no_node_prehook(L: ModuleType) -> None:
    a = L.tensor([1.0], requires_grad=True)
    b = a * 2
    b.grad_fn.register_prehook(lambda grads: (grads[0] * 4,))
    b.retain_grad()
    b.register_hook(lambda grad: grad * 3)
    b.sum().backward()
    assert (b.grad.item(), a.grad.item()) == (3.0, 24.0)


def hooked_product(L: ModuleType) -> tuple[Any, Any]:
    a = L.tensor([1.0], requires_grad=True)
    b = a * 2
    b.grad_fn.register_prehook(lambda grads: (grads[0] * 4,))
    b.register_hook(lambda grad: grad * 3)
    return a, b


def test_a_capture_sees_tensor_hooks_but_no_node_prehook(L: ModuleType) -> None:
    _, b = hooked_product(L)
    assert L.autograd.grad(b.sum(), b)[0].item() == 3.0
    a, b = hooked_product(L)
    b.sum().backward(inputs=[b, a])
    assert (b.grad.item(), a.grad.item()) == (3.0, 24.0)


def test_a_capture_sees_them_also_where_the_node_runs() -> None:
    """PyTorch captures before the tensor hooks if the node runs for another input, and after them if not."""
    a, b = hooked_product(ut)
    assert [g.item() for g in ut.autograd.grad(b.sum(), [b, a])] == [3.0, 24.0]


def test_later_hooks_see_what_earlier_ones_returned(L: ModuleType) -> None:
    a, seen = L.tensor([1.0], requires_grad=True), []
    b = a * 1

    def times(factor: float) -> Any:
        def hook(grad: Any) -> Any:
            seen.append(grad.item())
            return grad * factor

        return hook

    b.register_hook(times(2))
    b.register_hook(lambda grad: None)
    b.register_hook(times(3))
    b.grad_fn.register_prehook(lambda grads: (times(5)(grads[0]),))
    b.grad_fn.register_hook(lambda inputs, outputs: (times(7)(inputs[0]), *inputs[1:]))
    a.register_hook(times(11))
    b.sum().backward()
    assert seen == [1, 2, 6, 30, 210]
    assert a.grad.item() == 2310


def test_the_post_hook_sees_what_came_in_and_what_went_out(L: ModuleType) -> None:
    a, seen = L.tensor([2.0], requires_grad=True), []
    b = a * a
    b.grad_fn.register_hook(lambda inputs, outputs: seen.append([[g.item() for g in inputs], outputs[0].item()]))
    b.sum().backward()
    assert seen == [[[2.0, 2.0], 1.0]]


def test_the_post_hook_sees_gradients_as_they_arrive(L: ModuleType) -> None:
    row, seen = L.ones(3, requires_grad=True), []
    product = row * L.ones(2, 3, dtype=L.float64, requires_grad=True)
    product.grad_fn.register_hook(lambda inputs, outputs: seen.extend([list(g.shape), g.dtype == t] for g, t in
                                  zip(inputs, (L.float32, L.float64), strict=True)))  # fmt: skip
    product.sum().backward()
    assert seen == [[[3], True], [[2, 3], True]]


# ---- nodes with several outputs


def test_a_hook_on_an_output_without_gradient_gets_none(L: ModuleType) -> None:
    x, seen = L.tensor([[1.0], [2.0], [3.0]], requires_grad=True), []
    parts = (x * 1).unbind(0)
    for nr, part in enumerate(parts):
        part.register_hook(lambda grad, nr=nr: seen.append((nr, grad is None)))
    parts[1].sum().backward()
    assert seen == [(0, True), (1, False), (2, True)]
    assert x.grad.tolist() == [[0.0], [1.0], [0.0]]


def test_hooks_on_the_outputs_of_one_node_fire_as_the_outputs_got_them(L: ModuleType) -> None:
    x, seen = L.tensor([1.0, 2.0, 3.0], requires_grad=True), []
    parts = (x * 1).unbind(0)
    for nr in (2, 0, 1, 0):
        parts[nr].register_hook(lambda grad, nr=nr: seen.append(nr))
    sum(parts).backward()
    assert seen == [2, 0, 0, 1]


def test_a_prehook_gets_one_gradient_per_output(L: ModuleType) -> None:
    x, seen = L.tensor([1.0, 2.0], requires_grad=True), []
    one, two = (x * 1).unbind(0)
    one.grad_fn.register_prehook(lambda grads: seen.append([g if g is None else g.item() for g in grads]))
    (two * 3).backward()
    assert seen == [[None, 3.0]]


def test_an_output_that_never_has_a_gradient_does_not_count(L: ModuleType) -> None:
    x, seen = L.tensor([1.0, 3.0, 2.0], requires_grad=True), []
    values, indices = (x * 1).sort()
    node = values.grad_fn
    assert len(node._input_metadata) == 1 and not indices.requires_grad
    node.register_prehook(lambda grads: seen.append(len(grads)) or (grads[0] * 2,))
    node.register_hook(lambda inputs, outputs: seen.append((len(inputs), len(outputs))))
    (values * L.tensor([1.0, 2.0, 3.0])).sum().backward(retain_graph=True)
    assert seen == [1, (1, 1)]
    assert x.grad.tolist() == [2.0, 6.0, 4.0]
    assert node(L.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 3.0, 2.0]


# ---- several branches


def test_nodes_run_latest_first_and_leaves_as_soon_as_ready(L: ModuleType) -> None:
    x, y, log = L.tensor(1.0, requires_grad=True), L.tensor(2.0, requires_grad=True), []
    first = x * 2
    second = y * 3
    third = first * second
    for name, tensor in {"x": x, "y": y, "first": first, "second": second, "third": third}.items():
        tensor.register_hook(lambda grad, name=name: log.append(name))
    (third + first).backward()
    assert log == ["third", "second", "y", "first", "x"]


@pytest.mark.parametrize("how", ["backward", "backward into", "grad"])
def test_leaves_that_are_ready_together_come_in_the_order_of_the_edges(L: ModuleType, how: str) -> None:
    leaves, log = [L.ones(2, requires_grad=True) for _ in range(3)], []
    for nr, leaf in enumerate(leaves):
        leaf.register_hook(lambda grad, nr=nr: log.append(nr))
    loss = L.addcmul(*leaves).sum()
    if how == "grad":
        L.autograd.grad(loss, leaves)
    else:
        loss.backward(inputs=leaves if how == "backward into" else None)
    assert log == [0, 1, 2]


def test_the_hooks_of_an_only_root_fire_though_no_input_is_reached(L: ModuleType) -> None:
    w, other = Watched(L), L.ones(1, requires_grad=True)
    assert L.autograd.grad(w.c, other, L.ones(2), allow_unused=True) == (None,)
    assert w.log == ["c"]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_tensor_used_twice_fires_once_with_the_sum(L: ModuleType, runs: int) -> None:
    x, seen = L.tensor(3.0, requires_grad=True), []
    y = x * 1
    y.register_hook(lambda grad: seen.append(grad.item()))
    loss = y * 2 + y * 5
    for _ in range(runs):
        loss.backward(retain_graph=True)
    assert seen == [7.0] * runs


def test_hooks_of_one_tensor_see_one_gradient() -> None:
    """So one of them may leave another an attribute on it."""
    seen: list[Any] = []

    def first(grad: Any) -> None:
        seen.append(grad)

    def second(grad: Any) -> Any:
        grad.note = "from the second"
        return grad * 2

    y = ut.ones(2, requires_grad=True) * 1
    y.register_hook(first)
    y.register_hook(second)
    y.register_hook(first)
    y.sum().backward()
    assert seen[0].note == "from the second"
    assert not hasattr(seen[1], "note")
    assert seen[1].tolist() == [2, 2]


def test_hooks_of_a_function_see_gradients_that_nobody_wants(L: ModuleType) -> None:
    class Product(L.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            return grad * b, grad * a

    a, b = L.tensor(2.0, requires_grad=True), L.tensor(3.0, requires_grad=True)
    y, seen = Product.apply(a, b), []
    y.grad_fn.register_hook(lambda grads, _: seen.append([grad.item() for grad in grads]))
    y.grad_fn.register_hook(lambda grads, _: tuple([10 * grad for grad in grads]))
    assert [grad.item() for grad in L.autograd.grad(y, a)] == [30] and seen == [[3, 2]]
