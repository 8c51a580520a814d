"""Copies of views: what rows of samples cannot say of them."""

from __future__ import annotations

import undertow as ut


def test_copies_share_no_memory() -> None:
    x = ut.zeros(2, 3)
    for copy in (ut.view_copy(x, (3, 2)), ut.select_copy(x, 0, 1), ut.t_copy(x), *ut.unbind_copy(x), ut.detach_copy(x)):
        copy.add_(1)
    assert x.sum().item() == 0


def test_detach_is_a_function_too() -> None:
    x = ut.ones(2, requires_grad=True)
    assert not ut.detach(x * 2).requires_grad
