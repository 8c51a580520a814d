"""float16 is computed in float32 and rounded once, by the same mechanism as bfloat16 (test_bfloat16.py)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.tensor import Tensor

H = ut.float16
F = ut.nn.functional

ONCE_ROUNDED: dict[str, Any] = {
    "a number with all its digits": lambda x: x * 0.1,
    "a quotient": lambda x: x / 1.7,
    "a power": lambda x: x.abs() ** 1.3,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (40,)),
    "logsumexp": lambda x: ut.logsumexp(x, -1),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "a product of matrices": lambda x: x @ x.t(),
    "addcmul": lambda x: ut.addcmul(x, x, x, value=0.3),
    "lerp": lambda x: ut.lerp(x, x.flip(0), 0.3),
    "sinc": ut.sinc,
}


def example() -> Tensor:
    return ut.from_numpy((np.random.default_rng(1).standard_normal((16, 40)) * 3).astype(np.float16))


@pytest.mark.parametrize("name", ONCE_ROUNDED)
def test_an_operation_rounds_once(name: str) -> None:
    x, function = example(), ONCE_ROUNDED[name]
    assert function(x).dtype == H
    assert ut.equal(function(x), function(x.float()).half())


@pytest.mark.parametrize("name", ["gelu", "silu", "softmax", "layer_norm", "a number with all its digits", "sum"])
def test_so_does_pytorch(torch: ModuleType, name: str) -> None:
    theirs: dict[str, Any] = {
        "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "sum": lambda x: x.sum(-1),
        "softmax": lambda x: torch.nn.functional.softmax(x, -1), "a number with all its digits": lambda x: x * 0.1,
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (40,)),
    }  # fmt: skip
    x = example()
    ours, wanted = ONCE_ROUNDED[name](x).numpy(), theirs[name](torch.from_numpy(x.numpy())).numpy()
    differing = (ours.view(np.int16) != wanted.view(np.int16)).mean()
    assert differing < 0.1  # rounded at each step it would be 0.3; below -3 PyTorch's gelu has lost digits


def test_gradients_are_computed_in_float32() -> None:
    x = example().requires_grad_()
    y = x.detach().float().requires_grad_()
    seed = example().flip(0)
    for out, g in ((F.softmax(x, -1), seed), (F.softmax(y, -1).half().float(), seed.float())):
        out.backward(g)
    assert x.grad.dtype == H
    assert (x.grad.float() - y.grad).abs().max() < 2e-3
    ones = ut.ones(1, dtype=H, requires_grad=True)
    (ones * ut.ones(5000, dtype=H)).sum().backward()
    assert ones.grad.item() == 5000  # added up in float16 it would end at 2048


def test_what_lies_beyond_its_range_is_infinite_without_a_warning() -> None:
    x = ut.full((4,), 300.0, dtype=H)
    assert x.norm().item() == 600.0
    assert (x * x).tolist() == [np.inf] * 4
    assert x.float().mul(1e6).half().tolist() == [np.inf] * 4


def test_integers_under_a_default_of_float16() -> None:
    before = ut.get_default_dtype()
    ut.set_default_dtype(H)
    try:
        x = ut.arange(1, 4)
        assert ut.equal(x / 3, (x.float() / 3).half())
        assert ut.equal(x * 0.1, (x.float() * 0.1).half())
        assert ut.equal(ut.sin(x), ut.sin(x.float()).half())
    finally:
        ut.set_default_dtype(before)


REFUSED: dict[str, Any] = {
    "matmul": lambda t, h: t.ones(2, 2, dtype=h) @ t.ones(2, 2),
    "linear": lambda t, h: t.nn.functional.linear(t.ones(2, 3, dtype=h), t.ones(4, 3), t.ones(4)),
    "dot": lambda t, h: t.dot(t.ones(2, dtype=h), t.ones(2, dtype=t.float64)),
    "scatter": lambda t, h: t.ones(2, dtype=h).scatter(0, t.tensor([0]), t.ones(1)),
    "index_put": lambda t, h: t.ones(2, dtype=h).index_put((t.tensor([0]),), t.ones(1)),
    "into integers": lambda t, h: t.ones(2, dtype=t.int64).add_(t.ones(2, dtype=h)),
    "as an index": lambda t, h: t.arange(3)[t.ones(1, dtype=h)],
    "lstsq": lambda t, h: t.linalg.lstsq(t.ones(3, 2, dtype=h), t.ones(3, 1, dtype=h)),
    "bits": lambda t, h: t.ones(2, dtype=h) & t.ones(2, dtype=h),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses(torch: ModuleType, name: str) -> None:
    with pytest.raises(Exception) as wanted:
        REFUSED[name](torch, torch.float16)
    with pytest.raises(wanted.type):
        REFUSED[name](ut, H)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_smallest_step_of_rms_norm_is_that_of_what_computes(L: ModuleType, dtype: str) -> None:
    x = L.tensor([[0.01, 0.02]]).to(getattr(L, dtype))
    wanted = L.nn.functional.rms_norm(x.float(), (2,)).to(x.dtype)
    assert L.nn.functional.rms_norm(x, (2,)).tolist() == wanted.tolist()
    assert L.nn.RMSNorm(2, dtype=x.dtype)(x).tolist() == wanted.tolist()
