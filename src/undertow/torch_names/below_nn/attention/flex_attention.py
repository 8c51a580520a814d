"""Attention whose scores a function of the program changes, or masks: in its plain form, with all scores in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from undertow import ops
from undertow.autograd.vmap import vmap
from undertow.backend import dtypes
from undertow.tensor import Tensor

#: takes a score and where it is, (score, batch, head, query, key), and gives another score
ScoreMod = Callable[..., Tensor]
#: takes a place, (batch, head, query, key), and says whether it counts
MaskMod = Callable[..., Tensor]


class AuxRequest(NamedTuple):
    """What `flex_attention` is to return beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What `flex_attention` was asked for: the logarithm of the sum of exponentials of each row, its largest score."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


FlexKernelOptions = dict

#: how many queries, and keys, a block of a mask has unless a program says otherwise
_DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask that lets everything through."""
    return ops.ones_like(batch, dtype=dtypes.bool_)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Lets through what all of them let through."""

    def both(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return both


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Lets through what one of them lets through."""

    def either(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = ~noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return either


def at_every_place(function: Callable[..., Any], scores: bool) -> Callable[..., Any]:
    """The function of a single place, for all places of (batch, head, query, key)."""
    first = (0,) if scores else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = vmap(function, in_dims=first + dims)
    return function


def places(sizes: tuple[int, ...], device: Any = None) -> list[Tensor]:
    return [ops.arange(n, device=device) for n in sizes]


def create_mask(mod_fn: Any, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Any:
    """What a mask lets through, as a tensor of (B, H, Q_LEN, KV_LEN).

    >>> import undertow as ut
    >>> from undertow.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 2)[0, 0]
    tensor([[ True, False],
            [ True,  True]])
    """
    return at_every_place(mod_fn, scores=False)(*places((B or 1, H or 1, Q_LEN, KV_LEN), device))


class BlockMask:
    """A mask, and which blocks of it are needed in part and which in whole.

    partial, full  tensors of (B, H, blocks of queries, blocks of keys)
    """

    def __init__(self, partial: Tensor, full: Tensor, mask_mod: MaskMod, block: tuple[int, int], lengths: Any) -> None:
        self.partial, self.full, self.mask_mod = partial, full, mask_mod
        self.BLOCK_SIZE, self.seq_lengths = block, lengths

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any = None,
        full_kv_indices: Any = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        **options: Any,
    ) -> BlockMask:
        """A mask of the blocks that are listed, for each block of queries."""
        block = _pair(BLOCK_SIZE)
        partial = _listed(kv_num_blocks, kv_indices)
        full = _listed(full_kv_num_blocks, full_kv_indices) if full_kv_indices is not None else ops.zeros_like(partial)
        lengths = seq_lengths or (partial.shape[-2] * block[0], partial.shape[-1] * block[1])
        return cls(partial, full, mask_mod or noop_mask, block, lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.partial.shape[:-2], *self.seq_lengths)

    @property
    def kv_num_blocks(self) -> Any:
        return ops.sum(self.partial, -1).to(dtypes.int32)

    @property
    def kv_indices(self) -> Any:
        return ops.argsort(self.partial.to(dtypes.int32), -1, descending=True, stable=True).to(dtypes.int32)

    @property
    def full_kv_num_blocks(self) -> Any:
        return ops.sum(self.full, -1).to(dtypes.int32)

    @property
    def full_kv_indices(self) -> Any:
        return ops.argsort(self.full.to(dtypes.int32), -1, descending=True, stable=True).to(dtypes.int32)

    def to_dense(self) -> Any:
        """Which blocks are needed at all, as 0 and 1."""
        return (self.partial | self.full).to(dtypes.int32)

    def numel(self) -> int:
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """How much of the mask is in blocks that are not needed, in percent."""
        computed = int(self.to_dense().sum()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - computed / self.numel())

    def to(self, device: Any) -> BlockMask:
        return BlockMask(
            self.partial.to(device), self.full.to(device), self.mask_mod, self.BLOCK_SIZE, self.seq_lengths
        )

    def __getitem__(self, index: Any) -> BlockMask:
        index = index if isinstance(index, tuple) else (index,)
        kept = tuple([slice(i, i + 1) if isinstance(i, int) else i for i in index])
        return BlockMask(self.partial[kept], self.full[kept], self.mask_mod, self.BLOCK_SIZE, self.seq_lengths)

    def allowed(self, sizes: tuple[int, int, int, int], device: Any) -> Any:
        """What it lets through, for so many batches, heads, queries and keys."""
        inside = create_mask(self.mask_mod, *sizes, device=device)
        partial, full = [_each_place(part, self.BLOCK_SIZE, sizes) for part in (self.partial, self.full)]
        return full | (partial & inside)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _listed(counts: Any, indices: Any) -> Any:
    """Blocks that are listed by their numbers, of which the first few count, as a mask."""
    chosen = (ops.arange(indices.shape[-1]) < counts.unsqueeze(-1)).to(dtypes.int32)
    return ops.zeros_like(chosen).scatter_add(-1, indices.to(dtypes.int64), chosen) > 0


def _each_place(blocks: Any, size: tuple[int, int], sizes: tuple[int, ...]) -> Any:
    wide = blocks.repeat_interleave(size[0], -2).repeat_interleave(size[1], -1)
    return wide[..., : sizes[2], : sizes[3]]


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    **options: Any,
) -> BlockMask:
    """The mask in blocks: those that nothing passes, those that everything does, and the others."""
    block = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    padded = ops.pad(mask, (0, -KV_LEN % block[1], 0, -Q_LEN % block[0]))
    cut = padded.unflatten(-1, (-1, block[1])).unflatten(-3, (-1, block[0])).transpose(-2, -3)
    count = cut.to(dtypes.int64).sum((-1, -2))
    full = count == block[0] * block[1]
    return BlockMask((count > 0) & ~full, full, mask_mod, block, (Q_LEN, KV_LEN))


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key.T * scale)) @ value, where the mask lets something through.

    >>> import undertow as ut
    >>> from undertow.nn.attention.flex_attention import flex_attention
    >>> x = ut.ones(1, 1, 3, 2)
    >>> flex_attention(x, x, x, lambda score, b, h, q, kv: score - (q - kv).abs()).shape
    undertow.Size([1, 1, 3, 2])
    """
    if any([x.ndim != 4 for x in (query, key, value)]):
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    elif query.shape[1] != key.shape[1]:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={query.shape[1]} and "
            f"Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
        )
    scores = _scores(query, key, score_mod, block_mask, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    lse = ops.logsumexp(scores, -1)
    weights = ops.exp(scores - ops.where(ops.isinf(lse), 0.0, lse).unsqueeze(-1))  # rows without anything give zeros
    out = (weights @ value.to(scores.dtype)).to(query.dtype)
    if return_aux is not None:
        largest = scores.amax(-1) if return_aux.max_scores else None
        return out, AuxOutput(lse if return_aux.lse else None, largest)
    return (out, lse) if return_lse else out


def _scores(query: Any, key: Any, score_mod: ScoreMod | None, block_mask: BlockMask | None, scale: float) -> Any:
    wide = dtypes.float64 if query.dtype == dtypes.float64 else dtypes.float32
    scores = (query @ key.transpose(-2, -1)).to(wide) * scale
    if score_mod is not None:
        scores = at_every_place(score_mod, scores=True)(scores, *places(tuple(scores.shape), query.device))
    if block_mask is not None:
        scores = ops.where(block_mask.allowed(tuple(scores.shape), query.device), scores, -math.inf)
    return scores


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
