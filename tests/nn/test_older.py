"""Layers and functions that PyTorch keeps for older programs, in both libraries."""

from __future__ import annotations

from types import ModuleType

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")


def test_container_and_nll_loss_of_images(L: ModuleType) -> None:
    assert [name for name, _ in L.nn.Container(a=L.nn.Linear(1, 2), b=L.nn.ReLU()).named_children()] == ["a", "b"]
    scores = L.zeros(1, 2, 3, 3)
    target = L.ones(1, 3, 3, dtype=L.int64)
    assert L.nn.NLLLoss2d(reduction="sum")(scores + 0.5, target).item() == -4.5


def test_gradients_are_clipped_by_the_old_name(L: ModuleType) -> None:
    p = L.nn.Parameter(L.zeros(2))
    p.grad = L.tensor([3.0, 4.0])
    assert L.nn.utils.clip_grad_norm([p], 1.0).item() == 5.0
    assert L.allclose(p.grad, L.tensor([0.6, 0.8]))


def test_weights_of_convolutions_change_their_order_in_memory(L: ModuleType) -> None:
    net = L.nn.Sequential(L.nn.Conv2d(2, 3, 5), L.nn.Linear(2, 2), L.nn.ConvTranspose3d(2, 3, 2))
    utils = L.nn.utils
    assert utils.convert_conv2d_weight_memory_format(net, L.channels_last) is net
    assert net[0].weight.stride() == (50, 1, 10, 2)
    utils.convert_conv3d_weight_memory_format(net, L.channels_last_3d)
    small = utils.convert_conv3d_weight_memory_format(L.nn.Conv3d(2, 3, 1), L.channels_last_3d)
    assert small.weight.stride() == (2, 1, 2, 2, 2)  # also where either order would do
    assert net[2].weight.stride() == (24, 1, 12, 6, 3)


def test_orders_are_undone(L: ModuleType) -> None:
    assert L.nn.utils.rnn.invert_permutation(L.tensor([1, 2, 0])).tolist() == [2, 0, 1]
    assert L.nn.utils.rnn.invert_permutation(None) is None


def test_a_module_has_other_tensors_for_a_while(L: ModuleType) -> None:
    layer = L.nn.Linear(2, 1, bias=False)
    own = layer.weight
    given = L.ones(1, 2, requires_grad=True)
    with L.nn.utils.stateless._reparametrize_module(layer, {"weight": given}):
        layer(L.ones(2)).sum().backward()
    assert layer.weight is own
    assert own.grad is None
    assert given.grad.tolist() == [[1.0, 1.0]]


def test_dropout_at_the_top_takes_pytorchs_names(L: ModuleType) -> None:
    x = L.ones(2, 3)
    assert L.dropout(x, p=0.5, train=False).tolist() == x.tolist()
    L.manual_seed(0)
    whole = L.feature_dropout(L.ones(20, 30, 4), 0.5, True)
    assert bool((whole == whole[..., :1]).all())
    assert set(whole.flatten().tolist()) == {0.0, 2.0}
    assert L.feature_dropout_(x, 1.0, True) is x
    assert not x.any()
    assert L.feature_alpha_dropout_(L.ones(2, 3), 0.5, False).tolist() == [[1.0] * 3] * 2
