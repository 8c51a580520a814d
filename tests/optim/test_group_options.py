"""The options that a parameter group has: PyTorch's, so that what reads, prints or saves them finds them."""

from __future__ import annotations

from types import ModuleType

import pytest

import undertow as ut

NAMES = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "RAdam", "RMSprop",
    "Rprop", "SGD", "SparseAdam",
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_groups_have_the_options_that_they_have_in_torch(name: str, torch: ModuleType) -> None:
    ours = getattr(ut.optim, name)([ut.ones(2, 2, requires_grad=True)])
    theirs = getattr(torch.optim, name)([torch.ones(2, 2, requires_grad=True)])
    assert ours.defaults == theirs.defaults
    assert repr(ours) == repr(theirs)


def test_what_was_given_is_in_the_group() -> None:
    optimizer = ut.optim.Adam([ut.ones(1, requires_grad=True)], foreach=False, fused=False)
    assert optimizer.param_groups[0]["foreach"] is False
    assert optimizer.state_dict()["param_groups"][0]["fused"] is False
