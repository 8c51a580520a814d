"""Attention with functions of scores and masks, against one that takes a row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from undertow.nn.attention import flex_attention as flex

import undertow as ut
from tests.rows import rows


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def near(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return abs(q - kv) <= 2


def late(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return (q > 2) & (kv < 4)


SLOPES, LENGTHS = ut.tensor([0.5, -1.0, 2.0, 0.1], dtype=ut.float64), ut.tensor([3, 5])


def slanted(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return score + SLOPES[h] * (kv - q)


def short(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return kv < LENGTHS[b]


#: a function of scores, a mask, for how many batches and heads it is made, and the size of its blocks
CASES: dict[str, Any] = {
    "plain": (None, None, (), 0),
    "scores": (slanted, None, (), 0),
    "mask": (None, causal, (2, 4), 4),
    "both": (slanted, flex.and_masks(causal, near), (None, None), 4),
    "either": (None, flex.or_masks(causal, near), (2, 1), 128),
    "lengths": (None, short, (2, None), 128),
    "rows of nothing": (None, late, (1, 1), 2),
}


def by_hand(q: Any, k: Any, v: Any, score_mod: Any, mask: Any, scale: float) -> tuple[Any, Any]:
    """The result and the logarithms of sums, one row at a time."""
    out, lse = np.zeros_like(q), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*q.shape[:3]):
        at = [j for j in range(k.shape[2]) if mask(*map(ut.tensor, (b, h, i, j)))]
        scores = np.array([score_mod(q[b, h, i] @ k[b, h, j] * scale, b, h, i, j) for j in at])
        if at:
            lse[b, h, i] = np.log(np.exp(scores).sum())
            out[b, h, i] = np.exp(scores - lse[b, h, i]) @ v[b, h, at]
    return out, lse


@rows("name", list(CASES))
def test_it_is_what_each_row_gives_by_hand(name: str) -> None:
    score_mod, mask, sizes, block = CASES[name]
    q, k, v = [np.random.default_rng(n).normal(size=(2, 4, 7, 8)) for n in range(3)]
    expected = by_hand(q, k, v, score_mod or (lambda score, *at: score), mask or (lambda *at: True), 0.3)
    blocks = None if mask is None else flex.create_block_mask(mask, *sizes, 7, 7, BLOCK_SIZE=block)
    found = flex.flex_attention(*map(ut.tensor, (q, k, v)), score_mod, blocks, 0.3, return_lse=True)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-10, atol=1e-12)


def test_gradients_reach_everything_that_the_functions_use() -> None:
    q, k, v = [ut.randn(1, 2, 3, 4, dtype=ut.float64, requires_grad=True) for _ in range(3)]
    slope = ut.randn(2, dtype=ut.float64, requires_grad=True)
    mask = flex.create_block_mask(causal, 1, 1, 3, 3, BLOCK_SIZE=2)

    def attention(q: Any, k: Any, v: Any, slope: Any) -> Any:
        return flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + slope[h] * (i - j), mask)

    assert ut.autograd.gradcheck(attention, (q, k, v, slope))


def test_blocks() -> None:
    mask = flex.create_block_mask(causal, 1, 1, 512, 512)
    assert mask.to_dense().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]]]
    assert mask.shape == (1, 1, 512, 512) and mask.sparsity() == 37.5 and "37.50%" in repr(mask)
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 1, 1]]] and mask.full_kv_num_blocks.tolist() == [[[0, 1, 2, 3]]]
    assert mask.BLOCK_SIZE == (flex._DEFAULT_SPARSE_BLOCK_SIZE,) * 2
    again = flex.BlockMask.from_kv_blocks(
        mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices, mask_mod=causal
    )
    assert ut.equal(again.allowed((1, 1, 512, 512), None), flex.create_mask(causal, 1, 1, 512, 512))


def test_what_it_refuses() -> None:
    x = ut.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        flex.flex_attention(x, x[:, :1], x[:, :1])
    assert flex.flex_attention(x, x[:, :1], x[:, :1], enable_gqa=True).shape == x.shape
    with pytest.raises(NotImplementedError, match="4D"):
        flex.flex_attention(x[0], x[0], x[0])
