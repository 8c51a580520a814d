"""Models and optimizers in bfloat16, beside PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
START, GRADIENTS = RNG.standard_normal(50, np.float32), RNG.standard_normal((20, 50), np.float32) * 0.5

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01}),
    ("Adagrad", {"lr": 0.01}),
    ("Adadelta", {}),
    ("Adamax", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01}),
    ("Rprop", {"lr": 0.01}),
    ("ASGD", {"lr": 0.01}),
]


def stepped(lib: Any, name: str, options: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    parameter = lib.nn.Parameter(lib.from_numpy(START.copy()).bfloat16())
    optimizer = getattr(lib.optim, name)([parameter], **options)
    for gradient in GRADIENTS:
        parameter.grad = lib.from_numpy(gradient.copy()).bfloat16()
        optimizer.step()
    state = optimizer.state[parameter].items()
    dtypes = {k: str(v.dtype).rpartition(".")[2] for k, v in state if hasattr(v, "dtype")}
    assert parameter.dtype == lib.bfloat16
    return parameter.detach().float().numpy(), dtypes


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{n}-{len(o)}" for n, o in OPTIMIZERS])
def test_optimizers(torch: ModuleType, name: str, options: dict[str, Any]) -> None:
    found, dtypes = stepped(ut, name, options)
    wanted, expected = stepped(torch, name, options)
    assert dtypes == expected
    assert np.abs(found - wanted).max() <= 2.0**-6  # one or two units of the numbers between 1 and 4


def carried_over(theirs: Any, ours: Any) -> Any:
    ours.load_state_dict({k: ut.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    return ours.bfloat16()


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda n: n.Sequential(n.Linear(4, 8), n.LayerNorm(8), n.ReLU(), n.Linear(8, 3)), (6, 4)),
    "convolution": (
        lambda n: n.Sequential(n.Conv2d(2, 4, 3, padding=1, bias=False), n.BatchNorm2d(4), n.GELU(), n.MaxPool2d(2)),
        (2, 2, 8, 8),
    ),
    "GroupNorm": (lambda n: n.Sequential(n.Conv1d(2, 4, 3), n.GroupNorm(2, 4), n.SiLU(), n.AvgPool1d(2)), (3, 2, 9)),
    "LSTM": (lambda n: n.LSTM(3, 4, 2), (5, 2, 3)),
    "GRU": (lambda n: n.GRU(3, 4), (5, 2, 3)),
    "attention": (lambda n: n.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(torch: ModuleType, name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    theirs = make(torch.nn)
    ours = carried_over(theirs, make(ut.nn))
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)

    def results(lib: Any, model: Any) -> list[Any]:
        x = lib.from_numpy(values.copy()).bfloat16().requires_grad_()
        out = model(x)
        out = out[0] if isinstance(out, tuple) else out
        (out * out).sum().backward()
        tensors = [out, x.grad, *[p.grad for p in model.parameters()]]
        assert {t.dtype for t in tensors} == {lib.bfloat16}
        return [t.detach().float().numpy() for t in tensors]

    found, wanted = results(ut, ours), results(torch, theirs.bfloat16())
    scale = max(np.abs(w).max() for w in wanted[1:])
    assert np.abs(found[0] - wanted[0]).max() <= 0.02 * np.abs(wanted[0]).max()
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert np.abs(a - b).max() <= 0.03 * scale


def test_conversions_of_modules() -> None:
    model = ut.nn.Sequential(ut.nn.Linear(3, 2), ut.nn.BatchNorm1d(2))
    for convert, dtype in (("bfloat16", ut.bfloat16), ("half", ut.float16), ("float", ut.float32)):
        assert getattr(model, convert)() is model
        assert {t.dtype for t in model.state_dict().values()} == {dtype, ut.int64}
    assert model.to(ut.bfloat16)[0].weight.dtype == ut.bfloat16
    assert ut.nn.Linear(3, 2, dtype=ut.bfloat16).bias.dtype == ut.bfloat16


def test_a_model_learns() -> None:
    ut.manual_seed(0)
    model = ut.nn.Sequential(ut.nn.Linear(2, 32), ut.nn.ReLU(), ut.nn.Linear(32, 2)).bfloat16()
    optimizer = ut.optim.Adam(model.parameters(), lr=0.02)
    x = ut.randn(64, 2, dtype=ut.bfloat16)
    labels = (x.float().prod(1) > 0).long()
    for _ in range(80):
        optimizer.zero_grad()
        loss = ut.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        ut.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.dtype == ut.bfloat16 and loss.item() < 0.2


def test_an_average_of_weights() -> None:
    model = ut.nn.Linear(3, 2, dtype=ut.bfloat16)
    averaged = ut.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert averaged.module.weight.dtype == ut.bfloat16
