"""Layers given no examples, inputs that broadcast, few dimensions, or masks that hide everything: as in PyTorch."""

from __future__ import annotations

import math
import warnings
from types import ModuleType

import numpy as np
import pytest

import undertow as ut


def rows(tensor: object) -> list:
    return np.round(tensor.detach().numpy().astype(np.float64), 4).tolist()  # type: ignore[attr-defined]


# ---- no examples


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_no_examples_keeps_its_statistics(L: ModuleType, affine: bool) -> None:
    norm = L.nn.BatchNorm1d(3, affine=affine)
    x = L.zeros(0, 3, requires_grad=True)
    norm(x).sum().backward()
    assert norm.running_mean.tolist() == [0, 0, 0] and norm.running_var.tolist() == [1, 1, 1]
    assert norm.num_batches_tracked.item() == 1 and tuple(x.grad.shape) == (0, 3)
    assert not affine or norm.weight.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_max_pool_of_no_examples(L: ModuleType, dims: int) -> None:
    x = L.zeros(0, 2, *[5] * dims, requires_grad=True)
    pool = getattr(L.nn, f"AdaptiveMaxPool{dims}d")(3, return_indices=True)
    values, places = pool(x)
    values.sum().backward()
    assert values.shape == places.shape == (0, 2, *[3] * dims) and x.grad.shape == x.shape


def test_margin_losses_of_no_examples(L: ModuleType) -> None:
    F = L.nn.functional
    scores = L.zeros(0, 3)
    assert F.multi_margin_loss(scores, L.zeros(0, dtype=L.int64), reduction="none").shape == (0,)
    assert F.multilabel_margin_loss(scores, L.zeros(0, 3, dtype=L.int64), reduction="none").shape == (0,)
    with pytest.raises(RuntimeError, match="Expected non-empty vector or matrix"):
        F.multi_margin_loss(L.zeros(2, 0), L.zeros(2, dtype=L.int64))


# ---- fewer checks, more broadcasting


def test_batch_norm_without_parameters_takes_any_channels(L: ModuleType) -> None:
    norm = L.nn.BatchNorm1d(2, affine=False, track_running_stats=False)
    assert rows(norm(L.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 5.0]]))) == [[-1, 0, -1], [1, 0, 1]]
    with pytest.raises(RuntimeError, match="running_mean should contain 3 elements not 2"):
        L.nn.BatchNorm1d(2, affine=False)(L.zeros(2, 3))


def test_cosine_similarity_along_a_dimension_of_the_broadcast_shape(L: ModuleType) -> None:
    x, y = L.tensor([[[3.0, 4.0]]]), L.tensor([4.0, 3.0])
    assert rows(L.nn.functional.cosine_similarity(x, y, dim=0)) == [[1, 1]]
    assert rows(L.nn.functional.cosine_similarity(x, y, dim=2)) == [[0.96]]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_embeddings_shorten_rows_by_indices_of_any_size(L: ModuleType, dtype: str) -> None:
    index = L.tensor([1, 1], dtype=getattr(L, dtype))
    for layer in (L.nn.Embedding(2, 2, max_norm=1.0), L.nn.EmbeddingBag(2, 2, max_norm=1.0, mode="sum")):
        layer.weight.data.copy_(L.tensor([[3.0, 4.0], [3.0, 4.0]]))
        layer(index if isinstance(layer, L.nn.Embedding) else index.reshape(1, 2))
        assert rows(layer.weight) == [[3, 4], [0.6, 0.8]]


def test_the_last_offset_ends_the_last_bag(L: ModuleType) -> None:
    table, index = L.eye(4), L.tensor([0, 1, 2, 3])
    bags = L.nn.functional.embedding_bag(index, table, L.tensor([0, 1, 3]), mode="sum", include_last_offset=True)
    assert bags.tolist() == [[1, 0, 0, 0], [0, 1, 1, 0]]


@pytest.mark.parametrize("option", ["sparse", "scale_grad_by_freq"])
def test_bags_by_their_largest_refuse(L: ModuleType, option: str) -> None:
    with pytest.raises(ValueError, match="max mode does not support"):
        L.nn.functional.embedding_bag(L.tensor([[0, 1]]), L.eye(2), mode="max", **{option: True})


# ---- dropout of channels


@pytest.mark.parametrize(
    ("name", "shape", "lead"),
    [
        ("dropout2d", (40, 50), 2),
        ("dropout2d", (4, 50, 3, 2, 2), 2),
        ("dropout3d", (50,), 1),
        ("dropout3d", (50, 3, 2), 1),
    ],
)
def test_dropout_of_channels_of_other_dimensions(L: ModuleType, name: str, shape: tuple[int, ...], lead: int) -> None:
    """A warning, and one draw for each place in the first dimensions."""
    with pytest.warns(UserWarning, match=f"Received a {len(shape)}-D input to {name}"):
        out = getattr(L.nn.functional, name)(L.ones(shape), 0.5)
    kept = (out.numpy() != 0).reshape(*shape[:lead], -1)
    assert (kept.all(-1) == kept.any(-1)).all() and 0 < kept.mean() < 1
    assert (out.numpy()[out.numpy() != 0] == 2).all()


@pytest.mark.parametrize("name", ["dropout2d", "feature_alpha_dropout"])
def test_dropout_of_channels_needs_channels(L: ModuleType, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = getattr(L.nn.functional, name)
        with pytest.raises(RuntimeError, match="Feature dropout requires at least 2 dimensions in the input"):
            function(L.ones(3), 0.5, True)
        assert function(L.ones(3), 0.0, True).tolist() == [1, 1, 1]


@pytest.mark.parametrize("inplace", [False, True])
def test_dropping_every_complex_number(L: ModuleType, inplace: bool) -> None:
    x = L.ones(2, 3, dtype=L.complex64)
    assert abs(L.nn.functional.dropout(x, 1.0, inplace=inplace)).sum().item() == 0


# ---- queries that see nothing


def hidden_row(L: ModuleType, kind: str) -> object:
    seen = L.tensor([[True, False], [False, False]])
    return seen if kind == "bool" else L.zeros(2, 2).masked_fill(~seen, -math.inf)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_nothing_gets_zeros(L: ModuleType, kind: str) -> None:
    x = L.tensor([[[1.0, 2.0], [3.0, 4.0]]], requires_grad=True)
    out = L.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=hidden_row(L, kind))
    out.sum().backward()
    assert out.tolist() == [[[1, 2], [0, 0]]] and x.grad.tolist() == [[[1, 1], [0, 0]]]


def test_padding_of_a_whole_sequence_does_not_spoil_the_others(L: ModuleType) -> None:
    """Transformers hide padding; where all is padding, nothing becomes NaN, neither values nor gradients."""
    L.manual_seed(0)
    layer = L.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    padding = L.tensor([[False, True], [True, True]])
    x = L.randn(2, 2, 4)
    out = layer(x, src_key_padding_mask=padding)
    out.sum().backward()
    assert bool(L.isfinite(out).all()) and all(bool(L.isfinite(p.grad).all()) for p in layer.parameters())


def test_weights_of_a_query_that_sees_nothing_are_nan(L: ModuleType) -> None:
    """If they are asked for: they are no weights, and are shown as such."""
    attention = L.nn.MultiheadAttention(2, 1, batch_first=True)
    x, hidden = L.ones(1, 2, 2), L.tensor([[True, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of -inf - -inf
        out, weights = attention(x, x, x, key_padding_mask=hidden)
    assert bool(L.isnan(out).all()) and bool(L.isnan(weights).all())
    out, weights = attention(x, x, x, key_padding_mask=hidden, need_weights=False)
    assert bool(L.isfinite(out).all()) and weights is None


# ---- tools


def test_no_sequences_cannot_be_padded(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="received an empty list of sequences"):
        L.nn.utils.rnn.pad_sequence([])


def test_a_number_is_no_vector_of_parameters(L: ModuleType) -> None:
    with pytest.raises(TypeError, match="but got: int"):
        L.nn.utils.vector_to_parameters(3, [L.zeros(1)])


# ---- windows


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_windows_without_elements_are_refused(dims: int) -> None:
    """PyTorch gives -inf, and writes its gradient to memory that is not the input's."""
    pool = getattr(ut.nn.functional, f"max_pool{dims}d")
    with pytest.raises(RuntimeError, match="a window lies in the padding alone"):
        pool(ut.ones(1, 1, *[1] * dims), 2, stride=1, padding=1, dilation=2)
    assert pool(ut.ones(1, 1, *[2] * dims), 2, stride=1, padding=1, dilation=2).numel() > 0
