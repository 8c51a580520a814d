"""Factors in front of the tensors that they are for, as in `p.add_(-lr, grad)`: PyTorch's old order, which it takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut

CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda t, m, v: m.add(3, 2 * m),
    "add_": lambda t, m, v: m.clone().add_(-0.5, 2 * m),
    "add_, a tensor": lambda t, m, v: m.clone().add_(-t.tensor(0.5), 2 * m),
    "addcmul, tensors": lambda t, m, v: m.addcmul(t.tensor(2.0), t.tensor(3.0), m),
    "torch.add": lambda t, m, v: t.add(m, 3, 2 * m),
    "sub": lambda t, m, v: m.sub(3, 2 * m),
    "sub_": lambda t, m, v: m.clone().sub_(3, 2 * m),
    "addcmul": lambda t, m, v: m.addcmul(2, m, 3 * m),
    "addcmul_": lambda t, m, v: m.clone().addcmul_(2, m, 3 * m),
    "addcdiv_": lambda t, m, v: m.clone().addcdiv_(2, m, m + 3),
    "torch.addcdiv": lambda t, m, v: t.addcdiv(m, 2, m, m + 3),
    "addmm, beta": lambda t, m, v: m.addmm(2, m, m),
    "addmm_, beta": lambda t, m, v: m.clone().addmm_(2, m, m),
    "addmm, beta and alpha": lambda t, m, v: m.addmm(2, 3, m, m),
    "torch.addmm": lambda t, m, v: t.addmm(2, m, 3, m, m),
    "torch.addmm, beta": lambda t, m, v: t.addmm(2, m, m, m),
    "addmv": lambda t, m, v: v.addmv(2, 3, m, v),
    "addr": lambda t, m, v: m.addr(2, 3, v, v),
    "baddbmm": lambda t, m, v: m[None].baddbmm(2, m[None], m[None]),
    "addbmm": lambda t, m, v: m.addbmm(2, 3, m[None], m[None]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_numbers_are_pytorchs(torch: ModuleType, call: Callable[..., Any]) -> None:
    found = []
    for library in (torch, ut):
        m = library.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        v = library.tensor([1.0, -1.0], requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(library, m, v)
        result.sum().backward()
        found.append([result.tolist(), m.grad.tolist(), [] if v.grad is None else v.grad.tolist()])
    for expected, got in zip(*found, strict=True):
        ut.testing.assert_close(ut.tensor(got), ut.tensor(expected))


def test_too_many_arguments_are_still_too_many() -> None:
    x = ut.ones(2)
    for call in (lambda: x.add(1, 2), lambda: x.add(x, 1), lambda: x.mul(2, x), lambda: x.addcmul(1, 2, x)):
        with pytest.raises((TypeError, RuntimeError)):
            call()
