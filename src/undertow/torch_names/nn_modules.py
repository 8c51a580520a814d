"""PyTorch's places for layers: `nn.modules.batchnorm._BatchNorm`, `nn.modules.conv.Conv2d` and so on.

Programs name them to ask what a layer is, or to import it. The base classes have the names that PyTorch gives them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from undertow import nn
from undertow.nn import module
from undertow.nn.layers import (
    activations,
    adaptive_softmax,
    containers,
    conv,
    distances,
    dropout,
    embedding,
    fractional_pooling,
    linear,
    losses,
    multihead_attention,
    normalization,
    older,
    pooling,
    rnn,
    rnn_cells,
    shape,
    transformer,
)
from undertow.nn.layers import (
    lazy as lazy_layers,
)
from undertow.nn.module import calling, lazy_parameters, registry, state_dict
from undertow.tensor import Tensor

#: where the layers are
FILES = (activations, adaptive_softmax, rnn_cells, containers, conv, distances, dropout, embedding, fractional_pooling,
         lazy_layers, linear, losses, module, multihead_attention, normalization, older, pooling, rnn, shape,
         transformer)  # fmt: skip
FOUND: dict[str, Any] = {name: value for file in FILES for name, value in vars(file).items()}


def repeated(n: int) -> Callable[..., Any]:
    """A function that makes a tuple of `n` of a number, and a tuple of anything that has several."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if hasattr(x, "__iter__") else (x,) * n

    return parse


def in_order(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The slices of a tensor in another order."""
    return tensor.index_select(dim, permutation)


#: place -> layers that are also in `nn`
LAYERS = {
    "activation": "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
    "MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
    "Softsign Tanh Tanhshrink Threshold",
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d",
    "channelshuffle": "ChannelShuffle",
    "container": "Container ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
    "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    "distance": "CosineSimilarity PairwiseDistance",
    "dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d "
    "LazyInstanceNorm3d",
    "lazy": "",
    "linear": "Bilinear Identity LazyLinear Linear",
    "loss": "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss "
    "HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss "
    "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss "
    "SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss",
    "module": "Module",
    "normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": " ".join(f"{kind}Pad{n}d" for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero")
                        for n in (1, 2, 3)),
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
    "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d "
    "LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d",
    "rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "sparse": "Embedding EmbeddingBag",
    "transformer": "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "utils": "",
}  # fmt: skip


class ConvTransposeMixin(conv.TransposedConvolution):
    """A base that no layer has: older programs ask `isinstance` of it, beside `_ConvNd`."""


#: place -> what is there and nowhere else
OTHERS: dict[str, dict[str, Any]] = {
    "batchnorm": {
        "_BatchNorm": normalization.BatchNorm,
        "_LazyNormBase": lazy_layers.LazyChannelNorm,
        "_NormBase": normalization.ChannelNorm,
    },
    "container": {"_addindent": module.indented},
    "conv": {
        "_ConvNd": conv.Convolution,
        "_ConvTransposeMixin": ConvTransposeMixin,
        "_ConvTransposeNd": conv.TransposedConvolution,
        "_LazyConvXdMixin": lazy_layers.LazyConvolution,
    },
    "dropout": {"_DropoutNd": dropout.AnyDropout},
    "instancenorm": {"_InstanceNorm": normalization.InstanceNorm},
    "lazy": {"LazyModuleMixin": lazy_parameters.LazyModuleMixin},
    "linear": {"NonDynamicallyQuantizableLinear": multihead_attention.NonDynamicallyQuantizableLinear},
    "loss": {"_Loss": losses.Loss, "_WeightedLoss": losses.WeightedLoss},
    "module": {
        "_EXTRA_STATE_KEY_SUFFIX": "_extra_state",
        "_IncompatibleKeys": state_dict.IncompatibleKeys,
        **{
            f"_global_{member}_registration_hooks": registry.REGISTRATION_HOOKS[kind]
            for member, kind in (("parameter", "_parameters"), ("buffer", "_buffers"), ("module", "_modules"))
        },
        "register_module_parameter_registration_hook": registry.register_module_parameter_registration_hook,
        "register_module_buffer_registration_hook": registry.register_module_buffer_registration_hook,
        "register_module_module_registration_hook": registry.register_module_module_registration_hook,
        "register_module_forward_pre_hook": calling.register_module_forward_pre_hook,
        "register_module_forward_hook": calling.register_module_forward_hook,
        "register_module_full_backward_pre_hook": calling.register_module_full_backward_pre_hook,
        "register_module_full_backward_hook": calling.register_module_full_backward_hook,
        "register_module_backward_hook": calling.register_module_backward_hook,
    },
    "padding": {
        "_CircularPadNd": shape.CircularPadding,
        "_ConstantPadNd": shape.ConstantPadding,
        "_ReflectionPadNd": shape.ReflectionPadding,
        "_ReplicationPadNd": shape.ReplicationPadding,
    },
    "pooling": {
        "_AdaptiveAvgPoolNd": pooling.AdaptiveAvgPool,
        "_AdaptiveMaxPoolNd": pooling.AdaptiveMaxPool,
        "_AvgPoolNd": pooling.AnyAvgPool,
        "_LPPoolNd": pooling.LPPool,
        "_MaxPoolNd": pooling.MaxPool,
        "_MaxUnpoolNd": pooling.MaxUnpool,
    },
    "rnn": {"apply_permutation": in_order, "_apply_permutation": in_order},
    "transformer": {
        "_generate_square_subsequent_mask": transformer.Transformer.generate_square_subsequent_mask,
        "_get_activation_fn": transformer.activation_of,
        "_get_clones": transformer.clones,
    },
    "utils": {
        "_reverse_repeat_tuple": lambda t, n: tuple([x for x in reversed(t) for _ in range(n)]),
        **{name: repeated(n) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1)},
        "_ntuple": lambda n, name="parse": repeated(n),
        "consume_prefix_in_state_dict_if_present": state_dict.consume_prefix_in_state_dict_if_present,
    },
}


def place(name: str) -> ModuleType:
    """A module of this name, which can be imported as if it were a file."""
    made = ModuleType(f"undertow.nn.modules.{name}", f"PyTorch's `torch.nn.modules.{name}`: layers of `undertow.nn`.")
    made.__dict__.update({layer: FOUND[layer] for layer in LAYERS[name].split()})
    made.__dict__.update(OTHERS.get(name, {}))
    sys.modules[made.__name__] = made
    return made


PLACES = {name: place(name) for name in LAYERS}
globals().update({layer: FOUND[layer] for layers in LAYERS.values() for layer in layers.split()})
globals().update(PLACES)
__all__ = sorted({*PLACES, *(layer for layers in LAYERS.values() for layer in layers.split())})


def __getattr__(name: str) -> Any:
    """A layer that is loaded when it is first used (SyncBatchNorm), or the reason why there is none."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(nn, name)


vars(PLACES["batchnorm"])["__getattr__"] = __getattr__
