"""Attention with several heads, as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import init
from undertow.nn.layers.linear import Linear, fresh
from undertow.nn.module import Module
from undertow.ops.network.attention import multi_head_attention_forward

if TYPE_CHECKING:
    from undertow.backend.interface import Array, Device
    from undertow.tensor import Tensor


class NonDynamicallyQuantizableLinear(Linear):
    """Linear, under the name PyTorch gives to the last layer of attention."""


class MultiheadAttention(Module):
    """Attention of several heads, each on its part of the features.

    embed_dim      features of the queries and of the result
    num_heads      the number of heads, which share the features
    dropout        the probability of being dropped
    bias           whether something learned is added
    add_bias_kv    whether a learned key and value are added to the sequence
    add_zero_attn  whether a key and a value of 0 are added
    kdim           features of the keys
    vdim           features of the values
    batch_first    whether batches come before time

    Shapes: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim), N first with batch_first, or all without
    N. The results: (L, N, embed_dim), and weights (N, L, S).

    >>> import undertow as ut
    >>> attention = ut.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = ut.randn(3, 5, 8)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    (undertow.Size([3, 5, 8]), undertow.Size([3, 5, 5]))
    """

    in_proj_weight: Any
    in_proj_bias: Any
    q_proj_weight: Any
    k_proj_weight: Any
    v_proj_weight: Any
    bias_k: Any
    bias_v: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self._add_weights(bias, add_bias_kv, {"device": device, "dtype": dtype})
        self._reset_parameters()

    def _add_weights(self, bias: bool, add_bias_kv: bool, kind: dict[str, Any]) -> None:
        size, same = self.embed_dim, self._qkv_same_embed_dim
        if same:
            self.in_proj_weight = fresh(3 * size, size, **kind)
        for name, columns in (("q", size), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if same else fresh(size, columns, **kind))
        if not same:
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", fresh(3 * size, **kind) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(size, size, bias, **kind)
        self.bias_k = fresh(1, 1, size, **kind) if add_bias_kv else None
        self.bias_v = fresh(1, 1, size, **kind) if add_bias_kv else None

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Array,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """Values weighted by how well keys agree with queries, and the weights.

        key_padding_mask  (examples, keys); where it is True, a key is not seen
        attn_mask         (queries, keys), or (examples * heads, queries, keys); where it is True, a query does not see
                          the key; numbers are added to the scores
        need_weights      return the weights, too; else None in their place
        """
        swapped = self.batch_first and query.dim() == 3
        if swapped:
            same_k, same_v = key is query, value is key
            query = ops.transpose(query, 0, 1)
            key = query if same_k else ops.transpose(key, 0, 1)
            value = key if same_v else ops.transpose(value, 0, 1)
        out, weights = multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (ops.transpose(out, 0, 1) if swapped else out), weights
