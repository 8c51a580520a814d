"""Results with names: the same in PyTorch and in undertow."""

from __future__ import annotations

from types import ModuleType

import pytest

import undertow as ut
from undertow.stand_in.finder import as_torch

NAMED = {
    "slogdet": ("sign", "logabsdet"),
    "linalg.slogdet": ("sign", "logabsdet"),
    "qr": ("Q", "R"),
    "linalg.qr": ("Q", "R"),
    "linalg.lu": ("P", "L", "U"),
    "aminmax": ("min", "max"),
}


@pytest.mark.parametrize("path", NAMED)
@pytest.mark.filterwarnings("ignore:torch.qr is deprecated")
def test_parts_have_names(L: ModuleType, path: str) -> None:
    function = getattr(L.linalg, path.removeprefix("linalg.")) if path.startswith("linalg.") else getattr(L, path)
    found = function(L.eye(3))
    assert type(found).__name__ == path.replace(".", "_")
    assert type(found).n_fields == len(found) == len(NAMED[path])
    assert all(getattr(found, name) is part for name, part in zip(NAMED[path], found, strict=True))


def test_their_classes_are_in_a_module() -> None:
    with as_torch():
        import torch

        assert isinstance(torch.linalg.slogdet(torch.eye(2)), torch.return_types.linalg_slogdet)


def test_svd_lowrank_takes_any_rank_and_pca_lowrank_does_not(L: ModuleType) -> None:
    x = L.eye(3)
    U, S, V = L.svd_lowrank(x, q=None)
    assert L.allclose(U @ L.diag(S) @ V.mT, x, atol=1e-5)
    with pytest.raises(ValueError, match="not greater than min"):
        L.pca_lowrank(x, 4)


def test_logarithms_of_determinants_are_recorded_under_their_name() -> None:
    assert ut.linalg.slogdet(ut.eye(2, requires_grad=True)).logabsdet.grad_fn.name() == "LinalgSlogdetBackward0"
