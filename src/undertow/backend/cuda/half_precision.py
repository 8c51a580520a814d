"""What is computed in half precision as it is, in float32 inside of the kernel: no casts before and behind it.

An operation is here if its forward (or its rules) are single kernels, products of cuBLAS or convolutions of cuDNN:
nothing is rounded in between. All others are given float32 (ops/arguments/half_precision.py).
"""

from __future__ import annotations

PRODUCTS = "mm bmm linear _convolve _convolve_transposed _convolve_weight _fused_attention"
ROWS = "native_layer_norm softmax log_softmax _safe_softmax softmax_backward_data log_softmax_backward_data"
DROPOUT = "native_dropout native_dropout_backward"
ACTIVATIONS = "gelu silu leaky_relu relu tanh sigmoid tanh_backward sigmoid_backward threshold_backward"
SUMS = "_sum_dims _sum_all"
ARITHMETIC = "add sub mul div neg exp log sqrt abs square sin cos maximum minimum where"
COPIES = "cat stack embedding index_select gather masked_fill _masked_fill_number _unsafe_view"
#: whose gradients are moved, and not computed
MOVES = (
    "transpose _permute t _squeeze_all _squeeze_dim _squeeze_dims unsqueeze alias select slice _view _unsafe_view "
    "clone _split _split_with_sizes unbind _sum_dims _sum_all _mean_dims _mean_all"
)

FORWARDS = frozenset(" ".join((PRODUCTS, ROWS, DROPOUT, SUMS, ACTIVATIONS, ARITHMETIC, COPIES)).split())

SIMPLE_RULES = "native_layer_norm softmax log_softmax gelu silu leaky_relu relu tanh sigmoid add sub mul neg exp"
RULES = frozenset(" ".join((PRODUCTS, DROPOUT, SIMPLE_RULES, MOVES)).split())
