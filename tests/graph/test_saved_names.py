"""Every node of the sample rows against PyTorch's: the names it shows saved values under, the values, its edges."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, all_cases, flatten, leaf
from undertow.autograd.backward import grad
from undertow.graph.saved import SavedTensor

#: (PyTorch's node, here) with the same name, for every result of every row
Pair = tuple[Any, Any]


@pytest.fixture(scope="module")
def pairs(torch: ModuleType) -> list[Pair]:
    with np.errstate(all="ignore"):
        return [pair for case in all_cases() for pair in pairs_of(torch, case)]


def pairs_of(torch: ModuleType, case: Case) -> Iterator[Pair]:
    if case.sample.reference is False or not case.differentiable:
        return
    _, results = case.recorded(case.arrays, case.differentiable)
    theirs = flatten(case.torch_call(torch, case.torch_leaves(torch, case.arrays, True)))
    for k, result in results.items():
        nodes = theirs[k].grad_fn, result.grad_fn
        if None not in nodes and type(nodes[0]).__name__ == type(nodes[1]).__name__:
            yield nodes


def saved(node: Any) -> set[str]:
    return {name.removeprefix("_saved_") for name in dir(node) if name.startswith("_saved_")}


# ---- names

#: sizes are enough here, where PyTorch keeps the tensor
SIZES_ONLY = """
AdaptiveAvgPool2DBackward0 AdaptiveAvgPool3DBackward0 AdaptiveMaxPool2DBackward0 AdaptiveMaxPool3DBackward0
AvgPool2DBackward0 AvgPool3DBackward0 FftR2CBackward0 GatherBackward0 MaskedSelectBackward0
MaxPool2DWithIndicesBackward0 MaxPool3DWithIndicesBackward0 ReflectionPad1DBackward0 ReflectionPad2DBackward0
ReflectionPad3DBackward0 ReplicationPad1DBackward0 ReplicationPad2DBackward0 ReplicationPad3DBackward0 TakeBackward0
""".split()

#: node -> names that PyTorch shows and undertow does not
LACKING: dict[str, str] = {
    **dict.fromkeys(SIZES_ONLY, "self"),
    # strides of gradients are nobody's concern here
    "AddmmBackward0": "mat1_sym_strides mat2_sym_strides",
    "MmBackward0": "self_sym_strides mat2_sym_strides",
    # of a sum with a number; not kept, as its gradient does not need it
    "AddBackward0": "alpha",
    "SubBackward0": "alpha",
    # running statistics are no part of the operation; it is recorded on the groups in rows
    "NativeBatchNormBackward0": "running_mean running_var",
    "NativeGroupNormBackward0": "N C HxW group",
    # not needed, so not kept
    "ComplexBackward0": "real imag",
    "CummaxBackward0": "self",
    "CumminBackward0": "self",
    "DivBackward2": "self other",
    "IndexAddBackward0": "source source_dim",
    "IndexCopyBackward0": "source source_dim",
    "LogSigmoidBackward0": "buffer",
    "NativeDropoutBackwardBackward0": "grad_output",
    "NativeLayerNormBackward0": "bias",
    "NormalBackward1": "mean_sym_sizes",
    "NormalBackward2": "std_sym_sizes",
    "NormalBackward3": "mean_sym_sizes std_sym_sizes",
    "PutBackward0": "source",
    # the derivative is computed from other values
    "SpecialLogNdtrBackward0": "result",
    "LinalgDetBackward0": "LU pivots result",
    "LinalgLuBackward0": "pivot",
    "LinalgSlogdetBackward0": "LU pivots",
    "LinalgSolveExBackward0": "LU pivots left",
    "LinalgSolveTriangularBackward0": "left",
    "NllLossBackward0": "self total_weight reduction",
    # weights are factors, with nodes of their own
    "BinaryCrossEntropyBackward0": "weight",
    "BinaryCrossEntropyWithLogitsBackward0": "weight pos_weight",
}


@pytest.mark.torch
def test_names(pairs: list[Pair]) -> None:
    assert len({type(ours).__name__ for _, ours in pairs}) > 250
    lacking: dict[str, set[str]] = {}
    for theirs, ours in pairs:
        missing = saved(theirs) - saved(ours)
        if missing:
            lacking.setdefault(type(ours).__name__, set()).update(missing)
    assert lacking == {node: set(names.split()) for node, names in LACKING.items()}


@pytest.mark.long
def test_every_name_can_be_read_and_the_gradient_is_the_same() -> None:
    pytest.importorskip("scipy")  # which derivatives of special functions are computed by
    with np.errstate(all="ignore"):
        for case in all_cases():
            ut.manual_seed(0)  # some operations draw numbers
            leaves, results = case.recorded(case.arrays, case.differentiable)
            for result in results.values():
                if result.grad_fn is not None:
                    read_all(result.grad_fn)
            if results:
                seeds = [leaf(c, False) for c in case.cotangents]
                found = grad(list(results.values()), case.chosen(leaves), seeds, allow_unused=True)
                ut.manual_seed(0)
                for got, expected in zip(found, case.gradient_at(case.arrays, case.cotangents), strict=True):
                    assert (got is None) == (expected is None)
                    assert got is None or np.array_equal(got._array, expected, equal_nan=True), case.id


def read_all(node: Any) -> None:
    for name in dir(node):
        if name.startswith("_saved_"):
            getattr(node, name)
        elif name.startswith("_raw_saved_") and name != "_raw_saved_indices":
            assert type(getattr(node, name)) is SavedTensor, f"{node.name()}.{name}"


# ---- values

#: node -> values that are told in another way, for these reasons
OTHERWISE: dict[str, str] = {
    # by its name; PyTorch has a number
    **dict.fromkeys(("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0", "HuberLossBackward0",
                     "MseLossBackward0", "SmoothL1LossBackward0"), "reduction"),
    "GridSampler2DBackward0": "padding_mode",
    # all dimensions: None here, () in PyTorch
    "AmaxBackward0": "dim",
    "AminBackward0": "dim",
    # a default filled in
    **dict.fromkeys(("AvgPool2DBackward0", "AvgPool3DBackward0", "MaxPool2DWithIndicesBackward0",
                     "MaxPool3DWithIndicesBackward0"), "stride"),
    **dict.fromkeys(("StdBackward0", "StdMeanBackward0", "VarBackward0", "VarMeanBackward0"), "correction"),
    "ConvolutionBackward0": "padding output_padding bias_sym_sizes_opt",
    # a slice keeps what it was given
    "SliceBackward0": "dim start end",
    # dimensions counted from the other end, by the functions above the operation
    **dict.fromkeys(("CumsumBackward0", "IndexSelectBackward0", "UnsqueezeBackward0"), "dim"),
    "RollBackward0": "dims",
    "MeanBackward1": "dim",
    "SumBackward1": "dim self_sym_sizes",
    # of a larger decomposition
    "LinalgSvdBackward0": "U full_matrices",
    # kept only if the exponent's gradient is wanted
    "LdexpBackward0": "result",
    "PowBackward1": "result",
    # factors that broadcasting has not enlarged, or in the other order
    "DivBackward0": "other",
    "PreluKernelBackward0": "weight",
    # trailing dimensions are not listed
    "IndexPutBackward0": "indices",
}  # fmt: skip


@pytest.mark.torch
def test_values(torch: ModuleType, pairs: list[Pair]) -> None:
    different: dict[str, set[str]] = {}
    for theirs, ours in pairs:
        for name in saved(theirs) & saved(ours):
            values = [shown(L, getattr(node, f"_saved_{name}")) for L, node in ((torch, theirs), (ut, ours))]
            if values[0] != values[1]:
                different.setdefault(type(ours).__name__, set()).add(name)
    assert different == {node: set(names.split()) for node, names in OTHERWISE.items()}


def shown(L: ModuleType, value: Any) -> Any:
    """What can be compared: of a tensor its sizes; PyTorch shows negative numbers without their sign."""
    if isinstance(value, L.Tensor):
        return "tensor", tuple(value.shape)
    if isinstance(value, list | tuple):
        return tuple(shown(L, item) for item in value)
    return value - 2**64 if type(value) is int and value >= 2**63 else value


# ---- edges

#: node -> (edges in PyTorch, here)
OTHER_EDGES = {
    "CatBackward0": {(3, 2)},  # an empty vector is left out
    "ClampBackward0": {(3, 2)},  # of the bounds, only those that are given
    "NativeDropoutBackwardBackward0": {(2, 1)},  # the mask has no gradient
    "ThresholdBackwardBackward0": {(2, 1)},  # the input has no gradient
}


@pytest.mark.torch
def test_edges(pairs: list[Pair]) -> None:
    different: dict[str, set[tuple[int, int]]] = {}
    for theirs, ours in pairs:
        counts = len(theirs.next_functions), len(ours.next_functions)
        if counts[0] != counts[1]:
            different.setdefault(type(ours).__name__, set()).add(counts)
    assert different == OTHER_EDGES


#: nodes that expect other gradients
OTHER_OUTPUTS = {
    "LinalgLuBackward0",  # the permutation comes first, and counts
    "LinalgSvdBackward0",  # of a larger decomposition
    "NativeGroupNormBackward0",  # of the groups in rows
}


@pytest.mark.torch
def test_input_metadata(pairs: list[Pair]) -> None:
    different = {type(ours).__name__ for theirs, ours in pairs if described(theirs) != described(ours)}
    assert different == OTHER_OUTPUTS


def described(node: Any) -> list[Any]:
    return [
        (tuple(m.shape), str(m.dtype).rpartition(".")[2], str(m.device), m.is_nested_tensor)
        for m in node._input_metadata
    ]
