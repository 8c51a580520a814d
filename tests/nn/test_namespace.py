"""What undertow.nn has of torch.nn, and that every module has a row in the table of modules or a test of its own."""

from __future__ import annotations

import importlib
import math
import typing
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from tests.nn.modules import ROWS
from tests.nn.test_lazy import LAYERS as LAZY

#: modules with tests of their own
TESTED_ELSEWHERE = {
    "AdaptiveLogSoftmaxWithLoss", "CTCLoss", "Container", "DataParallel", "FractionalMaxPool2d",
    "FractionalMaxPool3d", "LinearCrossEntropyLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Module",
    "ModuleDict", "ModuleList", "NLLLoss2d", "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase", "Sequential",
    "SyncBatchNorm", "TransformerDecoder", "TransformerEncoder",
}  # fmt: skip


def test_what_is_missing(torch: ModuleType) -> None:
    theirs = {name for name, value in vars(torch.nn).items() if isinstance(value, type)}
    assert {name for name in theirs if not hasattr(ut.nn, name)} == {"CrossMapLRN2d"} & theirs


def test_every_module_is_tested() -> None:
    found = {n: getattr(ut.nn, n) for n in dir(ut.nn)}
    ours = {n for n, v in found.items() if isinstance(v, type) and issubclass(v, ut.nn.Module)}
    ours -= {f"Lazy{name}" for name in LAZY}
    assert ours - {row.name for row in ROWS} == TESTED_ELSEWHERE


def test_every_initialisation(torch: ModuleType) -> None:
    theirs = {name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")}
    assert {name for name in theirs if not hasattr(ut.nn.init, name)} == set()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_modules(L: ModuleType, dims: int) -> None:
    x = L.randn(2, 3, *[6] * dims)
    pool = getattr(L.nn, f"MaxPool{dims}d")(2, return_indices=True)
    back = getattr(L.nn, f"MaxUnpool{dims}d")(2)
    values, places = pool(x)
    out = back(values, places, output_size=x.shape)
    assert out.shape == x.shape and L.equal(out[out != 0], x[out != 0])
    assert out.abs().sum().item() == pytest.approx(values.abs().sum().item(), rel=1e-5)
    assert repr(back) == f"MaxUnpool{dims}d(kernel_size={(2,) * dims}, stride={(2,) * dims}, padding={(0,) * dims})"


@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_of_decoder_layers(L: ModuleType, norm_first: bool) -> None:
    """A stack is its layers, one after the other."""
    layer = L.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    stack = L.nn.TransformerDecoder(layer, 2, L.nn.LayerNorm(8)).eval()
    x, memory = L.randn(3, 5, 8), L.randn(3, 4, 8)
    mask = L.nn.Transformer.generate_square_subsequent_mask(5)
    expected = x
    for part in stack.layers:
        expected = part(expected, memory, tgt_mask=mask)
    assert L.allclose(stack(x, memory, tgt_mask=mask), stack.norm(expected), atol=1e-6)
    assert stack.layers[0].linear1.weight is not stack.layers[1].linear1.weight


def test_checkpointed_layers() -> None:
    """Layers of one node are recomputed like any operations."""
    from undertow.autograd.checkpoint import checkpoint

    layer = ut.nn.LSTM(3, 4, 2).double()
    x = ut.randn(5, 2, 3, dtype=ut.float64, requires_grad=True)
    wanted = [x, *layer.parameters()]
    plain = ut.autograd.grad((layer(x)[0] ** 2).sum(), wanted)
    out = checkpoint(lambda x: layer(x)[0], x, use_reentrant=False)
    again = ut.autograd.grad((out**2).sum(), wanted)
    assert all(ut.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_layers_are_where_pytorch_has_them(torch: ModuleType) -> None:
    for place in ut.nn.modules.PLACES:
        theirs, ours = getattr(torch.nn.modules, place), importlib.import_module(f"undertow.nn.modules.{place}")
        own = [name for name in vars(ours) if not name.startswith("__")]
        assert all(hasattr(theirs, name) for name in own), place
        for name in own:
            if hasattr(ut.nn, name):
                assert getattr(ours, name) is getattr(ut.nn, name) is getattr(ut.nn.modules, name)


def test_base_classes_by_pytorchs_names(L: ModuleType) -> None:
    M = L.nn.modules
    assert isinstance(L.nn.BatchNorm2d(2), M.batchnorm._BatchNorm)
    assert isinstance(L.nn.ConvTranspose1d(1, 1, 1), M.conv._ConvNd) and isinstance(L.nn.MSELoss(), M.loss._Loss)
    bases = {
        M.conv._LazyConvXdMixin: "LazyConv1d LazyConvTranspose2d", M.batchnorm._LazyNormBase: "LazyBatchNorm1d",
        M.pooling._AvgPoolNd: "AvgPool1d AvgPool2d AvgPool3d",
        M.pooling._AdaptiveAvgPoolNd: "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
        M.pooling._AdaptiveMaxPoolNd: "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
        M.padding._ConstantPadNd: "ConstantPad1d ZeroPad2d", M.padding._ReflectionPadNd: "ReflectionPad3d",
        M.padding._ReplicationPadNd: "ReplicationPad1d", M.padding._CircularPadNd: "CircularPad2d",
    }  # fmt: skip
    for base, names in bases.items():
        assert all(issubclass(getattr(L.nn, name), base) for name in names.split()), base
        others = set(" ".join(bases.values()).split()) - set(names.split())
        assert not [name for name in others if issubclass(getattr(L.nn, name), base)]
    assert not isinstance(L.nn.ConvTranspose1d(1, 1, 1), M.conv._ConvTransposeMixin)
    assert issubclass(M.conv._ConvTransposeMixin, M.conv._ConvTransposeNd)
    assert isinstance(L.nn.MultiheadAttention(2, 1).out_proj, M.linear.NonDynamicallyQuantizableLinear)
    assert M.utils._pair(3) == (3, 3) and M.utils._triple([1, 2, 3]) == (1, 2, 3) and M.utils._ntuple(2)(0) == (0, 0)


def test_functions_that_layers_are_made_of(L: ModuleType) -> None:
    M = L.nn.modules
    copies = M.transformer._get_clones(L.nn.Linear(1, 1), 2)
    assert len(copies) == 2 and copies[0].weight is not copies[1].weight
    assert M.transformer._get_activation_fn("relu")(L.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
    with pytest.raises(RuntimeError, match="should be relu/gelu"):
        M.transformer._get_activation_fn("tanh")
    assert M.transformer._generate_square_subsequent_mask(2).tolist() == [[0.0, -math.inf], [0.0, 0.0]]
    assert M.rnn._apply_permutation(L.tensor([[1, 2]]), L.tensor([1, 0])).tolist() == [[2, 1]]
    assert M.rnn._apply_permutation(L.tensor([1, 2]), L.tensor([1, 0]), 0).tolist() == [2, 1]
    assert M.utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)


def test_a_layer_has_no_annotations_that_only_its_bases_understand(L: ModuleType) -> None:
    assert typing.get_type_hints(L.nn.MSELoss(), {"Any": Any}, {}) in ({}, {"reduction": str})
    assert typing.get_type_hints(L.nn.ReLU(), {"Any": Any}, {}) in ({}, {"inplace": bool})
