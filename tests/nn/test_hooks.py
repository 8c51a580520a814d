"""Hooks around the calls of modules, each rule shown for undertow and for PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.nn.module import calling


def double(L: ModuleType) -> Any:
    class Double(L.nn.Module):
        def forward(self, x: Any, factor: float = 2.0) -> Any:
            return x * factor

    return Double()


# ---- forward


def test_forward_hooks_see_and_replace(L: ModuleType) -> None:
    m, seen = double(L), []
    m.register_forward_pre_hook(lambda module, args: seen.append(("pre", len(args))))
    m.register_forward_pre_hook(lambda module, args: args[0] + 1)
    m.register_forward_hook(lambda module, args, out: seen.append(("post", args[0].item(), out.item())))
    handle = m.register_forward_hook(lambda module, args, out: out * 10)
    assert m(L.tensor(1.0)).item() == 40
    assert seen == [("pre", 1), ("post", 2.0, 4.0)]
    handle.remove()
    assert m(L.tensor(1.0)).item() == 4


def test_forward_hooks_with_kwargs_and_prepend(L: ModuleType) -> None:
    m, order = double(L), []

    def change(module: Any, args: Any, kwargs: Any) -> Any:
        order.append("with kwargs")
        return args, {"factor": kwargs["factor"] + 1}

    m.register_forward_pre_hook(change, with_kwargs=True)
    m.register_forward_pre_hook(lambda module, args: order.append("first"), prepend=True)
    m.register_forward_hook(
        lambda module, args, kwargs, out: order.append(f"factor {kwargs['factor']}"), with_kwargs=True
    )
    m.register_forward_hook(lambda module, args, out: order.append("before that"), prepend=True)
    assert m(L.tensor(1.0), factor=4.0).item() == 5
    assert order == ["first", "with kwargs", "before that", "factor 5.0"]


def test_a_pre_hook_with_kwargs_returns_both(L: ModuleType) -> None:
    m = double(L)
    m.register_forward_pre_hook(lambda module, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple"):
        m(L.tensor(1.0))


def test_hooks_that_are_always_called(L: ModuleType) -> None:
    m, called = double(L), []
    m.register_forward_hook(lambda module, args, out: called.append(out), always_call=True)
    m.register_forward_hook(lambda module, args, out: called.append("never"))
    with pytest.raises(TypeError):
        m(object())
    assert called == [None]


def test_an_always_called_hook_that_fails_warns(L: ModuleType) -> None:
    m = double(L)
    m.register_forward_hook(lambda module, args, out: 1 / 0, always_call=True)
    with pytest.warns(UserWarning, match="silenced as another error was raised"), pytest.raises(TypeError):
        m(object())


def test_hooks_are_found_and_taken_out_by_what_they_are(L: ModuleType) -> None:
    class Mine:
        def __call__(self, module: Any, *args: Any) -> None:
            seen.append(len(args))

    m, seen = double(L), []
    m.register_forward_hook(Mine(), with_kwargs=True, always_call=True)
    m.register_forward_pre_hook(Mine())
    m.register_forward_hook(lambda module, args, out: out + 1)
    m(L.tensor(1.0))
    assert seen == [1, 3] and len(m._forward_hooks_with_kwargs) == len(m._forward_hooks_always_called) == 1
    for hooks in (m._forward_hooks, m._forward_pre_hooks):
        for id, hook in list(hooks.items()):
            if isinstance(hook, Mine):
                del hooks[id]
    assert m(L.tensor(1.0)).item() == 3 and seen == [1, 3]
    m._forward_hooks = type(m._forward_hooks)()
    assert m(L.tensor(1.0)).item() == 2
    m._register_state_dict_hook(lambda module, state, prefix, metadata: {"found": prefix})
    assert [hook(m, {}, "here", {}) for hook in m._state_dict_hooks.values()] == [{"found": "here"}]
    assert not m._state_dict_pre_hooks and not m._load_state_dict_post_hooks
    m.register_full_backward_hook(lambda module, inputs, outputs: None)
    m._backward_hooks.clear()
    assert not m._backward_hooks and not m._backward_pre_hooks


def test_hooks_on_every_module() -> None:
    seen: list[str] = []
    handles = [
        calling.register_module_forward_pre_hook(lambda module, args: seen.append("pre")),
        calling.register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__)),
        calling.register_module_full_backward_pre_hook(lambda module, grads: seen.append("backward pre")),
        calling.register_module_full_backward_hook(lambda module, inputs, outputs: seen.append("backward")),
    ]
    try:
        ut.nn.ReLU()(ut.ones(2, requires_grad=True)).sum().backward()
        assert seen == ["pre", "ReLU", "backward pre", "backward"]
    finally:
        for handle in handles:
            handle.remove()
    ut.nn.ReLU()(ut.ones(2))
    assert len(seen) == 4


# ---- registration


def test_hooks_on_what_any_module_registers(L: ModuleType) -> None:
    places, seen = L.nn.modules.module, []
    handles = [
        places.register_module_parameter_registration_hook(lambda module, name, p: seen.append(("parameter", name))),
        places.register_module_buffer_registration_hook(lambda module, name, b: None if b is None else b + 1),
        places.register_module_module_registration_hook(
            lambda module, name, child: L.nn.Identity() if type(child) is L.nn.ReLU else None
        ),
    ]
    assert [len(getattr(places, f"_global_{kind}_registration_hooks")) for kind in ("parameter", "module")] == [1, 1]
    try:
        m = L.nn.BatchNorm1d(2)
        m.act, m.bias = L.nn.ReLU(), None
        m.add_module("other", L.nn.ReLU())
        m.running_mean = L.ones(2)
        m.extra = L.nn.Buffer(L.zeros(1))
    finally:
        for handle in handles:
            handle.remove()
    assert seen == [("parameter", "weight"), ("parameter", "bias")]
    assert type(m.act) is type(m.other) is L.nn.Identity
    assert m.running_mean.tolist() == [2.0, 2.0] and m.extra.item() == 1
    m.act = L.nn.ReLU()
    assert type(m.act) is L.nn.ReLU


def test_a_buffer_may_be_of_any_class_that_takes_part_in_operations(L: ModuleType) -> None:
    class Diagonal:
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    m, first, second = L.nn.Module(), Diagonal(), Diagonal()
    m.register_buffer("scale", first)
    m.scale = second
    assert m.scale is second is m._buffers["scale"]
    with pytest.raises(TypeError, match="cannot assign 'int' object to buffer 'other'"):
        m.register_buffer("other", 3)


# ---- backward


def test_backward_hooks_see_gradients(L: ModuleType) -> None:
    m, seen = L.nn.Linear(2, 1, bias=False), []
    with L.no_grad():
        m.weight.copy_(L.tensor([[2.0, 3.0]]))
    m.register_full_backward_pre_hook(lambda module, outputs: seen.append([g.tolist() for g in outputs]))
    m.register_full_backward_hook(
        lambda module, inputs, outputs: seen.append([g.tolist() for g in inputs] + [g.tolist() for g in outputs])
    )
    x = L.ones(1, 2, requires_grad=True)
    (m(x) * 5).sum().backward()
    assert seen == [[[[5.0]]], [[[10.0, 15.0]], [[5.0]]]]
    assert x.grad.tolist() == [[10.0, 15.0]]


def test_backward_hooks_replace_gradients(L: ModuleType) -> None:
    m = double(L)
    m.register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 10,))
    m.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] + 1,))
    x = L.ones(1, requires_grad=True)
    m(x).sum().backward()
    assert x.grad.item() == 21


def test_several_inputs_and_outputs(L: ModuleType) -> None:
    class Pair(L.nn.Module):
        def forward(self, x: Any, number: int, y: Any, unused: Any) -> Any:
            return x * y, "text", x + number

    m, seen = Pair(), []
    m.register_full_backward_hook(lambda module, inputs, outputs: seen.append((inputs, outputs)))
    x, y, z = (L.full((1,), value, requires_grad=True) for value in (2.0, 3.0, 4.0))
    a, text, b = m(x, 7, y, z)
    assert text == "text"
    (a + b * 0.5).sum().backward()
    ((inputs, outputs),) = seen
    assert [None if g is None else g.item() for g in inputs] == [3.5, None, 2.0, 0.0]
    assert [None if g is None else g.item() for g in outputs] == [1.0, None, 0.5]


def test_without_inputs_that_require_grad(L: ModuleType) -> None:
    m, seen = L.nn.Linear(1, 1), []
    m.register_full_backward_hook(lambda module, inputs, outputs: seen.append(inputs))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        m(L.ones(1, 1)).sum().backward()
    assert seen == [(None,)]


def test_a_wrong_number_of_gradients(L: ModuleType) -> None:
    m = double(L)
    m.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0], inputs[0]))
    with pytest.raises(RuntimeError, match="returned an invalid number of grad_input, got 2, but expected 1"):
        m(L.ones(1, requires_grad=True)).sum().backward()


def test_no_hooks_without_recording(L: ModuleType) -> None:
    m, seen = double(L), []
    m.register_full_backward_hook(lambda module, inputs, outputs: seen.append(1))
    with L.no_grad():
        assert m(L.ones(1, requires_grad=True)).grad_fn is None
    assert m(L.ones(1)).grad_fn is None and seen == []


def test_hooks_do_not_fire_in_double_backward(L: ModuleType) -> None:
    m, seen = L.nn.Tanh(), []
    m.register_full_backward_hook(lambda module, inputs, outputs: seen.append(1))
    x = L.ones(1, requires_grad=True)
    (g,) = L.autograd.grad(m(x).sum(), x, create_graph=True)
    L.autograd.grad(g.sum(), x)
    assert seen == [1]


def test_a_residual_path_does_not_count(L: ModuleType) -> None:
    m, seen = double(L), []
    m.register_full_backward_hook(lambda module, inputs, outputs: seen.append(inputs[0].item()))
    x = L.ones(1, requires_grad=True)
    h = x * 1
    (h * 100 + m(h) + h * 10).sum().backward()
    assert seen == [2.0] and x.grad.item() == 112


# ---- in place: here undertow does more than PyTorch, which refuses


def hooked_relu(seen: list[Any]) -> Any:
    m = ut.nn.ReLU(inplace=True)
    m.register_full_backward_hook(
        lambda module, inputs, outputs: seen.append((inputs[0].tolist(), outputs[0].tolist()))
    )
    return m


def test_modules_that_work_in_place_can_be_hooked() -> None:
    seen: list[Any] = []
    x = ut.tensor([-1.0, 2.0], requires_grad=True)
    h = x * 3
    out = hooked_relu(seen)(h)
    assert out is h and h.tolist() == [0.0, 6.0]
    (out * 5).sum().backward()
    assert seen == [([0.0, 5.0], [5.0, 5.0])]
    assert x.grad.tolist() == [0.0, 15.0]


def test_the_changed_input_has_the_new_history() -> None:
    seen: list[Any] = []
    x = ut.tensor([-1.0, 2.0], requires_grad=True)
    h = x * 3
    out = hooked_relu(seen)(h)
    (out + h).sum().backward()  # h is what the module made of it
    assert x.grad.tolist() == [0.0, 6.0] and seen == [([0.0, 2.0], [2.0, 2.0])]


def test_a_chain_of_hooked_modules_in_place() -> None:
    seen: list[Any] = []
    layers = [ut.nn.Linear(3, 3), ut.nn.ReLU(inplace=True), ut.nn.Linear(3, 3), ut.nn.ELU(inplace=True)]
    net = ut.nn.Sequential(*layers).double()
    x = ut.randn(4, 3, dtype=ut.float64, requires_grad=True)
    (expected,) = ut.autograd.grad((net(x) ** 2).sum(), x)
    for module in net.modules():
        module.register_full_backward_hook(lambda module, inputs, outputs: seen.append(type(module).__name__))
    (found,) = ut.autograd.grad((net(x) ** 2).sum(), x)
    assert ut.allclose(found, expected, rtol=1e-12)
    assert seen == ["ELU", "Linear", "ReLU", "Linear", "Sequential"]


def test_a_hooked_output_changed_in_place_is_noticed_by_who_saved_it() -> None:
    m = ut.nn.Sigmoid()
    m.register_full_backward_hook(lambda module, inputs, outputs: None)
    out = m(ut.ones(2, requires_grad=True) * 1)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_leaves_and_views_are_refused() -> None:
    seen: list[Any] = []
    with pytest.raises(RuntimeError, match=r"leaf Variable that requires grad|created inside a custom Function"):
        hooked_relu(seen)(ut.ones(2, requires_grad=True))
    base = ut.ones(4, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        hooked_relu(seen)(base[:2])


def test_an_unchanged_input_as_output_cannot_be_changed() -> None:
    m = ut.nn.Identity()
    m.register_full_backward_hook(lambda module, inputs, outputs: None)
    h = ut.ones(2, requires_grad=True) * 1
    out = m(h)
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        out.add_(1)
    (out * 2 + h).sum().backward()


def test_retained_gradients_of_hooked_outputs() -> None:
    m = ut.nn.Tanh()
    m.register_full_backward_hook(lambda module, inputs, outputs: None)
    out = m(ut.ones(2, requires_grad=True))
    out.retain_grad()
    (out * 3).sum().backward()
    assert out.grad.tolist() == [3.0, 3.0]


def test_an_alias_that_was_kept_shares_its_history() -> None:
    """A module that changes its input, keeps it, and returns it in a list, which hooks do not look into."""
    kept = []

    class Keeper(ut.nn.Module):
        def forward(self, x: ut.Tensor) -> list[ut.Tensor]:
            kept.append(x.mul_(2))
            return [x]

    m = Keeper()
    m.register_full_backward_hook(lambda module, inputs, outputs: None)
    x = ut.ones(2, requires_grad=True)
    h = x * 3
    with pytest.warns(UserWarning, match="module output should be a Tensor or a tuple of Tensors"):
        m(h)
    kept[0].mul_(5)
    (grad,) = ut.autograd.grad(h.sum(), x)
    assert h.tolist() == [30.0, 30.0] and grad.tolist() == [30.0, 30.0]


# ---- the old backward hooks, on the last node


def test_an_old_backward_hook_sees_the_last_operation(L: ModuleType) -> None:
    layer, seen = L.nn.Sigmoid(), []
    layer.register_backward_hook(lambda module, inputs, outputs: seen.append((module, inputs[0], outputs[0])))
    x = L.ones(2, requires_grad=True) * 1
    y = layer(x)
    y.backward(L.full((2,), 2.0))
    module, of_input, of_output = seen[0]
    assert module is layer and of_output.tolist() == [2, 2] and L.allclose(of_input, 2 * y * (1 - y))


def test_an_old_backward_hook_may_replace_the_gradient(L: ModuleType) -> None:
    layer = L.nn.Sigmoid()
    handle = layer.register_backward_hook(lambda module, inputs, outputs: tuple(g * 0 for g in inputs))
    x = L.ones(2, requires_grad=True)
    layer(x * 1).sum().backward()
    assert x.grad.tolist() == [0, 0]
    handle.remove()
    layer(x * 1).sum().backward()
    assert x.grad[0] > 0


def test_old_and_full_backward_hooks_do_not_mix(L: ModuleType) -> None:
    layer, hook = L.nn.Sigmoid(), lambda module, inputs, outputs: None
    layer.register_backward_hook(hook)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        layer.register_full_backward_hook(hook)
    other = L.nn.Sigmoid()
    other.register_full_backward_hook(hook)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        other.register_backward_hook(hook)


def test_what_an_old_backward_hook_misses(L: ModuleType) -> None:
    class Two(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.exp().sin()

    module = Two()
    module.register_backward_hook(lambda module, inputs, outputs: None)
    with pytest.warns(FutureWarning, match="when the forward contains multiple autograd Nodes"):
        module(L.ones(2, requires_grad=True) * 1)


def test_an_old_backward_hook_on_every_module(L: ModuleType) -> None:
    seen: list[str] = []
    layer = L.nn.Tanh()
    register = L.nn.modules.module.register_module_backward_hook
    handle = register(lambda module, inputs, outputs: seen.append(type(module).__name__))
    try:
        layer(L.ones(2, requires_grad=True) * 1).sum().backward()
    finally:
        handle.remove()
    layer(L.ones(2, requires_grad=True) * 1).sum().backward()
    assert seen == ["Tanh"]
