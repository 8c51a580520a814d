"""Neural networks: modules, layers, losses and initialisation, with PyTorch's names and behaviour."""

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.nn import functional as functional
from undertow.nn import grad as grad
from undertow.nn import init as init
from undertow.nn import utils as utils
from undertow.nn.layers.activations import CELU as CELU
from undertow.nn.layers.activations import ELU as ELU
from undertow.nn.layers.activations import GELU as GELU
from undertow.nn.layers.activations import GLU as GLU
from undertow.nn.layers.activations import SELU as SELU
from undertow.nn.layers.activations import Hardshrink as Hardshrink
from undertow.nn.layers.activations import Hardsigmoid as Hardsigmoid
from undertow.nn.layers.activations import Hardswish as Hardswish
from undertow.nn.layers.activations import Hardtanh as Hardtanh
from undertow.nn.layers.activations import LeakyReLU as LeakyReLU
from undertow.nn.layers.activations import LogSigmoid as LogSigmoid
from undertow.nn.layers.activations import LogSoftmax as LogSoftmax
from undertow.nn.layers.activations import Mish as Mish
from undertow.nn.layers.activations import PReLU as PReLU
from undertow.nn.layers.activations import ReLU as ReLU
from undertow.nn.layers.activations import ReLU6 as ReLU6
from undertow.nn.layers.activations import RReLU as RReLU
from undertow.nn.layers.activations import Sigmoid as Sigmoid
from undertow.nn.layers.activations import SiLU as SiLU
from undertow.nn.layers.activations import Softmax as Softmax
from undertow.nn.layers.activations import Softmax2d as Softmax2d
from undertow.nn.layers.activations import Softmin as Softmin
from undertow.nn.layers.activations import Softplus as Softplus
from undertow.nn.layers.activations import Softshrink as Softshrink
from undertow.nn.layers.activations import Softsign as Softsign
from undertow.nn.layers.activations import Tanh as Tanh
from undertow.nn.layers.activations import Tanhshrink as Tanhshrink
from undertow.nn.layers.activations import Threshold as Threshold
from undertow.nn.layers.adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from undertow.nn.layers.containers import ModuleDict as ModuleDict
from undertow.nn.layers.containers import ModuleList as ModuleList
from undertow.nn.layers.containers import ParameterDict as ParameterDict
from undertow.nn.layers.containers import ParameterList as ParameterList
from undertow.nn.layers.containers import Sequential as Sequential
from undertow.nn.layers.conv import Conv1d as Conv1d
from undertow.nn.layers.conv import Conv2d as Conv2d
from undertow.nn.layers.conv import Conv3d as Conv3d
from undertow.nn.layers.conv import ConvTranspose1d as ConvTranspose1d
from undertow.nn.layers.conv import ConvTranspose2d as ConvTranspose2d
from undertow.nn.layers.conv import ConvTranspose3d as ConvTranspose3d
from undertow.nn.layers.distances import CosineSimilarity as CosineSimilarity
from undertow.nn.layers.distances import PairwiseDistance as PairwiseDistance
from undertow.nn.layers.dropout import AlphaDropout as AlphaDropout
from undertow.nn.layers.dropout import Dropout as Dropout
from undertow.nn.layers.dropout import Dropout1d as Dropout1d
from undertow.nn.layers.dropout import Dropout2d as Dropout2d
from undertow.nn.layers.dropout import Dropout3d as Dropout3d
from undertow.nn.layers.dropout import FeatureAlphaDropout as FeatureAlphaDropout
from undertow.nn.layers.embedding import Embedding as Embedding
from undertow.nn.layers.embedding import EmbeddingBag as EmbeddingBag
from undertow.nn.layers.fractional_pooling import FractionalMaxPool2d as FractionalMaxPool2d
from undertow.nn.layers.fractional_pooling import FractionalMaxPool3d as FractionalMaxPool3d
from undertow.nn.layers.lazy import LazyBatchNorm1d as LazyBatchNorm1d
from undertow.nn.layers.lazy import LazyBatchNorm2d as LazyBatchNorm2d
from undertow.nn.layers.lazy import LazyBatchNorm3d as LazyBatchNorm3d
from undertow.nn.layers.lazy import LazyConv1d as LazyConv1d
from undertow.nn.layers.lazy import LazyConv2d as LazyConv2d
from undertow.nn.layers.lazy import LazyConv3d as LazyConv3d
from undertow.nn.layers.lazy import LazyConvTranspose1d as LazyConvTranspose1d
from undertow.nn.layers.lazy import LazyConvTranspose2d as LazyConvTranspose2d
from undertow.nn.layers.lazy import LazyConvTranspose3d as LazyConvTranspose3d
from undertow.nn.layers.lazy import LazyInstanceNorm1d as LazyInstanceNorm1d
from undertow.nn.layers.lazy import LazyInstanceNorm2d as LazyInstanceNorm2d
from undertow.nn.layers.lazy import LazyInstanceNorm3d as LazyInstanceNorm3d
from undertow.nn.layers.lazy import LazyLinear as LazyLinear
from undertow.nn.layers.linear import Bilinear as Bilinear
from undertow.nn.layers.linear import Identity as Identity
from undertow.nn.layers.linear import Linear as Linear
from undertow.nn.layers.losses import BCELoss as BCELoss
from undertow.nn.layers.losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from undertow.nn.layers.losses import CosineEmbeddingLoss as CosineEmbeddingLoss
from undertow.nn.layers.losses import CrossEntropyLoss as CrossEntropyLoss
from undertow.nn.layers.losses import CTCLoss as CTCLoss
from undertow.nn.layers.losses import GaussianNLLLoss as GaussianNLLLoss
from undertow.nn.layers.losses import HingeEmbeddingLoss as HingeEmbeddingLoss
from undertow.nn.layers.losses import HuberLoss as HuberLoss
from undertow.nn.layers.losses import KLDivLoss as KLDivLoss
from undertow.nn.layers.losses import L1Loss as L1Loss
from undertow.nn.layers.losses import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from undertow.nn.layers.losses import MarginRankingLoss as MarginRankingLoss
from undertow.nn.layers.losses import MSELoss as MSELoss
from undertow.nn.layers.losses import MultiLabelMarginLoss as MultiLabelMarginLoss
from undertow.nn.layers.losses import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from undertow.nn.layers.losses import MultiMarginLoss as MultiMarginLoss
from undertow.nn.layers.losses import NLLLoss as NLLLoss
from undertow.nn.layers.losses import PoissonNLLLoss as PoissonNLLLoss
from undertow.nn.layers.losses import SmoothL1Loss as SmoothL1Loss
from undertow.nn.layers.losses import SoftMarginLoss as SoftMarginLoss
from undertow.nn.layers.losses import TripletMarginLoss as TripletMarginLoss
from undertow.nn.layers.losses import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from undertow.nn.layers.multihead_attention import MultiheadAttention as MultiheadAttention
from undertow.nn.layers.normalization import BatchNorm1d as BatchNorm1d
from undertow.nn.layers.normalization import BatchNorm2d as BatchNorm2d
from undertow.nn.layers.normalization import BatchNorm3d as BatchNorm3d
from undertow.nn.layers.normalization import GroupNorm as GroupNorm
from undertow.nn.layers.normalization import InstanceNorm1d as InstanceNorm1d
from undertow.nn.layers.normalization import InstanceNorm2d as InstanceNorm2d
from undertow.nn.layers.normalization import InstanceNorm3d as InstanceNorm3d
from undertow.nn.layers.normalization import LayerNorm as LayerNorm
from undertow.nn.layers.normalization import LocalResponseNorm as LocalResponseNorm
from undertow.nn.layers.normalization import RMSNorm as RMSNorm
from undertow.nn.layers.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from undertow.nn.layers.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from undertow.nn.layers.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from undertow.nn.layers.pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from undertow.nn.layers.pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from undertow.nn.layers.pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from undertow.nn.layers.pooling import AvgPool1d as AvgPool1d
from undertow.nn.layers.pooling import AvgPool2d as AvgPool2d
from undertow.nn.layers.pooling import AvgPool3d as AvgPool3d
from undertow.nn.layers.pooling import LPPool1d as LPPool1d
from undertow.nn.layers.pooling import LPPool2d as LPPool2d
from undertow.nn.layers.pooling import LPPool3d as LPPool3d
from undertow.nn.layers.pooling import MaxPool1d as MaxPool1d
from undertow.nn.layers.pooling import MaxPool2d as MaxPool2d
from undertow.nn.layers.pooling import MaxPool3d as MaxPool3d
from undertow.nn.layers.pooling import MaxUnpool1d as MaxUnpool1d
from undertow.nn.layers.pooling import MaxUnpool2d as MaxUnpool2d
from undertow.nn.layers.pooling import MaxUnpool3d as MaxUnpool3d
from undertow.nn.layers.rnn import GRU as GRU
from undertow.nn.layers.rnn import LSTM as LSTM
from undertow.nn.layers.rnn import RNN as RNN
from undertow.nn.layers.rnn import RNNBase as RNNBase
from undertow.nn.layers.rnn_cells import GRUCell as GRUCell
from undertow.nn.layers.rnn_cells import LSTMCell as LSTMCell
from undertow.nn.layers.rnn_cells import RNNCell as RNNCell
from undertow.nn.layers.rnn_cells import RNNCellBase as RNNCellBase
from undertow.nn.layers.shape import ChannelShuffle as ChannelShuffle
from undertow.nn.layers.shape import CircularPad1d as CircularPad1d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import CircularPad2d as CircularPad2d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import CircularPad3d as CircularPad3d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ConstantPad1d as ConstantPad1d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ConstantPad2d as ConstantPad2d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ConstantPad3d as ConstantPad3d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import Flatten as Flatten
from undertow.nn.layers.shape import Fold as Fold
from undertow.nn.layers.shape import PixelShuffle as PixelShuffle
from undertow.nn.layers.shape import PixelUnshuffle as PixelUnshuffle
from undertow.nn.layers.shape import ReflectionPad1d as ReflectionPad1d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ReflectionPad2d as ReflectionPad2d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ReflectionPad3d as ReflectionPad3d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ReplicationPad1d as ReplicationPad1d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ReplicationPad2d as ReplicationPad2d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ReplicationPad3d as ReplicationPad3d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import Unflatten as Unflatten
from undertow.nn.layers.shape import Unfold as Unfold
from undertow.nn.layers.shape import Upsample as Upsample
from undertow.nn.layers.shape import UpsamplingBilinear2d as UpsamplingBilinear2d
from undertow.nn.layers.shape import UpsamplingNearest2d as UpsamplingNearest2d
from undertow.nn.layers.shape import ZeroPad1d as ZeroPad1d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ZeroPad2d as ZeroPad2d  # type: ignore[attr-defined]
from undertow.nn.layers.shape import ZeroPad3d as ZeroPad3d  # type: ignore[attr-defined]
from undertow.nn.layers.transformer import Transformer as Transformer
from undertow.nn.layers.transformer import TransformerDecoder as TransformerDecoder
from undertow.nn.layers.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from undertow.nn.layers.transformer import TransformerEncoder as TransformerEncoder
from undertow.nn.layers.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from undertow.nn.linear_cross_entropy import LinearCrossEntropyOptions as LinearCrossEntropyOptions
from undertow.nn.module import Module as Module
from undertow.nn.module.lazy_parameters import UninitializedBuffer as UninitializedBuffer
from undertow.nn.module.lazy_parameters import UninitializedParameter as UninitializedParameter
from undertow.nn.parallel import DataParallel as DataParallel
from undertow.nn.parameter import Buffer as Buffer
from undertow.nn.parameter import Parameter as Parameter
from undertow.torch_names import module_aliases as _module_aliases

_module_aliases.register(__name__)

if TYPE_CHECKING:
    from undertow.distributed.data_parallel import SyncBatchNorm as SyncBatchNorm
    from undertow.nn.layers.older import Container as Container
    from undertow.nn.layers.older import NLLLoss2d as NLLLoss2d
else:
    __path__.append(f"{__path__[0]}/../torch_names/below_nn")  # modules that only programs written for PyTorch ask for
    __getattr__, __dir__ = _loaded_when_used(
        __name__,
        names={
            "undertow.distributed.data_parallel": "SyncBatchNorm",
            "undertow.nn.layers.older": "Container NLLLoss2d",
        },
    )
