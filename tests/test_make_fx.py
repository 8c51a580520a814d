"""`make_fx`: what a function computes, as a graph. See also tests/ops/test_traced.py, for every operation."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from undertow.fx.experimental.proxy_tensor import make_fx
from undertow.fx.passes.shape_prop import ShapeProp

import undertow as ut
from undertow import nn

F = nn.functional


def names(traced: Any) -> list[str]:
    return [node.target.__name__ for node in traced.graph.nodes if node.op == "call_function"]


def network() -> tuple[nn.Module, dict[str, ut.Tensor]]:
    ut.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 3))
    return model, dict(model.named_parameters())


def test_linear_layers_and_convolutions_are_what_pytorch_writes_down(torch: ModuleType) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx as reference

    def function(library: Any) -> Any:
        f = library.nn.functional
        return lambda x, w, b, k: (
            f.linear(x, w, b),
            f.linear(x[None], w),
            f.linear(x[None, None], w, b),
            f.linear(x[None].transpose(0, 1), w, b),
            f.conv2d(x[None, None], k, padding=1),
            f.conv_transpose2d(x[None, None], k, stride=2, output_padding=1),
        )

    def told(traced: Any) -> list[Any]:
        found = [n for n in traced.graph.nodes if n.op == "call_function"]
        number = {n: k for k, n in enumerate(traced.graph.nodes)}
        shown = lambda v: number.get(v, v)
        arguments = lambda n: [shown(a) if not isinstance(a, list) else list(a) for a in n.args]
        return [(str(n.target).split(".")[1].strip("_"), arguments(n)) for n in found if "view" not in str(n.target)]

    shapes = (4, 3), (2, 3), (2,), (1, 1, 3, 3)
    ours = make_fx(function(ut))(*[ut.rand(*s) for s in shapes])
    theirs = reference(function(torch))(*[torch.rand(*s) for s in shapes])
    kinds = ("t", "addmm", "mm", "convolution")
    assert [row for row in told(ours) if row[0] in kinds[:1]] == [row for row in told(theirs) if row[0] in kinds[:1]]
    of_kind = lambda rows: [(name, args[3:]) for name, args in rows if name in kinds]
    assert of_kind(told(ours)) == of_kind(told(theirs))


def test_a_whole_step_with_its_backward_pass() -> None:
    model, params = network()

    def step(params: Any, x: ut.Tensor, y: ut.Tensor) -> Any:
        loss = F.cross_entropy(ut.func.functional_call(model, params, (x,)), y)
        return {"loss": loss, "grads": ut.autograd.grad(loss, list(params.values()))}

    traced = make_fx(step)(params, ut.rand(5, 1, 4, 4), ut.tensor([0, 1, 2, 0, 1]))
    other = {name: ut.rand_like(p).requires_grad_() for name, p in params.items()}, ut.rand(4 + 1, 1, 4, 4)
    got, expected = traced(*other, ut.tensor([2, 1, 0, 1, 1])), step(*other, ut.tensor([2, 1, 0, 1, 1]))
    ut.testing.assert_close(got, expected)
    assert len([n for n in traced.graph.nodes if n.op == "placeholder"]) == len(params) + 2
    with pytest.raises(TypeError, match="was traced with arguments of the structure"):
        traced(list(other[0].values()), other[1], ut.tensor([2, 1, 0, 1, 1]))
    assert "convolution" in names(traced) and not traced.state_dict().get("0.weight")


@pytest.mark.parametrize("transform", ["grad", "vmap", "hessian", "jacfwd", "batched"])
def test_transformations_are_traced_below(transform: str) -> None:
    f = lambda x: (x.exp() * x.tanh()).sum()
    g = lambda x: x.exp() * x[0]
    function: Any = {
        "grad": ut.func.grad(f),
        "vmap": lambda x: ut.vmap(ut.func.grad(f))(x.expand(2, 3)),
        "hessian": ut.func.hessian(f),
        "jacfwd": ut.func.jacfwd(g),
        "batched": lambda x: ut.autograd.grad(g(x.requires_grad_()), x, ut.eye(3), is_grads_batched=True)[0],
    }[transform]
    traced = make_fx(function)(ut.rand(3))
    x = ut.rand(3)
    ut.testing.assert_close(traced(x), function(x.clone()))
    assert all([type(node.meta["val"]) is ut.Tensor for node in traced.graph.nodes if "val" in node.meta])


def test_the_graph_can_be_differentiated() -> None:
    traced = make_fx(ut.func.grad(lambda x: (x.exp() + x.sin()).sum()))(ut.rand(3))
    x = ut.rand(3, requires_grad=True)
    (second,) = ut.autograd.grad(traced(x).sum(), x)
    ut.testing.assert_close(second, x.exp() - x.sin())
    cut = make_fx(lambda x: x * x.detach() * ut.vmap(lambda row: row.data)(x))(ut.rand(3))
    (slope,) = ut.autograd.grad(cut(x).sum(), x)
    ut.testing.assert_close(slope, (x * x).detach())


def test_tensors_made_on_the_way_are_made_anew_in_each_run() -> None:
    def function(x: ut.Tensor) -> ut.Tensor:
        total = ut.zeros(3)
        total += x
        total[1] = 7.0
        return total + ut.vmap(lambda row: ut.ones(()).mul_(2) + row)(x)

    traced = make_fx(function)(ut.rand(3))
    for _ in range(2):
        x = ut.rand(3)
        ut.testing.assert_close(traced(x), function(x))


def test_what_the_function_finds_elsewhere_is_changed_by_each_run_and_by_a_fake_trace_not_at_all() -> None:
    counter, x = ut.zeros(()), ut.ones(2)

    def function(x: ut.Tensor) -> ut.Tensor:
        counter.add_(1)
        return x.mul_(2) + ut.rand(2)

    state = ut.random.get_rng_state()
    traced = make_fx(function, tracing_mode="fake")(x)
    assert counter.item() == 0 and x.tolist() == [1, 1] and ut.equal(state, ut.random.get_rng_state())
    traced(x)
    assert counter.item() == 1 and x.tolist() == [2, 2]
    make_fx(function)(x)
    assert counter.item() == 2 and x.tolist() == [4, 4]


def test_functionalize_leaves_no_changes_in_the_graph() -> None:
    model, params = network()
    function = ut.func.functionalize(lambda params, x: ut.func.functional_call(model, params, (x,)))
    x = ut.rand(2, 1, 4, 4)
    traced = make_fx(function)(params, x)
    assert "relu" in names(traced) and not [name for name in names(traced) if name.endswith("_")]
    ut.testing.assert_close(traced(params, x), function(params, x))
    changing = make_fx(ut.func.functionalize(lambda x: x.mul_(3).sum()))(ut.ones(2))
    y = ut.ones(2)
    assert changing(y).item() == 6 and y.tolist() == [3, 3]  # an input is changed all the same, at the end


def test_random_numbers_are_drawn_in_each_run() -> None:
    traced = make_fx(lambda x: F.dropout(x) + ut.rand(4))(ut.ones(4))
    ut.manual_seed(1)
    got = traced(ut.ones(4))
    ut.manual_seed(1)
    ut.testing.assert_close(got, F.dropout(ut.ones(4)) + ut.rand(4))
    assert not ut.equal(got, traced(ut.ones(4)))


def test_what_cannot_be_traced_is_refused() -> None:
    for function in (
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * x.sum().item(),
        lambda x: ut.tensor(x.tolist()),
    ):
        with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
            make_fx(function)(ut.ones(2))
    assert make_fx(lambda x: x * ut.tensor(3.0).item())(ut.ones(1))(ut.ones(1)).item() == 3
    with pytest.raises(NotImplementedError, match="symbolic"):
        make_fx(lambda x: x, tracing_mode="symbolic")


def test_functions_that_are_no_operations_are_nodes() -> None:
    traced = make_fx(lambda x: (ut.unique(x), x[x > 0.5].sum(), ut.tensor([1.0, 2.0]) * x))(ut.rand(2))
    x = ut.tensor([0.7, 0.7])
    assert [t.tolist() for t in traced(x)] == [[pytest.approx(0.7)], pytest.approx(1.4), pytest.approx([0.7, 1.4])]


def test_decompositions_take_the_place_of_operations() -> None:
    table = {ut.fx.experimental.proxy_tensor.Overloads("aten", "sigmoid", None): lambda x: 1 / (1 + (-x).exp())}
    traced = make_fx(lambda x: x.sigmoid(), decomposition_table=table)(ut.zeros(1))
    assert "sigmoid" not in names(traced) and "exp" in names(traced) and traced(ut.zeros(1)).item() == 0.5


def test_shapes_are_written_down_by_running_a_graph() -> None:
    traced = ut.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    ShapeProp(traced).propagate(ut.ones(5, 3))
    assert [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes] == [(5, 3), (5, 2), (5, 2), (5, 2)]


def test_under_a_mode_a_tensor_is_unequal_to_what_it_knows_nothing_of() -> None:
    names: list[str] = []

    class Names(ut.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = ut.ones(1)
    with Names():
        assert x != "text" and [x] != [None]
    assert names == ["__ne__", "__eq__"]


def test_dispatch_modes_are_shown_pytorchs_arguments() -> None:
    """Counters of operations read them: nine of a convolution, and the product that a linear layer is."""
    from undertow.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), len(args)))
            return func(*args, **(kwargs or {}))

    convolution, linear = ut.nn.Conv2d(3, 8, 3), ut.nn.Linear(4, 2)
    x, rows = ut.rand(1, 3, 8, 8), ut.rand(5, 4)
    with Seen():
        maps, out = convolution(x), linear(rows)
    assert ("aten.convolution.default", 9) in seen and "aten.addmm.default" in [name for name, _ in seen]
    assert ut.equal(maps, convolution(x)) and ut.allclose(out, linear(rows))
    out.sum().backward()
    assert linear.weight.grad is not None
