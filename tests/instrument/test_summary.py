"""`summary(model, input)`, and errors that name the module they come from."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import undertow as ut
from undertow.instrument import summary
from undertow.modes import current
from undertow.nn.module.calling import EVERYWHERE


class Net(ut.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = ut.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = ut.nn.BatchNorm2d(4)
        self.head = ut.nn.Sequential(ut.nn.Flatten(), ut.nn.Dropout(), ut.nn.Linear(4 * 36, 5))
        self.unused = ut.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.conv(x)).relu())


# ---- summary


def test_shapes_parameters_flops_and_what_is_saved() -> None:
    model = Net()
    found = summary(model, ut.randn(2, 3, 6, 6))
    layers = {layer.path: layer for layer in found.layers}
    assert list(layers) == [name for name, _ in model.named_modules()]
    assert layers["conv"].output == [2, 4, 6, 6] and layers["head"].output == [2, 5] and layers["unused"].output is None
    assert layers["conv"].parameters == 3 * 4 * 9 + 4
    assert found.total_params == sum(p.numel() for p in model.parameters())
    assert layers["conv"].flops == 2 * 2 * 36 * 3 * 4 * 9 and layers["head.2"].flops == 2 * 2 * 144 * 5
    assert found.total_flops == layers["conv"].flops + layers["head.2"].flops
    parts = [layers[path].saved for path in ("conv", "norm", "head")]
    assert sum(parts) + 2 * 4 * 36 * 4 == layers[""].saved  # the model itself calls relu, which saves its result


def test_as_much_is_saved_as_the_graph_keeps() -> None:
    model, x = ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.Tanh(), ut.nn.Linear(8, 2), ut.nn.Softmax(-1)), ut.randn(3, 4)
    found = summary(model, x, mode="train")
    report = ut.autograd.graph.saved_tensors_report(model(x))
    assert found.totals.saved == report.total_bytes - report.leaf_bytes


def test_the_model_is_left_as_it_was() -> None:
    model = Net()
    model.norm.eval()
    running, state = model.norm.running_mean.clone(), ut.get_rng_state()
    before = [part.training for part in model.modules()]
    summary(model, ut.ones(2, 3, 6, 6))
    assert [part.training for part in model.modules()] == before
    assert bool((model.norm.running_mean == running).all()) and bool((ut.get_rng_state() == state).all())
    assert current().intercept is None and EVERYWHERE == []
    assert all(p.grad is None for p in model.parameters())


def test_inputs_by_size_by_name_and_several() -> None:
    class Sum(ut.nn.Module):
        def forward(self, x: Any, y: Any, scale: float = 1.0) -> Any:
            return (x + y) * scale, {"x": x}

    assert summary(Sum(), input_size=[(2, 3), (2, 3)], scale=2.0).layers[0].output == [[2, 3]]
    assert summary(Sum(), (ut.ones(2), ut.ones(2))).layers[0].output == [[2]]
    assert summary(Sum(), x=ut.ones(1), y=ut.ones(1)).layers[0].output == [[1]]
    assert summary(ut.nn.Linear(3, 2), input_size=(4, 3)).layers[0].output == [4, 2]
    with pytest.raises(ValueError, match="needs an input"):
        summary(Sum())
    with pytest.raises(ValueError, match="mode must be"):
        summary(Sum(), ut.ones(1), mode="test")


def test_shared_modules_are_counted_once_and_called_twice() -> None:
    layer = ut.nn.Linear(3, 3)
    found = summary(ut.nn.Sequential(layer, layer), ut.ones(2, 3))
    assert found.total_params == 12 and found.total_flops == 2 * (2 * 2 * 9)


def test_how_it_is_shown() -> None:
    found = summary(Net(), ut.ones(1, 3, 6, 6), depth=1)
    text = str(found)
    assert "  conv: Conv2d" in text and "2: Linear" not in text and "trainable:" in text
    assert found._repr_html_().count("<tr>") == 6


# ---- errors


def test_an_error_names_the_module_by_its_path() -> None:
    model = ut.nn.Sequential(ut.nn.ModuleDict({"a": ut.nn.ReLU()})["a"], ut.nn.Sequential(ut.nn.Linear(4, 2)))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as raised:
        model(ut.ones(2, 3))
    note = "in 1.0: Linear(in_features=4, out_features=2, bias=True), called with [2, 3]"
    assert raised.value.__notes__ == [note]
    assert note in "".join(traceback.format_exception(raised.value))
    assert "in 1.0" not in str(raised.value)  # the message is PyTorch's


def test_shapes_that_a_layer_itself_refuses() -> None:
    model = ut.nn.TransformerEncoder(ut.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    with pytest.raises(AssertionError, match="expecting embedding dimension of 4, but got 7") as raised:
        model(ut.ones(2, 3, 7))
    assert raised.value.__notes__[0].startswith("in layers.0.self_attn: MultiheadAttention(")


def test_also_with_hooks_and_for_a_module_alone() -> None:
    layer = ut.nn.Linear(4, 2)
    layer.register_forward_hook(lambda module, args, output: None)
    with pytest.raises(RuntimeError) as raised:
        layer(ut.ones(2, 3))
    assert raised.value.__notes__ == ["in Linear(in_features=4, out_features=2, bias=True), called with [2, 3]"]


def test_a_module_that_is_nobodys_part_and_an_error_that_is_caught() -> None:
    class Outer(ut.nn.Module):
        def forward(self, x: Any) -> Any:
            try:
                return ut.nn.Linear(9, 9)(x)
            except RuntimeError:
                return ut.nn.Linear(5, 2)(x)

    with pytest.raises(RuntimeError) as raised:
        ut.nn.Sequential(Outer())(ut.ones(2, 3))
    assert len(raised.value.__notes__) == 1 and raised.value.__notes__[0].startswith("in 0: Linear(in_features=5")


def test_an_error_that_is_raised_again_is_told_anew() -> None:
    error = ValueError("mine")

    class Raises(ut.nn.Module):
        def forward(self, x: Any) -> Any:
            raise error

    model = ut.nn.Sequential(Raises())
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            model(1)
    assert error.__notes__[0] == "in 0: Raises(), called with int"


def test_errors_in_a_backward_pass_still_name_the_node() -> None:
    layer = ut.nn.Linear(3, 2)
    y = layer(ut.ones(1, 3))
    y.register_hook(lambda grad: layer(ut.ones(1, 4)).sum())
    with pytest.raises(RuntimeError) as raised:
        y.sum().backward()
    assert [note.split()[0] for note in raised.value.__notes__] == ["in", "undertow:"]
