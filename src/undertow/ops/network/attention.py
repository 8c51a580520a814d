"""Attention: values weighted by how well queries and keys agree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.graph.user_lines import warn_user
from undertow.modes import no_grad
from undertow.ops.create.creation import ones
from undertow.ops.create.like import new_zeros, zeros_like
from undertow.ops.declare.composite_order import arrays_among, rearranged
from undertow.ops.index.masks import masked_fill
from undertow.ops.linalg.matmul import bmm, matmul
from undertow.ops.network.dropout import dropout
from undertow.ops.network.fused_attention import fused_attention, is_plain_attention
from undertow.ops.network.linear import linear
from undertow.ops.network.softmax import _safe_softmax, softmax
from undertow.ops.pointwise.comparison_logic_bits import logical_not
from undertow.ops.reduce.sums_and_products import mean
from undertow.ops.shape.joining import cat
from undertow.ops.shape.padding import pad
from undertow.ops.shape.repeat import repeat, repeat_interleave
from undertow.ops.shape.triangles_and_diagonals import tril
from undertow.ops.views.dimensions import expand, squeeze, transpose, unsqueeze
from undertow.ops.views.reshape import reshape
from undertow.ops.views.splitting import chunk

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Array,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value, over the last two dimensions.

    attn_mask   bool: where it is True, attention is paid; float: added to the scores. A query that may see nothing gets
                zeros.
    is_causal   a query sees only keys up to its own place
    scale       1 / sqrt(size of the last dimension) if None
    enable_gqa  fewer heads of keys and values (dimension -3) than of queries, each used several times
    dropout_p   the probability with which a weight is dropped; 0 when a model is used

    >>> import undertow as ut
    >>> x = ut.eye(2)
    >>> ut.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)[0].tolist()
    [1.0, 0.0]
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (repeat_interleave(x, repeats, -3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if attn_mask is None and dropout_p == 0 and is_plain_attention(query, key, value):
        return fused_attention(query, key, value, is_causal, scale)[0]
    scores = matmul(query * scale, transpose(key, -2, -1))
    mask = causal_mask(scores) if is_causal else attn_mask
    if mask is not None:
        scores = scores + (additive(logical_not(mask), scores.dtype) if mask.dtype == dtypes.bool_ else mask)
    weights = _safe_softmax(scores, -1)
    if dropout_p > 0:
        return matmul(dropout(weights, dropout_p), value)
    return rearranged(matmul(weights, value), "attention", list(arrays_among((query, key, value))))


def causal_mask(scores: Any) -> Any:
    rows, columns = scores.shape[-2:]
    return tril(ones((rows, columns), dtype=dtypes.bool_, device=scores.device))


def additive(forbidden: Tensor, dtype: DType) -> Tensor:
    """-inf where a place is forbidden, else 0."""
    with no_grad():
        return masked_fill(zeros_like(forbidden, dtype=dtype), forbidden, -math.inf)


def canonical_mask(mask: Tensor | None, name: str, dtype: DType) -> Tensor | None:
    """A mask as numbers to add; where a bool mask is True, no attention is paid."""
    if mask is None or dtypes.is_floating(mask.dtype):
        return mask
    if mask.dtype != dtypes.bool_:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return additive(mask, dtype)


# ---- several heads


def check_shapes(
    query: Tensor, key: Array, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, num_heads: int
) -> bool:
    """Whether the inputs have a dimension of examples."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    if key.dim() != query.dim() or value.dim() != query.dim():
        word = "3-D" if query.dim() == 3 else "2-D"
        raise AssertionError(
            f"For {'batched' if query.dim() == 3 else 'unbatched'} ({word}) `query`, expected `key` and `value` to be "
            f"{word} but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != query.dim() - 1:
        raise AssertionError(
            f"expected `key_padding_mask` to be `None` or {query.dim() - 1}-D but found {key_padding_mask.dim()}-D "
            "tensor instead"
        )
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise AssertionError(f"expected `attn_mask` to be None, 2-D or 3-D but found {attn_mask.dim()}-D tensor")
    return bool(query.dim() == 3)


def check_masks(is_causal: bool, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> None:
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if key_padding_mask is not None and attn_mask is not None and key_padding_mask.dtype != attn_mask.dtype:
        warn_user(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead."
        )


def as_one_example(
    query: Tensor, key: Array, value: Tensor, key_padding_mask: Tensor | None
) -> tuple[Tensor, Any, Tensor, Tensor | None]:
    """Inputs with a dimension of examples; those that are the same tensor stay the same."""
    batch = unsqueeze(query, 1)
    keys = batch if key is query else unsqueeze(key, 1)
    values = keys if value is key else unsqueeze(value, 1)
    return batch, keys, values, None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)


def projected(
    query: Tensor, key: Array, value: Tensor, weights: Any, packed_weight: Tensor | None, packed_bias: Tensor | None
) -> tuple[Any, Any, Any]:
    """Queries, keys and values through their linear layers; in one product where they are the same tensor."""
    if weights is None:
        if query is key and key is value:
            q, k, v = chunk(linear(query, packed_weight, packed_bias), 3, -1)
            return q, k, v
        weights = chunk(packed_weight, 3)
    biases = (None, None, None) if packed_bias is None else chunk(packed_bias, 3)
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def heads_of(x: Tensor, count: int) -> Tensor:
    """(length, examples, count * size) -> (examples * count, length, size)."""
    length, examples, size = x.shape
    return transpose(reshape(x, (length, examples * count, size // count)), 0, 1)


def check_mask_size(attn_mask: Tensor | None, rows: int, heads: int, columns: int) -> Tensor | None:
    """The mask with a first dimension of 1 or of all heads of all examples."""
    if attn_mask is None:
        return None
    expected = (rows, columns) if attn_mask.dim() == 2 else (heads, rows, columns)
    if tuple(attn_mask.shape) != expected:
        raise RuntimeError(
            f"The shape of the {attn_mask.dim()}D attn_mask is {attn_mask.shape}, but should be {expected}."
        )
    return unsqueeze(attn_mask, 0) if attn_mask.dim() == 2 else attn_mask


def with_padding(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, examples: int, num_heads: int, columns: int
) -> Tensor | None:
    """The two masks, as one for all heads of all examples."""
    if key_padding_mask is None:
        return attn_mask
    if tuple(key_padding_mask.shape) != (examples, columns):
        raise AssertionError(
            f"Expected key_padding_mask of shape {(examples, columns)}, but got {tuple(key_padding_mask.shape)}"
        )
    wide = expand(reshape(key_padding_mask, (examples, 1, 1, columns)), (examples, num_heads, 1, columns))
    wide = reshape(wide, (examples * num_heads, 1, columns))
    return wide if attn_mask is None else attn_mask + wide


def longer_keys(
    k: Tensor, v: Tensor, masks: list[Any], more_k: Tensor, more_v: Tensor, dim: int
) -> tuple[Any, Any, list[Any]]:
    """One more key and value behind the others, which every query may see."""
    masks = [None if mask is None else pad(mask, (0, 1)) for mask in masks]
    return cat([k, more_k], dim), cat([v, more_v], dim), masks


def multi_head_attention_forward(
    query: Tensor,
    key: Array,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """What nn.MultiheadAttention computes; inputs are (length, examples, features) or (length, features).

    >>> import undertow as ut
    >>> layer, x = ut.nn.MultiheadAttention(4, 2), ut.ones(3, 1, 4)
    >>> inward, outward = (layer.in_proj_weight, layer.in_proj_bias), (layer.out_proj.weight, layer.out_proj.bias)
    >>> forward = ut.nn.functional.multi_head_attention_forward
    >>> forward(x, x, x, 4, 2, *inward, None, None, False, 0.0, *outward)[0].shape
    undertow.Size([3, 1, 4])
    """
    is_batched = check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    check_masks(is_causal, attn_mask, key_padding_mask)
    if not is_batched:
        query, key, value, key_padding_mask = as_one_example(query, key, value, key_padding_mask)
    rows, examples, embed_dim = query.shape
    check_sizes(embed_dim, embed_dim_to_check, num_heads, key, value, use_separate_proj_weight)
    mask = canonical_mask(attn_mask, "attn_mask", query.dtype)
    mask = check_mask_size(mask, rows, examples * num_heads, key.shape[0])
    masks = [mask, canonical_mask(key_padding_mask, "key_padding_mask", query.dtype)]
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = projected(query, key, value, weights, in_proj_weight, in_proj_bias)
    if bias_k is not None:
        more_k, more_v = (repeat(bias, 1, examples, 1) for bias in (bias_k, bias_v))
        k, v, masks = longer_keys(k, v, masks, more_k, more_v, 0)
    q = heads_of(q, num_heads)
    k, v = (heads_of(x, num_heads) if y is None else y for x, y in ((k, static_k), (v, static_v)))
    if add_zero_attn:
        none = new_zeros(k, (k.shape[0], 1, k.shape[2]))
        k, v, masks = longer_keys(k, v, masks, none, none, 1)
    mask = with_padding(masks[0], masks[1], examples, num_heads, k.shape[1])
    out, found = weighed_values(q, k, v, mask, dropout_p if training else 0.0, need_weights)
    out = linear(reshape(transpose(out, 0, 1), (rows, examples, embed_dim)), out_proj_weight, out_proj_bias)
    if need_weights:
        found = weights_of_heads(found, (examples, num_heads, rows, k.shape[1]), average_attn_weights)
    return (out, found) if is_batched else (squeeze(out, 1), found if found is None else squeeze(found, 0))


def weights_of_heads(found: Tensor, shape: tuple[int, ...], average: bool) -> Tensor:
    """The weights of each head, or their mean over the heads."""
    found = reshape(found, shape)
    return mean(found, 1) if average else found


def check_sizes(embed_dim: int, expected: int, num_heads: int, key: Array, value: Tensor, separate: bool) -> None:
    if embed_dim != expected:
        raise AssertionError(f"was expecting embedding dimension of {expected}, but got {embed_dim}")
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def weighed_values(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, need_weights: bool
) -> tuple[Any, Any]:
    """The values weighed for each query, and the weights if they are needed."""
    if mask is None and dropout_p == 0 and not need_weights and is_plain_attention(q, k, v):
        return fused_attention(q, k, v, False, math.sqrt(1 / q.shape[-1]))[0], None
    scores = bmm(q * math.sqrt(1 / q.shape[-1]), transpose(k, -2, -1))
    if mask is not None:
        scores = scores + mask
    # as in PyTorch, a query that sees nothing gets zeros, or NaN if the weights are asked for
    weights = softmax(scores, -1) if need_weights else _safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p)
    return bmm(weights, v), weights if need_weights else None
