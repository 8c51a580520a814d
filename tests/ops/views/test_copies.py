"""Copies of views: what rows of samples cannot say of them."""

from __future__ import annotations

from typing import Any

import pytest

import undertow as ut


def test_copies_share_no_memory() -> None:
    x = ut.zeros(2, 3)
    for copy in (ut.view_copy(x, (3, 2)), ut.select_copy(x, 0, 1), ut.t_copy(x), *ut.unbind_copy(x), ut.detach_copy(x)):
        copy.add_(1)
    assert x.sum().item() == 0


def test_detach_is_a_function_too() -> None:
    x = ut.ones(2, requires_grad=True)
    assert not ut.detach(x * 2).requires_grad


@pytest.mark.parametrize("part", [(slice(None), slice(None, None, 2)), (slice(1, None), slice(1, 3))])
def test_as_strided_scatter_counts_places_in_memory(L: Any, part: Any) -> None:
    """A part of a tensor is copied with the gaps between its elements, so the same places are written."""
    x = L.arange(12.0).reshape(3, 4)[part]
    copied = L.as_strided_scatter(x, L.tensor([50.0, 60.0]), (2,), (2,))
    expected = L.arange(12.0).reshape(3, 4)
    shown = expected[part]
    shown.as_strided((2,), (2,)).copy_(L.tensor([50.0, 60.0]))
    assert copied.tolist() == shown.tolist()
    assert copied.stride() == x.stride()
    assert copied.storage_offset() == x.storage_offset()


def test_gradients_of_as_strided_scatter_of_a_part() -> None:
    """PyTorch refuses this one."""
    base, src = ut.arange(12.0, requires_grad=True), ut.tensor([50.0, 60.0], requires_grad=True)
    copied = ut.as_strided_scatter(base.reshape(3, 4)[:, ::2], src, (2,), (2,))
    copied.square().sum().backward()
    assert src.grad.tolist() == [100.0, 120.0]
    assert base.grad.tolist() == [0, 0, 0, 0, 8, 0, 12, 0, 16, 0, 20, 0]
