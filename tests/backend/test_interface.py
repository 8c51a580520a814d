"""Devices and the namespace of array functions that rules compute with."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import cpu, namespace_of

# ---- devices

DEVICES = [("cpu",), ("cuda",), ("cuda:1",), ("cuda", 1), ("cpu:0",), ("cpu", 0)]


@pytest.mark.parametrize("arguments", DEVICES, ids=str)
def test_devices(L: ModuleType, arguments: tuple[Any, ...]) -> None:
    d = L.device(*arguments)
    type_, _, tail = arguments[0].partition(":")
    index = int(tail) if tail else (arguments[1] if len(arguments) > 1 else None)
    assert (d.type, d.index) == (type_, index)
    assert str(d) == type_ + ("" if index is None else f":{index}")
    assert repr(d) == f"device(type='{type_}'" + (")" if index is None else f", index={index})")
    assert d == L.device(*arguments) == L.device(d) and hash(d) == hash(L.device(*arguments))
    assert pickle.loads(pickle.dumps(d)) == d == copy.copy(d)


def test_devices_that_differ(L: ModuleType) -> None:
    names = ["cpu", "cuda", "cuda:0", "cuda:1"]
    assert len({L.device(n) for n in names}) == 4
    assert L.device("cpu") != "cpu" and L.device("cpu") is not None


BAD_DEVICES = [
    ("foo", RuntimeError),
    ("cuda:", RuntimeError),
    ("cuda:x", RuntimeError),
    ("", RuntimeError),
    (1.5, TypeError),
]


@pytest.mark.parametrize(("name", "error"), BAD_DEVICES, ids=str)
def test_what_is_no_device(L: ModuleType, name: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        L.device(name)


def test_simulated_devices_have_numbers() -> None:
    assert str(ut.device("sim:3")) == "sim:3" and ut.device("sim", 3).index == 3


@pytest.mark.usefixtures("no_gpu")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match="device 'cuda' is not available"):
        ut.zeros(2, device="cuda")


# ---- the namespace


@pytest.mark.parametrize("device", [None, "cpu", ut.device("cpu"), "cpu:0"], ids=str)
def test_the_cpu_is_numpy(device: Any) -> None:
    xp = namespace_of(device)
    assert xp is cpu and xp.ndarray is np.ndarray and xp.tan is np.tan and str(xp.device) == "cpu"


def test_a_namespace_knows_the_forwards_of_primitives() -> None:
    out = cpu.select_backward(np.ones(2), (3, 2), 0, 1)
    assert out.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_namespace_says_whose_it_is() -> None:
    assert repr(cpu) == "<array functions of cpu>"


def test_tensors_know_their_device(L: ModuleType) -> None:
    x = L.zeros(2, device="cpu")
    assert x.device == L.device("cpu") and (x * 2).device == x.device
