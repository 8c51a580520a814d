"""Watching a backward pass: what is recorded of it, and that recording changes nothing."""

from __future__ import annotations

import gc
import json
import re
import weakref
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow.instrument.replay.facts import formula
from undertow.instrument.replay.recording import Busy
from undertow.modes import current
from undertow.nn.module.calling import EVERYWHERE


class Nodes:
    """The nodes of the first pass of a recording, by their columns."""

    def __init__(self, watching: Any) -> None:
        (self.recorded,) = watching.content()["passes"]
        self.columns = self.recorded["nodes"]
        self.names = self.recorded["names"]

    def texts(self, column: str) -> list[str]:
        return [self.names[k] for k in self.columns[column]]

    def of(self, title: str) -> int:
        return self.texts("title").index(title)


def a_model() -> ut.nn.Module:
    return ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.Tanh(), ut.nn.Sequential(ut.nn.Linear(8, 2)))


# ---- the recording


def test_graph_order_and_gradients_of_a_pass() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).exp().sum()
    nodes = Nodes(ut.instrument.watch(y, path=None))
    assert nodes.texts("title") == ["MulBackward0", "ExpBackward0", "SumBackward0", "AccumulateGrad"]
    assert nodes.recorded["edges"] == [0, 3, 0, 1, 0, 0, 2, 1, 0]
    begins = nodes.columns["begin"]
    assert begins[2] < begins[1] < begins[0] < begins[3]
    assert all(b <= e for b, e in zip(begins, nodes.columns["end"], strict=True))
    norm, low, high, nans, infinite, histogram = nodes.columns["gradient"][3]
    assert (low, high) == pytest.approx(tuple(x.grad.tolist())) and norm == pytest.approx(float(x.grad.norm()))
    assert nans == infinite == 0 and sum(histogram) == 2


def test_gradients_and_lifetimes_are_those_without_it() -> None:
    model, x = a_model(), ut.randn(3, 4)
    model(x).pow(2).sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with ut.instrument.watch(path=None) as watching:
        loss = model(x).pow(2).sum()
        node = weakref.ref(loss.grad_fn)
        loss.backward()
    assert all(bool((p.grad == w).all()) for p, w in zip(model.parameters(), wanted, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    del loss
    gc.collect()
    assert node() is None  # the recording keeps text and numbers
    assert len(watching.passes) == 1 and current().intercept is None and EVERYWHERE == []


def test_modules_by_path_in_a_block() -> None:
    model = a_model()
    with ut.instrument.watch(path=None) as watching:
        model(ut.ones(3, 4)).sum().backward()
    nodes = Nodes(watching)
    paths = dict(zip(nodes.texts("title"), nodes.texts("path"), strict=True))
    assert paths["TanhBackward0"] == "1" and paths["SumBackward0"] == ""
    linear = [p for t, p in zip(nodes.texts("title"), nodes.texts("path"), strict=True) if t == "LinearBackward0"]
    assert linear == ["0", "2.0"]
    assert set(nodes.texts("leaf")) - {""} == {"0.weight", "0.bias", "2.0.weight", "2.0.bias"}
    assert {name for name, *_ in nodes.recorded["forward"]} == {"linear", "tanh", "sum"}


def test_modules_by_the_names_of_parameters_afterwards() -> None:
    model = ut.nn.Sequential(ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.Tanh(), ut.nn.Linear(8, 2)), ut.nn.Linear(2, 2))
    loss = model(ut.ones(3, 4)).sum()
    nodes = Nodes(ut.instrument.watch(loss, path=None, model=model))
    paths = [p for t, p in zip(nodes.texts("title"), nodes.texts("path"), strict=True) if t != "AccumulateGrad"]
    assert paths == ["0.0", "0", "0.2", "1", ""]


def test_functions_take_the_place_of_modules() -> None:
    def inner(x: Any) -> Any:
        return x.exp()

    nodes = Nodes(ut.instrument.watch(inner(ut.ones(2, requires_grad=True)).sum(), path=None))
    here = "test_functions_take_the_place_of_modules"
    assert nodes.texts("path")[:2] == [f"{here}.inner", here]
    assert nodes.texts("source")[0] == "return x.exp()" and nodes.texts("line")[0].startswith(__file__)


def test_what_nodes_save_their_rules_and_hooks() -> None:
    x = ut.ones(2, 3, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda grad: None)
    nodes = Nodes(ut.instrument.watch((y * x).sum(), path=None))
    k = nodes.of("MulBackward0")
    assert nodes.columns["saved"][k][0][:4] == ["other", "[2, 3]", "float32", 24]
    assert nodes.texts("formula")[k].splitlines() == ["input: g * xp.conj(other)", "other: g * xp.conj(input)"]
    assert nodes.columns["hooks"][nodes.of("ExpBackward0")] == ["tensor hook on output 0"]


def test_where_nan_begins() -> None:
    x = ut.tensor([0.0, 1.0], requires_grad=True)
    nodes = Nodes(ut.instrument.watch((x.sqrt() * 0).sum() + x.exp().sum(), path=None))
    origins = [t for t, o in zip(nodes.texts("title"), nodes.columns["origin"], strict=True) if o]
    assert origins == ["SqrtBackward0"]


def test_a_pass_that_fails_is_shown_as_far_as_it_came() -> None:
    class Fails(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("on purpose")

    x = ut.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="on purpose"), ut.instrument.watch(path=None) as watching:
        Fails.apply(x.exp()).sum().backward()
    nodes = Nodes(watching)
    assert nodes.recorded["error"].startswith("ValueError: on purpose")
    assert nodes.columns["failed"][nodes.of("FailsBackward")] == 1
    assert nodes.columns["begin"][nodes.of("ExpBackward0")] is None


def test_several_passes_and_threads_of_devices() -> None:
    with ut.sim.configure(devices=2), ut.instrument.watch(path=None) as watching:
        x = ut.ones(3, requires_grad=True)
        ((x.to("sim:0") * 2).to("cpu") + (x.to("sim:1") * 3).to("cpu")).sum().backward()
        x.sum().backward()
    assert x.grad.tolist() == [6.0] * 3
    first, second = watching.content()["passes"]
    assert len(first["threads"]) >= 3 and len(second["threads"]) == 1
    times = [time for time, _ in first["memory"]]
    assert times == sorted(times) and min(alive for _, alive in first["memory"]) >= 0
    assert {first["names"][k] for k in first["nodes"]["device"]} == {"cpu", "sim:0", "sim:1"}


def test_a_pass_inside_a_pass_and_a_recorded_one() -> None:
    x = ut.ones(2, requires_grad=True)
    with ut.instrument.watch(path=None) as watching:
        (grad,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
        grad.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0] and len(watching.passes) == 2


def test_sparse_complex_and_integer_gradients_are_no_obstacle() -> None:
    table = ut.nn.Embedding(5, 3, sparse=True)
    z = ut.tensor([1 + 2j], requires_grad=True)
    with ut.instrument.watch(path=None):
        table(ut.tensor([1, 2])).sum().backward()
        (z * z.conj()).real.sum().backward()
    assert table.weight.grad.is_sparse and z.grad.tolist() == [2 + 4j]


def test_the_clock_stands_still_while_nothing_runs() -> None:
    busy = Busy([1000, 5000, None], [2000, 6000, None], 0)
    assert [busy.time(t) for t in (0, 1000, 2000, 3000, 5000, 6000)] == [0, 200, 1200, 1400, 1400, 2400]
    assert busy.time(-5) == 0


def test_a_path_for_a_block_and_what_is_refused(tmp_path: Path) -> None:
    with ut.instrument.watch(tmp_path / "page.html") as watching:
        pass
    assert watching.path == str(tmp_path / "page.html") and (tmp_path / "page.html").exists()
    with pytest.raises(TypeError, match="takes the tensor whose backward"):
        ut.instrument.watch(3)  # type: ignore[arg-type]


def test_formulas_of_rules_that_are_more_than_an_expression() -> None:
    def rule(xp: Any, g: Any, out: Any) -> Any:
        return g

    assert formula(rule) == "rule(xp, g, out)"


# ---- the page


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    x = ut.ones(2, requires_grad=True)
    ut.instrument.watch((x * 2).sum(), path=tmp_path / "page.html", title="</script><b>&")
    text = (tmp_path / "page.html").read_text()
    found = re.search(r'<script type="application/json" id="recording">(.*?)</script>', text, re.DOTALL)
    assert found is not None and json.loads(found[1])["title"] == "</script><b>&"
    assert "<title>&lt;/script&gt;&lt;b&gt;&amp;</title>" in text
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|url\(""", text)


def test_in_a_notebook() -> None:
    watching = ut.instrument.watch((ut.ones(2, requires_grad=True) * 2).sum(), path=None)
    assert watching._repr_html_().startswith("<iframe srcdoc=")
