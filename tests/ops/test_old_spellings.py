"""Arguments and functions of older programs, and what PyTorch's functions call their inputs; beside PyTorch."""

from __future__ import annotations

import io
from types import ModuleType

import numpy as np
import pytest

import undertow as ut


def test_split_takes_its_input_by_the_name_it_has_there(L: ModuleType) -> None:
    x = L.arange(5)
    assert [part.tolist() for part in L.split(tensor=x, split_size_or_sections=2)] == [[0, 1], [2, 3], [4]]


def test_split_of_nothing_says_what_is_missing() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'tensor'"):
        ut.split(split_size=2)


@pytest.mark.parametrize("equation", ["i,j->ij", "i,i->i", "i,->i"])
def test_einsum_promotes_what_is_only_multiplied(L: ModuleType, equation: str) -> None:
    other = L.tensor(0.5) if equation == "i,->i" else L.tensor([0.5, 2.0, 1.0])
    found = L.einsum(equation, L.arange(3), other)
    assert found.dtype == L.float32 and found.reshape(-1)[-1].item() in (1.0, 2.0)
    wide = L.einsum(equation, L.ones(3, dtype=L.float64), other.requires_grad_())
    assert wide.dtype == L.float64
    wide.sum().backward()
    assert other.grad.dtype == L.float32 and other.grad.sum().item() == (3.0 if equation != "i,j->ij" else 9.0)


def test_einsum_does_not_promote_products_of_matrices(L: ModuleType) -> None:
    for equation, a, b in (("i,i->", L.arange(3), L.ones(3)), ("ij,jk->ik", L.ones(2, 2).double(), L.ones(2, 2))):
        with pytest.raises(RuntimeError, match="expected scalar type"):
            L.einsum(equation, a, b)


@pytest.mark.filterwarnings("ignore:torch.range")
@pytest.mark.parametrize(
    ("bounds", "found"), [((0, 3), [0.0, 1, 2, 3]), ((1, 2, 0.5), [1, 1.5, 2]), ((3, 0, -2), [3, 1])]
)
def test_range_has_its_end(L: ModuleType, bounds: tuple[float, ...], found: list[float]) -> None:
    numbers = L.range(*bounds)
    assert numbers.tolist() == found and numbers.dtype == L.float32
    if all(type(n) is int for n in bounds):
        assert L.range(*bounds, dtype=L.int64).tolist() == found
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        L.range(1, 0)


def test_hardtanh_by_its_old_names(L: ModuleType) -> None:
    with pytest.warns(FutureWarning, match="is deprecated"):
        layer = L.nn.Hardtanh(min_value=-2)
    assert layer.min_val == -2 and layer.max_val == 1


def test_save_takes_the_choice_of_a_format(L: ModuleType) -> None:
    file = io.BytesIO()
    L.save({"a": L.ones(2)}, file, _use_new_zipfile_serialization=True)
    file.seek(0)
    assert L.load(file)["a"].tolist() == [1.0, 1.0]
    file = io.BytesIO()
    ut.save({"a": ut.ones(2)}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert ut.load(file)["a"].tolist() == [1.0, 1.0]


def test_sizes_may_be_truths_behind_the_first(L: ModuleType) -> None:
    assert L.ones(2, True).shape == (2, 1) and L.zeros((2, False)).shape == (2, 0)
    for sizes in ((True,), ((True, 2),)):
        with pytest.raises(TypeError, match="must be tuple of ints"):
            L.ones(*sizes)


def test_arrays_are_added_to_sizes(L: ModuleType) -> None:
    shape = L.ones(2, 3).shape
    assert type(shape + np.array(1)) is np.ndarray and (shape + np.array(1)).tolist() == [3, 4]
    assert type(shape + (4,)) is L.Size and shape + (4,) == (2, 3, 4)
    with pytest.raises(TypeError, match="can only concatenate tuple"):
        shape + [4]


def test_segments_by_the_private_name(L: ModuleType) -> None:
    found = L._segment_reduce(L.tensor([1.0, 2.0, 3.0]), "max", offsets=L.tensor([0, 2, 3]))
    assert found.tolist() == [2, 3]


def test_switches_of_libraries_can_be_set(L: ModuleType) -> None:
    assert L.backends.flags_frozen() is False
