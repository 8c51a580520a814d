"""func.functional_call and func.stack_module_state: modules under the transformations."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.func import functional_call, grad, jacrev, jvp, per_sample_grad, stack_module_state, vmap


def network(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2)).double()


def parameters(net: Any) -> dict[str, Any]:
    return {name: p.detach() for name, p in net.named_parameters()}


def loss_of(net: Any) -> Any:
    return lambda p, x, y: ((functional_call(net, p, x) - y) ** 2).sum()


def test_gradients_by_name_are_those_of_backward() -> None:
    net, x, y = network(ut), ut.rand(3, dtype=ut.float64), ut.rand(2, dtype=ut.float64)
    found = grad(loss_of(net))(parameters(net), x, y)
    ((net(x) - y) ** 2).sum().backward()
    assert list(found) == [name for name, _ in net.named_parameters()]
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(found[name].numpy(), parameter.grad.numpy())


def test_as_in_pytorch(torch: ModuleType) -> None:
    ours, theirs = network(ut), network(torch)
    values = {n: np.random.default_rng(0).standard_normal(tuple(p.shape)) for n, p in ours.named_parameters()}
    x, y = np.random.default_rng(1).random((5, 3)), np.random.default_rng(2).random((5, 2))
    p, q = {n: ut.tensor(v) for n, v in values.items()}, {n: torch.tensor(v) for n, v in values.items()}
    wanted = torch.func.vmap(
        torch.func.grad(lambda q, x, y: ((torch.func.functional_call(theirs, q, (x,)) - y) ** 2).sum()), (None, 0, 0)
    )(q, torch.tensor(x), torch.tensor(y))
    found = per_sample_grad(loss_of(ours))(p, ut.tensor(x), ut.tensor(y))
    for name in values:
        np.testing.assert_allclose(found[name].numpy(), wanted[name].numpy(), rtol=1e-10)


def test_forward_and_reverse_mode_agree() -> None:
    net, x = network(ut), ut.rand(3, dtype=ut.float64)
    p = parameters(net)
    tangent = {n: ut.ones_like(t) for n, t in p.items()}
    f = lambda p: functional_call(net, p, (x,))
    rows = jacrev(f)(p)
    total = sum([rows[n].reshape(2, -1).sum(1) for n in p])
    np.testing.assert_allclose(jvp(f, (p,), (tangent,))[1].numpy(), total.numpy())


def test_an_ensemble_is_a_loop() -> None:
    models = [network(ut) for _ in range(3)]
    params, buffers = stack_module_state(models)
    x = ut.rand(3, dtype=ut.float64)
    found = vmap(lambda p, b: functional_call(models[0], (p, b), x))(params, buffers)
    np.testing.assert_allclose(found.detach().numpy(), [m(x).detach().numpy() for m in models])
    assert all(p.is_leaf and p.requires_grad and p.shape[0] == 3 for p in params.values()) and buffers == {}
    found.sum().backward()
    assert all(p.grad is not None for p in params.values())
    assert all(p.grad is None for m in models for p in m.parameters())


def test_buffers_are_stacked_and_frozen_parameters_stay_frozen() -> None:
    models = [ut.nn.BatchNorm1d(2).requires_grad_(False) for _ in range(2)]
    params, buffers = stack_module_state(models)
    assert not params["weight"].requires_grad
    assert {n: tuple(b.shape) for n, b in buffers.items()} == {
        "running_mean": (2, 2), "running_var": (2, 2), "num_batches_tracked": (2,)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda n: functional_call(n, [{"bias": n.bias}, {"bias": n.bias}], ut.ones(1)),
            ValueError,
            "appeared in mult",
        ),
        (lambda n: functional_call(n, 3, ut.ones(1)), ValueError, "to be a dict, or a list/tuple of dicts, but got"),
        (lambda n: functional_call(n, [3], ut.ones(1)), ValueError, "to be a dict, or a list/tuple of dicts, but got"),
        (lambda n: functional_call(n, {"bias": n.bias}, ut.ones(1), strict=True), RuntimeError, "Missing key"),
        (lambda n: stack_module_state([]), RuntimeError, "Expected at least one model, got 0"),
        (lambda n: stack_module_state([n, ut.nn.ReLU()]), RuntimeError, "to be of the same class"),
        (lambda n: stack_module_state([n, ut.nn.Linear(1, 1).eval()]), RuntimeError, "the same training/eval mode"),
    ],
)
def test_what_is_refused(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(ut.nn.Linear(1, 1))


# ---- names that are not the module's, ties, and what the module assigns


class Counting:
    """Made with either library: counts its calls in a buffer that it replaces."""

    def __new__(cls, L: Any) -> Any:
        class Module(L.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("calls", L.zeros(()))
                self.layer = L.nn.Linear(2, 2)
                self.again = self.layer

            def forward(self, x: Any) -> Any:
                self.calls = self.calls + 1
                return self.again(self.layer(x)) + getattr(self, "extra", 0)

        return Module()


def test_what_a_module_assigns_comes_back(L: ModuleType) -> None:
    module, tensors = Counting(L), {"calls": L.tensor(5.0)}
    L.func.functional_call(module, tensors, L.ones(2))
    assert tensors["calls"].item() == 6 and module.calls.item() == 0


def test_further_tensors_are_attributes_during_the_call(L: ModuleType) -> None:
    module, x = Counting(L), L.ones(2)
    found = L.func.functional_call(module, {"extra": L.full((2,), 10.0)}, x)
    assert L.allclose(found, module(x) + 10) and not hasattr(module, "extra")
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'extra'"):
        L.func.functional_call(module, {"extra": L.ones(2)}, x, strict=True)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 'calls'"):
        L.func.functional_call(module, dict(module.named_parameters()), x, strict=True)
    with pytest.raises(TypeError, match="is not an instance of"):
        L.func.functional_call(module, {"layer.bias": 3}, x)


def test_one_tensor_under_two_names(L: ModuleType) -> None:
    module, x = Counting(L), L.ones(2)
    eye, zero = L.eye(2), L.zeros(2)
    assert L.equal(L.func.functional_call(module, {"layer.weight": eye, "layer.bias": zero}, x), x)
    with pytest.raises(ValueError, match=r"got multiple values for keys .* which are tied"):
        L.func.functional_call(module, {"layer.weight": eye, "again.weight": eye * 2}, x)
    found = L.func.functional_call(
        module, {"layer.weight": eye, "layer.bias": zero, "again.weight": eye * 2}, x, tie_weights=False
    )
    assert found.shape == (2,)
