"""Wrong calls of convolutions, pooling, interpolation and embeddings fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import undertow as ut
from tests.ops.wrong_calls import WrongCall, check, every, long

CALLS: list[WrongCall] = [
    ("expected input[1, 4, 5, 5] to have 3 channels, but got 4 channels instead",
     lambda lib, F: F.conv2d(lib.ones(1, 4, 5, 5), lib.ones(2, 3, 3, 3))),
    ("Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [5, 5]",
     lambda lib, F: F.conv2d(lib.ones(5, 5), lib.ones(2, 3, 3, 3))),
    ("Kernel size can't be greater than actual input size",
     lambda lib, F: F.conv2d(lib.ones(1, 3, 2, 2), lib.ones(2, 3, 3, 3))),
    ("expected weight to be divisible by 2 at dimension 0",
     lambda lib, F: F.conv2d(lib.ones(1, 4, 5, 5), lib.ones(3, 2, 3, 3), groups=2)),
    ("expected bias to be 1-dimensional with 2 elements, but got bias of size [3] instead",
     lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), lib.ones(3))),
    ("expected scalar type", lambda lib, F: F.conv2d(lib.ones(1, 3, 5, 5), lib.ones(2, 3, 3, 3, dtype=lib.float64))),
    ("non-positive stride is not supported", lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), stride=0)),
    ("negative padding is not supported", lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), padding=-1)),
    ("dilation should be greater than zero", lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), dilation=0)),
    ("non-positive groups is not supported", lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), groups=0)),
    ("padding='same' is not supported for strided convolutions",
     lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), padding="same", stride=2)),
    ("Invalid padding string: 'x'", lambda lib, F: F.conv1d(lib.ones(1, 3, 5), lib.ones(2, 3, 3), padding="x")),
    ("a list of 2 values to match the convolution dimensions, but got stride=[1, 2, 3]",
     lambda lib, F: F.conv2d(lib.ones(1, 3, 5, 5), lib.ones(2, 3, 3, 3), stride=(1, 2, 3))),
    ("output padding must be smaller than either stride or dilation",
     lambda lib, F: F.conv_transpose2d(lib.ones(1, 3, 5, 5), lib.ones(3, 2, 3, 3), stride=2, output_padding=2)),
    ("Output size is too small", lambda lib, F: F.conv_transpose1d(lib.ones(1, 3, 1), lib.ones(3, 2, 3), padding=3)),
    ("pad should be at most half of effective kernel size",
     lambda lib, F: F.max_pool2d(lib.ones(1, 4, 4), 2, padding=2)),
    ("padding should be at most half of kernel size", lambda lib, F: F.max_pool1d(lib.ones(1, 4), 2, padding=2)),
    ("tensor expected for input", lambda lib, F: F.max_pool2d(lib.ones(4, 4), 2)),
    ("Output size is too small", lambda lib, F: F.max_pool2d(lib.ones(1, 1, 4, 4), 5)),
    ("stride should not be zero", lambda lib, F: F.avg_pool2d(lib.ones(1, 1, 4, 4), 2, stride=0)),
    ("dilation should be greater than zero", lambda lib, F: F.max_pool2d(lib.ones(1, 1, 4, 4), 2, dilation=0)),
    ("optional 0 dim batch size for input", lambda lib, F: F.max_pool2d(lib.ones(1, 0, 4, 4), 2)),
    ("divisor must be not zero", lambda lib, F: F.avg_pool2d(lib.ones(1, 1, 4, 4), 2, divisor_override=0)),
    ("Expected 3D or 4D tensor, but got [4, 4]", lambda lib, F: F.adaptive_avg_pool2d(lib.ones(4, 4), 2)),
    ("must be greater than or equal to 0", lambda lib, F: F.adaptive_avg_pool2d(lib.ones(1, 1, 4, 4), -1)),
    ("expected size of input's dimension 2 to match the calculated number of sliding blocks 3 * 3 = 9",
     lambda lib, F: fold(lib, F, lib.ones(1, 8, 8))),
    ("divisible by the product of kernel_size", lambda lib, F: fold(lib, F, lib.ones(1, 7, 9))),
    ("its components must be at least one", lambda lib, F: unfold(lib, F, lib.ones(1, 2, 1, 1))),
    ("either size or scale_factor should be defined", lambda lib, F: F.interpolate(lib.ones(1, 2, 4))),
    ("only one of size or scale_factor", lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=3, scale_factor=2)),
    ("Got 3D input, but bilinear mode needs 4D input",
     lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=3, mode="bilinear")),
    ("Only 3D, 4D and 5D input Tensors supported", lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=3, mode="x")),
    ("must have the same number of spatial dimensions", lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=(3, 3))),
    ("align_corners option can only be set",
     lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=3, align_corners=True)),
    ("Input and output sizes should be greater than 0", lambda lib, F: F.interpolate(lib.ones(1, 2, 4), size=0)),
    ("offsets has to be a 1D Tensor", lambda lib, F: F.embedding_bag(long(lib, 4), lib.ones(5, 3))),
    ("offsets[0] has to be 0", lambda lib, F: F.embedding_bag(long(lib, 4), lib.ones(5, 3), long(lib, 2))),
    ("if input is 2D, then offsets has to be None",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), long(lib, 2))),
    ("mode has to be one of sum, mean or max",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), mode="x")),
    ("only supported for mode='sum'",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), per_sample_weights=lib.ones(4, 1))),
    ("not in the valid range [0, 1)", lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(1, 3))),
]  # fmt: skip


def fold(lib: Any, F: Any, x: Any) -> Any:
    return lib.ops.col2im(x, (4, 4), 2) if lib is ut else F.fold(x, (4, 4), 2)


def unfold(lib: Any, F: Any, x: Any) -> Any:
    return lib.ops.im2col(x, 2) if lib is ut else F.unfold(x, 2)


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)
