"""DataParallel on simulated devices."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import undertow as ut
from undertow.nn import parallel

DEVICES = ["sim:0", "sim:1"]


def network() -> Any:
    ut.manual_seed(0)
    return ut.nn.Sequential(ut.nn.Linear(3, 4), ut.nn.Tanh(), ut.nn.Linear(4, 2))


@pytest.mark.parametrize("examples", [1, 2, 5, 8])
def test_the_same_as_one_device(examples: int) -> None:
    alone, shared = network(), network().to("sim:0")
    x = ut.randn(examples, 3, requires_grad=True)
    net = ut.nn.DataParallel(shared, DEVICES)
    out = net(x)
    assert str(out.device) == "sim:0" and ut.allclose(out.cpu(), alone(x), atol=1e-6)
    (gx,) = ut.autograd.grad((alone(x) ** 2).sum(), x)
    (alone(x) ** 2).sum().backward(inputs=list(alone.parameters()))
    (out.cpu() ** 2).sum().backward()
    assert ut.allclose(x.grad, gx, atol=1e-5)
    for p, q in zip(alone.parameters(), shared.parameters(), strict=True):
        assert str(q.grad.device) == "sim:0" and ut.allclose(p.grad, q.grad.cpu(), atol=1e-5)


def test_each_device_has_a_thread() -> None:
    seen = []

    class Where(ut.nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append((str(x.device), threading.get_ident(), ut.is_grad_enabled()))
            return x

    with ut.no_grad():
        ut.nn.DataParallel(Where(), DEVICES)(ut.ones(4, 1))
    assert sorted(d for d, _, _ in seen) == DEVICES
    assert threading.get_ident() not in {t for _, t, _ in seen}
    assert not any(enabled for *_, enabled in seen)


def test_structures_are_cut_and_joined() -> None:
    class Structured(ut.nn.Module):
        def forward(self, pair: Any, *, options: Any, number: int) -> Any:
            a, b = pair
            return {"sum": a + b, "parts": (options["x"] * number, None), "scalar": a.sum()}

    net = ut.nn.DataParallel(Structured(), DEVICES)
    x = ut.arange(6.0).reshape(3, 2)
    out = net((x, x * 2), options={"x": x}, number=10)
    assert ut.equal(out["sum"].cpu(), x * 3) and ut.equal(out["parts"][0].cpu(), x * 10)
    assert out["parts"][1] is None and out["scalar"].tolist() == [6.0, 9.0]


def test_running_statistics_are_those_of_the_first_device() -> None:
    norm = ut.nn.BatchNorm1d(1, momentum=1.0).to("sim:0")
    ut.nn.DataParallel(norm, DEVICES)(ut.tensor([[0.0], [2.0], [10.0], [20.0]]))
    assert norm.running_mean.cpu().tolist() == [1.0] and norm.num_batches_tracked.item() == 1


def test_errors_say_which_replica() -> None:
    class Failing(ut.nn.Module):
        def forward(self, x: Any) -> Any:
            if str(x.device) == "sim:1":
                raise ValueError("too far away")
            return x

    with pytest.raises(ValueError, match="too far away") as caught:
        ut.nn.DataParallel(Failing(), DEVICES)(ut.ones(4, 1))
    assert caught.value.__notes__ == [
        "in Failing(), called with [2, 1]",
        "Caught ValueError in replica 1 on device sim:1.",
    ]


def test_the_module_must_be_on_the_first_device() -> None:
    with pytest.raises(RuntimeError, match=r"module must have its parameters and buffers on device sim:0 \(device_ids"):
        ut.nn.DataParallel(network(), DEVICES)(ut.ones(2, 3))


def test_without_devices_the_module_is_called() -> None:
    net = network()
    x = ut.ones(2, 3)
    assert ut.equal(ut.nn.DataParallel(net)(x), net(x))
    assert next(iter(ut.nn.DataParallel(net).state_dict())) == "module.0.weight"
    one = ut.nn.DataParallel(network().to("sim:1"), ["sim:1"])
    assert str(one(x).device) == "sim:1"


def test_saved_tensor_hooks_do_not_cross_threads() -> None:
    """They belong to the thread that installs them: inside forward they work, around the call they see nothing."""
    seen: list[str] = []

    def note(tensor: Any) -> Any:
        seen.append(str(tensor.device))
        return tensor

    hooks = lambda: ut.autograd.graph.saved_tensors_hooks(note, lambda t: t)

    class Hooked(ut.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Any) -> Any:
            with hooks():
                return self.inner(x)

    x = ut.randn(4, 3)
    with hooks():
        ut.nn.DataParallel(network().to("sim:0"), DEVICES)(x)
    assert seen == []
    ut.nn.DataParallel(Hooked().to("sim:0"), DEVICES)(x).sum().backward()
    assert set(seen) == set(DEVICES)


def test_functions() -> None:
    net = network().to("sim:0")
    x = ut.randn(4, 3)
    replicas = parallel.replicate(net, DEVICES)
    assert [str(r[0].weight.device) for r in replicas] == DEVICES and replicas[0][0].weight is net[0].weight
    assert replicas[1][0].weight.grad_fn is not None
    parts = parallel.scatter(x, DEVICES)
    outputs = parallel.parallel_apply(replicas, [(p,) for p in parts], devices=DEVICES)
    joined = parallel.gather(outputs, "cpu")
    assert ut.equal(joined, parallel.data_parallel(net, x, DEVICES, "cpu"))
    assert str(ut.nn.DataParallel(net, DEVICES, "sim:1")(x).device) == "sim:1"


def test_training_on_two_devices_is_training_on_one() -> None:
    alone, shared = network(), network().to("sim:0")
    net = ut.nn.DataParallel(shared, DEVICES)
    x, y = ut.randn(8, 3), ut.randn(8, 2)
    for _ in range(10):
        for model, target in ((alone, y), (net, y.to("sim:0"))):
            loss = ut.nn.functional.mse_loss(model(x), target)
            model.zero_grad()
            loss.backward()
            with ut.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
    for p, q in zip(alone.parameters(), shared.parameters(), strict=True):
        assert ut.allclose(p, q.cpu(), atol=1e-5)


def test_fewer_examples_than_devices_and_options_for_all() -> None:
    """What is no tensor is given to every device that has examples, by position and by name."""

    class Scaled(ut.nn.Module):
        def forward(self, x: Any = None, factor: float = 1.0, *, y: Any = None) -> Any:
            return (x if y is None else y) * factor

    net = ut.nn.DataParallel(Scaled(), DEVICES)
    x = ut.ones(1, 2)
    assert net(x, factor=3.0).tolist() == [[3, 3]] and net(None, 2.0, y=x).tolist() == [[2, 2]]
    assert net(y=x, factor=4.0).tolist() == [[4, 4]] and net(x).tolist() == [[1, 1]]
