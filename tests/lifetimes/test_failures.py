"""Nothing of a forward or backward pass that failed outlives its exception."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut


@pytest.fixture(autouse=True)
def no_collector() -> None:
    gc.disable()


class Oops(Exception):
    pass


class Witness:
    """Collects weak references to what a failing pass made."""

    def __init__(self) -> None:
        self.found: list[weakref.ref[Any]] = []

    def see(self, *objects: Any) -> None:
        self.found.extend(weakref.ref(o) for o in objects)

    def alive(self) -> int:
        return sum(reference() is not None for reference in self.found)


def failing(witness: Witness) -> Any:
    class Failing(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            local = grad * 2
            witness.see(ctx, grad, local, local._array, *ctx.saved_tensors)
            raise Oops

    return Failing.apply


def build(witness: Witness, function: Any) -> Any:
    x = ut.ones(100, requires_grad=True)
    inner = x.exp()
    out = function(inner)
    after = out.sin() * out
    witness.see(x, inner, inner._array, out, after, after.grad_fn)
    return after.sum()


def hook_on_the_way(inner: Any) -> Any:
    out = inner * 1
    out.register_hook(fail)
    return out


def changed_in_place(inner: Any) -> Any:
    out = inner * 1
    out.sin()
    kept = out.cos()
    out.mul_(2)
    return kept


def fail(*arguments: Any) -> None:
    raise Oops


WAYS: dict[str, Callable[[Witness], Any]] = {
    "a Function": failing,
    "a hook": lambda witness: hook_on_the_way,
    "a changed tensor": lambda witness: changed_in_place,
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_backward_that_fails_leaves_nothing(way: str, recorded: bool) -> None:
    witness = Witness()

    def run() -> None:
        build(witness, WAYS[way](witness)).backward()

    def run_recorded() -> None:
        x = ut.ones(100, requires_grad=True)
        out = WAYS[way](witness)(x.exp())
        witness.see(x, out)
        ut.autograd.grad(out.sum(), x, create_graph=True)

    with pytest.raises((Oops, RuntimeError)) as caught:
        run_recorded() if recorded else run()
    assert witness.alive() > 0  # the traceback has frames, and the frames have variables
    del caught
    assert witness.alive() == 0


def test_an_exception_that_is_kept_without_traceback_keeps_nothing() -> None:
    witness = Witness()
    try:
        build(witness, failing(witness)).backward()
    except Oops as error:
        kept = error.with_traceback(None)
    assert witness.alive() == 0 and kept.__notes__


def test_a_forward_that_fails_leaves_nothing() -> None:
    witness = Witness()

    class Failing(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.save_for_backward(x, y)
            ctx.y = y
            witness.see(ctx, x, y)
            raise Oops

    def run() -> None:
        inner = ut.ones(100, requires_grad=True).exp()
        Failing.apply(inner)

    with pytest.raises(Oops) as caught:
        run()
    del caught
    assert witness.alive() == 0
    assert ut.is_grad_enabled()


def test_an_operation_that_fails_leaves_nothing() -> None:
    witness = Witness()

    def run() -> None:
        inner = ut.ones(100, requires_grad=True).exp()
        witness.see(inner, inner.grad_fn)
        inner @ ut.ones(3, requires_grad=True)

    with pytest.raises(RuntimeError) as caught:
        run()
    del caught
    assert witness.alive() == 0


def test_the_graph_survives_and_can_be_used_again() -> None:
    x = ut.ones(3, requires_grad=True)
    y = x * 2
    handle = y.register_hook(fail)
    loss = (y * y).sum()
    with pytest.raises(Oops):
        loss.backward(retain_graph=True)
    handle.remove()
    loss.backward()
    assert x.grad.tolist() == [8.0] * 3


@pytest.mark.parametrize("depth", [3, 100])
def test_nested_passes_leave_nothing_wherever_they_run(depth: int) -> None:
    """Deep ones run on another thread, whose exception travels here."""
    witness = Witness()

    class Nested(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, level: int) -> Any:
            ctx.level = level
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            witness.see(ctx, grad)
            if ctx.level == 0:
                raise Oops
            with ut.enable_grad():
                inner = ut.ones(10, requires_grad=True)
                witness.see(inner)
                Nested.apply(inner, ctx.level - 1).sum().backward()
            return grad, None

    with pytest.raises(Oops) as caught:
        Nested.apply(ut.ones(10, requires_grad=True), depth).sum().backward()
    assert witness.alive() > depth
    del caught
    assert witness.alive() == 0


def test_a_thread_that_fails_leaves_nothing() -> None:
    witness = Witness()
    errors: list[type[BaseException]] = []

    def run() -> None:
        try:
            build(witness, failing(witness)).backward()
        except Oops as error:
            errors.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == [Oops] and witness.alive() == 0


def test_a_hook_of_a_saved_tensor_that_fails_leaves_nothing() -> None:
    witness = Witness()

    def unpack(packed: Any) -> Any:
        witness.see(packed)
        raise Oops

    def run() -> None:
        x = ut.ones(10, requires_grad=True)
        with ut.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
            y = x.exp()
        witness.see(x, y)
        y.sum().backward()

    with pytest.raises(Oops) as caught:
        run()
    del caught
    assert witness.alive() == 0


def test_anomaly_mode_leaves_nothing() -> None:
    witness = Witness()

    def run() -> None:
        x = ut.zeros(10, requires_grad=True)
        y = x.sqrt()
        z = y * 0
        witness.see(x, y, z, y.grad_fn)
        z.sum().backward()

    with (
        ut.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError) as caught,
    ):
        run()
    del caught
    assert witness.alive() == 0


def test_an_error_node_keeps_no_pass_alive() -> None:
    witness = Witness()

    @ut.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2

    once = type("Once", (ut.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 2),
                                                   "backward": staticmethod(backward)})  # fmt: skip
    x = ut.ones(1, requires_grad=True)
    (g,) = ut.autograd.grad(once.apply(x) ** 2, x, create_graph=True)

    def run() -> None:
        seed = ut.ones(1)
        witness.see(seed, seed._array)
        g.backward(seed, retain_graph=True)

    with pytest.raises(RuntimeError, match="differentiate twice") as caught:
        run()
    del caught
    assert witness.alive() == 0 and g.grad_fn is not None
