"""Which memory a tensor lies in, and tensors set to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut


def test_views_and_aliases_have_the_storage_of_their_base(L: Any) -> None:
    x = L.arange(12.0).view(3, 4)
    for alias in (x[1:], x.t(), x.detach(), x[:, 2], x.view(L.int32), x.expand(2, 3, 4)):
        assert alias.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().untyped_storage().data_ptr() != x.data_ptr()


def test_a_storage_counts_bytes(L: Any) -> None:
    storage = L.zeros(2, 3)[1].untyped_storage()
    assert storage.nbytes() == storage.size() == len(storage) == 24
    assert L.tensor([1, 256], dtype=L.int16).untyped_storage().tolist() == [1, 0, 0, 1]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_typed_storage_counts_elements(L: Any) -> None:
    storage = L.arange(6).view(2, 3)[1].storage()
    assert len(storage) == 6
    assert storage.tolist() == [0, 1, 2, 3, 4, 5]
    assert storage[4] == 4
    assert storage.dtype == L.int64


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("typed", [False, True])
def test_a_tensor_can_be_set_to_a_storage(L: Any, typed: bool) -> None:
    source = L.arange(12.0)
    storage = source.storage() if typed else source.untyped_storage()
    x = L.tensor(())
    x.set_(storage, 1, (4,), (2,))
    assert x.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert (x.stride(), x.storage_offset()) == ((2,), 1)
    x.mul_(10)
    assert source[3].item() == 30.0
    assert x.set_(storage).shape == (12,)
    assert x.is_set_to(source)


def test_a_stride_of_a_dimension_of_size_one_means_nothing(L: Any) -> None:
    x = L.ones(1, 16, 5, 5)
    x.set_(x.untyped_storage(), 0, x.size(), (20, 25, 5, 1))
    assert x.is_contiguous()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_storage_of_another_dtype_is_refused(L: Any) -> None:
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        L.ones(2).set_(L.ones(2, dtype=L.float64).storage())


def test_tensors_set_to_each_other(L: Any) -> None:
    x = L.arange(24.0).view(2, 3, 4)
    assert x.is_set_to(L.tensor(()).set_(x))
    assert x.is_set_to(x.detach())
    for other in (x.clone(), x.view(4, 3, 2), x[:1], x.transpose(0, 2)):
        assert not x.is_set_to(other)
    assert not L.tensor(()).is_set_to(L.tensor(()))


def test_an_array_is_the_storage_of_its_tensor(L: Any) -> None:
    array = np.zeros(3)
    assert L.from_numpy(array).untyped_storage().data_ptr() == array.ctypes.data


def test_memory_that_is_a_file(L: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    shared = L.from_file(path, shared=True, size=3, dtype=L.int16)
    shared += 2
    assert np.fromfile(path, "int16").tolist() == [2, 2, 2]
    longer = L.from_file(path, shared=True, size=4, dtype=L.int16)
    longer[0] = 5
    assert shared.tolist() == [5, 2, 2] and longer.tolist() == [5, 2, 2, 0]
    private = L.from_file(path, size=2, dtype=L.int16)
    private.zero_()
    assert private.tolist() == [0, 0] and shared.tolist() == [5, 2, 2]
    assert L.from_file(path).shape == (0,) and L.from_file(path, size=1, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match=r"size <8> is smaller than the required mapping size <12>"):
        L.from_file(path, size=3)
    assert isinstance(shared.untyped_storage(), L.StorageBase) and shared.untyped_storage().element_size() == 1


def test_a_storage_can_be_given_up_for_a_while(L: Any) -> None:
    x = L.ones(4)
    storage = x.untyped_storage()
    storage.resize_(0)
    storage.resize_(16)
    x.fill_(2)
    assert x.tolist() == [2, 2, 2, 2] and storage.nbytes() == 16


def test_a_storage_does_not_grow() -> None:
    with pytest.raises(RuntimeError, match="a storage of 16 elements cannot be given 17"):
        ut.ones(4).untyped_storage().resize_(17)
