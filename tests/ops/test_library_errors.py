"""Wrong calls of the Fourier, matrix, convolution and pooling functions fail as in PyTorch, in both libraries."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

Call = Callable[[Any, Any], Any]

#: (words of the message, call of a library and of its neural-network functions)
FOURIER: list[tuple[str, Call]] = [
    ("Invalid number of data points (0) specified", lambda lib, F: lib.fft.fft(lib.ones(3), n=0)),
    ("Invalid number of data points (0) specified", lambda lib, F: lib.fft.irfft(lib.ones(1))),
    ("Invalid number of data points (-2) specified", lambda lib, F: lib.fft.fftn(lib.ones(3), s=(-2,))),
    ("Dimension out of range", lambda lib, F: lib.fft.fft(lib.ones(3), dim=2)),
    ("but tensor has no dimensions", lambda lib, F: lib.fft.fft(lib.tensor(1.0))),
    ('Invalid normalization mode: "x"', lambda lib, F: lib.fft.fft(lib.ones(3), norm="x")),
    ("Unsupported dtype Half", lambda lib, F: lib.fft.fft(lib.ones(3, dtype=lib.float16))),
    ("rfft expects a real input tensor, but got ComplexFloat", lambda lib, F: lib.fft.rfft(lib.ones(3) * 1j)),
    ("rfftn expects a real-valued input tensor", lambda lib, F: lib.fft.rfftn(lib.ones(3) * 1j)),
    ("ihfft expects a real input tensor", lambda lib, F: lib.fft.ihfft(lib.ones(3) * 1j)),
    ("Only supports floating-point dtypes", lambda lib, F: lib.fft.ihfftn(lib.ones(3) * 1j)),
    ("FFT dims must be unique", lambda lib, F: lib.fft.fftn(lib.ones(2, 3), dim=(0, 0))),
    ("dim and shape arguments must have the same length", lambda lib, F: lib.fft.fft2(lib.ones(2, 3), s=(2,))),
    ("Got shape with 3 values but input tensor", lambda lib, F: lib.fft.fftn(lib.ones(2, 3), s=(1, 2, 3))),
    ("rfftn must transform at least one axis", lambda lib, F: lib.fft.rfftn(lib.tensor(1.0))),
    ("irfftn must transform at least one axis", lambda lib, F: lib.fft.irfftn(lib.ones(2), dim=())),
    ("fftfreq requires a floating point or complex dtype", lambda lib, F: lib.fft.fftfreq(3, dtype=lib.int64)),
]

MATRICES: list[tuple[str, Call]] = [
    ("linalg.svd: The input tensor A must have at least 2 dimensions", lambda lib, F: lib.linalg.svd(lib.ones(3))),
    ("Expected a floating point or complex tensor as input. Got Long", lambda lib, F: lib.linalg.svd(long(lib, 2, 2))),
    ("input matrix contained non-finite values", lambda lib, F: lib.linalg.svd(lib.full((2, 2), float("nan")))),
    ("`driver=` is only supported on CUDA inputs", lambda lib, F: lib.linalg.svd(lib.eye(2), driver="gesvd")),
    ("must be batches of square matrices, but they are 3 by 4", lambda lib, F: lib.linalg.eigh(lib.ones(3, 4))),
    ("Expected UPLO argument to be 'L' or 'U', but got x", lambda lib, F: lib.linalg.eigh(lib.eye(2), UPLO="x")),
    ("should not contain infs or NaNs", lambda lib, F: lib.linalg.eig(lib.full((2, 2), float("nan")))),
    ("linalg.matrix_norm: Order x not supported", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), "x")),
    ("linalg.matrix_norm: Order 3 not supported", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), 3)),
    ("dims must be different. Got (0, 0)", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), 2, (0, 0))),
    ("dim must be a 2-tuple", lambda lib, F: lib.linalg.matrix_norm(lib.ones(2, 2, 2), 2, (0, 1, 2))),
    ("dtype should be floating point or complex", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), dtype=lib.int32)),
    ("dtype should be real for real", lambda lib, F: lib.linalg.matrix_norm(lib.eye(2), dtype=lib.complex64)),
    ("the input must be 1D or 2D. Got 3D", lambda lib, F: lib.linalg.norm(lib.ones(2, 2, 2), 2)),
    ("it must be of length 1 or 2", lambda lib, F: lib.linalg.norm(lib.ones(2, 2, 2), 2, (0, 1, 2))),
    ("The input tensor must have at least 2 dimensions", lambda lib, F: lib.linalg.cond(lib.ones(2))),
    ("linalg.cond(ord=1): A must be batches of square", lambda lib, F: lib.linalg.cond(lib.ones(4, 3), 1)),
    ("linalg.cond got an invalid norm type: 3", lambda lib, F: lib.linalg.cond(lib.eye(2), 3)),
    ("expected a tensor with 2 or more dimensions", lambda lib, F: lib.linalg.pinv(lib.ones(3))),
    ("must have at least 2 dimensions", lambda lib, F: lib.linalg.matrix_rank(lib.ones(3))),
    ("input.size(-2) should match other.size(-2)", lambda lib, F: lib.linalg.lstsq(lib.ones(4, 3), lib.ones(2, 3))),
    ("input must have at least 2 dimensions", lambda lib, F: lib.linalg.lstsq(lib.ones(4), lib.ones(4))),
    ("should be one of (gels, gelsy, gelsd, gelss)",
     lambda lib, F: lib.linalg.lstsq(lib.eye(2), lib.eye(2), driver="x")),
    ("to have the same dtype", lambda lib, F: lib.linalg.lstsq(lib.eye(2), lib.eye(2, dtype=lib.float64))),
    ("Incompatible shapes of A and B for the equation AX = B (3x3 and 4x2)",
     lambda lib, F: lib.linalg.solve_triangular(lib.eye(3), lib.ones(4, 2), upper=True)),
    ("The input tensor B must have at least 2 dim",
     lambda lib, F: lib.linalg.solve_triangular(lib.eye(2), lib.ones(2), upper=True)),
    ("Incompatible matrix sizes for cholesky_solve", lambda lib, F: lib.cholesky_solve(lib.ones(4, 2), lib.eye(3))),
    ("b should have at least 2 dimensions, but has 1", lambda lib, F: lib.cholesky_solve(lib.ones(3), lib.eye(3))),
    ("must be batches of square matrices", lambda lib, F: lib.cholesky_inverse(lib.ones(3, 2))),
    ("The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular",
     lambda lib, F: lib.cholesky_inverse(lib.tensor([[1.0, 0.0], [1.0, 0.0]]))),
    ("U[1,1] is zero and using it on lu_solve would result in a division by zero",
     lambda lib, F: lib.linalg.lu_factor(lib.zeros(2, 2))),
    ("(Batch element 1): U[2,2] is zero",
     lambda lib, F: lib.linalg.lu_factor(lib.stack([lib.eye(2), lib.ones(2, 2)]))),
    ("Either lengths or offsets must be defined", lambda lib, F: lib.segment_reduce(lib.ones(3), "sum")),
    ("reduce argument must be either sum, prod, mean, amax or amin, got foo",
     lambda lib, F: lib.segment_reduce(lib.ones(3), "foo", lengths=lib.tensor([3]))),
    ("Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe",
     lambda lib, F: lib.segment_reduce(lib.ones(3), "sum", lengths=lib.tensor([2]))),
    ("is not expandable to size", lambda lib, F: lib.ones(2, 3).sum_to_size(3, 3)),
    ("input tensor should have at least 2 dimensions", lambda lib, F: lib.histogramdd(lib.ones(3), bins=[2])),
    ("A must be batches of square matrices", lambda lib, F: lib.matrix_exp(lib.ones(3, 2))),
    ("Expected a floating point or complex tensor", lambda lib, F: lib.matrix_exp(long(lib, 2, 2))),
    ("prod(self.shape[ind:]) == prod(self.shape[:ind])", lambda lib, F: lib.linalg.tensorinv(lib.ones(2, 3, 4))),
    ("Expected a strictly positive integer for 'ind'", lambda lib, F: lib.linalg.tensorinv(lib.eye(2), 0)),
    ("prod(self.shape[other.ndim:])", lambda lib, F: lib.linalg.tensorsolve(lib.ones(2, 3, 4), lib.ones(2, 3))),
    ("N must be greater than 1", lambda lib, F: lib.linalg.vander(lib.ones(3), N=1)),
    ("x must be a one-dimensional tensor", lambda lib, F: lib.vander(lib.ones(3, 2))),
    ("expected input to have two or fewer dimensions", lambda lib, F: lib.cov(lib.ones(2, 2, 2))),
    ("bool dtype is not supported", lambda lib, F: lib.cov(lib.ones(2, 2) > 0)),
    ("to have the same numel", lambda lib, F: lib.cov(lib.ones(3, 5), fweights=long(lib, 4))),
    ("fweights to have integral dtype", lambda lib, F: lib.cov(lib.ones(3, 5), fweights=lib.ones(5))),
    ("aweights to have floating point dtype", lambda lib, F: lib.cov(lib.ones(3, 5), aweights=long(lib, 5))),
    ("aweights cannot be negative", lambda lib, F: lib.cov(lib.ones(3, 5), aweights=-lib.ones(5))),
    ("pdist only supports 2D tensors, got: 3D", lambda lib, F: F.pdist(lib.ones(2, 2, 2))),
    ("non-negative p values", lambda lib, F: F.pdist(lib.ones(2, 2), -1)),
]  # fmt: skip

WINDOWS: list[tuple[str, Call]] = [
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
    ("input.size(-3)=7 is not divisible by 4", lambda lib, F: lib.pixel_shuffle(lib.ones(1, 7, 2, 3), 2)),
    ("at least 3 dimensions", lambda lib, F: lib.pixel_shuffle(lib.ones(2, 3), 2)),
    ("expects a positive upscale_factor, but got -2", lambda lib, F: lib.pixel_shuffle(lib.ones(8, 2, 3), -2)),
    ("expects width to be divisible", lambda lib, F: lib.pixel_unshuffle(lib.ones(2, 4, 5), 2)),
    ("Got 5 channels and 2 groups", lambda lib, F: F.channel_shuffle(lib.ones(1, 5, 2, 2), 2)),
    ("offsets has to be a 1D Tensor", lambda lib, F: F.embedding_bag(long(lib, 4), lib.ones(5, 3))),
    ("offsets[0] has to be 0", lambda lib, F: F.embedding_bag(long(lib, 4), lib.ones(5, 3), long(lib, 2))),
    ("if input is 2D, then offsets has to be None",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), long(lib, 2))),
    ("mode has to be one of sum, mean or max",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), mode="x")),
    ("only supported for mode='sum'",
     lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(5, 3), per_sample_weights=lib.ones(4, 1))),
    ("not in the valid range [0, 1)", lambda lib, F: F.embedding_bag(long(lib, 4, 1), lib.ones(1, 3))),
    ("at least edge_order+1", lambda lib, F: lib.gradient(lib.ones(1))),
    ("only supports edge_order=1 and edge_order=2", lambda lib, F: lib.gradient(lib.ones(4), edge_order=3)),
    ("but got a list of length 3", lambda lib, F: lib.gradient(lib.ones(4, 4), spacing=(1.0, 2.0, 3.0))),
    ("Dimension out of range", lambda lib, F: lib.gradient(lib.ones(4), dim=3)),
    ("not implemented for 'Float'", lambda lib, F: lib.gcd(lib.ones(2), lib.ones(2))),
    ("frexp() only supports floating-point dtypes", lambda lib, F: lib.frexp(long(lib, 2))),
]  # fmt: skip


def long(lib: Any, *shape: int) -> Any:
    return lib.ones(*shape, dtype=lib.int64)


def fold(lib: Any, F: Any, x: Any) -> Any:
    return lib.ops.col2im(x, (4, 4), 2) if lib is ut else F.fold(x, (4, 4), 2)


def unfold(lib: Any, F: Any, x: Any) -> Any:
    return lib.ops.im2col(x, 2) if lib is ut else F.unfold(x, 2)


CALLS = [*FOURIER, *MATRICES, *WINDOWS]


@pytest.mark.parametrize(("words", "call"), CALLS, ids=[f"{k}-{words[:40]}" for k, (words, _) in enumerate(CALLS)])
def test_errors(torch: ModuleType, words: str, call: Call) -> None:
    with pytest.raises(Exception) as theirs:
        call(torch, torch.nn.functional)
    assert words in str(theirs.value)
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as ours, np.errstate(all="ignore"):
        call(ut, ut)
    assert words in str(ours.value)
    kinds = (NotImplementedError, IndexError, ValueError, TypeError, RuntimeError)
    kind = next(k for k in kinds if isinstance(theirs.value, k))
    assert isinstance(ours.value, kind)


def test_bessel_functions_far_and_near() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.concatenate([np.linspace(-40, 40, 801), np.linspace(-700, 700, 101), np.logspace(-12, 0, 50)])
    for name, function in (("i0", ut.i0), ("i0e", ut.ops.special_i0e), ("i1", ut.ops.special_i1),
                           ("i1e", ut.ops.special_i1e)):  # fmt: skip
        np.testing.assert_allclose(function(ut.tensor(x)).numpy(), getattr(special, name)(x), rtol=5e-15)
    ends = ut.tensor([np.inf, -np.inf], dtype=ut.float64)
    assert ut.ops.special_i1(ends).tolist() == [np.inf, -np.inf] and ut.ops.special_i0e(ends).tolist() == [0.0, 0.0]
