"""One row for each way to build a module: its class, arguments and inputs. The tests build it here and in PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """A module and what it is called with.

    inputs   shapes (drawn from the normal distribution) or arrays
    options  keyword arguments of the constructor
    """

    name: str
    args: tuple[Any, ...]
    inputs: tuple[Any, ...]
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)

    @property
    def id(self) -> str:
        parts = [*map(str, self.args), *(f"{k}={v}" for k, v in self.options.items())]
        shapes = "x".join(str(i if isinstance(i, tuple) else i.shape) for i in self.inputs)
        return f"{self.name}({', '.join(parts)})-{shapes}".replace(" ", "")


def row(name: str, args: tuple[Any, ...], *inputs: Any, **options: Any) -> Row:
    return Row(name, args, inputs, options)


def ints(*values: Any) -> np.ndarray:
    return np.array(values)


PLANE, LINE, SPACE = (2, 4, 6, 5), (2, 4, 9), (2, 4, 5, 4, 6)
SCORES, CLASSES = (4, 3), ints(0, 2, 1, 1)

LINEAR = [
    row("Identity", (), (2, 3)),
    row("Linear", (3, 4), (2, 3)),
    row("Linear", (3, 4), (3,)),
    row("Linear", (3, 4), (2, 5, 3), bias=False),
    row("Bilinear", (3, 4, 2), (5, 3), (5, 4)),
    row("Bilinear", (3, 4, 2), (5, 3), (5, 4), bias=False),
    row("Flatten", (), (2, 3, 4)),
    row("Unflatten", (1, (2, 3)), (2, 6)),
    row("CosineSimilarity", (), (3, 4), (3, 4)),
    row("PairwiseDistance", (), (3, 4), (3, 4), keepdim=True),
]

ACTIVATIONS = [
    row("ReLU", (), (3, 4)),
    row("ReLU6", (), (3, 4)),
    row("LeakyReLU", (0.2,), (3, 4)),
    row("RReLU", (0.2, 0.2), (3, 4)),
    row("PReLU", (), (3, 4)),
    row("PReLU", (4,), (3, 4, 2)),
    row("Threshold", (0.1, 20.0), (3, 4)),
    row("Hardtanh", (-0.5, 0.7), (3, 4)),
    row("Hardsigmoid", (), (3, 4)),
    row("Hardswish", (), (3, 4)),
    row("Hardshrink", (), (3, 4)),
    row("Softshrink", (0.3,), (3, 4)),
    row("Tanhshrink", (), (3, 4)),
    row("Sigmoid", (), (3, 4)),
    row("Tanh", (), (3, 4)),
    row("LogSigmoid", (), (3, 4)),
    row("Softsign", (), (3, 4)),
    row("ELU", (0.7,), (3, 4)),
    row("CELU", (0.7,), (3, 4)),
    row("SELU", (), (3, 4)),
    row("GELU", (), (3, 4)),
    row("GELU", (), (3, 4), approximate="tanh"),
    row("SiLU", (), (3, 4)),
    row("Mish", (), (3, 4)),
    row("Softplus", (2.0,), (3, 4)),
    row("GLU", (), (3, 4)),
    row("Softmax", (1,), (3, 4)),
    row("Softmin", (), (3, 4), dim=0),
    row("LogSoftmax", (-1,), (3, 4)),
    row("Softmax2d", (), (2, 3, 4, 5)),
]

LOSSES = [
    row("L1Loss", (), (3, 4), (3, 4)),
    row("MSELoss", (), (3, 4), (3, 4), reduction="sum"),
    row("SmoothL1Loss", (), (3, 4), (3, 4), beta=0.5),
    row("HuberLoss", ("none", 0.5), (3, 4), (3, 4)),
    row("PoissonNLLLoss", (), (3, 4), np.array([[1.5, 2, 3, 4]] * 3), full=True),
    row("GaussianNLLLoss", (), (3, 4), (3, 4), np.full((3, 4), 0.7), full=True),
    row("KLDivLoss", (), (3, 4), (3, 4), reduction="batchmean", log_target=True),
    row("NLLLoss", (), SCORES, CLASSES, ignore_index=2),
    row("CrossEntropyLoss", (), SCORES, CLASSES),
    row("CrossEntropyLoss", (), SCORES, CLASSES, label_smoothing=0.1, reduction="none"),
    row("CrossEntropyLoss", (), SCORES, SCORES),
    row("BCELoss", (), np.array([0.2, 0.7]), np.array([0.0, 1.0])),
    row("BCEWithLogitsLoss", (), (3, 4), np.eye(3, 4)),
    row("MultiLabelSoftMarginLoss", (), (3, 4), np.eye(3, 4)),
    row("HingeEmbeddingLoss", (0.8,), (3, 4), np.where(np.eye(3, 4) > 0, 1, -1)),
    row("SoftMarginLoss", (), (3, 4), np.where(np.eye(3, 4) > 0, 1, -1)),
    row("CosineEmbeddingLoss", (0.1,), (3, 4), (3, 4), ints(1, -1, 1)),
    row("MarginRankingLoss", (0.1,), (3,), (3,), np.array([1.0, -1.0, 1.0])),
    row("MultiLabelMarginLoss", (), (2, 4), ints([3, 0, -1, 1], [1, -1, 0, 0])),
    row("MultiLabelMarginLoss", (), (4,), ints(3, 0, -1, 1), reduction="sum"),
    row("MultiMarginLoss", (), SCORES, CLASSES),
    row("MultiMarginLoss", (2, 0.5), SCORES, CLASSES, reduction="none"),
    row("MultiMarginLoss", (), (3,), np.array(2)),
    row("TripletMarginLoss", (), (3, 4), (3, 4), (3, 4), swap=True),
    row("TripletMarginWithDistanceLoss", (), (3, 4), (3, 4), (3, 4), swap=True),
]

CONVOLUTIONS = [
    row("Conv1d", (4, 6, 3), LINE, stride=2, padding=1, groups=2),
    row("Conv1d", (4, 6, 3), LINE, padding="same", dilation=2),
    row("Conv1d", (4, 6, 3), LINE, padding=2, padding_mode="circular"),
    row("Conv2d", (4, 6, (3, 2)), PLANE),
    row("Conv2d", (4, 6, 3), PLANE, padding=1, padding_mode="reflect", bias=False),
    row("Conv2d", (4, 6, 3), PLANE, padding="same", padding_mode="replicate"),
    row("Conv2d", (4, 6, 3), (4, 6, 5)),
    row("Conv3d", (4, 2, 2), SPACE, stride=2),
    row("ConvTranspose1d", (4, 6, 3), LINE, stride=2, output_padding=1),
    row("ConvTranspose2d", (4, 6, 3), PLANE, stride=2, padding=1, groups=2),
    row("ConvTranspose3d", (4, 2, 2), SPACE, dilation=2, bias=False),
]

POOLS = [
    row("MaxPool1d", (3,), LINE, stride=2, padding=1),
    row("MaxPool2d", (2,), PLANE),
    row("MaxPool2d", ((3, 2),), PLANE, ceil_mode=True, dilation=1, return_indices=True),
    row("MaxPool3d", (2,), SPACE),
    row("AvgPool1d", (3,), LINE, count_include_pad=False, padding=1),
    row("AvgPool2d", (2,), PLANE, divisor_override=3),
    row("AvgPool3d", (2,), SPACE, ceil_mode=True),
    row("LPPool1d", (2, 3), LINE),
    row("LPPool2d", (2, 2), PLANE),
    row("LPPool3d", (2, 2), SPACE),
    row("AdaptiveAvgPool1d", (4,), LINE),
    row("AdaptiveAvgPool2d", ((2, None),), PLANE),
    row("AdaptiveAvgPool3d", (2,), SPACE),
    row("AdaptiveMaxPool1d", (4,), LINE),
    row("AdaptiveMaxPool2d", (3,), PLANE, return_indices=True),
    row("AdaptiveMaxPool3d", (2,), SPACE),
]

NORMS = [
    row("BatchNorm1d", (4,), (5, 4)),
    row("BatchNorm1d", (4,), LINE, momentum=None),
    row("BatchNorm2d", (4,), PLANE, affine=False),
    row("BatchNorm2d", (4,), PLANE, track_running_stats=False),
    row("BatchNorm2d", (4,), PLANE, bias=False),
    row("BatchNorm3d", (4,), SPACE, eps=1e-3, momentum=0.3),
    row("InstanceNorm1d", (4,), LINE, affine=True),
    row("InstanceNorm2d", (4,), PLANE, track_running_stats=True),
    row("InstanceNorm2d", (4,), (4, 6, 5)),
    row("InstanceNorm3d", (4,), SPACE),
    row("LayerNorm", (5,), PLANE),
    row("LayerNorm", ([6, 5],), PLANE, bias=False),
    row("LayerNorm", (5,), PLANE, elementwise_affine=False),
    row("RMSNorm", (5,), PLANE),
    row("RMSNorm", (5,), PLANE, eps=1e-3, elementwise_affine=False),
    row("GroupNorm", (2, 4), PLANE),
    row("GroupNorm", (4, 4), LINE, affine=False),
    row("LocalResponseNorm", (3,), PLANE),
]

DROPOUTS = [
    row(name, (p,), (3, 4, 2) if name != "Dropout3d" else SPACE)
    for name in ("Dropout", "Dropout1d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
    for p in (0.0, 1.0)
] + [row("Dropout2d", (1.0,), PLANE)]

EMBEDDINGS = [
    row("Embedding", (6, 3), ints([1, 2], [5, 1])),
    row("Embedding", (6, 3), ints([1, 2], [5, 1]), padding_idx=-1),
    row("Embedding", (6, 3), ints([1, 2], [5, 1]), max_norm=0.5),
    row("Embedding", (6, 3), ints([1, 2], [5, 1]), scale_grad_by_freq=True),
    row("EmbeddingBag", (6, 3), ints([1, 2], [5, 1])),
    row("EmbeddingBag", (6, 3), ints([1, 2], [5, 1]), mode="sum", padding_idx=1),
    row("EmbeddingBag", (6, 3), ints(1, 2, 5, 1, 3), ints(0, 2), mode="max"),
    row("EmbeddingBag", (6, 3), ints(1, 2, 5, 1, 3), ints(0, 2, 5), include_last_offset=True),
]

SHAPES = [
    row("Fold", ((4, 5), (2, 2)), (3, 8, 12)),
    row("Unfold", ((2, 2),), (3, 2, 4, 5)),
    row("PixelShuffle", (2,), (2, 4, 3, 3)),
    row("PixelUnshuffle", (2,), (2, 4, 4, 6)),
    row("ChannelShuffle", (2,), (2, 4, 3, 3)),
    row("Upsample", (), PLANE, scale_factor=2),
    row("Upsample", (), PLANE, size=(8, 9), mode="bilinear"),
    row("UpsamplingNearest2d", (), PLANE, scale_factor=2),
    row("UpsamplingBilinear2d", (), PLANE, size=(8, 9)),
    row("ZeroPad1d", (1,), LINE),
    row("ZeroPad2d", ((1, 2, 0, 1),), PLANE),
    row("ZeroPad3d", (1,), SPACE),
    row("ConstantPad1d", (1, 0.5), LINE),
    row("ConstantPad2d", (1, 0.5), PLANE),
    row("ConstantPad3d", (1, 0.5), SPACE),
    row("ReflectionPad1d", (2,), LINE),
    row("ReflectionPad2d", ((1, 0, 2, 1),), PLANE),
    row("ReflectionPad3d", (1,), SPACE),
    row("ReplicationPad1d", (2,), LINE),
    row("ReplicationPad2d", (1,), PLANE),
    row("ReplicationPad3d", (1,), SPACE),
    row("CircularPad1d", (2,), LINE),
    row("CircularPad2d", (1,), PLANE),
    row("CircularPad3d", (1,), SPACE),
]

RECURRENT = [
    row("RNN", (3, 5), (7, 2, 3)),
    row("RNN", (3, 5), (2, 7, 3), (4, 2, 5), num_layers=2, bidirectional=True, nonlinearity="relu", batch_first=True),
    row("RNN", (3, 5), (7, 3), (1, 5), bias=False),
    row("LSTM", (3, 5), (7, 2, 3)),
    row("LSTM", (3, 5, 2), (2, 7, 3), batch_first=True, bidirectional=True),
    row("LSTM", (3, 5), (7, 3), bias=False),
    row("LSTM", (3, 5, 2), (7, 2, 3), proj_size=2, bidirectional=True),
    row("GRU", (3, 5), (7, 2, 3), (1, 2, 5)),
    row("GRU", (3, 5, 2), (2, 7, 3), batch_first=True, bidirectional=True),
    row("GRU", (3, 5), (7, 3), bias=False),
    row("RNNCell", (3, 5), (2, 3), (2, 5)),
    row("RNNCell", (3, 5), (3,), nonlinearity="relu", bias=False),
    row("LSTMCell", (3, 5), (2, 3)),
    row("LSTMCell", (3, 5), (3,), bias=False),
    row("GRUCell", (3, 5), (2, 3), (2, 5)),
    row("GRUCell", (3, 5), (3,), (5,), bias=False),
]

ATTENTION = [
    row("MultiheadAttention", (8, 2), (5, 3, 8), (6, 3, 8), (6, 3, 8)),
    row("MultiheadAttention", (8, 2), (3, 5, 8), (3, 6, 4), (3, 6, 3), kdim=4, vdim=3, batch_first=True),
    row("MultiheadAttention", (8, 2), (5, 8), (6, 8), (6, 8), add_bias_kv=True, add_zero_attn=True),
    row("TransformerEncoderLayer", (8, 2, 16, 0.0), (5, 3, 8)),
    row("TransformerEncoderLayer", (8, 2, 16, 0.0, "gelu"), (3, 5, 8), batch_first=True, norm_first=True, bias=False),
    row("TransformerDecoderLayer", (8, 2, 16, 0.0), (5, 3, 8), (6, 3, 8)),
    row("TransformerDecoderLayer", (8, 2, 16, 0.0), (5, 8), (6, 8), norm_first=True),
    row("Transformer", (8, 2, 2, 1, 16, 0.0), (3, 6, 8), (3, 5, 8), batch_first=True),
]

ROWS = [
    *LINEAR,
    *ACTIVATIONS,
    *LOSSES,
    *CONVOLUTIONS,
    *POOLS,
    *NORMS,
    *DROPOUTS,
    *EMBEDDINGS,
    *SHAPES,
    *RECURRENT,
    *ATTENTION,
]
