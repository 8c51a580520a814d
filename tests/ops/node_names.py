"""Where a node is not called what PyTorch calls it, and why: (operation, PyTorch's name) -> the name here."""

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
    ("pad_with_own", "CopySlices"): "PadCircularBackward0",
    # one kernel for every mode and number of dimensions
    ("pad_backward", "ReflectionPad1DBackwardBackward0"): "PadBackwardBackward0",
    # a product with a Python number is no overload here
    ("trapezoid", "MulBackward1"): "MulBackward0",
    ("trapezoid", "DivBackward1"): "DivBackward0",
    ("trapz", "MulBackward1"): "MulBackward0",
    ("cumulative_trapezoid", "DivBackward1"): "DivBackward0",
    # attached to the graph, where PyTorch makes new zeros
    ("trapezoid", "NoneType"): "MulBackward0",
    # one node for what PyTorch does in several steps, or the other way round
    ("sum_to", "ViewBackward0"): "SumToSizeBackward0",
    ("cdist", "CdistBackward0"): "LinalgVectorNormBackward0",
    ("quantile", "SqueezeBackward4"): "ViewBackward0",
    ("nanquantile", "SqueezeBackward4"): "ViewBackward0",
    ("percentile", "SqueezeBackward4"): "ViewBackward0",
    # PyTorch has no derivative of bincount: the row compares with index_add
    ("bincount", "IndexAddBackward0"): "BincountBackward0",
}
