"""Attributes that a program puts on a tensor."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

import undertow as ut


def tensors() -> list[Any]:
    x = ut.ones(2, requires_grad=True)
    return [ut.ones(2), x, x * 2, x[0], ut.nn.Parameter(ut.ones(2)), ut.zeros(0)]


@pytest.mark.parametrize("k", range(6))
def test_any_tensor_takes_attributes(k: int) -> None:
    x = tensors()[k]
    x.tag = "first"
    x.more = [x.shape]
    assert (x.tag, x.more) == ("first", [x.shape])
    del x.tag
    with pytest.raises(AttributeError, match="tag"):
        _ = x.tag


def test_they_stay_with_the_tensor() -> None:
    x = ut.ones(2)
    x.tag = 1
    assert not hasattr(x * 2, "tag") and not hasattr(x.clone(), "tag") and not hasattr(x.detach(), "tag")
    x.add_(1)
    assert x.tag == 1


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_them(again: Any) -> None:
    x = ut.ones(2)
    x.tag = {"name": "weights"}
    assert again(x).tag == {"name": "weights"}
    assert again(x).tolist() == [1, 1]


def test_a_tensor_that_holds_itself_is_collected() -> None:
    x = ut.ones(2)
    x.itself = x
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_a_misspelt_attribute_is_still_an_error_to_read() -> None:
    with pytest.raises(AttributeError):
        _ = ut.ones(2).requires_gard


def test_asking_for_gpus_pins_nothing() -> None:
    ut.cuda.is_available()
    assert not ut.ones(1).is_pinned()


def test_stride_of_one_dimension() -> None:
    x = ut.ones(2, 3, 4).transpose(0, 2)
    assert [x.stride(d) for d in (0, 1, 2, -1, -3)] == [1, 4, 12, 12, 1]
    assert (x.stride(dim=1), x.stride(None), x.stride()) == (4, (1, 4, 12), (1, 4, 12))
    assert ut.ones(1, 3).expand(2, 3).stride(0) == 0
    for dim in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            x.stride(dim)
    with pytest.raises(TypeError):
        x.stride(1.5)
