"""A softmax over many classes, of which few are frequent: rare ones share clusters with cheap layers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn.layers.containers import ModuleList, Sequential
from undertow.nn.layers.linear import Linear
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


class Assessment(NamedTuple):
    """What AdaptiveLogSoftmaxWithLoss gives: the log-probabilities of the targets, and the mean loss."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of `n_classes` classes that are sorted by frequency, the most frequent first.

    in_features  features of the input
    cutoffs      where clusters begin: classes before the first cutoff are in the head, with one more class for each
                 cluster
    div_value    each further cluster has a hidden layer smaller by this factor
    head_bias    whether the head has a bias

    Shapes: (N, in_features) and classes (N); the result is (output (N), loss ()).

    >>> import undertow as ut
    >>> softmax = ut.nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50], div_value=2.0)
    >>> output, loss = softmax(ut.randn(4, 16), ut.tensor([0, 9, 20, 99]))
    >>> output.shape, softmax.log_prob(ut.randn(4, 16)).shape
    (undertow.Size([4]), undertow.Size([4, 100]))
    """

    head: Any
    tail: Any

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_cutoffs(list(cutoffs), n_classes)
        self.in_features, self.n_classes = in_features, n_classes
        self.div_value, self.head_bias = div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for number, (start, stop) in enumerate(pairwise(self.cutoffs), 1):
            hidden = int(in_features // div_value**number)
            inner = Linear(in_features, hidden, bias=False, device=device, dtype=dtype)
            self.tail.append(Sequential(inner, Linear(hidden, stop - start, bias=False, device=device, dtype=dtype)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for inner, outer in self.tail:
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Assessment:
        check_shapes(input_, target_)
        input, target = (input_, target_) if target_.dim() else (ops.unsqueeze(input_, 0), ops.unsqueeze(target_, 0))
        lowest, highest = (target.min().item(), target.max().item()) if target.numel() else (0, 0)
        if lowest < 0 or highest >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{lowest}, {highest}] were "
                "found. "
            )
        in_head = ops.where(target < self.shortlist_size, target, 0)
        within = ops.zeros_like(input[:, 0])  # the log-probability of the class in its cluster
        for number, (start, stop) in enumerate(pairwise(self.cutoffs)):
            (rows,) = ops.nonzero((target >= start) & (target < stop), as_tuple=True)
            if rows.numel():
                probabilities = ops.log_softmax(self.tail[number](input[rows]), 1)
                found = ops.gather(probabilities, 1, ops.unsqueeze(target[rows] - start, 1))
                within = ops.index_copy(within, 0, rows, ops.squeeze(found, 1))
                in_head = ops.index_fill(in_head, 0, rows, self.shortlist_size + number)
        head = ops.log_softmax(self.head(input), 1)
        output = within + ops.squeeze(ops.gather(head, 1, ops.unsqueeze(in_head, 1)), 1)
        return Assessment(output if target_.dim() else ops.squeeze(output, 0), -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes.

        input  (N, in_features)
        """
        head = ops.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            place = self.shortlist_size + number
            parts.append(ops.log_softmax(cluster(input), 1) + head[:, place : place + 1])
        return ops.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each example.

        input  (N, in_features)
        """
        head = self.head(input)
        output = ops.argmax(head, 1)
        (rows,) = ops.nonzero(output >= self.shortlist_size, as_tuple=True)
        if rows.numel():  # a cluster was more probable than any class of the head
            output = ops.index_copy(output, 0, rows, ops.argmax(self.log_prob(input[rows]), 1))
        return output


def check_cutoffs(cutoffs: list[int], n_classes: int) -> None:
    if not cutoffs:
        raise ValueError("cutoffs should be a sequence of length larger than 0")
    wrong = cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1
    if wrong or any([int(c) != c for c in cutoffs]):
        raise ValueError(
            "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value "
            "is between 1 and n_classes-1"
        )


def check_shapes(input: Tensor, target: Tensor) -> None:
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input.dim() != target.dim() + 1:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with size "
            f"{input.shape}"
        )
    if target.dim() and input.shape[0] != target.shape[0]:
        raise RuntimeError("Input and target should have the same size in the batch dimension.")
