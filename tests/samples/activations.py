"""Activations, softmax and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, booleans, constant, distinct, integers, normal, positive


def functional(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.nn.functional, name)(*args, **kwargs)


def pointwise(op: str, *params: Any, kinks: tuple[float, ...] = (), **options: Any) -> list[Sample]:
    """Rows of an activation: a matrix, a 0-d input, nothing at all, large values, and its kinks."""
    reference = options.pop("reference", functional(op))
    rows = [
        Sample(op, distinct(3, 4), *params, reference=reference, **options),
        Sample(op, normal(), *params, reference=reference, note="0-d", **options),
        Sample(op, normal(0, 3), *params, reference=reference, note="empty", **options),
        Sample(op, constant([-500.0, -30.0, 30.0, 500.0]), *params, reference=reference, note="large", **options),
    ]
    if kinks:
        kwargs = {"kink": True, "note": "kink", **options}
        rows.append(Sample(op, constant(list(kinks)), *params, reference=reference, **kwargs))
    return rows


STRAIGHT = [
    *pointwise("relu", kinks=(0.0, -0.0)),
    Sample("relu", integers(4, low=-2, high=3), note="integers"),
    *pointwise("relu6", kinks=(0.0, 6.0)),
    Sample("relu6", integers(4, low=-2, high=9), note="integers", reference=functional("relu6")),
    *pointwise("leaky_relu", kinks=(0.0,)),
    *pointwise("leaky_relu", 0.3),
    *pointwise("hardtanh", kinks=(-1.0, 1.0)),
    *pointwise("hardtanh", -0.5, 0.7),
    # PyTorch's own derivative has the sixth in single precision, and there is no second one
    *pointwise("hardsigmoid", kinks=(-3.0, 3.0), reference=lambda torch, x: torch.nn.functional.relu6(x + 3) / 6),
    *pointwise("hardswish", kinks=(-3.0, 3.0)),
    *pointwise("threshold", 0.1, 20.0, kinks=(0.1,)),
    *pointwise("hardshrink", kinks=(-0.5, 0.5, 0.0)),
    *pointwise("softshrink", kinks=(-0.5, 0.5, 0.0)),
    *pointwise("softshrink", 0.1),
    Sample("prelu", distinct(2, 3, 2), normal(3)),
    Sample("prelu", distinct(2, 3), normal(1), note="one weight"),
    Sample("prelu", distinct(4), normal(1), note="1-d"),
    Sample("prelu", normal(), normal(), note="0-d"),
    Sample("prelu", constant([[0.0, 1.0]]), normal(1), note="kink", kink=True, gradgrad=False),
    Sample("_prelu_kernel", distinct(2, 3), normal(2, 3), reference=lambda torch, x, w: torch._prelu_kernel(x, w)),
    Sample(
        "threshold_backward",
        normal(3, 4),
        distinct(3, 4).without_gradient(),
        0.1,
        reference=lambda torch, g, x, t: torch.ops.aten.threshold_backward(g, x, t),
    ),
]

CURVED = [
    *pointwise("elu", kinks=(0.0,)),
    *pointwise("elu", 0.7, kinks=(0.0,)),
    Sample("elu", normal(4), 0.7, 1.1, 1.3, note="scales", reference=lambda torch, *a: torch.ops.aten.elu(*a)),
    *pointwise("selu", kinks=(0.0,)),
    *pointwise("celu", kinks=(0.0,)),
    *pointwise("celu", 0.5),
    *pointwise("silu"),
    Sample("silu", normal(3, 2), complex_only=True, reference=False),
    *pointwise("mish"),
    *pointwise("softplus"),
    Sample("softplus", constant([20.0]), reference=functional("softplus"), note="kink", kink=True, gradgrad=False),
    *pointwise("softplus", 2.0, 3.0),
    *pointwise("softsign", kinks=(0.0,)),
    *pointwise("tanhshrink"),
    *pointwise("logsigmoid"),
    *pointwise("gelu"),
    Sample("gelu", normal(3, 4), kwargs={"approximate": "tanh"}, note="tanh", reference=functional("gelu")),
    Sample("erf", normal(3, 4)),
    Sample("erf", normal(), note="0-d"),
    Sample("erf", normal(300), note="many"),
    Sample("erf", integers(4), note="integers"),
    Sample("erf", constant([-30.0, -4.0, 0.0, 0.46875, 4.0, 30.0]), note="regions"),
    Sample("erfc", normal(3, 4)),
    Sample("erfc", normal(300), note="many"),
    Sample("erfc", constant([-30.0, -4.0, 0.0, 0.46875, 4.0, 20.0]), note="regions"),
    Sample("glu", normal(2, 4), reference=functional("glu")),
    Sample("glu", normal(2, 4), 0, note="dim", reference=functional("glu")),
]


def along(op: str, *params: Any, **options: Any) -> list[Sample]:
    """Rows of a function along one dimension."""
    reference = functional(op)
    return [
        Sample(op, normal(3, 4), 1, *params, reference=reference, **options),
        Sample(op, normal(2, 3, 2), -2, *params, reference=reference, note="negative dim", **options),
        Sample(op, normal(), 0, *params, reference=reference, note="0-d", **options),
        Sample(op, normal(0, 3), 1, *params, reference=reference, note="empty", **options),
        Sample(op, constant([[1000.0, -1000.0, 999.0]]), 1, *params, reference=reference, note="large", **options),
    ]


WITHOUT = constant([[0.0, -np.inf, 1.0]])  # one class is impossible

ALONG = [
    *along("softmax"),
    *along("log_softmax"),
    *along("softmin"),
    Sample("softmax", WITHOUT, 1, note="minus infinity", kink=True),
    Sample("log_softmax", WITHOUT, 1, note="minus infinity", kink=True),
    Sample(
        "softmax",
        integers(2, 3),
        1,
        kwargs={"dtype": np.dtype(np.float64)},
        note="dtype",
        reference=lambda torch, x, dim, dtype: torch.softmax(x, dim, dtype=torch.float64),
    ),
    Sample("_safe_softmax", normal(3, 4), 1),
    Sample("_safe_softmax", normal(2, 3, 2), -2, note="negative dim"),
    Sample("_safe_softmax", normal(0, 3), 1, note="empty"),
    Sample("_safe_softmax", WITHOUT, 1, note="minus infinity", kink=True),
    Sample("_safe_softmax", constant([[-np.inf, -np.inf], [0.0, 1.0]]), 1, note="nothing", kink=True),
    Sample("softmax_backward_data", normal(3, 4), normal(3, 4), 1, reference=False),
    Sample("softmax_backward_data", normal(), normal(), 0, note="0-d", reference=False),
    Sample("log_softmax_backward_data", normal(3, 4), normal(3, 4), 0, reference=False),
]

NORMALIZED = [
    Sample("_standardize", normal(2, 3, 4), (1, 2), 0.1, reference=False),
    Sample("_standardize", normal(2, 3), (0,), 1e-5, note="columns", reference=False),
    Sample("layer_norm", normal(2, 3, 4), (3, 4), normal(3, 4), normal(3, 4), reference=functional("layer_norm")),
    Sample("native_layer_norm", normal(2, 3, 4), (4,), normal(4), normal(4), 1e-5),
    Sample("native_layer_norm", normal(2, 3, 4), (3, 4), None, None, 0.1, note="plain"),
    Sample("layer_norm", normal(2, 4), (4,), kwargs={"eps": 0.1}, note="plain", reference=functional("layer_norm")),
    Sample("rms_norm", normal(2, 3), (3,), normal(3), reference=functional("rms_norm"), complex=True),
    Sample("rms_norm", normal(2, 3, 4), (3, 4), kwargs={"eps": 0.1}, note="plain", reference=functional("rms_norm")),
    Sample("_fused_rms_norm", normal(2, 3), (3,), normal(3), 0.1, reference=False),
    Sample("_batch_norm", normal(4, 3), normal(3), normal(3), 0, 0.1, reference=False),
    Sample("_batch_norm", normal(2, 3, 4), None, None, 0, 0.1, note="plain", reference=False),
    Sample("_group_norm", normal(2, 4, 3), normal(4), normal(4), 2, 0.1, reference=False),
    Sample("_group_norm", normal(3, 4), None, normal(4), 1, 0.1, note="no weight", reference=False),
    Sample("_fused_attention", normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 3), False, 0.5, reference=False),
    Sample("_fused_attention", normal(4, 2), normal(3, 2), normal(3, 1), True, 0.7, note="causal", reference=False),
    Sample(
        "_fused_attention",
        normal(2, 1, 2, 3),
        normal(2, 1, 4, 3),
        normal(2, 1, 4, 2),
        True,
        -0.7,
        note="causal, fewer queries",
        reference=False,
    ),
    Sample("group_norm", normal(2, 4, 3), 2, normal(4), normal(4), reference=functional("group_norm")),
    Sample("group_norm", normal(3, 4), 2, reference=functional("group_norm"), note="plain"),
    Sample("batch_norm", normal(4, 3), None, None, normal(3), normal(3), True, reference=functional("batch_norm")),
    Sample(
        "batch_norm",
        normal(2, 3, 2),
        None,
        None,
        kwargs={"training": True},
        note="3-d",
        reference=functional("batch_norm"),
    ),
    Sample(
        "batch_norm",
        normal(2, 3, 2),
        normal(3).without_gradient(),
        positive(3).without_gradient(),
        normal(3),
        normal(3),
        note="evaluation",
        reference=functional("batch_norm"),
    ),
    Sample("instance_norm", normal(2, 3, 4), reference=functional("instance_norm")),
    Sample(
        "instance_norm",
        normal(2, 3, 2, 2),
        None,
        None,
        normal(3),
        normal(3),
        note="4-d",
        reference=functional("instance_norm"),
    ),
    Sample("normalize", normal(3, 4), reference=functional("normalize"), complex=True),
    Sample("normalize", normal(3, 4), 1.0, 0, note="p, dim", reference=functional("normalize")),
    Sample("dropout", normal(3, 4), 1.0, note="everything", reference=functional("dropout")),
    Sample("dropout", normal(3, 4), 0.5, False, note="evaluation", reference=functional("dropout")),
    Sample("native_dropout", normal(3, 4), 0.5, False, note="evaluation"),
    Sample("native_dropout", normal(3, 4), 1.0, True, note="everything"),
    Sample(
        "native_dropout_backward",
        normal(3, 4),
        booleans(3, 4),
        2.0,
        reference=lambda torch, g, mask, scale: torch.ops.aten.native_dropout_backward(g, mask, scale),
    ),
]

SAMPLES = [*STRAIGHT, *CURVED, *ALONG, *NORMALIZED]
