"""Losses."""

from __future__ import annotations

from typing import Any

from tests.samples import Array, Sample, constant, distinct, fraction, integers, normal, positive
from undertow.backend import dtypes


def functional(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


def reduced(op: str, *args: Any, note: str = "", reference: Any = None, **kwargs: Any) -> list[Sample]:
    """Rows of a loss with each reduction."""
    reference = functional(op) if reference is None else reference
    return [
        Sample(
            op,
            *args,
            kwargs={**kwargs, "reduction": reduction},
            reference=reference,
            note=f"{note}, {reduction}".strip(", "),
        )
        for reduction in ("none", "mean", "sum")
    ]


def signs(*shape: int) -> Array:
    return Array(shape, lambda rng, s: rng.integers(0, 2, s) * 2.0 - 1, differentiable=False)


NUMBERS = [
    *reduced("mse_loss", normal(2, 3), normal(2, 3)),
    Sample("mse_loss", normal(), normal(), note="0-d", reference=functional("mse_loss")),
    *reduced("l1_loss", distinct(2, 3), constant([[0.0] * 3] * 2)),
    *reduced("smooth_l1_loss", distinct(2, 6), constant([[0.0] * 6] * 2)),
    *reduced("smooth_l1_loss", distinct(2, 3), constant([[0.0] * 3] * 2), note="beta", beta=0.25),
    *reduced("smooth_l1_loss", distinct(2, 3), constant([[0.0] * 3] * 2), note="beta 0", beta=0.0),
    *reduced("huber_loss", distinct(2, 6), constant([[0.0] * 6] * 2)),
    *reduced("huber_loss", distinct(2, 3), constant([[0.0] * 3] * 2), note="delta", delta=0.25),
    *reduced("binary_cross_entropy", fraction(2, 3), fraction(2, 3)),
    *reduced("binary_cross_entropy", fraction(2, 3), fraction(2, 3), positive(3).without_gradient(), note="weight"),
    *reduced("binary_cross_entropy_with_logits", normal(2, 3), fraction(2, 3)),
    *reduced("binary_cross_entropy_with_logits", constant([-800.0, 800.0]), constant([0.0, 1.0]), note="large"),
    *reduced(
        "binary_cross_entropy_with_logits", normal(2, 3), fraction(2, 3), positive(3).without_gradient(), note="weight"
    ),
    *reduced(
        "binary_cross_entropy_with_logits",
        normal(2, 3),
        fraction(2, 3).without_gradient(),
        note="positives",
        pos_weight=positive(3).without_gradient(),
    ),
    *reduced("kl_div", normal(2, 3), fraction(2, 3)),
    *reduced("kl_div", normal(2, 3), normal(2, 3), note="logs", log_target=True),
    Sample(
        "kl_div",
        normal(2, 3),
        fraction(2, 3),
        kwargs={"reduction": "batchmean"},
        note="batchmean",
        reference=functional("kl_div"),
    ),
    *reduced("gaussian_nll_loss", normal(2, 3), normal(2, 3), positive(2, 3)),
    *reduced("gaussian_nll_loss", normal(2, 3), normal(2, 3), positive(2), note="one variance a row", full=True),
    Sample("_floor_variance", positive(2, 3), 0.1, reference=False),
    *reduced("poisson_nll_loss", normal(2, 3), positive(2, 3).without_gradient()),
    *reduced(
        "poisson_nll_loss",
        positive(2, 3),
        constant([[0.5, 2.0, 3.0]]).without_gradient(),
        note="rates",
        log_input=False,
        full=True,
    ),
    Sample("_bce_of_probabilities", fraction(2, 3), fraction(2, 3), reference=False),
    Sample("_bce_of_logits", normal(2, 3), fraction(2, 3), reference=False),
]

IGNORING = constant([2, 0, -100, 1])

CLASSES = [
    *reduced("nll_loss", normal(4, 3), integers(4)),
    *reduced("nll_loss", normal(3), integers(), note="one example"),
    *reduced("nll_loss", normal(4, 3), IGNORING, note="ignored"),
    *reduced("nll_loss", normal(4, 3), IGNORING, positive(3).without_gradient(), note="weight"),
    *reduced("nll_loss", normal(4, 3), integers(4), note="ignore a class", ignore_index=1),
    *reduced("nll_loss", normal(2, 3, 2), integers(2, 2), positive(3).without_gradient(), note="3-d"),
    *reduced("nll_loss", normal(2, 3, 2, 2), integers(2, 2, 2), note="4-d"),
    *reduced("nll_loss", normal(2, 3, 1, 2, 2), integers(2, 1, 2, 2), note="5-d"),
    *reduced("cross_entropy", normal(4, 3), integers(4)),
    *reduced("cross_entropy", normal(3), integers(), note="one example"),
    *reduced("cross_entropy", constant([[1000.0, -1000.0], [0.0, 50.0]]), constant([1, 1]), note="large"),
    *reduced("cross_entropy", normal(4, 3), IGNORING, note="ignored"),
    *reduced("cross_entropy", normal(4, 3), IGNORING, positive(3).without_gradient(), note="weight"),
    *reduced("cross_entropy", normal(2, 3, 2), integers(2, 2), positive(3).without_gradient(), note="3-d"),
    *reduced("cross_entropy", normal(4, 3), IGNORING, note="smoothed", label_smoothing=0.2),
    *reduced(
        "cross_entropy",
        normal(4, 3),
        IGNORING,
        positive(3).without_gradient(),
        note="smoothed, weight",
        label_smoothing=0.2,
    ),
    *reduced(
        "cross_entropy",
        normal(2, 3, 2),
        integers(2, 2),
        positive(3).without_gradient(),
        note="smoothed, 3-d",
        label_smoothing=0.2,
    ),
    *reduced("cross_entropy", normal(4, 3), fraction(4, 3), note="probabilities"),
    *reduced("cross_entropy", normal(3), fraction(3), note="probabilities of one example"),
    *reduced(
        "cross_entropy", normal(2, 3, 2), fraction(2, 3, 2), positive(3), note="probabilities, 3-d", label_smoothing=0.2
    ),
    Sample(
        "_cross_entropy_of_classes",
        normal(4, 3),
        IGNORING,
        positive(3).without_gradient(),
        -100,
        "mean",
        reference=False,
    ),
    Sample(
        "_target_coefficients",
        IGNORING,
        positive(3).without_gradient(),
        3,
        -100,
        "mean",
        dtypes.float64,
        reference=False,
    ),
    Sample("_nll_of_classes", normal(4, 3), IGNORING, positive(3).without_gradient(), -100, "mean", reference=False),
    Sample("_pick_class", normal(4, 3), IGNORING, -100, reference=False),
    Sample("_pick_class", normal(2, 3, 2), integers(2, 2), -100, note="3-d", reference=False),
    Sample("_pick_class", normal(3), integers(), -100, note="one example", reference=False),
    Sample("_put_class", normal(4), IGNORING, 3, -100, reference=False),
    Sample("_put_class", normal(2, 2), integers(2, 2), 3, -100, note="3-d", reference=False),
    Sample("_put_class", normal(), integers(), 3, -100, note="one example", reference=False),
    Sample("cross_entropy_backward", normal(4), IGNORING, normal(4, 3), -100, reference=False),
    Sample("cross_entropy_backward", normal(2, 2), integers(2, 2), normal(2, 3, 2), -100, note="3-d", reference=False),
    Sample("cross_entropy_backward", normal(), integers(), normal(3), -100, note="one example", reference=False),
]

EMBEDDINGS = [
    Sample("cosine_similarity", normal(3, 4), normal(3, 4), reference=functional("cosine_similarity")),
    Sample(
        "cosine_similarity",
        normal(3, 4),
        normal(4),
        kwargs={"dim": -1},
        note="broadcast",
        reference=functional("cosine_similarity"),
    ),
    Sample("pairwise_distance", normal(3, 4), normal(3, 4), reference=functional("pairwise_distance"), complex=True),
    Sample(
        "pairwise_distance",
        normal(3, 4),
        normal(4),
        kwargs={"p": 3.0, "keepdim": True},
        note="p",
        reference=functional("pairwise_distance"),
    ),
    *reduced("hinge_embedding_loss", distinct(3, 4), signs(3, 4)),
    *reduced("cosine_embedding_loss", normal(3, 4), normal(3, 4), signs(3)),
    *reduced("cosine_embedding_loss", normal(4), normal(4), signs(), note="one pair", margin=-0.5),
    *reduced("margin_ranking_loss", distinct(6), constant([0.0] * 6), signs(6)),
    *reduced("soft_margin_loss", normal(3, 4), signs(3, 4)),
    *reduced("multilabel_soft_margin_loss", normal(3, 4), fraction(3, 4).without_gradient()),
    *reduced(
        "multilabel_soft_margin_loss",
        normal(3, 4),
        fraction(3, 4).without_gradient(),
        positive(4).without_gradient(),
        note="weight",
    ),
    *reduced("triplet_margin_loss", normal(3, 4), normal(3, 4), normal(3, 4)),
    *reduced("triplet_margin_loss", normal(3, 4), normal(3, 4), normal(3, 4), note="swap", swap=True, margin=0.5),
]

LATTICES = [
    Sample(
        "_ctc_states",
        normal(2, 5),
        normal(4, 2, 5),
        constant([[False, False, True, False, True], [False, False, False, False, True]]),
        constant([[4], [3]]),
        reference=False,
    )
]

SAMPLES = [*NUMBERS, *CLASSES, *EMBEDDINGS, *LATTICES]
