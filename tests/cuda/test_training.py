"""Tensors, modules and optimizers on the (emulated) GPU do what they do on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.nn import functional as F


def train(device: str, optimizer: str, dtype: Any = ut.float64, **options: Any) -> list[float]:
    ut.manual_seed(0)
    model = (
        ut.nn.Sequential(ut.nn.Linear(5, 8), ut.nn.Tanh(), ut.nn.LayerNorm(8), ut.nn.Linear(8, 3)).to(dtype).to(device)
    )
    x, y = ut.randn(6, 5, dtype=dtype).to(device), ut.tensor([0, 1, 2, 2, 1, 0], device=device)
    steps = getattr(ut.optim, optimizer)(model.parameters(), **options)
    losses = []
    for _ in range(4):
        steps.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        assert all(str(p.grad.device) == str(p.device) for p in model.parameters())
        steps.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}),
        ("Adam", {"lr": 0.01}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.01, "amsgrad": True}),
        ("AdamW", {"lr": 0.01}),
    ],
)
def test_a_model_trains_as_on_the_cpu(optimizer: str, options: dict[str, Any]) -> None:
    there, here = train("cuda", optimizer, **options), train("cpu", optimizer, **options)
    np.testing.assert_allclose(there, here, rtol=1e-9)
    assert there[-1] < there[0]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_all_parameters_take_one_launch(optimizer: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        ut.manual_seed(0)
        params = [ut.randn(k % 7 + 1, 900 if k == 3 else 2).to(device).requires_grad_() for k in range(70)]
        steps = getattr(ut.optim, optimizer)(params, lr=0.1, maximize=True)
        for n in range(3):
            for k, p in enumerate(params):
                p.grad = None if k == n else ut.full_like(p, 0.1 * k)
            before = ut.cuda.launch_stats()["launches"]
            steps.step()
        assert device == "cpu" or ut.cuda.launch_stats()["launches"] - before <= 4
        found.append([p.detach().cpu().numpy() for p in params])
        assert all(p._version for p in params)
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_a_convolutional_network() -> None:
    found = []
    for device in ("cpu", "cuda"):
        ut.manual_seed(1)
        net = ut.nn.Sequential(ut.nn.Conv2d(1, 2, 3, padding=1), ut.nn.BatchNorm2d(2), ut.nn.ReLU(), ut.nn.MaxPool2d(2))
        net = net.to(ut.float64).to(device)
        x = ut.randn(2, 1, 4, 4, dtype=ut.float64).to(device).requires_grad_()
        (net(x) ** 2).sum().backward()
        found.append([x.grad.cpu().numpy(), *[p.grad.cpu().numpy() for p in net.parameters()]])
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-8, atol=1e-10)


def test_devices_do_not_mix_and_tensors_move() -> None:
    x = ut.ones(3, device="cuda", requires_grad=True)
    assert str(x.device) == str((x * 2).device) == "cuda:0" and x.is_cuda
    with pytest.raises(RuntimeError, match="same device"):
        x + ut.ones(3)
    assert ((x * ut.tensor(2.0)).sum()).item() == 6  # a number of the CPU may stand beside it
    y = x.cpu() * 3
    y.cuda().sum().backward()
    assert x.grad.tolist() == [3, 3, 3] and str(x.grad.device) == "cuda:0"
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
        x.detach().numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        ut.ones(1, device="cuda:9")


def test_changes_in_place_are_recorded() -> None:
    x = ut.tensor([1.0, 2.0, 3.0], device="cuda", requires_grad=True)
    h = x * 2
    h[1:] *= 3
    h[0] = 5.0
    h.sum().backward()
    assert x.grad.tolist() == [0, 6, 6]
    y = x.exp()
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_transforms_and_second_derivatives() -> None:
    x = ut.tensor([0.5, -1.0, 2.0], dtype=ut.float64, device="cuda")
    hessian = ut.func.hessian(lambda x: (x.sin() * x).sum())(x)
    want = ut.func.hessian(lambda x: (x.sin() * x).sum())(x.cpu())
    np.testing.assert_allclose(hessian.cpu().numpy(), want.numpy(), atol=1e-12)
    batch = ut.func.vmap(ut.func.grad(lambda v: (v**3).sum()))(ut.stack([x, 2 * x]))
    np.testing.assert_allclose(batch.cpu().numpy(), 3 * np.stack([x.cpu().numpy(), 2 * x.cpu().numpy()]) ** 2)


@pytest.mark.parametrize("dtype", [ut.float16, ut.bfloat16])
def test_half_precision(dtype: Any) -> None:
    pytest.importorskip("ml_dtypes")
    found = []
    for device in ("cpu", "cuda"):
        x = ut.linspace(-2, 2, 8).to(dtype).to(device).requires_grad_()
        out = (x.tanh() * x).sum()
        out.backward()
        found.append((out.cpu().float().item(), x.grad.cpu().float().tolist(), out.dtype, x.grad.dtype))
    assert found[0][2:] == found[1][2:] == (dtype, dtype)
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=0.01)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=0.01, atol=0.01)


def test_states_travel_between_devices(tmp_path: Any) -> None:
    layer = ut.nn.Linear(3, 2).cuda()
    ut.save(layer.state_dict(), tmp_path / "layer.npz")
    other = ut.nn.Linear(3, 2)
    other.load_state_dict(ut.load(tmp_path / "layer.npz"))
    assert other.weight.device.type == "cpu" and ut.equal(other.weight, layer.weight.cpu())


def test_what_is_known_of_the_device() -> None:
    assert ut.cuda.is_available() and ut.cuda.device_count() >= 1
    ut.ones(1, device="cuda")
    assert ut.cuda.is_initialized() and ut.cuda.current_device() == 0
    assert ut.cuda.get_device_name() == ut.cuda.get_device_properties().name
    assert ut.cuda.memory_summary().startswith("allocated_bytes.all.current")
    ut.cuda.synchronize()
    with ut.device("cuda"):
        assert ut.ones(2).device.type == "cuda"


def recurrence_and_its_gradients(kind: str, device: str, dtype: ut.dtype, **options: Any) -> list[np.ndarray]:
    """Outputs and states, gradients, gradients of gradients, and those of a plain backward pass."""
    ut.manual_seed(0)
    layer = getattr(ut.nn, kind)(5, 7, num_layers=2, **options).to(dtype).to(device)
    start = np.random.default_rng(0).standard_normal((3, 4, 5))
    x = ut.tensor(start, dtype=dtype, device=device, requires_grad=True)
    out, last = layer(x)
    h, c = last if kind == "LSTM" else (last, last)
    grads = ut.autograd.grad(
        out.square().sum() + 2 * h.sum() + c.square().sum(), [x, *layer.parameters()], create_graph=True
    )
    ut.stack([g.square().sum() for g in grads]).sum().backward()
    second = [p.grad for p in (x, *layer.parameters())]
    x.grad = None
    layer.zero_grad()
    again, last = layer(x)
    (again.sum() + last[-1].sin().sum()).backward()
    return [t.detach().cpu().numpy() for t in (out, h, c, *grads, *second, *[p.grad for p in (x, *layer.parameters())])]


@pytest.mark.parametrize("dtype", [ut.float32, ut.float64])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *[
            ("LSTM", o)
            for o in ({"batch_first": True}, {"bidirectional": True}, {"bias": False, "bidirectional": True})
        ],
        *[("GRU", o) for o in ({"batch_first": True}, {"bias": False, "bidirectional": True})],
        *[("RNN", o) for o in ({"bidirectional": True}, {"bias": False, "nonlinearity": "relu"})],
    ],
)
def test_recurrent_layers_and_their_gradients(kind: str, options: dict[str, Any], dtype: ut.dtype) -> None:
    tolerance = 1e-5 if dtype == ut.float32 else 1e-13
    pairs = zip(
        *[recurrence_and_its_gradients(kind, device, dtype, **options) for device in ("cuda", "cpu")], strict=True
    )
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("kind", [ut.nn.LSTM, ut.nn.GRU])
def test_a_step_of_a_recurrent_layer_is_two_launches_each_way(kind: Any) -> None:
    layer = kind(5, 7).to("cuda")

    def launches(steps: int) -> int:
        x = ut.randn(steps, 3, 5, device="cuda", requires_grad=True)
        before = ut.cuda.launch_stats()["launches"]
        layer(x)[0].sum().backward()
        return int(ut.cuda.launch_stats()["launches"] - before)

    launches(10)
    assert launches(30) - launches(20) == 10 * 4


@pytest.mark.parametrize("kind", [ut.nn.LSTM, ut.nn.GRU])
def test_outputs_of_a_recurrent_layer_that_were_changed_are_refused(kind: Any) -> None:
    layer, x = kind(5, 7).to("cuda"), ut.randn(4, 3, 5, device="cuda")
    out, _ = layer(x)
    with ut.no_grad():
        out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_autocast_computes_the_products_of_an_lstm_in_half_precision() -> None:
    layer, x = ut.nn.LSTM(5, 7).to("cuda"), ut.randn(4, 3, 5, device="cuda")
    with ut.autocast("cuda", dtype=ut.bfloat16):
        half, _ = layer(x)
    difference = (half - layer(x)[0]).abs().max().item()
    assert 1e-5 < difference < 0.05


def test_ones_that_a_pass_begins_with_are_shared_and_nobody_else_has_them() -> None:
    x = ut.full((1,), 3.0, device="cuda", requires_grad=True)
    held = []

    def passes() -> list[Any]:
        found = []
        for loss in ((x * 2).sum(), x.sum(), x.reshape(()), x.view(1), x + 0, x):
            x.grad = None
            loss.backward()
            x.grad.mul_(5)
            found.append(x.grad.item())
        y = x.reshape(())
        y.retain_grad()
        y.backward()
        y.grad.mul_(7)
        z = x.reshape(())
        z.register_hook(lambda g: g.mul_(3))
        z.backward()
        held.append(ut.autograd.grad(x.reshape(()), x)[0].mul_(9))
        w = ut.ones(2, device="cuda", requires_grad=True)
        total = (w * 2).sum()
        total.backward()
        return [*found, *w.grad.tolist(), held[-1].item()]

    wanted = [10.0, 5.0, 5.0, 5.0, 5.0, 5.0, 2.0, 2.0, 9.0]
    assert passes() == wanted and passes() == wanted
    side = ut.cuda.Stream()
    side.wait_stream(ut.cuda.current_stream())
    with ut.cuda.stream(side):
        assert passes() == wanted


def test_a_pass_asks_for_no_ones_again() -> None:
    x = ut.ones(4, device="cuda", requires_grad=True)

    def launches() -> int:
        loss = x.sum()
        before = ut.cuda.launch_stats()["launches"]
        loss.backward()
        return int(ut.cuda.launch_stats()["launches"] - before)

    launches()
    x.grad = None
    assert launches() == 1  # its gradient, as an array of its own
