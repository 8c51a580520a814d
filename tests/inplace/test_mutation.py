"""allow_mutation_on_saved_tensors: clone on write, once per saved version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut


def allow(L: Any) -> Any:
    return L.autograd.graph.allow_mutation_on_saved_tensors()


def copies(context: Any) -> int:
    return len(list(context.cloned.items()))


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda L, b: b.sin_(),
    "a view": lambda L, b: b[:1].mul_(10),
    "a detached twin": lambda L, b: b.detach().zero_(),
    "under no_grad": lambda L, b: unrecorded(L, b),
    "an assignment": lambda L, b: b.__setitem__(0, 5.0),
    "a mask": lambda L, b: b.__setitem__(b.detach() > 0, 5.0),
    "out=": lambda L, b: L.sin(L.zeros(3), out=b.detach()),
    "foreach": lambda L, b: L._foreach_mul_([b], 3.0),
    "an in-place view": lambda L, b: b.unsqueeze_(0),
    "random": lambda L, b: b.uniform_(),
}


def unrecorded(L: Any, b: Any) -> None:
    with L.no_grad():
        b.zero_()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("saved", ["input", "view", "output"])
def test_the_gradient_is_that_of_what_was_saved(L: Any, change: str, saved: str) -> None:
    a = L.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with allow(L) as context:
        b = a.exp() if saved == "output" else a.clone()
        out = (b[:] ** 2).sum() if saved == "view" else (b**2).sum()
        expected = (2 * b.detach() * (b.detach() if saved == "output" else 1)).tolist()
        CHANGES[change](L, b)
        out.backward()
        assert copies(context) == 0
    np.testing.assert_allclose(a.grad.tolist(), expected, rtol=1e-5)


def test_one_copy_serves_everybody_who_saved_that_version(L: Any) -> None:
    with allow(L) as context:
        a = L.ones(3, requires_grad=True).clone()
        b, c = a**2, a**2
        a.sin_()
        assert copies(context) == 1
        a.sin_()
        assert copies(context) == 1
        del b, c
        assert copies(context) == 0


def test_each_version_has_a_copy_of_its_own(L: Any) -> None:
    with allow(L) as context:
        a = L.ones(3, requires_grad=True).clone()
        b = a**2
        a.sin_()
        c = a**2
        a.sin_()
        assert copies(context) == 2
        del b
        assert copies(context) == 1
        del c


def test_what_is_no_longer_saved_is_not_copied(L: Any) -> None:
    with allow(L) as context:
        a = L.ones(3, requires_grad=True).clone()
        (a**2).sum().backward()
        a.sin_()
        assert copies(context) == 0


def test_backward_belongs_into_the_block(L: Any) -> None:
    message = "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
    with allow(L):
        out = (L.ones(3, requires_grad=True) ** 2).sum()
    with pytest.raises(AssertionError, match=message):
        out.backward()
    with allow(L), pytest.raises(AssertionError, match=message):
        out.backward()


def test_blocks_do_not_nest(L: Any) -> None:
    with allow(L), pytest.raises(RuntimeError, match="contexts cannot be nested"), allow(L):
        pass


def test_second_derivatives(L: Any) -> None:
    with allow(L):
        a = L.tensor([1.0, 2.0], requires_grad=True)
        b = a.clone()
        out = (b**3).sum()
        b.zero_()
        (first,) = L.autograd.grad(out, a, create_graph=True)
        (second,) = L.autograd.grad(first.sum(), a)
    assert first.tolist() == [3, 12] and second.tolist() == [6, 12]


def test_a_change_nobody_was_told_of_is_an_error() -> None:
    a = ut.ones(2, requires_grad=True)
    with allow(ut):
        b = a.clone()
        out = (b * b).sum()
        b.detach().numpy()[0] = 7
        ut.autograd.graph.increment_version(b)
        with pytest.raises(RuntimeError, match=r"has been modified by an inplace operation that .* was not told of"):
            out.backward()
