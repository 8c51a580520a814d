"""How operations compute bfloat16: in float32, rounded once; what stays bfloat16, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.tensor import Tensor

pytest.importorskip("ml_dtypes")

B = ut.bfloat16


def leaf(*values: float) -> Tensor:
    return ut.tensor(values, dtype=B, requires_grad=True)


def bits(x: Any) -> list[int]:
    return x.detach().view(ut.int16).tolist()


# ---- accumulation and rounding


def test_sums_and_products_are_accumulated_in_float32() -> None:
    ones = ut.ones(1000, dtype=B)
    assert ones.sum().item() == ones.cumsum(0)[-1].item() == (ones @ ones).item() == 1000
    assert ut.full((400,), 0.1, dtype=B).mean().item() == ut.tensor(0.1, dtype=B).item()
    # 1 + 2**-9 + 2**-9, in one sum; each of them alone would be lost
    assert ut.tensor([1, 2**-8, 2**-8], dtype=B).sum().item() == 1 + 2**-7


def test_the_gradient_of_a_broadcast_operand_is_accumulated_in_float32() -> None:
    x = leaf(1.0)
    (x * ut.ones(1000, dtype=B)).sum().backward()
    assert x.grad.dtype == B and x.grad.item() == 1000

    class Scaled(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.expand(1000) * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g  # of the shape (1000,): the engine sums it up

    y = leaf(1.0)
    Scaled.apply(y).sum().backward()
    assert y.grad.item() == 1000


def test_an_operation_rounds_once() -> None:
    x = ut.tensor([0.3, 1.7, -2.2], dtype=B)
    for name in ("exp", "sin", "sigmoid", "tanh", "rsqrt", "erf"):
        wide = getattr(x.float().abs(), name)()
        assert bits(getattr(x.abs(), name)()) == bits(wide.bfloat16()), name


def test_what_is_saved_is_bfloat16() -> None:
    x = leaf(1.5, 2.5)
    product = x * x
    assert product.grad_fn._saved_self is x
    assert x.exp().grad_fn._saved_result.dtype == B
    saved: list[Any] = []
    with ut.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.dtype) or t, lambda t: t):
        (x.exp() * x).sum().backward()
    assert set(saved) == {B}


def test_second_derivatives_forward_mode_and_batches() -> None:
    x = leaf(1.5, 2.5)
    (first,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    assert (first.tolist(), second.tolist()) == ([6.75, 18.75], [9.0, 15.0])
    value, tangent = ut.func.jvp(lambda a: (a * a).sum(), (x.detach(),), (ut.ones(2, dtype=B),))
    assert (value.item(), tangent.item(), tangent.dtype) == (8.5, 8.0, B)
    rows = ut.ones(300, 300, dtype=B)
    assert ut.vmap(lambda a: (a * a).sum())(rows).tolist() == [300.0] * 300
    losses = ut.vmap(ut.nn.functional.cross_entropy)(ut.zeros(3, 2, 4, dtype=B), ut.zeros(3, 2, dtype=ut.int64))
    assert losses.dtype == B
    gradients = ut.vmap(ut.func.grad(lambda a: (a**2).sum()))(rows)
    assert gradients.dtype == B and gradients.float().unique().tolist() == [2.0]


def test_a_gradient_is_accumulated_in_its_own_dtype(torch: ModuleType) -> None:
    def accumulated(lib: Any, dtype: Any) -> tuple[list[float], str]:
        x = lib.full((3,), 0.1, dtype=lib.bfloat16, requires_grad=True)
        if dtype is not None:
            x.grad_dtype = getattr(lib, dtype)
        for k in range(5):
            (x * x * (k + 1)).sum().backward()
        return x.grad.tolist(), str(x.grad.dtype).rpartition(".")[2]

    for dtype in (None, "float32"):
        assert accumulated(ut, dtype) == accumulated(torch, dtype)


def test_devices() -> None:
    x = leaf(1.5, 2.5)
    there = x.to("sim:0")
    loss = (there * there * 2.5).sum()
    loss.backward()
    assert (there.dtype, loss.dtype, loss.item()) == (B, B, 21.25)
    assert x.grad.tolist() == [7.5, 12.5]


def test_sparse_tensors() -> None:
    sparse = ut.tensor([[0, 1.5], [2, 0]], dtype=B).to_sparse()
    assert sparse.dtype == (sparse @ ut.ones(2, 2, dtype=B)).dtype == B
    assert sparse.to_dense().tolist() == [[0.0, 1.5], [2.0, 0.0]]
    table = ut.nn.Embedding(5, 2, dtype=B, sparse=True)
    table(ut.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad.dtype == B and table.weight.grad.to_dense()[1].tolist() == [2.0, 2.0]


# ---- in place, `out`, views


def change(lib: Any, half: str) -> list[Any]:
    dtype = getattr(lib, half)
    x = lib.arange(6, dtype=dtype)
    every_second = x[::2]
    every_second.add_(0.1)
    every_second.mul_(lib.full((3,), 1.3))
    x[1] = 7
    x[3:5] += lib.ones(2, dtype=dtype)
    x[0:2] = lib.tensor([0.3, 0.7])
    x.clamp_(max=5)
    x.neg_().exp_()
    x.t().sub_(0.25)
    return [x.tolist(), x._version, every_second.tolist()]


def recorded_change(lib: Any, half: str) -> list[Any]:
    base = lib.arange(1, 7, dtype=getattr(lib, half)).requires_grad_()
    x = base * 1.1
    x[::2].mul_(lib.full((3,), 1.3))
    x[1] = x[0] * 2
    x.sigmoid_()
    (x + base).sum().backward()
    return [x.tolist(), base.grad.tolist()]


def filled(lib: Any, half: str) -> list[Any]:
    dtype = getattr(lib, half)
    narrow, wide = lib.empty(3, dtype=dtype), lib.empty(3)
    lib.add(lib.ones(3), lib.full((3,), 0.013), out=narrow)
    lib.mul(lib.full((3,), 1.1, dtype=dtype), 2, out=wide)
    narrow.copy_(lib.tensor([1.001, 2, 3])).fill_(0.3)
    return [narrow.tolist(), wide.tolist(), lib.ones(2).copy_(lib.full((2,), 0.1, dtype=dtype)).tolist()]


@pytest.mark.torch
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("program", [change, recorded_change, filled])
def test_memory_that_is_written_to(torch: ModuleType, program: Any, half: str) -> None:
    assert program(ut, half) == program(torch, half)


def test_views_show_the_memory() -> None:
    x = ut.zeros(2, 3, dtype=B)
    for view in (x.t(), x[:, 1], x.view(6), x.unsqueeze(0), x.expand(2, 2, 3), x.diagonal(), x.real, x.detach()):
        assert view.dtype == B and np.shares_memory(view.numpy(), x.numpy())
    x[:, 1].fill_(2)
    assert x.tolist() == [[0.0, 2.0, 0.0]] * 2


# ---- operands of several dtypes


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_layers_with_parameters_of_float32(torch: ModuleType) -> None:
    def normed(lib: Any) -> list[Any]:
        x = (lib.arange(8.0).reshape(2, 4).sin() * 3).bfloat16()
        layers = lib.nn.LayerNorm(4), lib.nn.GroupNorm(2, 4), lib.nn.BatchNorm1d(4), lib.nn.BatchNorm1d(4).eval()
        return [(out.tolist(), str(out.dtype)[-8:]) for out in [layer(x) for layer in layers]]

    assert normed(ut) == normed(torch)


REFUSED: dict[str, Any] = {
    "matmul": lambda t, b: t.ones(2, 2, dtype=b) @ t.ones(2, 2),
    "matmul, the other way": lambda t, b: t.ones(2, 2) @ t.ones(2, 2, dtype=b),
    "linear": lambda t, b: t.nn.functional.linear(t.ones(2, 3, dtype=b), t.ones(4, 3), t.ones(4)),
    "a layer": lambda t, b: t.nn.Linear(3, 2)(t.ones(1, 3, dtype=b)),
    "dot with float16": lambda t, b: t.dot(t.ones(2, dtype=b), t.ones(2, dtype=t.float16)),
    "dot with float64": lambda t, b: t.dot(t.ones(2, dtype=b), t.ones(2, dtype=t.float64)),
    "masked_scatter": lambda t, b: t.ones(1, dtype=b).masked_scatter(t.tensor([True]), t.ones(1)),
    "scatter": lambda t, b: t.ones(2, dtype=b).scatter(0, t.tensor([0]), t.ones(1)),
    "index_put": lambda t, b: t.ones(2, dtype=b).index_put((t.tensor([0]),), t.ones(1)),
    "into integers": lambda t, b: t.ones(2, dtype=t.int64).add_(t.ones(2, dtype=b)),
    "as an index": lambda t, b: t.arange(3)[t.ones(1, dtype=b)],
    "fft": lambda t, b: t.fft.fft(t.ones(3, dtype=b)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses(torch: ModuleType, name: str) -> None:
    with pytest.raises(Exception) as wanted:
        REFUSED[name](torch, torch.bfloat16)
    with pytest.raises(wanted.type) as found:
        REFUSED[name](ut, B)
    said = str(wanted.value).split("\n")[0].replace("torch.", "")
    if name not in ("fft", "masked_scatter"):
        assert said.split(" but ")[-1].rstrip(".")[:60] in str(found.value).replace("undertow.", ""), said


def test_errors_name_it() -> None:
    x = ut.ones(2, dtype=B)
    with pytest.raises(NotImplementedError, match="not implemented for 'BFloat16'"):
        x & x
    with pytest.raises(RuntimeError, match="result type BFloat16 can't be cast to the desired output type Long"):
        ut.add(x, 1, out=ut.empty(2, dtype=ut.int64))
    with pytest.raises(RuntimeError, match="not implemented for 'BFloat16'"):
        ut.linalg.lstsq(ut.ones(3, 2, dtype=B), ut.ones(3, 1, dtype=B))


# ---- its first use


def test_graphs_from_before_its_first_use_go_on() -> None:
    program = """
import undertow as ut
from undertow.backend.dtypes import NARROW
x = ut.ones(2, requires_grad=True)
y = x * x
before = len(NARROW)
narrow = ut.ones(2, dtype=ut.bfloat16, requires_grad=True)
print(before, len(NARROW))
(y * x).sum().backward()
(narrow * narrow * narrow).sum().backward()
print(x.grad.tolist(), narrow.grad.tolist(), narrow.grad.dtype)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["2 4", "[3.0, 3.0] [3.0, 3.0] undertow.bfloat16"]
