"""Neural networks: modules, layers, losses and initialisation, with PyTorch's names and behaviour."""

from typing import TYPE_CHECKING

from undertow import absent as _absent
from undertow.nn import functional as functional
from undertow.nn import grad as grad
from undertow.nn import init as init
from undertow.nn import modules as modules
from undertow.nn import utils as utils
from undertow.nn.activations import CELU as CELU
from undertow.nn.activations import ELU as ELU
from undertow.nn.activations import GELU as GELU
from undertow.nn.activations import GLU as GLU
from undertow.nn.activations import SELU as SELU
from undertow.nn.activations import Hardshrink as Hardshrink
from undertow.nn.activations import Hardsigmoid as Hardsigmoid
from undertow.nn.activations import Hardswish as Hardswish
from undertow.nn.activations import Hardtanh as Hardtanh
from undertow.nn.activations import LeakyReLU as LeakyReLU
from undertow.nn.activations import LogSigmoid as LogSigmoid
from undertow.nn.activations import LogSoftmax as LogSoftmax
from undertow.nn.activations import Mish as Mish
from undertow.nn.activations import PReLU as PReLU
from undertow.nn.activations import ReLU as ReLU
from undertow.nn.activations import ReLU6 as ReLU6
from undertow.nn.activations import RReLU as RReLU
from undertow.nn.activations import Sigmoid as Sigmoid
from undertow.nn.activations import SiLU as SiLU
from undertow.nn.activations import Softmax as Softmax
from undertow.nn.activations import Softmax2d as Softmax2d
from undertow.nn.activations import Softmin as Softmin
from undertow.nn.activations import Softplus as Softplus
from undertow.nn.activations import Softshrink as Softshrink
from undertow.nn.activations import Softsign as Softsign
from undertow.nn.activations import Tanh as Tanh
from undertow.nn.activations import Tanhshrink as Tanhshrink
from undertow.nn.activations import Threshold as Threshold
from undertow.nn.adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from undertow.nn.cells import GRUCell as GRUCell
from undertow.nn.cells import LSTMCell as LSTMCell
from undertow.nn.cells import RNNCell as RNNCell
from undertow.nn.cells import RNNCellBase as RNNCellBase
from undertow.nn.containers import ModuleDict as ModuleDict
from undertow.nn.containers import ModuleList as ModuleList
from undertow.nn.containers import ParameterDict as ParameterDict
from undertow.nn.containers import ParameterList as ParameterList
from undertow.nn.containers import Sequential as Sequential
from undertow.nn.convolutions import Conv1d as Conv1d
from undertow.nn.convolutions import Conv2d as Conv2d
from undertow.nn.convolutions import Conv3d as Conv3d
from undertow.nn.convolutions import ConvTranspose1d as ConvTranspose1d
from undertow.nn.convolutions import ConvTranspose2d as ConvTranspose2d
from undertow.nn.convolutions import ConvTranspose3d as ConvTranspose3d
from undertow.nn.distances import CosineSimilarity as CosineSimilarity
from undertow.nn.distances import PairwiseDistance as PairwiseDistance
from undertow.nn.dropouts import AlphaDropout as AlphaDropout
from undertow.nn.dropouts import Dropout as Dropout
from undertow.nn.dropouts import Dropout1d as Dropout1d
from undertow.nn.dropouts import Dropout2d as Dropout2d
from undertow.nn.dropouts import Dropout3d as Dropout3d
from undertow.nn.dropouts import FeatureAlphaDropout as FeatureAlphaDropout
from undertow.nn.embeddings import Embedding as Embedding
from undertow.nn.embeddings import EmbeddingBag as EmbeddingBag
from undertow.nn.fractional import FractionalMaxPool2d as FractionalMaxPool2d
from undertow.nn.fractional import FractionalMaxPool3d as FractionalMaxPool3d
from undertow.nn.lazy import UninitializedBuffer as UninitializedBuffer
from undertow.nn.lazy import UninitializedParameter as UninitializedParameter
from undertow.nn.lazy_layers import LazyBatchNorm1d as LazyBatchNorm1d
from undertow.nn.lazy_layers import LazyBatchNorm2d as LazyBatchNorm2d
from undertow.nn.lazy_layers import LazyBatchNorm3d as LazyBatchNorm3d
from undertow.nn.lazy_layers import LazyConv1d as LazyConv1d
from undertow.nn.lazy_layers import LazyConv2d as LazyConv2d
from undertow.nn.lazy_layers import LazyConv3d as LazyConv3d
from undertow.nn.lazy_layers import LazyConvTranspose1d as LazyConvTranspose1d
from undertow.nn.lazy_layers import LazyConvTranspose2d as LazyConvTranspose2d
from undertow.nn.lazy_layers import LazyConvTranspose3d as LazyConvTranspose3d
from undertow.nn.lazy_layers import LazyInstanceNorm1d as LazyInstanceNorm1d
from undertow.nn.lazy_layers import LazyInstanceNorm2d as LazyInstanceNorm2d
from undertow.nn.lazy_layers import LazyInstanceNorm3d as LazyInstanceNorm3d
from undertow.nn.lazy_layers import LazyLinear as LazyLinear
from undertow.nn.linear import Bilinear as Bilinear
from undertow.nn.linear import Identity as Identity
from undertow.nn.linear import Linear as Linear
from undertow.nn.losses import BCELoss as BCELoss
from undertow.nn.losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from undertow.nn.losses import CosineEmbeddingLoss as CosineEmbeddingLoss
from undertow.nn.losses import CrossEntropyLoss as CrossEntropyLoss
from undertow.nn.losses import CTCLoss as CTCLoss
from undertow.nn.losses import GaussianNLLLoss as GaussianNLLLoss
from undertow.nn.losses import HingeEmbeddingLoss as HingeEmbeddingLoss
from undertow.nn.losses import HuberLoss as HuberLoss
from undertow.nn.losses import KLDivLoss as KLDivLoss
from undertow.nn.losses import L1Loss as L1Loss
from undertow.nn.losses import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from undertow.nn.losses import MarginRankingLoss as MarginRankingLoss
from undertow.nn.losses import MSELoss as MSELoss
from undertow.nn.losses import MultiLabelMarginLoss as MultiLabelMarginLoss
from undertow.nn.losses import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from undertow.nn.losses import MultiMarginLoss as MultiMarginLoss
from undertow.nn.losses import NLLLoss as NLLLoss
from undertow.nn.losses import PoissonNLLLoss as PoissonNLLLoss
from undertow.nn.losses import SmoothL1Loss as SmoothL1Loss
from undertow.nn.losses import SoftMarginLoss as SoftMarginLoss
from undertow.nn.losses import TripletMarginLoss as TripletMarginLoss
from undertow.nn.losses import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from undertow.nn.module import Module as Module
from undertow.nn.multihead import MultiheadAttention as MultiheadAttention
from undertow.nn.norms import BatchNorm1d as BatchNorm1d
from undertow.nn.norms import BatchNorm2d as BatchNorm2d
from undertow.nn.norms import BatchNorm3d as BatchNorm3d
from undertow.nn.norms import GroupNorm as GroupNorm
from undertow.nn.norms import InstanceNorm1d as InstanceNorm1d
from undertow.nn.norms import InstanceNorm2d as InstanceNorm2d
from undertow.nn.norms import InstanceNorm3d as InstanceNorm3d
from undertow.nn.norms import LayerNorm as LayerNorm
from undertow.nn.norms import LocalResponseNorm as LocalResponseNorm
from undertow.nn.norms import RMSNorm as RMSNorm
from undertow.nn.parallel import DataParallel as DataParallel
from undertow.nn.parameter import Buffer as Buffer
from undertow.nn.parameter import Parameter as Parameter
from undertow.nn.pools import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from undertow.nn.pools import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from undertow.nn.pools import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from undertow.nn.pools import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from undertow.nn.pools import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from undertow.nn.pools import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from undertow.nn.pools import AvgPool1d as AvgPool1d
from undertow.nn.pools import AvgPool2d as AvgPool2d
from undertow.nn.pools import AvgPool3d as AvgPool3d
from undertow.nn.pools import LPPool1d as LPPool1d
from undertow.nn.pools import LPPool2d as LPPool2d
from undertow.nn.pools import LPPool3d as LPPool3d
from undertow.nn.pools import MaxPool1d as MaxPool1d
from undertow.nn.pools import MaxPool2d as MaxPool2d
from undertow.nn.pools import MaxPool3d as MaxPool3d
from undertow.nn.pools import MaxUnpool1d as MaxUnpool1d
from undertow.nn.pools import MaxUnpool2d as MaxUnpool2d
from undertow.nn.pools import MaxUnpool3d as MaxUnpool3d
from undertow.nn.rnn import GRU as GRU
from undertow.nn.rnn import LSTM as LSTM
from undertow.nn.rnn import RNN as RNN
from undertow.nn.rnn import RNNBase as RNNBase
from undertow.nn.shapes import ChannelShuffle as ChannelShuffle
from undertow.nn.shapes import CircularPad1d as CircularPad1d  # type: ignore[attr-defined]
from undertow.nn.shapes import CircularPad2d as CircularPad2d  # type: ignore[attr-defined]
from undertow.nn.shapes import CircularPad3d as CircularPad3d  # type: ignore[attr-defined]
from undertow.nn.shapes import ConstantPad1d as ConstantPad1d  # type: ignore[attr-defined]
from undertow.nn.shapes import ConstantPad2d as ConstantPad2d  # type: ignore[attr-defined]
from undertow.nn.shapes import ConstantPad3d as ConstantPad3d  # type: ignore[attr-defined]
from undertow.nn.shapes import Flatten as Flatten
from undertow.nn.shapes import Fold as Fold
from undertow.nn.shapes import PixelShuffle as PixelShuffle
from undertow.nn.shapes import PixelUnshuffle as PixelUnshuffle
from undertow.nn.shapes import ReflectionPad1d as ReflectionPad1d  # type: ignore[attr-defined]
from undertow.nn.shapes import ReflectionPad2d as ReflectionPad2d  # type: ignore[attr-defined]
from undertow.nn.shapes import ReflectionPad3d as ReflectionPad3d  # type: ignore[attr-defined]
from undertow.nn.shapes import ReplicationPad1d as ReplicationPad1d  # type: ignore[attr-defined]
from undertow.nn.shapes import ReplicationPad2d as ReplicationPad2d  # type: ignore[attr-defined]
from undertow.nn.shapes import ReplicationPad3d as ReplicationPad3d  # type: ignore[attr-defined]
from undertow.nn.shapes import Unflatten as Unflatten
from undertow.nn.shapes import Unfold as Unfold
from undertow.nn.shapes import Upsample as Upsample
from undertow.nn.shapes import UpsamplingBilinear2d as UpsamplingBilinear2d
from undertow.nn.shapes import UpsamplingNearest2d as UpsamplingNearest2d
from undertow.nn.shapes import ZeroPad1d as ZeroPad1d  # type: ignore[attr-defined]
from undertow.nn.shapes import ZeroPad2d as ZeroPad2d  # type: ignore[attr-defined]
from undertow.nn.shapes import ZeroPad3d as ZeroPad3d  # type: ignore[attr-defined]
from undertow.nn.transformer import Transformer as Transformer
from undertow.nn.transformer import TransformerDecoder as TransformerDecoder
from undertow.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from undertow.nn.transformer import TransformerEncoder as TransformerEncoder
from undertow.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("nn")
