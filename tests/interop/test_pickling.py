"""copy, deepcopy and pickle of tensors."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def sample(name: str) -> Any:
    return {
        "plain": lambda: ut.arange(6.0).reshape(2, 3),
        "requires grad": lambda: ut.ones(2, requires_grad=True),
        "0-d": lambda: ut.tensor(True),
        "empty": lambda: ut.zeros(0, 3, dtype=ut.int8),
        "complex": lambda: ut.tensor([1 + 2j]),
        "transposed": lambda: ut.arange(6.0).reshape(2, 3).t(),
        "strided": lambda: ut.arange(10.0)[::3],
        "broadcast": lambda: ut.ones(1).expand(3),
    }[name]()


SAMPLES = ["plain", "requires grad", "0-d", "empty", "complex", "transposed", "strided", "broadcast"]


def assert_alike(a: ut.Tensor, b: ut.Tensor) -> None:
    assert a is not b and type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    assert a.requires_grad == b.requires_grad and b.is_leaf
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", SAMPLES)
def test_pickle(name: str, protocol: int) -> None:
    original = sample(name)
    assert_alike(original, pickle.loads(pickle.dumps(original, protocol)))


@pytest.mark.parametrize("name", SAMPLES)
def test_copy_shares_memory_and_deepcopy_does_not(name: str) -> None:
    original = sample(name)
    shared, separate = copy.copy(original), copy.deepcopy(original)
    assert_alike(original, shared)
    assert_alike(original, separate)
    if original.numel():
        assert np.shares_memory(original.detach().numpy(), shared.detach().numpy())
        assert not np.shares_memory(original.detach().numpy(), separate.detach().numpy())
    assert separate.stride() == original.stride()


def test_a_copy_shares_the_version_counter() -> None:
    x = ut.ones(2)
    copy.copy(x).add_(1)
    assert x._version == 1 and x.tolist() == [2, 2]


def test_gradients_go_along_only_in_a_deepcopy() -> None:
    x = ut.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    separate = copy.deepcopy(x)
    assert separate.grad.tolist() == [3, 3] and separate.grad is not x.grad
    separate.grad.add_(1)
    assert x.grad.tolist() == [3, 3]
    assert copy.copy(x).grad is None and pickle.loads(pickle.dumps(x)).grad is None


def test_history_does_not_go_along() -> None:
    y = ut.ones(2, requires_grad=True) * 2
    for other in (copy.copy(y), pickle.loads(pickle.dumps(y))):
        assert other.requires_grad and other.grad_fn is None
    with pytest.raises(RuntimeError, match=r"Only Tensors created explicitly by the user \(graph leaves\) support"):
        copy.deepcopy(y)
    with ut.no_grad():
        assert copy.deepcopy(y.detach()).tolist() == [2, 2]


def test_a_deepcopy_keeps_what_is_shared_shared() -> None:
    x = ut.tensor([[0, 1, 2], [3, 4, 5]])
    a, b, row, detached = copy.deepcopy([x, x, x[1], x.detach()])
    assert a is b
    a.zero_()
    assert row.tolist() == [0, 0, 0] and detached.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert row._version == a._version == 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not row._is_view()


def test_an_array_and_its_tensor_in_one_deepcopy() -> None:
    array = np.ones(2)
    copied_array, copied_tensor = copy.deepcopy([array, ut.from_numpy(array)])
    assert type(copied_array) is np.ndarray and copied_tensor.tolist() == [1, 1]


class Weight(ut.Tensor):
    """A subclass with attributes of its own and another constructor."""

    def __init__(self, source: ut.Tensor, label: list[str]) -> None:
        super().__init__(source._array, source._xp)
        self.label = label


def test_a_subclass_keeps_its_class_and_its_attributes() -> None:
    weight = Weight(ut.ones(2), ["a"]).requires_grad_()
    for other in (copy.copy(weight), copy.deepcopy(weight), pickle.loads(pickle.dumps(weight))):
        assert_alike(weight, other)
        assert other.label == ["a"]
    assert copy.copy(weight).label is weight.label and copy.deepcopy(weight).label is not weight.label


def test_copies_can_be_trained() -> None:
    x = pickle.loads(pickle.dumps(ut.ones(2, requires_grad=True)))
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_view_made_in_no_grad_requires_grad_and_so_does_its_copy(L: ModuleType) -> None:
    x = L.ones(3, requires_grad=True)
    with L.no_grad():
        view = x[1:]
    for other in (copy.copy(view), copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        assert view.requires_grad and other.requires_grad and other.tolist() == [1, 1]


def test_sizes_devices_and_generators_can_be_pickled() -> None:
    for value in (ut.Size([2, 3]), ut.device("cpu"), ut.contiguous_format):
        assert pickle.loads(pickle.dumps(value)) == value
    assert pickle.loads(pickle.dumps(ut.contiguous_format)) is ut.contiguous_format
