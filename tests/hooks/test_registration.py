"""Registering and removing hooks, also while they run, and what hooks may return."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def graph(L: ModuleType) -> tuple[Any, Any, Any]:
    a = L.tensor([1.0, 2.0], requires_grad=True)
    b = a * 2
    return a, b, b.sum()


# ---- handles


def test_removing_twice_is_no_error(L: ModuleType) -> None:
    a, b, loss = graph(L)
    log: list[str] = []
    handles = [
        b.register_hook(lambda g: log.append("tensor")),
        b.grad_fn.register_prehook(lambda g: log.append("pre")),
        b.grad_fn.register_hook(lambda g, h: log.append("post")),
        a.register_post_accumulate_grad_hook(lambda t: log.append("accumulated")),
    ]
    loss.backward(retain_graph=True)
    assert log == ["tensor", "pre", "post", "accumulated"]
    for handle in [*handles, *handles]:
        handle.remove()
    loss.backward()
    assert len(log) == 4


def test_a_handle_is_a_context_manager(L: ModuleType) -> None:
    _, b, loss = graph(L)
    log: list[str] = []
    with b.register_hook(lambda g: log.append("b")):
        loss.backward(retain_graph=True)
    loss.backward()
    assert log == ["b"]


def test_a_handle_outlives_the_tensor(L: ModuleType) -> None:
    _, b, loss = graph(L)
    handle = b.register_hook(lambda g: None)
    del b, loss
    handle.remove()


def test_a_handle_does_not_keep_the_hook_alive() -> None:
    gc.disable()

    class Captured:
        pass

    def register() -> tuple[Any, Any]:
        captured = Captured()
        _, b, _ = graph(ut)
        return b.register_hook(lambda g, held=captured: None), weakref.ref(captured)

    handle, reference = register()
    assert reference() is None
    handle.remove()


# ---- while they run


def test_a_hook_may_remove_itself(L: ModuleType) -> None:
    _, b, loss = graph(L)
    log: list[str] = []

    def once(grad: Any) -> None:
        log.append("once")
        handle.remove()

    handle = b.register_hook(once)
    loss.backward(retain_graph=True)
    loss.backward()
    assert log == ["once"]


@pytest.mark.parametrize("kind", ["tensor", "pre", "post", "accumulated"])
def test_hooks_added_or_removed_while_running_count_from_the_next_pass(L: ModuleType, kind: str) -> None:
    a, b, loss = graph(L)
    register = {
        "tensor": b.register_hook,
        "pre": b.grad_fn.register_prehook,
        "post": b.grad_fn.register_hook,
        "accumulated": a.register_post_accumulate_grad_hook,
    }[kind]
    log: list[str] = []

    def change(*arguments: Any) -> None:
        log.append("first")
        handle.remove()
        register(lambda *arguments: log.append("added"))

    mine = register(change)
    handle = register(lambda *arguments: log.append("removed"))
    loss.backward(retain_graph=True)
    assert log == ["first", "removed"]
    log.clear()
    mine.remove()
    loss.backward()
    assert log == ["added"]


def test_a_hook_may_add_one_further_down(L: ModuleType) -> None:
    a, b, loss = graph(L)
    log: list[str] = []
    b.register_hook(lambda grad: a.register_hook(lambda grad: log.append("a")) and None)
    loss.backward()
    assert log == ["a"]


def test_a_hook_may_run_a_pass_of_its_own(L: ModuleType) -> None:
    a, b, loss = graph(L)
    inner_leaf = L.tensor([5.0, 6.0], requires_grad=True)

    def hook(grad: Any) -> Any:
        with L.enable_grad():
            (inner_leaf * grad.detach()).sum().backward()
        return inner_leaf.grad * 2

    b.register_hook(hook)
    loss.backward()
    assert inner_leaf.grad.tolist() == [1.0, 1.0]
    assert a.grad.tolist() == [4.0, 4.0]


def test_hooks_run_without_recording_unless_the_pass_is_recorded(L: ModuleType) -> None:
    _, b, loss = graph(L)
    modes: list[bool] = []
    b.register_hook(lambda grad: modes.append(L.is_grad_enabled()))
    loss.backward(retain_graph=True)
    L.autograd.grad(loss, b, create_graph=True)
    assert modes == [False, True]


# ---- what may be registered, and returned


def test_where_hooks_can_be_registered(L: ModuleType) -> None:
    plain = L.tensor([1.0])
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        plain.register_hook(lambda g: None)
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        plain.register_post_accumulate_grad_hook(lambda t: None)
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        plain.retain_grad()
    _, b, _ = graph(L)
    with pytest.raises(RuntimeError, match="post accumulate grad hooks cannot be registered on non-leaf tensors"):
        b.register_post_accumulate_grad_hook(lambda t: None)


class NoName:
    """A hook without a `__name__`."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __call__(self, *arguments: Any) -> Any:
        return self.result


REFUSED = {
    "not a tensor": (lambda L: "text", TypeError, "expected Variable, but hook returned 'str'"),
    "another size": (lambda L: L.ones(3), RuntimeError, "hook 'NoName' has changed the size of value"),
    "a size that broadcasts": (lambda L: L.ones(4, 2), RuntimeError, "hook 'NoName' has changed the size of value"),
    "another dtype": (lambda L: L.ones(2).double(), RuntimeError, "hook 'NoName' has changed the type of value"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kind", ["tensor", "pre", "post"])
def test_a_gradient_is_replaced_by_one_of_its_kind(L: ModuleType, kind: str, case: str) -> None:
    make, error, text = REFUSED[case]
    a, b, loss = graph(L)
    if kind == "tensor":
        b.register_hook(NoName(make(L)))
    elif kind == "pre":
        b.grad_fn.register_prehook(NoName((make(L),)))
    else:
        b.grad_fn.register_hook(NoName((make(L), None)))
    with pytest.raises(error, match=text.replace("NoName", "(NoName|<unknown>)")):
        loss.backward()
    assert a.grad is None


def test_a_node_hook_returns_a_tuple_with_one_gradient_for_each(L: ModuleType) -> None:
    for hook, error, text in (
        (lambda grads: grads[0] * 2, TypeError, "expected tuple, but hook returned 'Tensor'"),
        (lambda grads: [grads[0] * 2], TypeError, "expected tuple, but hook returned 'list'"),
        (lambda grads: (grads[0], grads[0]), RuntimeError, r"incorrect number of values \(got 2, but expected 1\)"),
    ):
        _, b, loss = graph(L)
        b.grad_fn.register_prehook(hook)
        with pytest.raises(error, match=text):
            loss.backward()


def test_none_in_the_tuple_cuts_the_gradient_off(L: ModuleType) -> None:
    a, b, loss = graph(L)
    b.grad_fn.register_prehook(lambda grads: (None,))
    loss.backward()
    assert a.grad is None


def test_a_gradient_that_is_none_stays_none(L: ModuleType) -> None:
    x = L.tensor([1.0, 2.0], requires_grad=True)
    one, two = (x * 1).unbind(0)
    one.register_hook(lambda grad: L.tensor(5.0))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        two.backward()


def test_a_post_accumulate_hook_returns_none_or_the_leaf(L: ModuleType) -> None:
    a, _, loss = graph(L)
    with a.register_post_accumulate_grad_hook(lambda tensor: tensor):
        loss.backward(retain_graph=True)
    a.register_post_accumulate_grad_hook(lambda tensor: tensor.grad)
    with pytest.raises(RuntimeError, match=r"hooks should return None\."):
        loss.backward()


def test_a_hook_on_one_output_may_register_one_on_another(L: ModuleType) -> None:
    x = L.tensor([1.0, 2.0], requires_grad=True)
    one, two = (x * 1).unbind(0)
    log: list[str] = []
    one.register_hook(lambda grad: two.register_hook(lambda grad: log.append("two")) and None)
    (one + two).backward(retain_graph=True)
    assert log == []
    one._backward_hooks.clear()
    (one + two).backward()
    assert log == ["two"]


def test_a_post_accumulate_hook_may_use_up_the_gradient(L: ModuleType) -> None:
    a, _, loss = graph(L)
    sums: list[float] = []

    def step(tensor: Any) -> None:
        with L.no_grad():
            tensor.sub_(tensor.grad)
        sums.append(tensor.grad.sum().item())
        tensor.grad = None

    a.register_post_accumulate_grad_hook(step)
    loss.backward()
    assert a.grad is None and sums == [4.0] and a.tolist() == [-1.0, 0.0]


def test_backward_hooks_of_a_tensor_can_be_assigned(L: ModuleType) -> None:
    a, _, loss = graph(L)
    log: list[str] = []
    a.register_hook(lambda grad: log.append("registered"))
    assert len(a._backward_hooks) == 1
    a._backward_hooks = None
    loss.backward()
    assert log == []


def test_a_dictionary_of_hooks_can_be_given_to_the_node(L: ModuleType) -> None:
    x, seen = L.ones(2, requires_grad=True), []
    y = x * 2
    y._backward_hooks = OrderedDict([(0, lambda grad: seen.append("first"))])
    y.grad_fn._register_hook_dict(y)
    y._backward_hooks[1] = lambda grad: seen.append("second")
    y.sum().backward()
    assert seen == ["first", "second"]


def test_a_plain_dictionary_of_hooks_can_be_removed_from() -> None:
    a, _, loss = graph(ut)
    a._backward_hooks = {}
    log: list[str] = []
    handle = a.register_hook(lambda grad: log.append("a"))
    loss.backward(retain_graph=True)
    handle.remove()
    loss.backward()
    assert log == ["a"] and a._backward_hooks == {}


# ---- a node called by hand


def test_hooks_belong_to_passes_not_to_calls_of_the_node(L: ModuleType) -> None:
    _, b, _ = graph(L)
    log: list[str] = []
    b.register_hook(lambda g: log.append("tensor"))
    b.grad_fn.register_prehook(lambda g: log.append("pre"))
    b.grad_fn.register_hook(lambda g, h: log.append("post"))
    found = b.grad_fn(L.ones(2))
    found = found[0] if isinstance(found, tuple) else found
    assert found.tolist() == [2.0, 2.0] and log == []
    with pytest.raises(TypeError, match=r"expected .* arguments, got .* instead"):
        b.grad_fn(L.ones(2), L.ones(2))


def test_the_hooks_after_accumulation_can_be_looked_at(L: Any) -> None:
    x = L.ones(2, requires_grad=True)
    assert x._post_accumulate_grad_hooks is None
    seen: list[Any] = []
    handle = x.register_post_accumulate_grad_hook(seen.append)
    assert list(x._post_accumulate_grad_hooks.values()) == [seen.append]
    handle.remove()
    assert not x._post_accumulate_grad_hooks
