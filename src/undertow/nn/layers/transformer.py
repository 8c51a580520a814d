"""Transformers: layers of attention and feed-forward networks, with residual connections and layer norms."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import init
from undertow.nn.layers.containers import ModuleList
from undertow.nn.layers.dropout import Dropout
from undertow.nn.layers.linear import Linear
from undertow.nn.layers.multihead_attention import MultiheadAttention
from undertow.nn.layers.normalization import LayerNorm
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

# named functions, because a layer that is pickled finds them by name


def relu(input: Tensor) -> Tensor:
    return ops.relu(input)


def gelu(input: Tensor) -> Tensor:
    return ops.gelu(input)


def activation_of(activation: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return relu if activation == "relu" else gelu


def clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class Layer(Module):
    """What the layers of encoder and decoder have in common: the feed-forward network, and how blocks are joined."""

    norm_first: bool
    linear1: Linear
    linear2: Linear
    dropout: Dropout
    activation: Any

    def _add_feed_forward(self, d_model: int, dim_feedforward: int, dropout: float, bias: bool, kind: Any) -> None:
        self.linear1 = Linear(d_model, dim_feedforward, bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **kind)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _joined(self, x: Tensor, norm: Module, dropout: Module, block: Callable[[Any], Any]) -> Any:
        """x plus what a block makes of it; the norm comes before the block, or behind the sum."""
        if self.norm_first:
            return x + dropout(block(norm(x)))
        return norm(x + dropout(block(x)))


class TransformerEncoderLayer(Layer):
    """Self-attention, then a feed-forward network.

    d_model          features of the input and the result
    nhead            heads of attention
    dim_feedforward  features between the two linear layers
    dropout          the probability of being dropped
    activation       'relu', 'gelu' or a function
    layer_norm_eps   eps of the norms
    batch_first      whether batches come before the sequence
    bias             whether something learned is added
    norm_first       norm the input of each block instead of the sum behind it

    Shapes: (S, N, d_model), (N, S, d_model) with batch_first, or (S, d_model); the result has that of the input.

    >>> import undertow as ut
    >>> layer = ut.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    >>> layer(ut.randn(3, 5, 8)).shape
    undertow.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **kind)
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = activation_of(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Any:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        x = self._joined(src, self.norm1, self.dropout1, attend)
        return self._joined(x, self.norm2, self.dropout2, self._feed_forward)


class TransformerDecoderLayer(Layer):
    """Self-attention, attention to what the encoder gave, then a feed-forward network.

    d_model          features of the input, its last dimension
    nhead            the number of heads
    dim_feedforward  features of the layer in between
    dropout          the probability of being dropped
    activation       'relu', 'gelu', or a function
    layer_norm_eps   `eps` of the layer norms
    batch_first      whether batches come before time
    norm_first       whether norms come before the layers they belong to
    bias             whether something learned is added

    Shapes: source (or memory) (S, N, d_model) and target (T, N, d_model), N first with batch_first, or both without
    N; the result has that of the target.

    >>> import undertow as ut
    >>> ut.nn.TransformerDecoderLayer(8, 2, 16)(ut.ones(3, 2, 8), ut.ones(5, 2, 8)).shape
    undertow.Size([3, 2, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **kind)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **kind)
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **kind)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = activation_of(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Any:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look_at_memory(x: Tensor) -> Any:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]

        x = self._joined(tgt, self.norm1, self.dropout1, attend)
        x = self._joined(x, self.norm2, self.dropout2, look_at_memory)
        return self._joined(x, self.norm3, self.dropout3, self._feed_forward)


def is_causal_mask(mask: Tensor | None, hint: bool | None) -> bool:
    """Whether a mask is the causal one; the hint is believed, as in PyTorch."""
    if hint is not None or mask is None:
        return hint is True
    expected = Transformer.generate_square_subsequent_mask(mask.shape[-2], mask.device, mask.dtype)
    return mask.shape == expected.shape and bool(ops.equal(mask, expected))


class TransformerEncoder(Module):
    """Encoder layers one after the other: copies of the one given.

    encoder_layer  a layer, which is copied
    num_layers     so many, one above the other
    norm           a layer at the end, or None
    enable_nested_tensor, mask_check  accepted, without effect

    Shapes: (S, N, d_model), (N, S, d_model) with batch_first, or (S, d_model); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.TransformerEncoder(ut.nn.TransformerEncoderLayer(8, 2, 16), 2)(ut.ones(5, 2, 8)).shape
    undertow.Size([5, 2, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Tensor:
        causal = is_causal_mask(mask, is_causal)
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Decoder layers one after the other: copies of the one given.

    decoder_layer  a layer, which is copied
    num_layers     so many, one above the other
    norm           a layer at the end, or None

    Shapes: source (or memory) (S, N, d_model) and target (T, N, d_model), N first with batch_first, or both without
    N; the result has that of the target.

    >>> import undertow as ut
    >>> ut.nn.TransformerDecoder(ut.nn.TransformerDecoderLayer(8, 2, 16), 2)(ut.ones(3, 2, 8), ut.ones(5, 2, 8)).shape
    undertow.Size([3, 2, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        causal = is_causal_mask(tgt_mask, tgt_is_causal)
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder that reads the source, and a decoder that attends to it.

    d_model             features of the input, its last dimension
    nhead               the number of heads
    num_encoder_layers  the number of layers that read
    num_decoder_layers  the number of layers that write
    dim_feedforward     features of the layer in between
    dropout             the probability of being dropped
    activation          'relu', 'gelu', or a function
    custom_encoder      a module to read with instead
    custom_decoder      a module to write with instead
    layer_norm_eps      `eps` of the layer norms
    batch_first         whether batches come before time
    norm_first          whether norms come before the layers they belong to
    bias                whether something learned is added

    Shapes: source (or memory) (S, N, d_model) and target (T, N, d_model), N first with batch_first, or both without
    N; the result has that of the target.

    >>> import undertow as ut
    >>> ut.nn.Transformer(8, 2, 1, 1, 16)(ut.ones(5, 2, 8), ut.ones(3, 2, 8)).shape
    undertow.Size([3, 2, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        new_norm = lambda: LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shared, **kind), num_encoder_layers, new_norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shared, **kind), num_decoder_layers, new_norm()
        )
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        self._check(src, tgt)
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    def _check(self, src: Tensor, tgt: Tensor) -> None:
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Device | str | int | None = None, dtype: DType | None = None
    ) -> Tensor:
        """The mask that lets every place see itself and those before it: -inf above the diagonal, else 0.

        sz             the length of the sequence; the mask is (sz, sz)
        device, dtype  of the mask; None: the default ones
        """
        return ops.triu(ops.full((sz, sz), -math.inf, dtype=dtype, device=device), 1)
