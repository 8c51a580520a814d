"""Losses as modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import functional
from undertow.nn.layers.distances import PairwiseDistance
from undertow.nn.layers.linear import Linear
from undertow.nn.module import Module
from undertow.nn.old_reduction_arguments import takes_old_arguments

if TYPE_CHECKING:
    from undertow.backend.interface import Array, Device
    from undertow.nn.linear_cross_entropy import LinearCrossEntropyOptions
    from undertow.tensor import Tensor

#: the functions are in functional's table, which is filled at import
F: Any = functional


class Loss(Module):
    """A loss that is averaged, summed or given for each element (reduction = 'mean', 'sum', 'none')."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = takes_old_arguments(cls.__init__)  # type: ignore[method-assign]

    @takes_old_arguments
    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class WeightedLoss(Loss):
    """A loss with a weight for each class (or element), which is a buffer."""

    weight: Any

    def __init__(self, weight: Array | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)


# ---- differences of numbers


class L1Loss(Loss):
    """|input - target|.

    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.L1Loss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.2000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(Loss):
    """(input - target)^2.

    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.MSELoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.0400)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """Quadratic below beta and linear above it.

    reduction  'mean', 'sum' or 'none'
    beta       where the square ends and the straight line begins

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.SmoothL1Loss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.0200)
    """

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """Quadratic below delta and linear, with slope delta, above it.

    reduction  'mean', 'sum' or 'none'
    delta      where the square ends and the straight line begins

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.HuberLoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.0200)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, int | float):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# ---- likelihoods


class PoissonNLLLoss(Loss):
    """The negative log-likelihood of counts with a Poisson distribution.

    log_input  whether the input holds logarithms of rates
    full       whether the constant terms count
    eps        added before the logarithm
    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.PoissonNLLLoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(1.3235)
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(Loss):
    """The negative log-likelihood of numbers with a normal distribution of given variance.

    full       whether the constant terms count
    eps        the least variance
    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike; var the same, or with 1 for the last size; the result is one number, or with
    reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.GaussianNLLLoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]), ut.ones(2))
    tensor(0.0200)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(Loss):
    """The divergence of the target distribution from the input, which are log-probabilities.

    reduction   'mean', 'sum' or 'none'
    log_target  whether the target holds logarithms, too

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.KLDivLoss(reduction="batchmean")(ut.tensor([[0.5, 0.5]]).log(), ut.tensor([[0.25, 0.75]]))
    tensor(0.1308)
    """

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


# ---- classes


class NLLLoss(WeightedLoss):
    """The negative log-likelihood of classes, given log-probabilities.

    weight        a weight for each class
    ignore_index  a class that does not count
    reduction     'mean', 'sum' or 'none'

    Shapes: log-probabilities (N, C), (C) or (N, C, d1, ...), targets (N), () or (N, d1, ...); the result is one
    number, or with reduction='none' one for each target.

    >>> import undertow as ut
    >>> ut.nn.NLLLoss()(ut.tensor([[0.2, 0.8]]).log(), ut.tensor([1]))
    tensor(0.2231)
    """

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(WeightedLoss):
    """The negative log-likelihood of classes (or probabilities of classes), given scores.

    weight           a weight for each class
    ignore_index     a class that does not count
    reduction        'mean', 'sum' or 'none'
    label_smoothing  how much of the target is spread over all classes

    Shapes: scores (N, C), (C) or (N, C, d1, ...), targets (N), () or (N, d1, ...), or probabilities in the shape of
    the scores; the result is one number, or with reduction='none' one for each target.

    >>> import undertow as ut
    >>> loss = ut.nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> loss(ut.zeros(2, 4), ut.tensor([0, 3])).shape
    undertow.Size([])
    """

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(WeightedLoss):
    """Binary cross entropy, given probabilities.

    weight     a weight for each element
    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.BCELoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.2231)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Loss):
    """Binary cross entropy, given scores.

    weight      a weight for each element
    reduction   'mean', 'sum' or 'none'
    pos_weight  the weight of positive answers

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.BCEWithLogitsLoss()(ut.tensor([0.2, 0.8]), ut.tensor([0.0, 1.0]))
    tensor(0.5846)
    """

    weight: Any
    pos_weight: Any

    def __init__(self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class MultiLabelSoftMarginLoss(WeightedLoss):
    """Binary cross entropy of several classes, averaged over them.

    weight     a weight for each class
    reduction  'mean', 'sum' or 'none'

    Shapes: input and target (N, C) or (C); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.MultiLabelSoftMarginLoss()(ut.tensor([[0.2, 0.8]]), ut.tensor([[0.0, 1.0]]))
    tensor(0.5846)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


# ---- sequences


class CTCLoss(Loss):
    """The negative log-likelihood of sequences of classes, wherever in time they come.

    blank          the class that means nothing
    reduction      'mean', 'sum' or 'none'
    zero_infinity  whether infinite losses, of targets that are too long, count as 0

    Shapes: log-probabilities (T, N, C), targets (N, S) or all in a row, lengths (N); the result is one number, or
    with reduction='none' (N).

    >>> import undertow as ut
    >>> log_probs = ut.zeros(5, 2, 3).log_softmax(2)
    >>> ut.nn.CTCLoss()(log_probs, ut.tensor([[1, 2], [2, 2]]), [5, 5], [2, 2]).shape
    undertow.Size([])
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Array, target_lengths: Array) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


# ---- margins


class HingeEmbeddingLoss(Loss):
    """input where the target is 1, max(0, margin - input) where it is -1.

    margin     how far apart is enough
    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.HingeEmbeddingLoss()(ut.tensor([0.2, 0.8]), ut.tensor([-1.0, 1.0]))
    tensor(0.8000)
    """

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)).

    reduction  'mean', 'sum' or 'none'

    Shapes: input and target alike, any; the result is one number, or with reduction='none' one for each element.

    >>> import undertow as ut
    >>> ut.nn.SoftMarginLoss()(ut.tensor([0.2, 0.8]), ut.tensor([-1.0, 1.0]))
    tensor(0.5846)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1.

    margin     how far apart is enough
    reduction  'mean', 'sum' or 'none'

    Shapes: inputs (N, D) or (D), targets (N) or (); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.CosineEmbeddingLoss()(ut.ones(1, 3), ut.ones(1, 3), ut.tensor([1.0]))
    tensor(0.)
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(Loss):
    """max(0, -target * (input1 - input2) + margin).

    margin     how far apart is enough
    reduction  'mean', 'sum' or 'none'

    Shapes: both inputs and the target (N) or (); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.MarginRankingLoss()(ut.tensor([0.2]), ut.tensor([0.8]), ut.tensor([1.0]))
    tensor(0.6000)
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(Loss):
    """A margin between every target class and every other.

    reduction  'mean', 'sum' or 'none'

    Shapes: input and target (N, C) or (C); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.MultiLabelMarginLoss()(ut.tensor([[0.2, 0.8]]), ut.tensor([[1, -1]]))
    tensor(0.2000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(WeightedLoss):
    """A margin between the target class and every other.

    p          the exponent, 1 or 2
    margin     how far apart is enough
    weight     a weight for each class
    reduction  'mean', 'sum' or 'none'

    Shapes: scores (N, C) or (C), targets (N) or (); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.MultiMarginLoss()(ut.tensor([[0.2, 0.8]]), ut.tensor([1]))
    tensor(0.2000)
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class TripletMarginLoss(Loss):
    """max(0, distance to the positive - distance to the negative + margin).

    margin     how far apart is enough
    p          the exponent of the norm
    eps        added before a division, against zeros
    swap       whether the distance of positive and negative counts, if that is smaller
    reduction  'mean', 'sum' or 'none'

    Shapes: anchor, positive and negative (N, D) or (D); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.TripletMarginLoss()(ut.zeros(1, 2), ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.)
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(Loss):
    """TripletMarginLoss with a distance of your own.

    distance_function  of two tensors; Euclidean unless said
    margin             how far apart is enough
    swap               whether the distance of positive and negative counts, if that is smaller
    reduction          'mean', 'sum' or 'none'

    Shapes: anchor, positive and negative (N, D) or (D); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.TripletMarginWithDistanceLoss()(ut.zeros(1, 2), ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class LinearCrossEntropyLoss(WeightedLoss):
    """A linear layer and the cross entropy of what it gives.

    in_features                                       features of the input
    num_classes                                       classes
    bias                                              whether the linear layer has one
    reduction, weight, ignore_index, label_smoothing  as in CrossEntropyLoss
    out_features                                      further dimensions of the loss
    options                                           LinearCrossEntropyOptions, if not all logits are to be in
                                                      memory at once

    Shapes: (N, in_features) and classes (N); the result is one number, or with reduction='none' (N).

    >>> import undertow as ut
    >>> ut.nn.LinearCrossEntropyLoss(3, 4)(ut.ones(2, 3), ut.tensor([0, 1])).shape
    undertow.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
        reduction: str = "mean",
        weight: Array | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias, device, dtype)

    def extra_repr(self) -> str:
        bias = self.linear.bias is not None
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={bias}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            ops.reshape(self.linear.weight, (*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else ops.reshape(bias, shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )
