"""vmap of what is more than one operation: the loop's results, in undertow as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def tensor(L: ModuleType, values: Any, dtype: str = "float32") -> Any:
    return L.tensor(np.asarray(values).tolist(), dtype=getattr(L, dtype))


def normal(L: ModuleType, *shape: int) -> Any:
    return tensor(L, np.random.default_rng(0).standard_normal(shape))


def leaves(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, tuple | list) else [result]


def assert_is_the_loop(L: ModuleType, function: Callable[..., Any], in_dims: tuple[Any, ...], *args: Any) -> None:
    """vmap gives what calls for each example give, stacked."""
    size = next(a.shape[0] for a, d in zip(args, in_dims, strict=True) if d == 0)
    examples = [[a if d is None else a[k] for a, d in zip(args, in_dims, strict=True)] for k in range(size)]
    expected = [leaves(function(*example)) for example in examples]
    for k, found in enumerate(leaves(L.func.vmap(function, in_dims)(*args))):
        np.testing.assert_allclose(found.detach().numpy(), [e[k].detach().numpy() for e in expected], 1e-5, 1e-5)


# Where PyTorch's vmap can be asked, it must agree; its loops warn that they are slow.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_unpool(L: ModuleType, dims: int, in_dims: tuple[Any, ...]) -> None:
    functional = L.nn.functional
    batch = normal(L, 3, 2, *[4] * dims)
    pooled, places = getattr(functional, f"max_pool{dims}d")(batch, 2, return_indices=True)
    unpool = getattr(functional, f"max_unpool{dims}d")
    args = [a if d == 0 else a[0] for a, d in zip((pooled, places), in_dims, strict=True)]
    assert_is_the_loop(L, lambda p, i: unpool(p, i, 2), in_dims, *args)


def test_max_unpool_checks_its_places(L: ModuleType) -> None:
    for place in (99, -1):
        with pytest.raises(RuntimeError, match="invalid max index"):
            L.nn.functional.max_unpool1d(L.ones(1, 1, 1), tensor(L, [[[place]]], "int64"), 2)


@pytest.mark.parametrize("name", ["mean", "var", "std", "sum"])
def test_masked_reductions(L: ModuleType, name: str) -> None:
    reduce = getattr(L.masked, name)
    x, mask = normal(L, 3, 4, 5), normal(L, 3, 4, 5) > -0.5
    assert_is_the_loop(L, lambda t, m: reduce(t, 1, mask=m), (0, 0), x, mask)
    assert_is_the_loop(L, lambda t, m: reduce(t, 1, mask=m), (0, None), x, mask[0])
    assert_is_the_loop(L, lambda t, m: reduce(t, 1, mask=m), (None, 0), x[0], mask)


def test_masked_mean_on_a_mask_of_the_cpu_keeps_its_values() -> None:
    x, mask = ut.tensor([[1.0, 2.0], [3.0, 4.0]]), ut.tensor([[True, True], [True, False]])
    assert ut.masked.mean(x, 1, mask=mask).tolist() == [1.5, 3.0]
    assert ut.masked.var(x, 1).tolist() == [0.5, 0.5] and ut.masked.mean(x, 1).tolist() == [1.5, 3.5]


def test_repeat_interleave(L: ModuleType) -> None:
    x, counts = normal(L, 3, 4), tensor(L, [1, 0, 2, 1], "int64")
    assert_is_the_loop(L, lambda t: L.repeat_interleave(t, counts), (0,), x)
    if L is ut:  # PyTorch does not take counts of each example
        each = tensor(L, [[1, 0, 2, 1], [2, 2, 0, 0], [1, 1, 1, 1]], "int64")
        assert_is_the_loop(L, lambda t, c: L.repeat_interleave(t, c), (0, 0), x, each)


@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_ranges_between_tensors(L: ModuleType, name: str) -> None:
    starts, ends = tensor(L, [0.0, 1.0, -1.0]), tensor(L, [1.0, 3.0, 0.5])
    between = getattr(L, name)
    assert_is_the_loop(L, lambda a, b: between(a, b, 4), (0, 0), starts, ends)
    assert_is_the_loop(L, lambda a, b: between(a, b, 4), (0, None), starts, ends[0])


def test_ctc_loss(L: ModuleType) -> None:
    log_probs = normal(L, 3, 6, 2, 4).log_softmax(-1)
    targets = tensor(L, [[[1, 2], [3, 1]], [[2, 2], [1, 3]], [[3, 3], [1, 2]]], "int64")
    lengths, sizes = tensor(L, [6, 5], "int64"), tensor(L, [2, 2], "int64")
    loss = lambda x, t: L.nn.functional.ctc_loss(x, t, lengths, sizes, reduction="none")
    assert_is_the_loop(ut if L is ut else L, loss, (0, None), log_probs, targets[0])
    if L is ut:
        assert_is_the_loop(L, loss, (0, 0), log_probs, targets)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_statistics_of_each_example(L: ModuleType, name: str) -> None:
    norm, flag = getattr(L.nn.functional, name), {"batch_norm": "training", "instance_norm": "use_input_stats"}[name]
    x = normal(L, 3, 4, 2, 5)
    call = lambda t, m, v: norm(t, m, v, **{flag: True})
    means, variances = L.zeros(3, 2), L.ones(3, 2)
    found = L.func.vmap(call)(x, means, variances)
    for k in range(3):
        mean, variance = L.zeros(2), L.ones(2)
        expected = call(x[k], mean, variance)
        for got, wanted in ((found[k], expected), (means[k], mean), (variances[k], variance)):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-5, 1e-5)


def test_running_statistics_that_all_examples_share_are_refused(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"batched|examples"):
        L.func.vmap(L.nn.BatchNorm1d(3))(normal(L, 2, 4, 3))
    assert L.func.vmap(L.nn.BatchNorm1d(3).eval())(normal(L, 2, 4, 3)).shape == (2, 4, 3)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: ut.nn.LSTM(3, 5, 2), (4, 7, 3)),
        (lambda: ut.nn.GRU(3, 5, bidirectional=True), (4, 2, 7, 3)),
        (lambda: ut.nn.RNN(3, 5, batch_first=True), (4, 2, 7, 3)),
        (lambda: ut.nn.LSTM(3, 5, proj_size=2), (4, 7, 3)),
        (lambda: ut.nn.LSTMCell(3, 5), (4, 3)),
    ],
    ids=["lstm", "gru", "rnn", "projected", "cell"],
)
def test_recurrent_layers(make: Any, shape: tuple[int, ...]) -> None:
    """PyTorch has no batching rule for these."""
    layer = make()
    x = normal(ut, *shape)
    assert_is_the_loop(ut, layer, (0,), x)
    weights = {name: p.detach() for name, p in layer.named_parameters()}
    loss = lambda w, t: leaves(ut.func.functional_call(layer, w, (t,)))[0].sum()
    found = ut.func.vmap(ut.func.grad(loss), (None, 0))(weights, x)
    for name, gradient in ut.func.grad(loss)(weights, x[2]).items():
        np.testing.assert_allclose(found[name][2].numpy(), gradient.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1), (4,)], ids=str)
def test_gaussian_nll_loss_takes_one_dimension_of_size_one(L: ModuleType, shape: tuple[int, ...]) -> None:
    x, y, variance = normal(L, 4, 3), L.zeros(4, 3), normal(L, *shape).abs() + 0.5
    loss = L.nn.functional.gaussian_nll_loss
    wide = variance[:, None] if shape == (4,) else variance
    expected = loss(x, y, wide.expand(4, 3).clone())
    assert loss(x, y, variance).item() == pytest.approx(expected.item(), rel=1e-5)
    with pytest.raises(ValueError, match="var is of incorrect size"):
        loss(x, y, L.ones(1, 1))


# ---- what transformations return


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_values_and_aux_have_no_history(L: ModuleType, chunk_size: int | None) -> None:
    transforms = L.func
    x, w = normal(L, 4, 3), L.ones(3)
    loss = lambda w, t: ((w * t) ** 2).sum()
    for weight, recorded in ((w, False), (w.clone().requires_grad_(), True)):
        both = transforms.vmap(transforms.grad_and_value(loss), (None, 0), chunk_size=chunk_size)(weight, x)
        with_aux = transforms.grad(lambda w, t: (loss(w, t), w * t), has_aux=True)
        more = transforms.vmap(with_aux, (None, 0), chunk_size=chunk_size)(weight, x)
        assert [t.requires_grad for t in (*both, *more)] == [recorded] * 4
    outputs = transforms.vmap(lambda t: transforms.vjp(L.sin, t)[0], chunk_size=chunk_size)(x)
    assert not outputs.requires_grad


def test_a_function_is_told_of_tuples_as_tuples(L: ModuleType) -> None:
    told: list[Any] = []

    class Product(L.autograd.Function):
        @staticmethod
        def forward(pair: Any, sizes: Any) -> Any:
            return pair[0] * pair[1]

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, pair: Any, sizes: Any) -> Any:
            told.append((in_dims, type(pair), sizes))
            return pair[0] * pair[1], 0

    x = normal(L, 4, 3)
    L.func.vmap(lambda a, b: Product.apply((a, b), (3, 3)))(x, x)
    L.func.vmap(lambda a: Product.apply([a, x[0]], [3]))(x)
    assert told == [(((0, 0), (None, None)), tuple, (3, 3)), (([0, None], [None]), list, [3])]


# ---- changes of a tensor's history


def looked_at_again(L: ModuleType, x: Any) -> Any:
    y = x.clone()
    with L.no_grad():
        y.unsqueeze_(0).squeeze_(0)
    return (y * y).sum()


def cut_off(L: ModuleType, x: Any) -> Any:
    return (x.clone().detach_() * x).sum()


@pytest.mark.parametrize("function", [looked_at_again, cut_off])
def test_histories_of_tensors_changed_in_place(L: ModuleType, function: Any) -> None:
    """An in-place view keeps the history also under no_grad, and detach_ ends it: as without vmap."""
    x = tensor(L, [[1.0, 2.0], [3.0, 4.0]])
    gradient = L.func.grad(lambda row: function(L, row))
    assert L.func.vmap(gradient)(x).tolist() == [gradient(row).tolist() for row in x]


def test_tangents_keep_their_history_in_an_in_place_view() -> None:
    forward = ut.autograd.forward_ad
    x = ut.ones(3, requires_grad=True)
    with forward.dual_level():
        y = forward.make_dual(x, ut.ones(3)) ** 3
        with ut.no_grad():
            y.unsqueeze_(0)
        tangent = forward.unpack_dual(y).tangent
        assert ut.autograd.grad(tangent.sum(), x)[0].tolist() == [6.0] * 3
