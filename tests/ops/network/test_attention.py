"""Attention by blocks of scores: however they are cut, values and gradients are those of the plain formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.backend import kernels
from undertow.ops.network import fused_attention

SHAPES = [((5, 3), (7, 3), (7, 2)), ((2, 3, 40, 4), (2, 3, 40, 4), (2, 3, 40, 4)), ((3, 50, 2), (3, 20, 2), (3, 20, 5)),
          ((1, 1, 20, 3), (1, 1, 50, 3), (1, 1, 50, 3))]  # fmt: skip


def plain_attention(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    scores = ut.matmul(q / q.shape[-1] ** 0.5, k.transpose(-2, -1))
    if is_causal:
        scores = scores.masked_fill(~ut.ones(*scores.shape[-2:], dtype=ut.bool).tril(), float("-inf"))
    return ut.matmul(ut.softmax(scores, -1), v)


def leaves(shapes: Any, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [ut.tensor(rng.standard_normal(s), dtype=dtype, requires_grad=True) for s in shapes]


@pytest.fixture(params=[True, False], ids=["compiled", "pure"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(kernels, "core", None)


@pytest.mark.usefixtures("core")
@rows("dtype", [ut.float32, ut.float64])
@rows("block", [1, 100, 3000, 10**6])
@rows("is_causal", [False, True])
@rows("shapes", SHAPES)
def test_blocks(shapes: Any, is_causal: bool, block: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "BLOCK", block)
    inputs = leaves(shapes, dtype)
    expected = plain_attention(*inputs, is_causal)
    found = ut.nn.functional.scaled_dot_product_attention(*inputs, is_causal=is_causal)
    assert type(found.grad_fn).__name__ == "ScaledDotProductFlashAttentionForCpuBackward0"
    seed = ut.randn(*found.shape, dtype=dtype)
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype is ut.float32 else 1e-13}
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), **tolerance)
    for mine, theirs in zip(*(ut.autograd.grad(y, inputs, seed) for y in (found, expected)), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), **tolerance)


@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("block", [10, 10**6])
@pytest.mark.parametrize("wanted", range(3))
def test_one_gradient_alone(wanted: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention, "BLOCK", block)
    inputs = leaves(SHAPES[2], ut.float64)
    expected = ut.autograd.grad(plain_attention(*inputs, True).sum(), inputs[wanted])[0]
    for k, x in enumerate(inputs):
        x.requires_grad_(k == wanted)
    ut.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True).sum().backward()
    np.testing.assert_allclose(inputs[wanted].grad.numpy(), expected.numpy(), atol=1e-13)
    assert [x.grad is None for x in inputs].count(False) == 1


def test_scores_are_not_kept() -> None:
    q = ut.randn(2, 50, 4, requires_grad=True)
    node = ut.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn
    kept = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
    assert max(t.numel() for t in kept if isinstance(t, ut.Tensor)) == q.numel()


@pytest.mark.parametrize("change", [{"attn_mask": ut.zeros(5, 5)}, {"dropout_p": 0.5}], ids=["a mask", "dropout"])
def test_masks_and_dropout_take_the_longer_way(change: dict[str, Any]) -> None:
    q = ut.randn(2, 5, 4, requires_grad=True)
    out = ut.nn.functional.scaled_dot_product_attention(q, q, q, **change)
    assert type(out.grad_fn).__name__ != "ScaledDotProductFlashAttentionForCpuBackward0"


def test_heads_that_differ_in_number_take_the_longer_way() -> None:
    q, k = ut.randn(2, 4, 5, 3), ut.randn(1, 4, 5, 3)
    found = ut.nn.functional.scaled_dot_product_attention(q, k, k)
    np.testing.assert_allclose(found.numpy(), plain_attention(q, k, k, False).numpy(), atol=1e-6)


def test_no_queries_and_no_examples() -> None:
    for q_shape, k_shape in (((2, 0, 3), (2, 4, 3)), ((0, 4, 3), (0, 4, 3))):
        q, k = ut.ones(*q_shape, requires_grad=True), ut.ones(*k_shape, requires_grad=True)
        out = ut.nn.functional.scaled_dot_product_attention(q, k, k)
        out.sum().backward()
        assert (out.shape, q.grad.shape, k.grad.shape) == (q_shape, q_shape, k_shape)


def test_multihead_attention_that_returns_no_weights() -> None:
    ut.manual_seed(0)
    layer, x = ut.nn.MultiheadAttention(8, 2), ut.randn(5, 3, 8, requires_grad=True)
    results = []
    for need_weights in (True, False):
        out = layer(x, x, x, need_weights=need_weights)[0]
        results.append((out.detach().numpy(), ut.autograd.grad((out * out).sum(), x)[0].numpy()))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
