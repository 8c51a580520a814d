"""nn.functional: what it has, what it lacks, and what the table of modules does not reach."""

from __future__ import annotations

import math
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.nn import functional as F

#: names of torch.nn.functional that are no functions of arrays, or belong to hardware
NOT_MEANT = """
ScalingType SwizzleType assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function
has_torch_function_unary has_torch_function_variadic native_channel_shuffle scaled_grouped_mm scaled_mm
""".split()

#: functions that undertow does not have (yet)
ABSENT: list[str] = []


def test_the_namespace(torch: ModuleType) -> None:
    theirs = {
        name
        for name, value in vars(torch.nn.functional).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
        and getattr(value, "__module__", "") not in ("typing", "collections.abc")
    }  # fmt: skip
    missing = sorted(name for name in theirs if not hasattr(F, name) and name not in NOT_MEANT)
    assert missing == [name for name in sorted(ABSENT) if name in theirs]


def grad_of(x: Any) -> np.ndarray:
    """Zeros if there is none: for rounded places PyTorch says so, undertow None."""
    return np.zeros(tuple(x.shape)) if x.grad is None else x.grad.numpy()


def both(torch: Any, call: Any, *arrays: np.ndarray) -> None:
    """The same values and gradients in both libraries."""
    results = []
    for L in (ut, torch):
        inputs = [L.tensor(a).requires_grad_(a.dtype.kind == "f") for a in arrays]
        out = call(L, L.nn.functional, *inputs)
        (out * L.tensor(np.cos(np.arange(out.numel())).reshape(tuple(out.shape)))).sum().backward()
        results.append([out.detach().numpy(), *[grad_of(x) for x in inputs if x.requires_grad]])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape)


def attention(**options: Any) -> Any:
    """scaled_dot_product_attention with masks that are made for the library."""

    def call(L: Any, F: Any, q: Any, *rest: Any) -> Any:
        given = {name: value(L) if callable(value) else value for name, value in options.items()}
        return F.scaled_dot_product_attention(q, *(rest or (q, q)), **given)

    return call


def factors(L: Any) -> Any:
    return L.arange(12.0, dtype=L.float64).reshape(3, 4)


SMALL, OTHER = normal(3, 4), normal(4, 3).T.copy()

CALLS = {
    "sdpa": (attention(), normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 2)),
    "sdpa causal": (attention(is_causal=True, scale=0.3), normal(2, 5, 4)),
    "sdpa bool mask": (attention(attn_mask=lambda L: L.ones(5, 5).tril().bool()), normal(2, 5, 4)),
    "sdpa float mask": (attention(attn_mask=lambda L: L.tensor(normal(5, 5))), normal(2, 5, 4)),
    "sdpa grouped": (attention(enable_gqa=True), normal(1, 4, 5, 3), normal(1, 2, 6, 3), normal(1, 2, 6, 2)),
    "weighted mse": (lambda L, F, x, y: F.mse_loss(x, y, weight=factors(L)), SMALL, OTHER),
    "weighted l1": (lambda L, F, x, y: F.l1_loss(x, y, reduction="none", weight=factors(L)), SMALL, OTHER),
    "weighted huber": (lambda L, F, x, y: F.huber_loss(x, y, "sum", weight=factors(L)), SMALL, OTHER),
    "relu by position": (lambda L, F, x: F.relu(x * 1, True), SMALL),
    "leaky in place": (lambda L, F, x: F.leaky_relu_(x * 1, 0.3), SMALL),
    "elu in place": (lambda L, F, x: F.elu(x * 1, 0.7, inplace=True), SMALL),
    "rrelu": (lambda L, F, x: F.rrelu(x), SMALL),
    "softmax dtype": (lambda L, F, x: F.softmax(x, 1, dtype=L.float64), SMALL),
    "softmin": (lambda L, F, x: F.softmin(x, dim=0), SMALL),
    "unpool 1": (lambda L, F, x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2), normal(2, 3, 8)),
    "unpool 2": (
        lambda L, F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(5, 7)),
        normal(2, 3, 5, 7),
    ),
    "unpool 3": (lambda L, F, x: F.max_unpool3d(*F.max_pool3d_with_indices(x, 2), 2), normal(1, 2, 4, 4, 4)),
    "upsample": (lambda L, F, x: F.interpolate(x, scale_factor=2.0), normal(1, 2, 3)),
    "fold": (lambda L, F, x: F.fold(F.unfold(x, 2), (4, 5), 2), normal(1, 2, 4, 5)),
    "embedding": (lambda L, F, w: F.embedding(L.tensor([[1, 3]]), w, padding_idx=-1), normal(4, 3)),
    "one hot": (lambda L, F, x: x * F.one_hot(L.tensor([0, 2, 1]), 4), SMALL),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CALLS)
def test_like_pytorch(torch: ModuleType, name: str) -> None:
    call, *arrays = CALLS[name]
    both(torch, call, *arrays)


# ---- sampling


@pytest.mark.torch
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(torch: ModuleType, mode: str, padding_mode: str, align_corners: bool) -> None:
    grid = np.random.default_rng(5).uniform(-1.7, 1.7, size=(2, 3, 4, 2))
    call = lambda L, F, x, g: F.grid_sample(x, g, mode, padding_mode, align_corners)
    both(torch, call, normal(2, 3, 5, 6), grid)


@pytest.mark.torch
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_of_volumes(torch: ModuleType, mode: str, padding_mode: str) -> None:
    grid = np.random.default_rng(5).uniform(-1.3, 1.3, size=(2, 3, 2, 4, 3))
    both(torch, lambda L, F, x, g: F.grid_sample(x, g, mode, padding_mode, False), normal(2, 3, 4, 5, 6), grid)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("size", "align_corners"),
    [((2, 1, 4, 5), False), ((2, 1, 4, 5), True), ((2, 1, 1, 5), False), ((2, 1, 3, 4, 5), False)],
)
def test_affine_grid(torch: ModuleType, size: tuple[int, ...], align_corners: bool) -> None:
    dims = len(size) - 2
    both(torch, lambda L, F, theta: F.affine_grid(theta, size, align_corners), normal(2, dims, dims + 1))


def test_sampling_refuses(L: ModuleType) -> None:
    F = L.nn.functional
    x, grid = L.ones(1, 1, 3, 3), L.zeros(1, 2, 2, 2)
    with pytest.raises(ValueError, match="expected mode to be"):
        F.grid_sample(x, grid, "cubic", align_corners=False)
    with pytest.raises(ValueError, match="expected padding_mode to be"):
        F.grid_sample(x, grid, padding_mode="none", align_corners=False)
    with pytest.raises(RuntimeError, match="expected grid to have size 2 in last dimension"):
        F.grid_sample(x, L.zeros(1, 2, 2, 3), align_corners=False)
    with pytest.raises(ValueError, match="Expected a batch of 2D affine matrices of shape Nx2x3"):
        F.affine_grid(L.ones(1, 3, 3), (1, 1, 2, 2), align_corners=False)
    with pytest.warns(UserWarning, match="align_corners=False since 1.3.0"):
        F.grid_sample(x, grid)


# ---- attention with masks


@pytest.mark.torch
@pytest.mark.parametrize("masks", ["padding", "bool", "float", "all heads", "both"])
def test_attention_masks(torch: ModuleType, masks: str) -> None:
    theirs = torch.nn.MultiheadAttention(8, 2).double()
    ours = ut.nn.MultiheadAttention(8, 2).double()
    ours.load_state_dict(theirs.state_dict())
    x = normal(5, 3, 8)
    padding = np.arange(5) >= np.array([[5], [3], [4]])
    causal = np.triu(np.ones((5, 5), bool), 1)
    results = []
    for L, layer in ((ut, ours), (torch, theirs)):
        given = {
            "padding": {"key_padding_mask": L.tensor(padding)},
            "bool": {"attn_mask": L.tensor(causal)},
            "float": {"attn_mask": L.tensor(normal(5, 5))},
            "all heads": {"attn_mask": L.tensor(normal(6, 5, 5))},
            "both": {"key_padding_mask": L.tensor(padding), "attn_mask": L.tensor(causal)},
        }[masks]
        query = L.tensor(x, requires_grad=True)
        out, weights = layer(query, query, query, average_attn_weights=False, **given)
        (out**2).sum().backward()
        assert layer(query, query, query, need_weights=False, **given)[1] is None
        results.append([t.detach().numpy() for t in (out, weights, query.grad, layer.in_proj_weight.grad)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda L, a, x: a(x[0, 0], x, x), AssertionError, "query should be unbatched 2D or batched 3D"),
        (lambda L, a, x: a(x, x[0], x), AssertionError, "expected `key` and `value` to be 3-D"),
        (lambda L, a, x: a(x, x, x, attn_mask=L.ones(2, 2)), RuntimeError, "The shape of the 2D attn_mask"),
        (lambda L, a, x: a(x, x, x, is_causal=True), RuntimeError, "Need attn_mask if specifying the is_causal hint"),
        (lambda L, a, x: L.nn.MultiheadAttention(7, 2), AssertionError, "embed_dim must be divisible by num_heads"),
        (lambda L, a, x: L.nn.MultiheadAttention(0, 2), ValueError, "must be greater than 0"),
    ],
)  # fmt: skip
def test_attention_refuses(L: ModuleType, call: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        call(L, L.nn.MultiheadAttention(8, 2), L.ones(5, 3, 8))


# ---- random functions


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("inplace", [False, True])
def test_dropout_keeps_the_mean(L: ModuleType, name: str, inplace: bool) -> None:
    dims = {"dropout": 1, "dropout1d": 1, "dropout2d": 2, "dropout3d": 3}[name]
    x = L.ones(100, 100, *[2] * dims)
    out = getattr(L.nn.functional, name)(x, 0.3, True, inplace)
    assert (out is x) == inplace
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert np.unique(out.numpy()).tolist() == pytest.approx([0, 1 / 0.7])
    if name != "dropout":
        channels = out.flatten(2)
        assert L.equal(channels, channels[..., :1].expand_as(channels))


def test_alpha_dropout_keeps_mean_and_variance(L: ModuleType) -> None:
    x = L.nn.functional.selu(L.randn(300, 300))
    for name in ("alpha_dropout", "feature_alpha_dropout"):
        out = getattr(L.nn.functional, name)(x, 0.2, True)
        assert out.mean().item() == pytest.approx(0, abs=0.02) and out.std().item() == pytest.approx(1, abs=0.02)
        assert getattr(L.nn.functional, name)(x, 0.2, False) is x or L.equal(x, out) is False


def test_gumbel_softmax(L: ModuleType) -> None:
    logits = L.log(L.tensor([0.1, 0.2, 0.7])).expand(4000, 3).clone().requires_grad_()
    hard = L.nn.functional.gumbel_softmax(logits, hard=True)
    assert hard.detach().mean(0).tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.03)
    assert ((hard == 0) | ((hard - 1).abs() < 1e-5)).all()
    (hard[:, 0]).sum().backward()
    assert logits.grad.abs().sum() > 0
    soft = L.nn.functional.gumbel_softmax(logits, tau=0.5)
    assert L.allclose(soft.sum(1), L.ones(4000))


def test_rrelu_draws_slopes(L: ModuleType) -> None:
    out = L.nn.functional.rrelu(-L.ones(1000), 0.2, 0.4, training=True)
    assert -0.4 <= out.min().item() < -0.35 and -0.25 < out.max().item() <= -0.2


def test_implicit_dim_warns(L: ModuleType) -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        out = L.nn.functional.softmax(L.zeros(2, 4))
    assert out[0, 0].item() == 0.25


def test_embedding_shortens_rows(L: ModuleType) -> None:
    table = L.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    out = L.nn.functional.embedding(L.tensor([0, 1]), table, max_norm=1.0)
    assert out.norm(dim=1).tolist() == pytest.approx([1.0, 0.5], rel=1e-4)
    assert table[2].norm().item() == 10 and table[0].norm().item() == pytest.approx(1, rel=1e-4)


def test_causal_and_mask_together_are_refused(L: ModuleType) -> None:
    x = L.ones(2, 3, 4)
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal=True"):
        L.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=L.ones(3, 3), is_causal=True)


def test_masked_places_get_no_gradient() -> None:
    x = ut.randn(1, 4, 2, requires_grad=True)
    F.scaled_dot_product_attention(x, x, x, is_causal=True)[0, 0].sum().backward()
    assert x.grad[0, 1:].abs().sum() == 0 and math.isfinite(x.grad.sum().item())


# ---- how losses were reduced in older programs


@pytest.mark.parametrize(
    ("old", "reduction"),
    [
        ({"size_average": False}, "sum"),
        ({"size_average": True}, "mean"),
        ({"reduce": False}, "none"),
        ({"reduce": True, "size_average": False}, "sum"),
    ],
)
def test_old_arguments_of_losses(L: ModuleType, old: dict[str, bool], reduction: str) -> None:
    x, t = L.randn(3, 4), L.tensor([0, 3, 1])
    functional = L.nn.functional
    with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
        found = functional.cross_entropy(x, t, **old)
    assert L.equal(found, functional.cross_entropy(x, t, reduction=reduction))
    with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
        loss = L.nn.CrossEntropyLoss(**old)
    assert loss.reduction == reduction and L.equal(loss(x, t), found)
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
        found = functional.mse_loss(x, x * 2, **old)
    assert L.equal(found, functional.mse_loss(x, x * 2, reduction=reduction))


#: what PyTorch gives
OLD_RESULTS = {
    "cross_entropy": [3.3555],
    "nll_loss": [-0.4545],
    "mse_loss": [1.6102, 1.1089, 0.7104, 0.4051, 0.1865, 0.0512, 0.0003, 0.0385, 0.1735, 0.4145, 0.7713, 1.2526],
    "l1_loss": [7.7311],
    "kl_div": [-0.9623],
    "binary_cross_entropy_with_logits": [
        0.5822,
        0.6312,
        0.668,
        0.689,
        0.6921,
        0.6769,
        0.645,
        0.5996,
        0.5449,
        0.4852,
        0.4243,
        0.3653,
    ],
    "smooth_l1_loss": [5.1426],
    "poisson_nll_loss": [23.9092],
    "soft_margin_loss": [0.5282],
}


@pytest.mark.parametrize(
    ("name", "further"),
    [
        ("cross_entropy", (None, None, 3, None, "sum", 0.1)), ("nll_loss", (None, False, 3)),
        ("mse_loss", (None, None, "none")), ("l1_loss", (False,)), ("kl_div", (None, None, "sum", True)),
        ("binary_cross_entropy_with_logits", (None, None, False)), ("smooth_l1_loss", (None, None, "sum", 0.5)),
        ("poisson_nll_loss", (True, False, None, 1e-3, None, "sum")), ("soft_margin_loss", (None, True)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_old_arguments_of_losses_have_their_places(L: ModuleType, name: str, further: tuple[object, ...]) -> None:
    x = L.linspace(-1, 2, 12).reshape(3, 4)
    target = L.tensor([0, 3, 1]) if name in ("cross_entropy", "nll_loss") else x.sigmoid()
    found = getattr(L.nn.functional, name)(x, target, *further)
    assert [round(value, 4) for value in found.reshape(-1).tolist()] == OLD_RESULTS[name]


def test_old_arguments_of_classes_of_losses_have_their_places(L: ModuleType) -> None:
    x, t = L.linspace(-1, 2, 12).reshape(3, 4), L.tensor([0, 3, 1])
    assert L.nn.MSELoss(None, None, "sum").reduction == "sum"
    loss = L.nn.CrossEntropyLoss(None, None, 3, None, "sum")
    assert loss.ignore_index == 3 and L.equal(
        loss(x, t), L.nn.functional.cross_entropy(x, t, ignore_index=3, reduction="sum")
    )
    with pytest.raises(TypeError, match="positional argument"):
        L.nn.GaussianNLLLoss(True)


def test_a_margin_of_one_example_has_the_shape_of_its_target(L: ModuleType) -> None:
    x, loss = L.randn(5), L.nn.functional.multi_margin_loss
    assert loss(x, L.tensor(3), reduction="none").shape == ()
    assert loss(x, L.tensor([3]), reduction="none").shape == (1,)


def test_functions_can_be_pickled() -> None:
    for function in (F.gelu, F.relu, F.cross_entropy, F.tanh, ut.tanh, ut.sum, ut.absolute, ut.clip):
        assert pickle.loads(pickle.dumps(function)) is function


# ---- not a number, and other odd values


@pytest.mark.parametrize(
    "name",
    "relu relu6 elu celu selu gelu silu mish leaky_relu hardtanh hardsigmoid hardswish softplus softshrink hardshrink "
    "tanhshrink softsign sigmoid tanh logsigmoid rrelu".split(),
)
def test_nan_stays_nan(L: ModuleType, name: str) -> None:
    """A training that diverges must show."""
    found = getattr(L.nn.functional, name)(L.tensor([float("nan"), 1.0]))
    assert bool(found[0].isnan()) and not bool(found[1].isnan())


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_exponential_units_at_their_kink_and_below(L: ModuleType, name: str) -> None:
    x = L.tensor([-1000.0, -1.0, 0.0, 1.0, 1000.0], requires_grad=True)
    getattr(L.nn.functional, name)(x).sum().backward()
    assert bool(x.grad.isfinite().all()) and x.grad[0].item() == 0


def test_a_variance_given_as_a_number(L: ModuleType) -> None:
    input, target = L.tensor([[1.0, 2.0]]), L.tensor([[0.0, 4.0]])
    loss = L.nn.functional.gaussian_nll_loss
    assert L.equal(loss(input, target, 2.0), loss(input, target, L.full((1, 2), 2.0)))
    with pytest.raises(ValueError, match="var has negative entry/entries"):
        loss(input, target, -1.0)


def test_groups_of_one_value(L: ModuleType) -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        L.nn.functional.group_norm(L.ones(1, 4), 4)
    assert L.nn.functional.group_norm(L.ones(2, 4), 4).shape == (2, 4)


def test_norms_by_name(L: ModuleType) -> None:
    grads = [L.tensor([1.0, -3.0]), L.tensor([2.0])]
    assert L.nn.utils.get_total_norm(grads, norm_type="inf").item() == 3


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_at_nan(torch: ModuleType, mode: str, padding: str) -> None:
    image, grid = np.ones((1, 1, 4, 4), "float32"), np.full((1, 1, 2, 2), np.nan, "float32")
    options = {"mode": mode, "padding_mode": padding, "align_corners": False}
    ours = F.grid_sample(ut.from_numpy(image), ut.from_numpy(grid), **options)
    theirs = torch.nn.functional.grid_sample(torch.from_numpy(image), torch.from_numpy(grid), **options)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
