"""Where a node is not called what PyTorch calls it, and why: (operation, PyTorch's name) -> the name here.

Several names are joined by " or ".
"""

from __future__ import annotations

OTHER_NAMES: dict[tuple[str, str], str] = {
    # one operation here, where PyTorch has an overload of its own
    ("pow", "PowBackward2"): "PowBackward1",
    ("round", "RoundBackward1"): "RoundBackward0",
    # a view of its own, where PyTorch selects from view_as_real
    ("real", "SelectBackward0"): "RealBackward0",
    ("imag", "SelectBackward0"): "ImagBackward0",
    # one node, where PyTorch writes slices of an empty tensor
    ("pad", "CopySlices"): "PadCircularBackward0",
    ("_pad_with_own", "CopySlices"): "PadCircularBackward0",
    # one kernel for every mode and number of dimensions
    ("pad_backward", "ReflectionPad1DBackwardBackward0"): "PadBackwardBackward0",
    # a product with a Python number is no overload here
    ("special_ndtr", "MulBackward1"): "MulBackward0",
    ("trapezoid", "MulBackward1"): "MulBackward0",
    ("trapezoid", "DivBackward1"): "DivBackward0",
    ("trapz", "MulBackward1"): "MulBackward0",
    ("cumulative_trapezoid", "DivBackward1"): "DivBackward0",
    # one node for what PyTorch does in several steps, or the other way round
    ("sum_to", "ViewBackward0"): "SumToSizeBackward0",
    ("cdist", "ViewBackward0"): "EuclideanDistBackward0",
    ("quantile", "SqueezeBackward4"): "ViewBackward0",
    ("nanquantile", "SqueezeBackward4"): "ViewBackward0",
    ("percentile", "SqueezeBackward4"): "ViewBackward0",
    ("affine_grid", "AffineGridGeneratorBackward0"): "ViewBackward0",
    ("grid_sample", "GridSampler2DBackward0"): "GridSampler2DBackward0 or AddBackward0",
    ("grid_sample", "GridSampler3DBackward0"): "AddBackward0",
    ("renorm", "RenormBackward0"): "MulBackward0",
    ("linalg_householder_product", "LinalgHouseholderProductBackward0"): "SubBackward0",
    ("orgqr", "LinalgHouseholderProductBackward0"): "SubBackward0",
    ("ormqr", "OrmqrBackward0"): "SubBackward0 or TransposeBackward0 or ConjBackward0",
    ("segment_reduce", "SegmentReduceBackward0"): "ScatterReduceBackward0 or DivBackward0",
    ("lu", "LinalgLuFactorExBackward0"): "AddBackward0",
    ("svd_lowrank", "MulBackward0"): "MmBackward0 or UnsafeViewBackward0 or BmmBackward0",
    ("svd_lowrank", "SubBackward0"): "MmBackward0",
    ("pca_lowrank", "SubBackward0"): "MmBackward0",
    ("pca_lowrank", "MulBackward0"): "MmBackward0",
    ("stft", "SqueezeBackward4"): "SqueezeBackward1",
    ("stft", "TransposeBackward1"): "TransposeBackward0",
    ("linalg_lu_factor_ex", "LinalgLuFactorExBackward0"): "AddBackward0",
    ("lu_solve", "LinalgLuSolveBackward0"): "LinalgSolveTriangularBackward0",
    # PyTorch has no derivative of bincount: the row compares with index_add
    ("bincount", "IndexAddBackward0"): "BincountBackward0",
    # one node for a product of stacks, an einsum or a linear layer, where PyTorch folds, multiplies and unfolds
    ("matmul", "SqueezeBackward4"): "SqueezeBackward1",
    ("matmul", "UnsafeViewBackward0"): "BmmBackward0 or SqueezeBackward1",
    ("matmul", "CloneBackward0"): "BmmBackward0",
    ("_matmul_stacks", "UnsafeViewBackward0"): "BmmBackward0",
    ("linear", "AddmmBackward0"): "LinearBackward0",
    ("linear", "MmBackward0"): "LinearBackward0",
    ("linear", "MvBackward0"): "LinearBackward0",
    ("linear", "DotBackward0"): "LinearBackward0",
    ("linear", "ViewBackward0"): "LinearBackward0",
    ("linear", "UnsafeViewBackward0"): "LinearBackward0",
    ("bilinear", "ViewBackward0"): "EinsumBackward0",
    ("_einsum_pair", "ViewBackward0"): "EinsumBackward0",
    ("einsum", "ViewBackward0"): "EinsumBackward0",
    ("einsum", "MulBackward0"): "EinsumBackward0",
    ("einsum", "PermuteBackward0"): "DiagonalBackward0 or PermuteBackward0",
    ("tensordot", "ViewBackward0"): "EinsumBackward0",
    ("inner", "ViewBackward0"): "EinsumBackward0",
    ("linalg_multi_dot", "ViewBackward0"): "MmBackward0 or SqueezeBackward2",
    ("chain_matmul", "ViewBackward0"): "MmBackward0",
    # made of other operations here
    ("glu", "GluBackward0"): "MulBackward0",
    ("soft_margin_loss", "SoftMarginLossBackward0"): "NegBackward0 or MeanBackward0 or SumBackward0",
    ("pairwise_distance", "NormBackward1"): "LinalgVectorNormBackward0",
    # weights are factors of the losses here, and so have gradients
    ("binary_cross_entropy", "BinaryCrossEntropyBackward0"): (
        "BinaryCrossEntropyBackward0 or MulBackward0 or MeanBackward0 or SumBackward0"
    ),
    ("binary_cross_entropy_with_logits", "BinaryCrossEntropyWithLogitsBackward0"): (
        "BinaryCrossEntropyWithLogitsBackward0 or SubBackward0 or MulBackward0 or MeanBackward0 or SumBackward0"
    ),
    # one node for every number of dimensions, and one for log_softmax and nll_loss together
    ("nll_loss", "ViewBackward0"): "NllLossBackward0",
    ("nll_loss", "NllLoss2DBackward0"): "NllLossBackward0",
    ("cross_entropy", "NllLossBackward0"): "CrossEntropyBackward0",
    ("cross_entropy", "NllLoss2DBackward0"): "CrossEntropyBackward0",
    ("cross_entropy", "ViewBackward0"): "CrossEntropyBackward0",
    # reduced last here
    ("cross_entropy", "AddBackward0"): "SubBackward0 or DivBackward0 or SumBackward0",
    ("cross_entropy", "DivBackward1"): "DivBackward0",
    ("cross_entropy", "NegBackward0"): "SumBackward0 or NegBackward0",
    ("smooth_l1_loss", "AbsBackward0"): "SmoothL1LossBackward0",
    ("smooth_l1_loss", "MeanBackward0"): "SmoothL1LossBackward0",
    ("smooth_l1_loss", "SumBackward0"): "SmoothL1LossBackward0",
    # the row compares with relu6, because PyTorch's own derivative is of single precision
    ("hardsigmoid", "DivBackward0"): "HardsigmoidBackward0",
    # running statistics are subtracted, then come weight and bias
    ("batch_norm", "NativeBatchNormBackward0"): "NativeBatchNormBackward0 or AddBackward0",
    # groups of one channel
    ("instance_norm", "ViewBackward0"): "NativeGroupNormBackward0 or AddBackward0",
    ("rms_norm", "MulBackward0"): "FusedRmsNormBackward0 or MulBackward0",
    # made from the form for matrices, or for the lower triangle, by views
    ("linalg_solve", "LinalgSolveExBackward0"): "LinalgSolveExBackward0 or SqueezeBackward1 or TransposeBackward0",
    ("linalg_cholesky", "LinalgCholeskyExBackward0"): "LinalgCholeskyExBackward0 or TransposeBackward0",
    ("matrix_power", "UnsafeViewBackward0"): "BmmBackward0",
    ("det_backward", "MulBackward0"): "DetBackwardBackward0",
    # the rows multiply the vectors, in stacks
    ("linalg_svd", "UnsafeViewBackward0"): "BmmBackward0",
    ("linalg_eigh", "UnsafeViewBackward0"): "BmmBackward0",
    # made of a pseudoinverse, of solutions with triangular matrices, or of powers
    ("linalg_lstsq", "LinalgLstsqBackward0"): "MmBackward0 or BmmBackward0 or SqueezeBackward1 or SumBackward1",
    ("linalg_solve_triangular", "LinalgSolveTriangularBackward0"): (
        "LinalgSolveTriangularBackward0 or TransposeBackward0"
    ),
    ("triangular_solve", "TriangularSolveBackward0"): "LinalgSolveTriangularBackward0 or CloneBackward0",
    ("cholesky_solve", "CholeskySolveBackward0"): "LinalgSolveTriangularBackward0",
    ("cholesky_inverse", "CholeskyInverseBackward0"): "LinalgSolveTriangularBackward0",
    ("linalg_cond", "SqueezeBackward1"): "DivBackward0",
    ("linalg_matrix_norm", "PermuteBackward0"): "UnsqueezeBackward0",
    ("linalg_tensorinv", "ReshapeAliasBackward0"): "ViewBackward0",
    ("linalg_vander", "StackBackward0"): "CatBackward0",
    ("vander", "StackBackward0"): "FlipBackward0 or CatBackward0",
    # one node, where PyTorch convolves real and imaginary parts
    ("conv1d", "AddBackward0"): "ConvolutionBackward0",
    ("conv2d", "AddBackward0"): "ConvolutionBackward0",
    ("conv3d", "AddBackward0"): "ConvolutionBackward0",
    ("conv_transpose1d", "AddBackward0"): "ConvolutionBackward0",
    ("conv_transpose2d", "AddBackward0"): "ConvolutionBackward0",
    ("conv_transpose3d", "AddBackward0"): "ConvolutionBackward0",
    ("embedding_bag", "EmbeddingBagBackward0"): "IndexAddBackward0 or GatherBackward0 or MulBackward0",
    ("pixel_shuffle", "PixelShuffleBackward0"): "UnsafeViewBackward0 or ViewBackward0",
    ("pixel_unshuffle", "PixelUnshuffleBackward0"): "UnsafeViewBackward0 or ViewBackward0",
    ("channel_shuffle", "ChannelShuffleBackward0"): "UnsafeViewBackward0 or ViewBackward0",
    ("linalg_lu_factor", "LinalgLuFactorExBackward0"): "AddBackward0",
    ("lu_unpack", "LuUnpackBackward0"): "AddBackward0 or TriuBackward0",
    ("linalg_lu_solve", "LinalgLuSolveBackward0"): (
        "LinalgSolveTriangularBackward0 or GatherBackward0 or TransposeBackward0 or ConjBackward0"
    ),
}
