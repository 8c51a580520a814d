"""Containers, each rule shown for undertow and for PyTorch."""

from __future__ import annotations

from collections import OrderedDict
from types import ModuleType

import pytest


def test_sequential(L: ModuleType) -> None:
    nn = L.nn
    net = nn.Sequential(OrderedDict(first=nn.Linear(2, 3), second=nn.ReLU()))
    assert net.first is net[0] and net[-1] is net.second and len(net) == 2
    assert type(net[:1]) is nn.Sequential and list(dict(net[:1].named_children())) == ["first"]
    net.append(nn.Linear(3, 1)).extend([nn.Tanh()])
    assert list(dict(net.named_children())) == ["first", "second", "2", "3"]
    assert net(L.ones(5, 2)).shape == (5, 1)
    assert isinstance(net.pop(-1), nn.Tanh) and len(net) == 3
    net[1] = nn.ELU()
    assert isinstance(net.second, nn.ELU) if hasattr(net, "second") else isinstance(net[1], nn.ELU)
    joined = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
    assert [type(m).__name__ for m in joined] == ["ReLU", "Tanh"]
    joined.insert(1, nn.ELU())
    assert [type(m).__name__ for m in joined] == ["ReLU", "ELU", "Tanh"]
    del joined[0]
    assert [type(m).__name__ for m in joined] == ["ELU", "Tanh"]
    for index in (5, -5):
        with pytest.raises(IndexError, match="is out of range"):
            joined[index]
    with pytest.raises(TypeError, match="is not a Module subclass"):
        nn.Sequential(3)


def test_module_list(L: ModuleType) -> None:
    nn = L.nn
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    layers += [nn.ELU()]
    layers.append(nn.GELU()).insert(0, nn.Sigmoid())
    assert [type(m).__name__ for m in layers] == ["Sigmoid", "ReLU", "Tanh", "ELU", "GELU"]
    assert type(layers[1:3]) is nn.ModuleList and len(layers[1:3]) == 2
    assert isinstance(layers[-1], nn.GELU) and len(layers + [nn.ReLU()]) == 6
    del layers[1:3]
    assert list(dict(layers.named_children())) == ["0", "1", "2"]
    layers[0] = nn.ReLU()
    assert isinstance(layers[0], nn.ReLU) and layers[0] in list(layers)
    assert isinstance(layers.pop(0), nn.ReLU) and len(layers) == 2
    with pytest.raises(TypeError, match="iterable"):
        layers.extend(3)
    with pytest.raises(NotImplementedError):
        layers(L.ones(1))


def test_module_dict(L: ModuleType) -> None:
    nn = L.nn
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    named.update([("c", nn.ELU())])
    named["d"] = nn.GELU()
    assert list(named) == list(named.keys()) == ["a", "b", "c", "d"] and "a" in named and "z" not in named
    assert isinstance(named.pop("a"), nn.ReLU) and len(named) == 3
    del named["b"]
    assert [type(m).__name__ for m in named.values()] == ["ELU", "GELU"]
    assert [k for k, _ in named.items()] == ["c", "d"]
    named.clear()
    assert len(named) == 0
    with pytest.raises(KeyError):
        named["a"]


def test_parameter_list(L: ModuleType) -> None:
    nn = L.nn
    params = nn.ParameterList([L.ones(2), nn.Parameter(L.zeros(3))])
    params.append(L.ones(1))
    params += [L.ones(4)]
    assert [tuple(p.shape) for p in params] == [(2,), (3,), (1,), (4,)]
    assert all(isinstance(p, nn.Parameter) for p in params)
    assert [n for n, _ in params.named_parameters()] == ["0", "1", "2", "3"] == list(params.state_dict())
    assert params[-1] is params[3] and len(params[1:3]) == 2
    params[0] = L.ones(5)
    assert params[0].shape == (5,) and isinstance(params[0], nn.Parameter)
    with pytest.raises(IndexError, match="out of range"):
        params[4]
    with pytest.raises(RuntimeError, match="should not be called"):
        params(1)


def test_parameter_dict(L: ModuleType) -> None:
    nn = L.nn
    params = nn.ParameterDict({"a": L.ones(2)})
    params["b"] = L.zeros(1)
    params.update({"c": nn.Parameter(L.ones(3))})
    assert list(params) == list(params.keys()) == ["a", "b", "c"] and len(params) == 3 and "a" in params
    assert all(isinstance(p, nn.Parameter) for p in params.values())
    assert params.get("a") is params["a"] and params.get("z") is None
    assert params.pop("a").shape == (2,) and [k for k, _ in params.items()] == ["b", "c"]
    assert params.setdefault("d", L.ones(1)).item() == 1
    del params["b"]
    assert [n for n, _ in params.named_parameters()] == ["c", "d"]
    params.clear()
    assert len(params) == 0
    with pytest.raises(AttributeError, match="has no attribute 'a'"):
        params["a"]
