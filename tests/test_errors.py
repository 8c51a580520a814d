"""Errors: the type PyTorch raises, the words users search for, the facts as fields, and nothing changed before."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import errors


class Case:
    """The tensors an attempt may spoil, and how they looked before."""

    def __init__(self, L: ModuleType) -> None:
        self.L = L
        self.x = L.tensor([1.0, 2.0], requires_grad=True)
        self.y = self.x * 2
        self.freed = self.x.exp().sum()
        self.freed.backward()
        self.c = L.ones(2, 3)
        self.i = L.tensor([1, 2])

    def state(self) -> list[Any]:
        tensors = (self.x, self.y, self.c, self.i, self.x.grad)
        seen: list[Any] = [(t.tolist(), t._version, t.requires_grad, tuple(t.shape)) for t in tensors]
        return [*seen, self.L.is_grad_enabled(), self.y.grad_fn.name(), list(self.L.autograd.grad(self.y.sum(), self.x,
                retain_graph=True)[0].tolist())]  # fmt: skip


REFUSED: dict[str, tuple[Callable[[ModuleType, Case], Any], type[Exception], str]] = {
    # making tensors
    "a ragged list": (lambda L, t: L.tensor([[1.0, 2.0], [3.0]]), ValueError, "expected sequence of length 2 at dim 1"),
    "a list with text": (lambda L, t: L.tensor(["a"]), (ValueError, TypeError), "str"),
    "a list with None": (lambda L, t: L.tensor([1.0, None]), (RuntimeError, TypeError), "NoneType|infer"),
    "an array of objects": (lambda L, t: L.from_numpy(np.array([object()])), TypeError, "object"),
    "an array of text": (lambda L, t: L.from_numpy(np.array(["a"])), TypeError, "str_|<U1|type"),
    "what is no array": (lambda L, t: L.from_numpy([1.0]), TypeError, "expected np.ndarray"),
    "a negative size": (lambda L, t: L.zeros(-1), RuntimeError, "must be non-negative"),
    "a fractional size": (lambda L, t: L.zeros(1.5), TypeError, "zeros"),
    "integers that require grad": (lambda L, t: L.tensor([1], requires_grad=True), RuntimeError, "floating point"),
    # shapes
    "shapes that do not broadcast": (lambda L, t: t.x + t.c, RuntimeError, "must match the size of tensor b"),
    "a product of wrong shapes": (lambda L, t: t.c @ t.c, RuntimeError, "shapes cannot be multiplied"),
    "a view of another size": (lambda L, t: t.c.view(5), RuntimeError, "is invalid for input of size 6"),
    "a dimension too many": (lambda L, t: t.c.sum(2), IndexError, "Dimension out of range"),
    "an index out of range": (lambda L, t: t.x[2], IndexError, "out of bounds|out of range"),
    "a list of different shapes": (lambda L, t: L.stack([t.x, t.c]), RuntimeError, "each tensor to be equal size"),
    # in place
    "a leaf in place": (lambda L, t: t.x.add_(1), RuntimeError, "a leaf Variable that requires grad"),
    "an element of a leaf": (lambda L, t: t.x.__setitem__(0, 5.0), RuntimeError, "leaf Variable that requires grad"),
    "in place to another shape": (lambda L, t: t.c.add_(L.ones(4, 2, 3)), RuntimeError, "the broadcast shape"),
    "in place to another dtype": (lambda L, t: t.i.add_(0.5), RuntimeError, "can't be cast"),
    # differentiating
    "a vector without gradient": (lambda L, t: t.y.backward(), RuntimeError, "only for scalar outputs"),
    "a root without graph": (lambda L, t: t.c.sum().backward(), RuntimeError, "does not require grad"),
    "a graph that is freed": (lambda L, t: t.freed.backward(), RuntimeError, "Specify retain_graph=True"),
    "an input not reached": (
        lambda L, t: L.autograd.grad(t.y.sum(), L.ones(2, requires_grad=True), retain_graph=True),
        RuntimeError,
        "to not have been used in the graph",
    ),
    "a gradient of another shape": (lambda L, t: t.y.backward(L.ones(3)), RuntimeError, "Mismatch in shape"),
    "a gradient that is a list": (lambda L, t: t.y.backward([1.0, 1.0]), (RuntimeError, TypeError), "gradients"),
    # numbers
    "a number of several": (lambda L, t: t.c.item(), RuntimeError, "cannot be converted to Scalar"),
    "NaN as an integer": (lambda L, t: int(L.tensor(float("nan"))), ValueError, "cannot convert float NaN to integer"),
    "infinity as an integer": (lambda L, t: int(L.tensor(float("inf"))), OverflowError, "convert float infinity"),
    "the truth of several": (lambda L, t: bool(t.c), RuntimeError, "more than one value is ambiguous"),
    "memory that requires grad": (lambda L, t: t.y.numpy(), RuntimeError, "Can't call numpy"),
}  # fmt: skip


@pytest.mark.parametrize(("attempt", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_and_nothing_has_changed(
    L: ModuleType, attempt: Callable[..., Any], error: type[Exception], words: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = Case(L)
        before = t.state()
        with pytest.raises(error, match=words):
            attempt(L, t)
        assert t.state() == before


# ---- the hierarchy

KINDS = {
    errors.AutogradError: RuntimeError,
    errors.ModifiedInplaceError: RuntimeError,
    errors.GraphFreedError: RuntimeError,
    errors.UnreachableInputError: RuntimeError,
    errors.InvalidGradientError: RuntimeError,
    errors.IncompatibleViewError: RuntimeError,
    errors.NotDifferentiableError: NotImplementedError,
    errors.EmptyInputsError: ValueError,
}


@pytest.mark.parametrize(("ours", "pythons"), KINDS.items(), ids=lambda c: c.__name__)
def test_our_errors_are_pythons_too(ours: type[Exception], pythons: type[Exception]) -> None:
    assert issubclass(ours, pythons) and issubclass(ours, errors.UndertowError)


def freed() -> errors.UndertowError:
    y = ut.ones(2, requires_grad=True).exp().sum()
    y.backward()
    return raised(y.backward)


def modified() -> errors.UndertowError:
    y = ut.ones(2, requires_grad=True) * 1
    z = y.sin().sum()
    y.add_(1)
    return raised(z.backward)


def unreachable() -> errors.UndertowError:
    x, other = ut.ones(2, requires_grad=True), ut.ones(3, requires_grad=True)
    return raised(lambda: ut.autograd.grad(x.sum(), [x, other]))


def invalid() -> errors.UndertowError:
    class Wrong(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return ut.ones(5)

    return raised(Wrong.apply(ut.ones(2, requires_grad=True)).sum().backward)


def raised(attempt: Callable[[], Any]) -> errors.UndertowError:
    with pytest.raises(errors.UndertowError) as caught:
        attempt()
    return caught.value


FIELDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "freed": (freed, {"node_name": "ExpBackward0"}),
    "modified": (modified, {"saved_by": "SinBackward0", "shape": (2,), "version": 1, "expected": 0}),
    "unreachable": (unreachable, {"index": 1, "shape": (3,)}),
    "invalid": (invalid, {"node_name": "WrongBackward", "index": 0, "got": [5], "expected": [2]}),
}


@pytest.mark.parametrize(("make", "fields"), FIELDS.values(), ids=FIELDS)
def test_facts_are_fields(make: Callable[[], Any], fields: dict[str, Any]) -> None:
    error = make()
    assert {name: getattr(error, name) for name in fields} == fields


CURES = {
    "freed": (freed, "retain_graph=True"),
    "modified": (modified, "clone()"),
    "unreachable": (unreachable, "allow_unused=True"),
}


@pytest.mark.parametrize(("make", "cure"), CURES.values(), ids=CURES)
def test_the_message_ends_with_a_cure(make: Callable[[], Any], cure: str) -> None:
    sentences = str(make()).split(". ")
    assert cure in sentences[-1] or cure in sentences[-2]


@pytest.mark.parametrize("make", [freed, modified, unreachable, invalid])
def test_errors_survive_pickling(make: Callable[[], Any]) -> None:
    """As between the processes of a pool."""
    error = make()
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


# ---- warnings


def test_a_warning_of_a_kind_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_already_warned", set())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            errors.warn_once("a", "about a")
        errors.warn_once("b", "about b")
    assert [str(w.message) for w in seen] == ["about a", "about b"]


def test_warnings_every_time(L: ModuleType) -> None:
    assert not L.is_warn_always_enabled()
    L.set_warn_always(True)
    try:
        assert L.is_warn_always_enabled()
    finally:
        L.set_warn_always(False)
    assert not L.is_warn_always_enabled()


# ---- a derivative that does not exist


def test_a_missing_derivative_is_reported_when_it_is_needed(L: ModuleType) -> None:
    x = L.tensor([2.0, 2.0, 3.0], requires_grad=True)
    y = L.unique(x)
    assert y.tolist() == [2, 3] and y.requires_grad
    with pytest.raises(NotImplementedError, match=r"the derivative for '.*unique.*' is not implemented") as caught:
        y.sum().backward()
    assert x.grad is None
    if L is ut:
        assert isinstance(caught.value, errors.NotDifferentiableError) and caught.value.operation == "unique"


def test_what_has_no_derivative_by_nature_records_nothing(L: ModuleType) -> None:
    x = L.tensor([2.0, 3.0], requires_grad=True)
    for result in (x.argmax(), x > 1, x.sign() > 0, x.isnan(), x.long()):
        assert not result.requires_grad
