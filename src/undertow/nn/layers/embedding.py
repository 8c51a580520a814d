"""Tables of vectors that are looked up by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.modes import no_grad
from undertow.nn import functional as F
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.module import Module
from undertow.nn.parameter import Parameter

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


class Table(Module):
    """What Embedding and EmbeddingBag have in common."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Any,
        freeze: bool,
        device: Any,
        dtype: DType,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = self._checked_padding(padding_idx)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if weight is None:
            self.weight = fresh(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight._edge = None if freeze else self.weight._edge
            self.reset_parameters()
        elif list(weight.shape) != [num_embeddings, embedding_dim]:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def _checked_padding(self, padding_idx: int | None) -> int | None:
        if padding_idx is None:
            return None
        if not -self.num_embeddings <= padding_idx < self.num_embeddings:
            raise AssertionError("Padding_idx must be within num_embeddings")
        return padding_idx % self.num_embeddings

    def reset_parameters(self) -> None:
        """Draw the table from the normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        shown = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        for name, usual in shown.items():
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        return text


class Embedding(Table):
    """A row of the table for every index.

    num_embeddings      rows of the table
    embedding_dim       their length
    norm_type           of which norm max_norm is
    scale_grad_by_freq  divide the gradient of a row by how often it was used
    sparse              gradients of the table are sparse
    padding_idx         a row that stays as it is: it gets no gradient
    max_norm            rows that are used and longer than this are shortened to it
    _weight             the table, if it is there already
    _freeze             whether it is left as it is

    Shapes: indices (...) to (..., embedding_dim).

    >>> import undertow as ut
    >>> ut.nn.Embedding(10, 3)(ut.tensor([[1, 2], [4, 5]])).shape
    undertow.Size([2, 2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            _freeze,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **options: Any) -> Any:
        """A module around a table that is there already; it is not trained unless freeze=False.

        embeddings  the table, (num_embeddings, embedding_dim)
        **options   further arguments of the class
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, size = embeddings.shape
        return cls(rows, size, _weight=embeddings, _freeze=freeze, **options)


class EmbeddingBag(Table):
    """The sum, mean or maximum of the rows of the table that each bag of indices names.

    num_embeddings       rows of the table
    embedding_dim        their length
    max_norm, norm_type  rows that are used and longer than this, in this norm, are shortened
    scale_grad_by_freq   divide the gradient of a row by how often it was used
    sparse               gradients of the table are sparse
    padding_idx          a row that does not count
    mode                 'sum', 'mean' or 'max'
    include_last_offset  the last of the offsets is the end of the last bag
    _weight              the table, if it is there already

    Shapes: indices (N, L), or all in a row with offsets (N), to (N, embedding_dim).

    >>> import undertow as ut
    >>> ut.nn.EmbeddingBag(10, 3)(ut.tensor([1, 2, 4]), ut.tensor([0, 2])).shape
    undertow.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            False,
            device,
            dtype,
        )
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Any = None) -> Tensor:
        if self.max_norm is not None:
            F.shorten_rows(self.weight, input, self.max_norm, self.norm_type)
        return ops.embedding_bag(
            input,
            self.weight,
            offsets,
            scale_grad_by_freq=self.scale_grad_by_freq,
            mode=self.mode,
            sparse=self.sparse,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **options: Any) -> Any:
        """A module around a table that is there already; it is not trained unless freeze=False.

        embeddings  the table, (num_embeddings, embedding_dim)
        **options   further arguments of the class
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, size = embeddings.shape
        bag = cls(rows, size, _weight=embeddings, **options)
        bag.weight.requires_grad_(not freeze)
        return bag

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        shown = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        for name, usual in shown.items():
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
