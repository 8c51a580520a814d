"""The rules of saved_tensors_hooks and of the tensors that hooks unpack, each against PyTorch too."""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest

import undertow as ut


def hooks(L: ModuleType, pack: Any, unpack: Any) -> Any:
    return L.autograd.graph.saved_tensors_hooks(pack, unpack)


def same(value: Any) -> Any:
    return value


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


# ---- what hooks may do


def test_a_pack_hook_must_not_change_its_input(L: ModuleType) -> None:
    changing = hooks(L, lambda t: t.add_(1), same)
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"), changing:
        leaf(L).exp()
    y = leaf(L).exp()
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t.mul_(2), same)


@pytest.mark.parametrize("wrong", [None, 1.0, "text", [1.0]])
def test_an_unpack_hook_returns_a_tensor(L: ModuleType, wrong: Any) -> None:
    with hooks(L, same, lambda t: wrong):
        y = leaf(L).exp()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        y.sum().backward()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        y.grad_fn._saved_result


def test_hooks_with_another_number_of_arguments(L: ModuleType) -> None:
    demanding = hooks(L, lambda t, more: t, same)
    with pytest.raises(TypeError, match="missing 1 required positional argument"), demanding:
        leaf(L).exp()
    with hooks(L, same, lambda packed, more: packed):
        y = leaf(L).exp()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        y.sum().backward()


def test_pack_hooks_run_without_recording_and_hooks_of_their_own(L: ModuleType) -> None:
    recorded: list[Any] = []
    x = leaf(L)
    with hooks(L, lambda t: recorded.append((t * t).requires_grad) or t.detach(), same):
        x.exp()
    assert recorded == [False]


def test_hooks_apply_in_the_double_backward_too(L: ModuleType) -> None:
    log: list[str] = []
    x = leaf(L)
    with hooks(L, lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t):
        y = x**3
        log.append("first")
        (first,) = L.autograd.grad(y.sum(), x, create_graph=True)
    packed = log.count("pack")
    assert log[:3] == ["pack", "first", "unpack"] and packed > 1
    (second,) = L.autograd.grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0]
    assert log.count("unpack") > 1


def test_the_unpacked_tensor_has_the_place_of_the_original(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    with hooks(L, lambda t: t.detach().clone(), same):
        z, w = y * y, x * x
    assert z.grad_fn._saved_self.grad_fn is y.grad_fn
    assert z.grad_fn._saved_self.requires_grad and not z.grad_fn._saved_self.is_leaf
    saved = w.grad_fn._saved_self
    assert saved.is_leaf and saved.requires_grad
    (first,) = L.autograd.grad(z.sum(), x, create_graph=True)
    first.sum().backward()
    assert x.grad.tolist() == [8.0, 8.0]


def test_what_a_raw_saved_tensor_shows(L: ModuleType) -> None:
    x = leaf(L)
    with hooks(L, lambda t: ("packed", t), lambda packed: packed[1]):
        y = x**2
    z = y.exp()
    raw = y.grad_fn._raw_saved_self
    assert raw.data[0] == "packed" and raw.unpack_hook(("", x)) is x
    assert z.grad_fn._raw_saved_result.unpack_hook is None
    assert z.grad_fn._raw_saved_result.data is not z
    assert (z**2).grad_fn._raw_saved_self.data is z


def test_a_hook_registered_on_the_running_node_while_it_unpacks(L: ModuleType) -> None:
    """It fires as a post-hook of this very run."""
    x, seen = leaf(L), []

    def unpack(packed: Any) -> Any:
        y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)))
        return packed

    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(same, unpack)
    y.sum().backward()
    assert seen == [2]
    assert x.grad.tolist() == [2.0, 4.0]


# ---- entering and leaving


@pytest.mark.parametrize("unbalanced", ["entered", "left"])
def test_what_a_backward_pass_enters_or_leaves_ends_with_it(L: ModuleType, unbalanced: str) -> None:
    x, log = leaf(L), []
    context = hooks(L, lambda t: log.append("pack") or t, same)

    def unpack(packed: Any) -> Any:
        context.__enter__() if unbalanced == "entered" else context.__exit__(None, None, None)
        return packed

    with hooks(L, same, unpack):
        y = x.exp()
    if unbalanced == "left":
        context.__enter__()
    y.sum().backward()
    x.exp()
    assert log == ([] if unbalanced == "entered" else ["pack"])
    if unbalanced == "left":
        context.__exit__(None, None, None)
    assert x.grad.tolist() == pytest.approx(y.tolist())


def test_a_subclass_is_a_pair_of_hooks(L: ModuleType) -> None:
    class doubled(L.autograd.graph.saved_tensors_hooks):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(lambda t: t, lambda t: t * 2)

    x = leaf(L)
    with doubled():
        y = x.exp()
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx((2 * x.detach().exp()).tolist())


# ---- switching them off


def enabled(L: ModuleType) -> bool:
    if L.__name__ == "torch":
        return bool(L._C._autograd._saved_tensors_hooks_is_enabled())
    return bool(L.autograd.graph.are_saved_tensors_hooks_enabled())


def test_hooks_can_be_forbidden(L: ModuleType) -> None:
    forbid = L.autograd.graph.disable_saved_tensors_hooks
    assert enabled(L)
    with forbid("not here"):
        assert not enabled(L)
        with pytest.raises(RuntimeError, match="not here"), hooks(L, same, same):
            pass
        with forbid("nor here"), pytest.raises(RuntimeError, match="nor here"), hooks(L, same, same):
            pass
        with pytest.raises(RuntimeError, match="not here"), hooks(L, same, same):
            pass
    assert enabled(L)
    with hooks(L, same, same), pytest.raises(RuntimeError, match="too late"), forbid("too late"):
        pass
    assert enabled(L)


def test_forbidding_is_a_decorator_too(L: ModuleType) -> None:
    @L.autograd.graph.disable_saved_tensors_hooks("not here")
    def work() -> bool:
        return enabled(L)

    assert not work() and enabled(L)


def test_forbidding_ends_with_an_error(L: ModuleType) -> None:
    with pytest.raises(ValueError, match="inside"), L.autograd.graph.disable_saved_tensors_hooks("not here"):
        raise ValueError("inside")
    assert enabled(L)


# ---- tensors saved by hand


def make_saved(L: ModuleType, tensor: Any, is_output: bool) -> Any:
    if L.__name__ == "torch":
        return L._C._autograd._make_saved_tensor(tensor, is_output=is_output)
    return L.autograd.graph.make_saved_tensor(tensor, is_output=is_output)


def test_a_tensor_saved_by_hand(L: ModuleType) -> None:
    x, log = leaf(L), []
    plain = make_saved(L, x, False)
    assert plain.unpack() is x
    with hooks(L, lambda t: log.append("pack") or t.tolist(), lambda packed: log.append("unpack") or L.tensor(packed)):
        saved = make_saved(L, x, False)
    assert saved.unpack().tolist() == saved.unpack().tolist() == [1.0, 2.0]
    assert log == ["pack", "unpack", "unpack"]


def test_a_tensor_saved_by_hand_is_let_go() -> None:
    gc.disable()
    x = ut.ones(2, requires_grad=True) * 2
    saved, alive = ut.autograd.graph.make_saved_tensor(x), weakref.ref(x)
    del x
    assert alive() is not None
    del saved
    assert alive() is None


# ---- what hooks see


def test_a_pack_hook_sees_an_output_with_its_history(L: ModuleType) -> None:
    seen = []
    x = leaf(L)
    with hooks(L, lambda t: seen.append((t.requires_grad, t.grad_fn)) or t.detach(), same):
        y = x.exp()
        x.sin()
    assert seen == [(True, y.grad_fn), (True, None)]


@pytest.mark.parametrize("pack", [same, lambda t: t.detach(), lambda t: t.clone()])
def test_an_output_that_is_packed_as_itself_is_no_cycle(pack: Any) -> None:
    with hooks(ut, pack, same):
        y = leaf(ut).exp()
    node = weakref.ref(y.grad_fn)
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("change", ["exp_", "sigmoid_", "tanh_"])
def test_the_former_value_that_a_change_keeps_counts_versions_of_its_own(L: ModuleType, change: str) -> None:
    """It has the history of a node that watches its output, and is not that output."""
    x = leaf(L) * 1
    getattr(x, change)()
    seen = []
    with hooks(L, lambda t: seen.append((t.detach()._version, t._version)) or t.clone(), same):
        x.sin_()
    assert seen == [(0, 0)]
    with L.autograd.graph.save_on_cpu():
        x.sin_()


def test_the_version_in_the_message_is_that_of_what_was_saved() -> None:
    x = ut.ones(2, requires_grad=True)
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.clone()):
        y = x.exp()
    y.fill_(0.5)
    z = y.sin() + x.exp()
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t.clone()):
        out = (z * z).sum()
    z.mul_(2)
    with pytest.raises(RuntimeError, match=r"version 1; expected version 0.*last change was made by mul_"):
        out.backward()
