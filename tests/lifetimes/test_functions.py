"""Custom Functions: what `ctx` keeps, when it is let go, and the cycle that is told."""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


@pytest.fixture(autouse=True)
def no_collector() -> None:
    gc.disable()


class Thing:
    """Something of the user's."""


def function(L: ModuleType, forward: Any, backward: Any = None, **members: Any) -> Any:
    def identity(ctx: Any, grad: Any) -> Any:
        return grad

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward or identity), **members}
    return type("Mine", (L.autograd.Function,), members)


def test_ctx_and_its_attributes_live_with_the_graph(L: ModuleType) -> None:
    things: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        return x * 2

    y = function(L, forward).apply(L.ones(2, requires_grad=True))
    assert things[0]() is not None
    y.sum().backward()
    assert things[0]() is not None  # attributes are not freed by a pass, as saved tensors are
    del y
    assert things[0]() is None


def test_without_a_graph_ctx_dies_at_once(L: ModuleType) -> None:
    things: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.thing = Thing()
        things.append(weakref.ref(ctx.thing))
        return x * 2

    mine = function(L, forward)
    kept = [mine.apply(L.ones(2))]
    with L.no_grad():
        kept.append(mine.apply(L.ones(2, requires_grad=True)))
    assert [thing() for thing in things] == [None, None] and len(kept) == 2


@pytest.mark.parametrize("what", ["input", "output", "intermediate"])
def test_saved_tensors_make_no_cycle(L: ModuleType, what: str) -> None:
    saved: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        between = x * 2
        y = between * 2
        chosen = {"input": x, "output": y, "intermediate": between}[what]
        ctx.save_for_backward(chosen)
        saved.append(weakref.ref(between))
        return y

    x = L.ones(2, requires_grad=True) * 1
    y = function(L, forward).apply(x)
    found = [weakref.ref(x), weakref.ref(y), weakref.ref(y.grad_fn)]
    del x
    assert (saved[0]() is not None) == (what == "intermediate")
    assert y.grad_fn.saved_tensors[0] is not None
    del y
    assert [reference() for reference in (*found, *saved)] == [None] * 4


def test_saved_tensors_die_with_the_pass(L: ModuleType) -> None:
    saved: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        between = x * 2
        ctx.save_for_backward(between)
        saved.append(weakref.ref(between))
        return between * 2

    y = function(L, forward).apply(L.ones(2, requires_grad=True))
    y.sum().backward(retain_graph=True)
    assert saved[0]() is not None
    y.sum().backward()
    assert saved[0]() is None


def test_clear_saved_tensors_on_access(L: ModuleType) -> None:
    saved: list[Any] = []
    during: list[bool] = []

    def forward(ctx: Any, x: Any) -> Any:
        between = x * 2
        ctx.save_for_backward(between)
        saved.append(weakref.ref(between))
        return between * 2

    def backward(ctx: Any, grad: Any) -> Any:
        (between,) = ctx.saved_tensors
        result = grad * between
        del between
        during.append(saved[0]() is None)
        return result

    for clear in (False, True):
        mine = function(L, forward, backward, clear_saved_tensors_on_access=clear)
        mine.apply(L.ones(2, requires_grad=True)).sum().backward()
        saved.clear()
    assert during == [False, True]


def test_boxed_gradients_belong_to_backward_alone(L: ModuleType) -> None:
    gone: list[bool] = []

    def backward(ctx: Any, grads: Any) -> Any:
        assert isinstance(grads, list)
        first = grads.pop()
        reference = weakref.ref(first)
        result = first * 2
        del first
        gone.append(reference() is None)
        return result

    mine = function(L, lambda ctx, x: x * 2, backward, boxed_grads_call=True)
    x = L.ones(2, requires_grad=True)
    (mine.apply(x) * 3).sum().backward()
    assert gone == [True] and x.grad.tolist() == [6.0, 6.0]


# ---- cycles


def test_an_output_kept_as_an_attribute_is_told() -> None:
    outputs: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.result = x * 2
        outputs.append(weakref.ref(ctx.result))
        return ctx.result

    x = ut.ones(2, requires_grad=True)
    text = r"Mine\.forward keeps its own output as ctx\.result.*save_for_backward"
    with pytest.warns(UserWarning, match=text) as caught:
        y = function(ut, forward).apply(x)
    assert caught[0].filename == __file__
    y.sum().backward()
    del y
    assert outputs[0]() is not None  # the cycle
    gc.collect()
    assert outputs[0]() is None


def test_it_is_told_with_setup_context_too() -> None:
    class Mine(ut.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.kept = output

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    with pytest.warns(UserWarning, match=r"ctx\.kept"):
        Mine.apply(ut.ones(2, requires_grad=True))


def test_what_makes_no_cycle_is_not_told() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.input, ctx.twin = x, y.detach()
        ctx.save_for_backward(y)
        return y

    y = function(ut, forward).apply(ut.ones(2, requires_grad=True) * 1)  # a warning would be an error
    found = weakref.ref(y)
    del y
    assert found() is None
    with ut.no_grad():
        keeping = function(ut, lambda ctx, x: setattr(ctx, "y", x * 2) or ctx.y)
        keeping.apply(ut.ones(2, requires_grad=True))


@pytest.mark.parametrize("through", ["hook", "metadata", "attribute"])
def test_cycles_of_the_users_are_collected_but_not_while_in_use(through: str) -> None:
    def make() -> tuple[Any, Any]:
        x = ut.ones(2, requires_grad=True)
        y = x.exp()
        node, thing = y.grad_fn, Thing()
        if through == "hook":
            node.register_hook(lambda inputs, outputs, held=(node, thing): None)
        elif through == "metadata":
            node.metadata["held"] = (y, thing)
        else:
            y.register_hook(lambda grad, held=(y, thing): None)
        return y, weakref.ref(thing)

    y, thing = make()
    gc.collect()
    assert thing() is not None
    y.sum().backward()
    del y
    gc.collect()
    assert thing() is None


@pytest.mark.parametrize("where", ["attribute", "ctx", "grad", "edges", "saved", "later hook"])
@pytest.mark.parametrize("operations", [1, 3, 100])
def test_cycles_through_many_nodes_are_collected(where: str, operations: int) -> None:
    def chain(tensor: Any) -> Any:
        for k in range(operations):
            tensor = tensor.sin() if k % 2 else tensor * tensor + 1
        return tensor

    def make() -> tuple[Any, Any]:
        x, thing, kept = ut.ones(2, requires_grad=True), Thing(), []
        identity = function(ut, lambda ctx, x: kept.append(ctx) or x * 1)
        start = identity.apply(x)
        y = chain(start)
        if where == "attribute":
            x.held = [y, thing]
        elif where == "ctx":
            kept.pop().held = (y, thing)
        elif where == "grad":
            x.grad = chain(x)
            x.thing = thing
        elif where == "edges":
            x.held = (y.grad_fn.next_edges, y.grad_fn.next_functions, thing)
        elif where == "saved":
            inner = y.sin()
            start.held = (inner.grad_fn._saved_self, thing)
        else:
            start.grad_fn.register_hook(lambda inputs, outputs, held=(y, thing): None)
        return y, weakref.ref(thing)

    y, thing = make()
    for generation in range(3):
        gc.collect(generation)
    assert thing() is not None
    y.sum().backward()
    del y
    gc.collect()
    assert thing() is None


# ---- forward mode


def test_tangents_die_with_the_dual_or_the_level() -> None:
    fwAD = ut.autograd.forward_ad
    with fwAD.dual_level():
        dual, other = (fwAD.make_dual(ut.zeros(2), ut.ones(2)) for _ in range(2))
        first, second = (weakref.ref(fwAD.unpack_dual(d).tangent._array) for d in (dual, other))
        del dual
        assert first() is None and second() is not None
    assert second() is None
    assert other.tolist() == [0.0, 0.0]
