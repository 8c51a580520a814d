"""Sharing memory by DLPack."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import undertow as ut


def test_to_numpy_and_back_shares_memory() -> None:
    x = ut.zeros(3)
    array = np.from_dlpack(x)
    x.add_(1)
    assert array.tolist() == [1, 1, 1]
    back = ut.from_dlpack(np.zeros(2))
    assert back.dtype == ut.float64 and back.tolist() == [0, 0]


def test_a_tensor_from_a_tensor() -> None:
    x = ut.arange(3)
    y = ut.from_dlpack(x)
    x.add_(1)
    assert y.tolist() == [1, 2, 3]


@pytest.mark.torch
def test_with_torch_both_ways(torch: ModuleType) -> None:
    x = ut.arange(6.0).reshape(2, 3).t()
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 7
    assert x[0, 0].item() == 7 and theirs.stride() == x.stride()
    ours = ut.from_dlpack(torch.ones(2, dtype=torch.complex64))
    assert ours.dtype == ut.complex64 and ours.tolist() == [1, 1]
    ours.add_(1)


@pytest.mark.torch
def test_a_bare_capsule(torch: ModuleType) -> None:
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
    assert ut.from_dlpack(capsule).tolist() == [1, 1]
    assert torch.utils.dlpack.from_dlpack(ut.ones(2).__dlpack__()).tolist() == [1, 1]


def test_the_device() -> None:
    assert ut.ones(1).__dlpack_device__() == (1, 0)


def test_what_is_refused() -> None:
    x = ut.ones(2, requires_grad=True)
    for tensor in (x, x * 2):
        with pytest.raises(BufferError, match=r"Can't export tensors that require gradient, use tensor\.detach\(\)"):
            tensor.__dlpack__()
    with pytest.raises(BufferError, match="negative strides"):
        ut.from_numpy(np.arange(3)[::-1]).__dlpack__()
    with pytest.raises(BufferError, match="require gradient"):
        ut.from_dlpack(x)
    with pytest.raises(RuntimeError, match="from_dlpack received an invalid capsule"):
        ut.from_dlpack(3)
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        ut.ones(2).__dlpack__(stream=7)
