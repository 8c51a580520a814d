"""Lazy modules: they take the size of their first input, and are ordinary modules from then on."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow import nn

#: lazy layer -> (arguments, the same of the ordinary one, shape of an input)
LAYERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]] = {
    "Linear": ((5,), (3, 5), (4, 3)),
    "Conv1d": ((4, 3), (6, 4, 3), (2, 6, 8)),
    "Conv2d": ((4, 3, 2, 1, 1, 2), (6, 4, 3, 2, 1, 1, 2), (2, 6, 8, 8)),
    "Conv3d": ((4, 2), (3, 4, 2), (2, 3, 4, 4, 4)),
    "ConvTranspose1d": ((4, 3), (6, 4, 3), (2, 6, 8)),
    "ConvTranspose2d": ((4, 3, 2, 1, 1, 2), (6, 4, 3, 2, 1, 1, 2), (2, 6, 8, 8)),
    "ConvTranspose3d": ((4, 2), (3, 4, 2), (2, 3, 4, 4, 4)),
    "BatchNorm1d": ((), (3,), (4, 3)),
    "BatchNorm2d": ((), (3,), (4, 3, 5, 5)),
    "BatchNorm3d": ((), (3,), (4, 3, 2, 2, 2)),
    "InstanceNorm1d": ((), (3, 1e-5, 0.1, True, True), (4, 3, 5)),
    "InstanceNorm2d": ((), (3, 1e-5, 0.1, True, True), (4, 3, 5, 5)),
    "InstanceNorm3d": ((1e-5, 0.1, True, False), (3, 1e-5, 0.1, True), (4, 3, 2, 2, 2)),
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """A lazy layer, the ordinary one, and an input."""
    arguments, ordinary, shape = LAYERS[request.param]
    return getattr(nn, f"Lazy{request.param}")(*arguments), getattr(nn, request.param)(*ordinary), ut.randn(shape)


def test_it_becomes_the_ordinary_layer(layer: Any) -> None:
    lazy, ordinary, x = layer
    parameters = dict(lazy.named_parameters())
    ut.manual_seed(0)
    out = lazy(x)
    assert type(lazy) is type(ordinary) and repr(lazy) == repr(ordinary)
    assert dict(lazy.named_parameters()).keys() == parameters.keys()
    assert all(p is parameters[name] for name, p in lazy.named_parameters())
    assert {n: t.shape for n, t in lazy.state_dict().items()} == {n: t.shape for n, t in ordinary.state_dict().items()}
    assert not lazy._forward_pre_hooks
    fresh = type(ordinary)(*LAYERS[type(ordinary).__name__][1])
    fresh.load_state_dict(lazy.state_dict())
    assert out.shape == fresh(x).shape
    out.sum().backward()
    assert all(p.grad is not None for p in lazy.parameters())


def test_initial_values_are_those_of_the_ordinary_layer(layer: Any) -> None:
    lazy, ordinary, x = layer
    ut.manual_seed(0)
    with ut.no_grad():
        lazy.eval()(x)
    ut.manual_seed(0)
    ordinary.reset_parameters()
    for name, tensor in ordinary.state_dict().items():
        assert ut.equal(tensor, lazy.state_dict()[name]), name


def test_state_of_the_ordinary_layer_is_loaded(layer: Any) -> None:
    lazy, ordinary, x = layer
    ordinary.eval()
    lazy.eval()
    assert str(lazy.load_state_dict(ordinary.state_dict())) == "<All keys matched successfully>"
    assert ut.allclose(lazy(x), ordinary(x))
    assert repr(lazy) == repr(ordinary)


def test_copies_pickles_and_state_of_uninitialized_layers(layer: Any) -> None:
    lazy, ordinary, x = layer
    for other in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        other(x)
        assert type(other) is type(ordinary) and not other._forward_pre_hooks
    assert type(lazy) is not type(ordinary)
    lazy.load_state_dict(lazy.state_dict())
    assert [str(t) for t in lazy.state_dict().values()] == [str(t) for t in lazy.state_dict().values()]


def test_dtype_and_device_are_chosen_before(layer: Any) -> None:
    lazy, _, x = layer
    lazy.double().to("sim:0")
    out = lazy(x.double().to("sim:0"))
    assert out.dtype == ut.float64 and str(out.device) == "sim:0"
    assert all(t.dtype in (ut.float64, ut.int64) for t in lazy.state_dict().values())


def test_a_model_of_them_trains() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    x, y = ut.randn(8, 1, 5, 5), ut.tensor([0, 1] * 4)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_unbatched_inputs() -> None:
    conv = nn.LazyConv2d(4, 3)
    assert conv(ut.ones(3, 5, 5)).shape == (4, 3, 3) and conv.in_channels == 3
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(4, 3)(ut.ones(5, 5))


def test_what_cannot_be_done_before_the_first_call() -> None:
    layer = nn.LazyLinear(2)
    assert repr(layer.weight) == "<UninitializedParameter>" and layer.weight.requires_grad
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        layer.weight + 1
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        layer.weight.shape
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        nn.Linear(3, 2).load_state_dict(layer.state_dict())


def test_lazy_modules_of_ones_own() -> None:
    from undertow.nn.module.lazy_parameters import LazyModule

    class Scale(LazyModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()
            self.begin()

        def initialize_parameters(self, x: Any) -> None:
            self.weight.materialize((x.shape[-1],))
            self.weight.fill_(3.0)

        def forward(self, x: Any) -> Any:
            return x * self.weight

    scale = Scale()
    assert scale(ut.ones(2)).tolist() == scale(ut.ones(2)).tolist() == [3.0, 3.0]
    assert type(scale.weight) is nn.Parameter


@pytest.mark.torch
def test_names_and_shapes_are_those_of_torch(layer: Any) -> None:
    torch = pytest.importorskip("torch")
    lazy, _, x = layer
    name = type(lazy).__name__
    theirs = getattr(torch.nn, name)(*LAYERS[name.removeprefix("Lazy")][0])
    assert repr(theirs) == repr(lazy) and list(theirs.state_dict()) == list(lazy.state_dict())
    theirs(torch.ones(*x.shape))
    lazy(x)
    assert {n: tuple(t.shape) for n, t in theirs.state_dict().items()} == {
        n: tuple(t.shape) for n, t in lazy.state_dict().items()
    }


def test_a_lazy_module_of_the_user(L: ModuleType) -> None:
    class Scale(L.nn.modules.lazy.LazyModuleMixin, L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = L.nn.UninitializedParameter()

        def initialize_parameters(self, input: Any) -> None:
            self.factor.materialize(input.shape[-1:])
            L.nn.init.constant_(self.factor, 2.0)

        def forward(self, input: Any) -> Any:
            return input * self.factor

    module = Scale()
    assert module.has_uninitialized_params()
    assert module(L.ones(2, 3)).tolist() == [[2.0] * 3] * 2 and not module.has_uninitialized_params()
    parameter = L.nn.UninitializedParameter()
    parameter.materialize(4)
    assert parameter.shape == (4,)


def test_parameters_without_a_shape_are_converted_wherever_they_are(L: ModuleType) -> None:
    class Unfinished(L.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = L.nn.UninitializedParameter()
            self.register_buffer("mean", L.nn.UninitializedBuffer())

    class Outer(L.nn.modules.lazy.LazyModuleMixin, L.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.linear = Unfinished(), L.nn.Linear(2, 2)

    outer = Outer().to("cpu").double()
    outer.inner.weight.materialize((2,))
    assert outer.inner.weight.dtype == outer.inner.mean.dtype == outer.linear.weight.dtype == L.float64
