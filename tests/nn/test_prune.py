"""Pruning: what is chosen, what becomes of the parameter, and several methods on one; proven on PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import undertow as ut

WEIGHT = [[0.1, -0.5, 0.3, 0.9], [-0.2, 0.8, -0.7, 0.4], [0.6, -0.05, 1.0, -1.1]]


def layer(L: Any) -> Any:
    made = L.nn.Linear(4, 3)
    with L.no_grad():
        made.weight.copy_(L.tensor(WEIGHT))
    return made


def prune_of(L: Any) -> Any:
    if L is ut:
        return ut.nn.utils.prune
    import torch.nn.utils.prune

    return torch.nn.utils.prune


def zeros(weight: Any) -> list[list[int]]:
    return (weight == 0).nonzero().tolist()


@pytest.mark.parametrize(("amount", "wanted"), [(2, [[0, 0], [2, 1]]), (0.25, [[0, 0], [1, 0], [2, 1]]), (0, [])])
def test_elements_near_zero(L: ModuleType, amount: float, wanted: list[list[int]]) -> None:
    module = prune_of(L).l1_unstructured(layer(L), "weight", amount=amount)
    assert zeros(module.weight) == wanted
    assert [name for name, _ in module.named_parameters()] == ["bias", "weight_orig"]
    assert list(module.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    assert module.weight_orig.tolist() == layer(L).weight.tolist()


def test_pruned_elements_get_no_gradient_and_stay_zero(L: ModuleType) -> None:
    module = prune_of(L).l1_unstructured(layer(L), "weight", amount=2)
    optimizer = L.optim.SGD(module.parameters(), lr=0.1)
    module(L.ones(1, 4)).sum().backward()
    optimizer.step()
    assert zeros(module.weight_orig.grad) == [[0, 0], [2, 1]]
    module(L.ones(1, 4))
    assert zeros(module.weight) == [[0, 0], [2, 1]] and module.weight[0, 1].item() == pytest.approx(-0.6)


def test_channels(L: ModuleType) -> None:
    P = prune_of(L)
    assert zeros(P.ln_structured(layer(L), "weight", amount=1, n=2, dim=0).weight) == [[0, k] for k in range(4)]
    assert zeros(P.ln_structured(layer(L), "weight", amount=0.5, n=float("inf"), dim=1).weight) == [
        [i, k] for i in range(3) for k in (0, 1)
    ]
    pruned = P.random_structured(layer(L), "weight", amount=1, dim=1).weight
    assert len(zeros(pruned)) == 3 and len({k for _, k in zeros(pruned)}) == 1


def test_one_method_after_another_prunes_what_is_left(L: ModuleType) -> None:
    P = prune_of(L)
    module = P.l1_unstructured(layer(L), "weight", amount=2)
    P.l1_unstructured(module, "weight", amount=2)
    assert zeros(module.weight) == [[0, 0], [0, 2], [1, 0], [2, 1]]
    P.ln_structured(module, "weight", amount=1, n=1, dim=0)
    assert zeros(module.weight) == [*[[0, k] for k in range(4)], [1, 0], [2, 1]]
    P.custom_from_mask(module, "weight", L.tensor([[1.0] * 4, [1.0] * 4, [0.0] * 4]))
    assert len(zeros(module.weight)) == 9


def test_all_parameters_together(L: ModuleType) -> None:
    P, a, b = prune_of(L), layer(L), layer(L)
    with L.no_grad():
        b.weight.mul_(0.1)
    P.global_unstructured([(a, "weight"), (b, "weight")], pruning_method=P.L1Unstructured, amount=11)
    assert zeros(a.weight) == [[2, 1]] and len(zeros(b.weight)) == 10
    with pytest.raises(TypeError, match='Only "unstructured" PRUNING_TYPE supported'):
        P.global_unstructured([(a, "weight")], pruning_method=P.LnStructured, amount=1, n=2)


def test_by_scores_of_ones_own(L: ModuleType) -> None:
    scores = L.tensor([[9.0] * 4, [9.0] * 4, [9.0, 9.0, 1.0, 1.0]])
    module = prune_of(L).l1_unstructured(layer(L), "weight", amount=2, importance_scores=scores)
    assert zeros(module.weight) == [[2, 2], [2, 3]]
    with pytest.raises(AssertionError, match="importance_scores should have the same shape"):
        prune_of(L).l1_unstructured(layer(L), "weight", amount=2, importance_scores=scores[0])


def test_pruning_made_permanent(L: ModuleType) -> None:
    P = prune_of(L)
    module = P.random_unstructured(layer(L), "weight", amount=5)
    pruned = zeros(module.weight)
    assert P.is_pruned(L.nn.Sequential(module)) and len(pruned) == 5
    P.remove(module, "weight")
    assert not P.is_pruned(module) and [name for name, _ in module.named_parameters()] == ["bias", "weight"]
    assert zeros(module.weight) == pruned and module.weight.is_leaf
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        P.remove(module, "weight")


@pytest.mark.parametrize(
    ("amount", "error", "words"),
    [
        ("much", TypeError, "Must be int or float"),
        (1.5, ValueError, "should either be a float in the range"),
        (-1, ValueError, "a non-negative integer"),
        (13, ValueError, "should be smaller than the number of parameters to prune=12"),
    ],
)
def test_amounts(L: ModuleType, amount: Any, error: type, words: str) -> None:
    module = layer(L)
    with pytest.raises(error, match=words):
        prune_of(L).l1_unstructured(module, "weight", amount=amount)
    assert {name for name, _ in module.named_parameters()} == {"weight", "bias"}


def test_recurrent_layers_are_pruned(L: ModuleType) -> None:
    for name in ("LSTM", "GRU", "RNN"):
        module = getattr(L.nn, name)(2, 3)
        prune_of(L).custom_from_mask(module, "weight_ih_l0", L.zeros_like(module.weight_ih_l0))
        first, _ = module(L.ones(1, 1, 2))
        second, _ = module(L.zeros(1, 1, 2))
        assert L.equal(first, second)


def test_a_method_of_the_user(L: ModuleType) -> None:
    class EveryOther(prune_of(L).BasePruningMethod):  # type: ignore[misc]
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    module = layer(L)
    EveryOther.apply(module, "weight")
    assert zeros(module.weight) == [[i, k] for i in range(3) for k in (0, 2)]
