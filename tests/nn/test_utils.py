"""nn.utils, each rule shown for undertow and for PyTorch."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

# ---- gradients and vectors


def with_gradients(L: ModuleType) -> list[Any]:
    params = [L.nn.Parameter(L.zeros(2)), L.nn.Parameter(L.zeros(1)), L.nn.Parameter(L.zeros(1))]
    params[0].grad, params[1].grad = L.tensor([3.0, 4.0]), L.tensor([12.0])
    return params


def test_clip_grad_norm(L: ModuleType) -> None:
    params = with_gradients(L)
    clip = L.nn.utils.clip_grad_norm_
    assert clip(params, 1.3).item() == pytest.approx(13)
    assert params[0].grad.tolist() == pytest.approx([0.3, 0.4], rel=1e-5)
    assert clip(iter(params), 5.0).item() == pytest.approx(1.3, rel=1e-5)
    assert params[1].grad.item() == pytest.approx(1.2, rel=1e-5)  # unchanged: it was short enough
    assert clip(with_gradients(L), 6.0, norm_type=float("inf")).item() == 12
    assert clip(with_gradients(L)[0], 1.0, norm_type=1).item() == 7
    assert clip([params[2]], 1.0).item() == 0


def test_clip_grad_norm_of_what_is_not_finite(L: ModuleType) -> None:
    params = with_gradients(L)
    params[0].grad[0] = float("nan")
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        L.nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert np.isnan(L.nn.utils.clip_grad_norm_(params, 1.0).item())


def test_clip_grad_value(L: ModuleType) -> None:
    params = with_gradients(L)
    L.nn.utils.clip_grad_value_(params, 3.5)
    assert params[0].grad.tolist() == [3.0, 3.5] and params[1].grad.tolist() == [3.5]


def test_total_norm(L: ModuleType) -> None:
    tensors = [L.tensor([3.0]), L.tensor([4.0])]
    assert L.nn.utils.get_total_norm(tensors).item() == 5


def test_vectors(L: ModuleType) -> None:
    net = L.nn.Linear(2, 3)
    vector = L.nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (9,) and vector.grad_fn is not None
    L.nn.utils.vector_to_parameters(L.arange(9.0), net.parameters())
    assert net.bias.tolist() == [6, 7, 8] and net.weight.requires_grad and net.weight.is_leaf


# ---- other parameters


def test_functional_call(L: ModuleType) -> None:
    call = L.nn.utils.stateless.functional_call if L.__name__ == "undertow" else L.func.functional_call
    net = L.nn.Sequential(L.nn.Linear(2, 2, bias=False), L.nn.Linear(2, 1, bias=False))
    own = net[0].weight
    weight = L.eye(2).requires_grad_()
    call(net, {"0.weight": weight}, (L.ones(1, 2),)).sum().backward()
    assert weight.grad is not None and net[0].weight is own and own.grad is None
    net[1].weight = L.nn.Parameter(L.ones(1, 2))
    assert call(net, [{"0.weight": weight}, {"1.weight": L.zeros(1, 2)}], L.ones(1, 2)).item() == 0
    with pytest.raises(RuntimeError, match=r"(?i)unexpected key"):
        call(net, {"nothing": weight}, L.ones(1, 2), strict=True)


# ---- parametrizations


def symmetric(L: ModuleType) -> Any:
    class Symmetric(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    return Symmetric()


def test_parametrization(L: ModuleType) -> None:
    P = L.nn.utils.parametrize
    layer = L.nn.Linear(3, 3)
    weight = layer.weight
    assert P.register_parametrization(layer, "weight", symmetric(L)) is layer
    assert P.is_parametrized(layer) and P.is_parametrized(layer, "weight") and not P.is_parametrized(layer, "bias")
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, L.nn.Linear)
    assert L.equal(layer.weight, layer.weight.T)
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert layer.parametrizations.weight.original is weight
    layer(L.ones(3)).sum().backward()
    assert weight.grad[1, 0] == 0 and weight.grad[0, 1] == 2
    layer.weight = L.ones(3, 3)
    assert L.equal(layer.weight, L.ones(3, 3))
    with P.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight


def test_parametrized_modules_are_copied_but_not_pickled(L: ModuleType) -> None:
    P = L.nn.utils.parametrize
    layer = P.register_parametrization(L.nn.Linear(3, 3), "weight", symmetric(L))
    other = copy.deepcopy(layer)
    assert L.equal(other.weight, layer.weight)
    with L.no_grad():
        other.parametrizations.weight.original.zero_()
    assert layer.weight.abs().sum() > 0 and other.weight.abs().sum() == 0
    with pytest.raises(
        RuntimeError, match="Serialization of parametrized modules is only supported through state_dict"
    ):
        pickle.dumps(layer)
    other.load_state_dict(layer.state_dict())
    assert L.equal(other.weight, layer.weight)


def test_removing_parametrizations(L: ModuleType) -> None:
    P = L.nn.utils.parametrize
    layer = P.register_parametrization(L.nn.Linear(3, 3), "weight", symmetric(L))
    value = layer.weight.detach().clone()
    P.remove_parametrizations(layer, "weight")
    assert type(layer) is L.nn.Linear and L.equal(layer.weight, value) and isinstance(layer.weight, L.nn.Parameter)
    assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="does not have a parametrization"):
        P.remove_parametrizations(layer, "weight")
    with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a parametrized element"):
        P.register_parametrization(layer, "nothing", symmetric(L))


def test_several_parametrizations(L: ModuleType) -> None:
    class Scaled(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    P = L.nn.utils.parametrize
    layer = P.register_parametrization(L.nn.Linear(3, 3), "weight", symmetric(L))
    before = layer.weight.detach().clone()
    P.register_parametrization(layer, "weight", Scaled())
    assert L.allclose(layer.weight, before * 2) and len(layer.parametrizations.weight) == 2


def test_a_parametrization_keeps_the_shape(L: ModuleType) -> None:
    class Wider(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return L.cat([x, x])

    with pytest.raises(ValueError, match="unless `unsafe`"):
        L.nn.utils.parametrize.register_parametrization(L.nn.Linear(3, 3), "weight", Wider())
    layer = L.nn.utils.parametrize.register_parametrization(L.nn.Linear(3, 3), "weight", Wider(), unsafe=True)
    assert layer.weight.shape == (6, 3)


@pytest.mark.torch
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(torch: ModuleType, dim: int | None) -> None:
    import undertow as ut

    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3).double(), dim=dim)
    ours = ut.nn.utils.parametrizations.weight_norm(ut.nn.Linear(4, 3).double(), dim=dim)
    assert repr(ours) == repr(theirs)
    with torch.no_grad():
        theirs.parametrizations.weight.original0.mul_(1.5)
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).normal(size=(2, 4))
    for L, layer in ((ut, ours), (torch, theirs)):
        (layer(L.tensor(x)) ** 2).sum().backward()
    for (name, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-9)


@pytest.mark.torch
def test_spectral_norm(torch: ModuleType) -> None:
    import undertow as ut

    theirs = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(2, 3, 2).double())
    ours = ut.nn.utils.parametrizations.spectral_norm(ut.nn.Conv2d(2, 3, 2).double())
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 4))
    for L, layer in ((ut, ours), (torch, theirs)):
        for _ in range(2):
            (layer(L.tensor(x)) ** 2).sum().backward()
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-8, err_msg=name)
    ours.eval()
    assert np.linalg.norm(ours.weight.detach().numpy().reshape(3, -1), 2) == pytest.approx(1, rel=1e-3)


def test_a_further_parametrization_leaves_the_originals_alone(L: ModuleType) -> None:
    class Doubled(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    P = L.nn.utils.parametrize
    layer = P.register_parametrization(L.nn.Linear(2, 2), "weight", Doubled())
    original = layer.parametrizations.weight.original.detach().clone()
    P.register_parametrization(layer, "weight", Doubled())
    assert L.equal(layer.parametrizations.weight.original, original)
    assert L.allclose(layer.weight, original * 4)
    layer.weight = L.ones(2, 2)
    assert L.allclose(layer.parametrizations.weight.original, L.full((2, 2), 0.25))


@pytest.mark.parametrize(
    ("inverse", "words"),
    [
        (lambda x: None, "'right_inverse' must return a Tensor or a Sequence of tensors"),
        (lambda x: (None, None), "Got element 0 of the sequence with type NoneType"),
        (lambda x: x.double(), "it may not change the dtype"),
    ],
)
def test_what_a_right_inverse_returns(L: ModuleType, inverse: Any, words: str) -> None:
    class Odd(L.nn.Module):
        def forward(self, *x: Any) -> Any:
            return x[0]

        def right_inverse(self, x: Any) -> Any:
            return inverse(x)

    layer = L.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=words):
        L.nn.utils.parametrize.register_parametrization(layer, "weight", Odd())
    assert not L.nn.utils.parametrize.is_parametrized(layer)


def test_a_parametrization_returns_a_tensor(L: ModuleType) -> None:
    class Pair(L.nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x

    with pytest.raises(ValueError, match=r"A parametrization must return a tensor. Got tuple"):
        L.nn.utils.parametrize.register_parametrization(L.nn.Linear(2, 2), "weight", Pair())


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal_weights_by_reflections_can_be_set(L: ModuleType, shape: tuple[int, int]) -> None:
    layer = L.nn.Linear(shape[1], shape[0])
    L.nn.utils.parametrizations.orthogonal(layer, orthogonal_map="householder", use_trivialization=False)
    wanted = L.nn.init.orthogonal_(L.empty(*shape))
    layer.weight = wanted
    assert L.allclose(layer.weight, wanted, atol=1e-5)
    layer = L.nn.Linear(shape[1], shape[0])
    L.nn.utils.parametrizations.orthogonal(layer, orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="It is not possible to assign"):
        layer.weight = wanted
