"""Layers and tools that few programs use: adaptive softmax, orthogonal weights, fused batch norms."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def carried_over(mine: Any, theirs: Any, torch: ModuleType) -> None:
    """Give PyTorch's module the state of ours."""
    theirs.load_state_dict({name: torch.from_numpy(t.numpy().copy()) for name, t in mine.state_dict().items()})


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12))


# ---- adaptive softmax


@pytest.mark.torch
@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("cutoffs", [[3], [2, 5, 11]])
def test_adaptive_softmax_is_that_of_torch(torch: ModuleType, cutoffs: list[int], head_bias: bool) -> None:
    arguments = (8, 16, cutoffs, 2.0, head_bias)
    mine = ut.nn.AdaptiveLogSoftmaxWithLoss(*arguments).double()
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(*arguments).double()
    assert repr(mine) == repr(theirs)
    carried_over(mine, theirs, torch)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 8)) * 3, rng.integers(0, 16, 30)
    a, b = mine(ut.tensor(x), ut.tensor(y)), theirs(torch.tensor(x), torch.tensor(y))
    assert close(a.output, b.output) and close(a.loss, b.loss)
    a.loss.backward()
    b.loss.backward()
    assert all(close(p.grad, q.grad) for p, q in zip(mine.parameters(), theirs.parameters(), strict=True))
    assert close(mine.log_prob(ut.tensor(x)), theirs.log_prob(torch.tensor(x)))
    assert mine.predict(ut.tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()
    single = mine(ut.tensor(x[0]), ut.tensor(y[0]))
    assert single.output.shape == () and ut.allclose(single.output, a.output[0])


def test_adaptive_softmax_is_a_distribution() -> None:
    softmax = ut.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0)
    assert ut.allclose(softmax.log_prob(ut.randn(5, 8)).exp().sum(1), ut.ones(5))


def test_what_adaptive_softmax_refuses(L: ModuleType) -> None:
    make = L.nn.AdaptiveLogSoftmaxWithLoss
    for cutoffs in ([], [5, 3], [0], [20], [3, 3]):
        with pytest.raises(ValueError, match="cutoffs should be a sequence"):
            make(8, 20, cutoffs)
    softmax = make(8, 20, [4])
    with pytest.raises(RuntimeError, match="same size in the batch dimension"):
        softmax(L.ones(2, 8), L.tensor([1]))
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 19\]"):
        softmax(L.ones(1, 8), L.tensor([20]))
    with pytest.raises(RuntimeError, match="multi-target not supported"):
        softmax(L.ones(1, 8), L.tensor([[1]]))


# ---- orthogonal weights


@pytest.mark.torch
@pytest.mark.parametrize("map", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal_weights_are_those_of_torch(torch: ModuleType, shape: tuple[int, int], map: str | None) -> None:
    mine, theirs = (L.nn.Linear(shape[1], shape[0]).double() for L in (ut, torch))
    carried_over(mine, theirs, torch)
    for L, layer in ((ut, mine), (torch, theirs)):
        assert L.nn.utils.parametrizations.orthogonal(layer, "weight", map) is layer
    with ut.no_grad():
        mine.parametrizations.weight.original += 0.3 * ut.randn(*shape, dtype=ut.float64)
    carried_over(mine, theirs, torch)
    x = np.random.default_rng(0).normal(size=(2, shape[1]))
    a, b = mine(ut.tensor(x)), theirs(torch.tensor(x))
    (a**3).sum().backward()
    (b**3).sum().backward()
    assert close(a, b)
    assert close(mine.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad)


@pytest.mark.parametrize("map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal_weights_stay_so_while_they_are_trained(shape: tuple[int, int], map: str) -> None:
    layer = ut.nn.utils.parametrizations.orthogonal(ut.nn.Linear(shape[1], shape[0]).double(), "weight", map)
    optimizer = ut.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        layer(ut.randn(3, shape[1], dtype=ut.float64)).square().sum().backward()
        optimizer.step()
    tall = layer.weight if shape[0] >= shape[1] else layer.weight.t()
    assert ut.allclose(tall.t() @ tall, ut.eye(min(shape), dtype=ut.float64), atol=1e-9)


def test_an_orthogonal_weight_keeps_its_value_and_can_be_assigned() -> None:
    layer = ut.nn.Linear(4, 4).double()
    with ut.no_grad():
        ut.nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().clone()
    ut.nn.utils.parametrizations.orthogonal(layer)
    assert ut.allclose(layer.weight, before)
    turned = before.flip(0).clone()
    layer.weight = turned
    assert ut.allclose(layer.weight, turned)


def test_what_orthogonal_refuses(L: ModuleType) -> None:
    orthogonal = L.nn.utils.parametrizations.orthogonal
    with pytest.raises(ValueError, match="has no parameter or buffer with name"):
        orthogonal(L.nn.Linear(2, 2), "absent")
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices"):
        orthogonal(L.nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        orthogonal(L.nn.Linear(2, 2), "weight", "magic")


# ---- fused layers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fused_convolutions(L: ModuleType, bias: bool, affine: bool) -> None:
    for conv, transpose in ((L.nn.Conv2d(3, 4, 3, bias=bias), False), (L.nn.ConvTranspose2d(3, 4, 3, bias=bias), True)):
        norm = L.nn.BatchNorm2d(4, affine=affine)
        x = L.randn(5, 3, 6, 6)
        norm(conv(x))  # to have statistics
        with pytest.raises(AssertionError, match="Fusion only for eval!"):
            L.nn.utils.fuse_conv_bn_eval(conv, norm, transpose)
        fused = L.nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval(), transpose)
        assert L.allclose(fused(x), norm(conv(x)), atol=1e-5) and fused.weight is not conv.weight


def test_fused_linear_layers(L: ModuleType) -> None:
    layer, norm = L.nn.Linear(3, 4), L.nn.BatchNorm1d(4)
    x = L.randn(5, 3)
    norm(layer(x))
    fused = L.nn.utils.fuse_linear_bn_eval(layer.eval(), norm.eval())
    assert L.allclose(fused(x), norm(layer(x)), atol=1e-5)
    with pytest.raises(AssertionError, match="To fuse"):
        L.nn.utils.fuse_linear_bn_eval(layer, L.nn.BatchNorm1d(3).eval())


# ---- weights computed by a hook


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, None])
def test_the_older_weight_norm(L: ModuleType, dim: int | None) -> None:
    plain = L.nn.Conv1d(3, 4, 2)
    x, before = L.randn(2, 3, 5), plain.weight.detach().clone()
    expected = plain(x)
    layer = L.nn.utils.weight_norm(plain, dim=dim)
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    assert layer.weight_g.shape == {0: (4, 1, 1), 1: (1, 3, 1), None: ()}[dim]
    assert L.allclose(layer(x), expected, atol=1e-6)
    layer(x).square().sum().backward()
    assert layer.weight_g.grad is not None and layer.weight_v.grad is not None
    with L.no_grad():
        layer.weight_g.mul_(2)
    assert L.allclose(layer(x)[0] - layer.bias[:, None], 2 * (expected[0] - layer.bias[:, None]), atol=1e-5)
    with pytest.raises(RuntimeError, match="Cannot register two"):
        L.nn.utils.weight_norm(L.nn.utils.weight_norm(L.nn.Linear(2, 2), "weight"), "weight")
    L.nn.utils.remove_weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and L.allclose(layer.weight, 2 * before, atol=1e-6)
    with pytest.raises(ValueError, match="not found in"):
        L.nn.utils.remove_weight_norm(layer)


@pytest.mark.torch
@pytest.mark.parametrize("transposed", [False, True])
def test_the_older_spectral_norm_is_that_of_torch(torch: ModuleType, transposed: bool) -> None:
    name = "ConvTranspose1d" if transposed else "Conv1d"
    mine, theirs = (L.nn.utils.spectral_norm(getattr(L.nn, name)(3, 4, 2).double(), "weight", 2) for L in (ut, torch))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    carried_over(mine, theirs, torch)
    x = np.random.default_rng(0).normal(size=(2, 3, 5))
    for _ in range(3):
        a, b = mine(ut.tensor(x)), theirs(torch.tensor(x))
        assert close(a, b)
        a.square().sum().backward()
        b.square().sum().backward()
    assert close(mine.weight_orig.grad, theirs.weight_orig.grad) and close(mine.weight_u, theirs.weight_u)
    assert close(mine.eval()(ut.tensor(x)), theirs.eval()(torch.tensor(x)))
    for _ in range(100):
        mine.train()(ut.tensor(x))
    flat = mine.weight.detach().movedim(int(transposed), 0).flatten(1)
    assert ut.linalg.matrix_norm(flat, 2).item() == pytest.approx(1, rel=1e-6)
    ut.nn.utils.remove_spectral_norm(mine)
    assert sorted(mine.state_dict()) == ["bias", "weight"]


# ---- fractional pooling


@pytest.mark.torch
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fractional_pooling_is_that_of_torch(torch: ModuleType, dims: int, batched: bool) -> None:
    rng = np.random.default_rng(0)
    sizes, counts = (7, 9, 8)[:dims], (3, 4, 1)[:dims]
    x, samples = rng.normal(size=((2, 3) if batched else (3,)) + sizes), rng.random(size=(2 if batched else 1, 3, dims))
    found = []
    for L in (ut, torch):
        input = L.tensor(x, requires_grad=True)
        pool = getattr(L.nn.functional, f"fractional_max_pool{dims}d")
        for options in ({"output_size": counts}, {"output_ratio": (0.5,) * dims}):
            out, places = pool(input, 2, return_indices=True, _random_samples=L.tensor(samples), **options)
            (out**2).sum().backward()
            found.append((out.detach().numpy(), places.numpy(), input.grad.numpy().copy()))
    for mine, theirs in zip(found[:2], found[2:], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_fractional_pooling_on_a_device() -> None:
    out = ut.nn.FractionalMaxPool2d(2, output_size=3)(ut.randn(1, 2, 7, 7).to("sim:0"))
    assert str(out.device) == "sim:0" and out.shape == (1, 2, 3, 3)


def test_fractional_pooling_modules(L: ModuleType) -> None:
    x = L.randn(2, 3, 8, 8)
    assert L.nn.FractionalMaxPool2d(2, output_size=(3, 5))(x).shape == (2, 3, 3, 5)
    out, places = L.nn.FractionalMaxPool2d(3, output_ratio=0.5, return_indices=True)(x)
    assert L.equal(x.flatten(2).gather(2, places.flatten(2)), out.flatten(2))
    assert L.nn.FractionalMaxPool3d(2, output_size=2)(L.randn(1, 1, 4, 4, 4)).shape == (1, 1, 2, 2, 2)
    with pytest.raises(ValueError, match="either an output size, or a pooling ratio"):
        L.nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="only one of output_size and output_ratio"):
        L.nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5)
    with pytest.raises(ValueError, match="output_ratio must be between 0 and 1"):
        L.nn.FractionalMaxPool2d(2, output_ratio=1.5)
    with pytest.raises(RuntimeError, match="too large relative to"):
        L.nn.FractionalMaxPool2d(3, output_size=8)(x)


# ---- the last layer with its loss


@pytest.mark.torch
@pytest.mark.parametrize("outputs", [(), (2, 3)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 1, "label_smoothing": 0.1}, {"reduction": "none"}])
def test_linear_cross_entropy(torch: ModuleType, outputs: tuple[int, ...], bias: bool, options: dict[str, Any]) -> None:
    mine, theirs = (
        L.nn.LinearCrossEntropyLoss(4, 5, out_features=outputs, bias=bias, **options).double() for L in (ut, torch)
    )
    carried_over(mine, theirs, torch)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 4)), rng.integers(0, 5, (6, *outputs))
    a, b = mine(ut.tensor(x), ut.tensor(y)), theirs(torch.tensor(x), torch.tensor(y))
    assert close(a, b)
    a.sum().backward()
    b.sum().backward()
    assert all(close(p.grad, q.grad) for p, q in zip(mine.parameters(), theirs.parameters(), strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("probabilities", [False, True])
def test_linear_cross_entropy_some_rows_at_a_time(torch: ModuleType, reduction: str, probabilities: bool) -> None:
    rng = np.random.default_rng(0)
    x, w, b, weight = (rng.normal(size=s) for s in [(7, 3), (5, 3), (5,), (5,)])
    y = np.abs(rng.normal(size=(7, 5))) if probabilities else rng.integers(0, 5, 7)
    found = []
    for L, size in ((ut, None), (ut, 2), (torch, None if probabilities else 2)):
        options = (
            None if size is None else L.nn.LinearCrossEntropyOptions(allow_retain_graph=True, batch_chunk_size=size)
        )
        leaves = [L.tensor(a, requires_grad=True) for a in (x, w, b)]
        loss = L.nn.functional.linear_cross_entropy(
            *leaves[:2], L.tensor(y), linear_bias=leaves[2], weight=L.tensor(np.abs(weight)), reduction=reduction,
            ignore_index=None if probabilities else 1, options=options,
        )  # fmt: skip
        found.append([loss, *L.autograd.grad(loss.sum(), leaves)])
    for alone, mine, theirs in zip(*found, strict=True):
        assert close(mine, theirs) and ut.allclose(mine, alone)


def test_chunks_keep_no_logits_and_have_second_derivatives() -> None:
    x, w, y = ut.randn(8, 2, requires_grad=True), ut.randn(40, 2), ut.arange(8)
    F, kept = ut.nn.functional, []
    with ut.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        loss = F.linear_cross_entropy(
            x, w, y, options=ut.nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:1")
        )
    assert max(kept, default=0) <= w.numel()
    (grad,) = ut.autograd.grad(loss, x, create_graph=True)
    assert ut.allclose(ut.autograd.grad((grad**2).sum(), x)[0], second_derivative(x, w, y), atol=1e-6)


def second_derivative(x: Any, w: Any, y: Any) -> Any:
    (grad,) = ut.autograd.grad(ut.nn.functional.linear_cross_entropy(x, w, y), x, create_graph=True)
    return ut.autograd.grad((grad**2).sum(), x)[0]


def test_options_of_chunks(L: ModuleType) -> None:
    options = L.nn.LinearCrossEntropyOptions
    for wrong in ({"acc_policy": "x"}, {"batch_chunk_size": 0}, {"chunking_method": "aspect_ratio:0"}):
        with pytest.raises(ValueError, match=r"invalid|positive"):
            options(**wrong)
    x, w, y = L.ones(8, 2), L.ones(16, 2), L.zeros(8, dtype=L.int64)
    with pytest.raises(ValueError, match=r"(?i)chunk"):
        L.nn.functional.linear_cross_entropy(
            x, w, y, options=options(batch_chunk_size=5, chunking_method="aspect_ratio")
        )


def test_what_linear_cross_entropy_refuses(L: ModuleType) -> None:
    loss = L.nn.functional.linear_cross_entropy
    target = L.tensor([0, 1])
    with pytest.raises(RuntimeError, match="dimensionality 1 or 2"):
        loss(L.ones(1, 2, 3), L.ones(4, 3), target)
    with pytest.raises(RuntimeError, match="expected equal input and linear_weight last dimensions"):
        loss(L.ones(2, 3), L.ones(4, 2), target)
    with pytest.raises(RuntimeError, match="expected linear_bias shape"):
        loss(L.ones(2, 3), L.ones(4, 3), target, linear_bias=L.ones(3))
    with pytest.raises(RuntimeError, match="requires batched input"):
        loss(L.ones(3), L.ones(4, 2, 3), target)
    with pytest.raises(RuntimeError, match="ignore_index cannot be specified"):
        loss(L.ones(2, 3), L.ones(4, 3), L.ones(2, 4), ignore_index=1)


# ---- groups of rows, with a matrix each

STACK, MATRIX = (3, 4, 4), (4, 16)


@pytest.mark.torch
@pytest.mark.parametrize("shapes", [((16, 4), STACK), (STACK, MATRIX), (MATRIX, (16, 8)), (STACK, STACK)])
def test_grouped_mm(torch: ModuleType, shapes: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]
    found = []
    for L in (ut, torch):
        a, b = leaves = [L.tensor(x, requires_grad=True) for x in arrays]
        offs = None if shapes == (STACK, STACK) else L.tensor([4, 4, 16], dtype=L.int32)
        out = L.nn.functional.grouped_mm(a, b, offs=offs)
        found.append([out, *L.autograd.grad((out**2).sum(), leaves)])
    assert all(close(mine, theirs) for mine, theirs in zip(*found, strict=True))


def test_what_grouped_mm_refuses(L: ModuleType) -> None:
    a, b, offs = L.ones(16, 4), L.ones(3, 4, 8), L.tensor([4, 8, 16], dtype=L.int32)
    for message, options in {
        "Have to provide offsets": {},
        "Offsets have to be int32": {"offs": offs.long()},
        "batch sizes have to match": {"offs": offs[:2]},
        "Bias not supported": {"offs": offs, "bias": L.ones(8)},
        "output dtype must match": {"offs": offs, "out_dtype": L.bfloat16},
    }.items():
        with pytest.raises(RuntimeError, match=message):
            L.nn.functional.grouped_mm(a, b, **options)


def test_grouped_mm_of_rows_behind_the_last_group() -> None:
    out = ut.nn.functional.grouped_mm(ut.ones(4, 2), ut.ones(1, 2, 3), offs=ut.tensor([2], dtype=ut.int32))
    assert out.sum(1).tolist() == [6, 6, 0, 0]
    with pytest.raises(RuntimeError, match="to at most 4, but it is"):
        ut.nn.functional.grouped_mm(ut.ones(4, 2), ut.ones(1, 2, 3), offs=ut.tensor([5], dtype=ut.int32))


@pytest.mark.torch
def test_linear_cross_entropy_loss_prints_its_arguments(torch: ModuleType) -> None:
    mine, theirs = [
        L.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), weight=L.ones(4), ignore_index=1, reduction="sum")
        for L in (ut, torch)
    ]
    assert repr(mine) == repr(theirs)


def test_huber_loss_wants_a_number() -> None:
    with pytest.raises(TypeError, match="delta must be a float or int, got: <class 'complex'>"):
        ut.nn.HuberLoss(delta=1j)  # type: ignore[arg-type]
