"""Attributes that the compiled core reads say what the properties in Python do, of every kind of tensor."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import methods
from undertow.compiled import core
from undertow.tensor import facts

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)


class Derived(ut.Tensor):
    pass


def stale_view() -> Any:
    base = ut.ones(3, requires_grad=True) * 2
    view = base[1:]
    base.mul_(3)
    return view


def view_before_its_base_requires_grad() -> Any:
    base = ut.ones(3)
    view = base[1:]
    base.mul_(ut.ones(3, requires_grad=True))
    return view


def with_grad() -> Any:
    leaf = ut.ones(2, 3, requires_grad=True)
    leaf.sum().backward()
    return leaf


def retaining() -> Any:
    result = ut.ones(2, requires_grad=True) * 2
    result.retain_grad()
    result.sum().backward()
    return result


KINDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: ut.ones(2, 3),
    "of no dimensions": lambda: ut.tensor(2, dtype=ut.int16),
    "empty": lambda: ut.zeros(0, 4, dtype=ut.complex64),
    "of bfloat16": lambda: ut.ones(2, dtype=ut.bfloat16),
    "leaf": lambda: ut.ones(2, requires_grad=True),
    "leaf with a gradient": with_grad,
    "result": lambda: ut.ones(2, requires_grad=True) * 2,
    "one of several results": lambda: ut.ones(3, 2, requires_grad=True).max(0)[0],
    "result that retains its gradient": retaining,
    "view": lambda: ut.ones(2, requires_grad=True)[1:],
    "stale view": stale_view,
    "view of what came to require gradients": view_before_its_base_requires_grad,
    "parameter": lambda: ut.nn.Parameter(ut.ones(2)),
    "of a subclass": lambda: ut.ones(2).as_subclass(Derived),
    "sparse": lambda: ut.eye(3).to_sparse(),
    "on the meta device": lambda: ut.empty(2, 5, device="meta"),
    "inference": lambda: ut.inference_mode()(lambda: ut.ones(2))(),
}


def answers(read: Callable[[Any, str], Any], make: Callable[[], Any]) -> dict[str, Any]:
    tensor, found = make(), {}
    for name in sorted(methods.PROPERTIES):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = read(tensor, name)
        shown = (
            value.tolist() if isinstance(value, ut.Tensor) else value.name() if name == "grad_fn" and value else value
        )
        found[name] = (shown, type(value), [(str(w.message), w.filename) for w in caught])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_the_properties(kind: str) -> None:
    in_python = answers(lambda tensor, name: methods.PROPERTIES[name].__get__(tensor), KINDS[kind])
    assert answers(getattr, KINDS[kind]) == in_python
    assert len(in_python) == 7


def test_inside_vmap() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.dtype, x.requires_grad))
        return x

    ut.vmap(look)(ut.ones(4, 2, 3))
    assert seen == [(ut.Size([2, 3]), 2, ut.float32, False)]


def test_what_is_changed_is_changed_by_the_properties() -> None:
    x = ut.ones(2)
    x.requires_grad = True
    x.grad = ut.ones(2)
    assert x.requires_grad and x.grad.tolist() == [1, 1]
    del x.grad
    assert x.grad is None
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype"):
        ut.arange(3).requires_grad = True
    with pytest.raises(AttributeError):
        x.shape = (2, 1)
    with pytest.raises(TypeError, match="assigned grad expected to be a Tensor"):
        x.grad = 3


def test_a_tensor_that_has_lost_its_array_says_so() -> None:
    x = ut.ones(2)
    del x._array
    with pytest.raises(AttributeError):
        x.shape


def test_sizes() -> None:
    size = ut.ones(2, 3, 4).shape
    assert type(size) is type(size[1:]) is ut.Size and size[1:] == (3, 4) and size[-1] == 4 and size[1:][0] == 3
    assert size == ut.Size([2, 3, 4]) == (2, 3, 4) and hash(size) == hash((2, 3, 4))
    assert copy.deepcopy(size) == pickle.loads(pickle.dumps(size)) == size
    assert type(pickle.loads(pickle.dumps(size))) is ut.Size
    with pytest.raises(IndexError):
        size[3]
    with pytest.raises(TypeError):
        size["a"]
    batch, *rest = size
    assert (batch, rest) == (2, [3, 4])


# ---- what a tensor says about its memory: twins of csrc/twins/facts.c

FACTS = ("dim", "numel", "element_size", "data_ptr", "is_contiguous", "stride", "storage_offset")
LAID_OUT: dict[str, Callable[[], Any]] = {
    "turned": lambda: ut.ones(2, 3).T,
    "part": lambda: ut.ones(4, 6)[1:, 2::2],
    "part of a part": lambda: ut.ones(4, 6)[1:][:, 2:],
    "part of what is turned": lambda: ut.ones(4, 6).T[2:],
    "in another dtype": lambda: ut.ones(4, 6)[1:].view(ut.int16),
    "with steps of 0": lambda: ut.ones(4, 1).expand(4, 3),
    "with a dimension more": lambda: ut.ones(3)[1:, None],
    "around a part of NumPy's": lambda: ut.from_numpy(np.arange(6.0)[:2]),
    "over bytes": lambda: ut.frombuffer(bytearray(16), dtype=ut.float32, offset=4),
    "on no device": lambda: ut.ones(2, 3, device="meta"),
}


def outcome_of(fact: Callable[..., Any], tensor: Any) -> Any:
    try:
        return fact(tensor)
    except RuntimeError as error:  # a sparse tensor has no memory of its own
        return str(error)


@pytest.mark.parametrize("kind", [*KINDS, *LAID_OUT])
def test_facts_are_those_of_python(kind: str) -> None:
    tensor = (KINDS | LAID_OUT)[kind]()
    for name in FACTS:
        fact = getattr(facts, name)
        found, expected = outcome_of(fact, tensor), outcome_of(fact.__wrapped__, tensor)
        assert found == expected and type(found) is type(expected), name
    assert not isinstance(facts.stride, type(test_facts_are_those_of_python))  # it is the twin that is compared
