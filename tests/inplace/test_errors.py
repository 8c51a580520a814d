"""Errors about in-place changes: they come before any byte changes, and say what happened, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut
from undertow.errors import ModifiedInplaceError


def leaf(*shape: int) -> Any:
    return ut.ones(*shape, requires_grad=True)


def view_made_under_no_grad() -> Any:
    x = leaf(3) * 1
    with ut.no_grad():
        return x[1:]


def inside_inference() -> Any:
    with ut.inference_mode():
        return ut.ones(3)


REFUSED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "a leaf": (lambda: leaf(3), lambda x: x.add_(1), "leaf Variable.*add_: change a clone"),
    "a leaf's row": (lambda: leaf(3), lambda x: x.__setitem__(0, 1.0), "view of a leaf.*clone"),
    "a part": (lambda: (leaf(3) * 1).unbind()[0], lambda x: x.fill_(2.0), "Output 0 of Unbind .*out-of-place one"),
    "a no_grad view": (
        view_made_under_no_grad,
        lambda x: x.mul_(2),
        "created in no_grad mode .* both outside",
    ),
    "an inference tensor": (inside_inference, lambda x: x.exp_(), r"outside InferenceMode.*clone.*exp_"),
    "a larger result": (lambda: ut.ones(3), lambda x: x.add_(ut.ones(2, 3)), r"output with shape \[3\] .*\[2, 3\]"),
    "a larger recorded result": (
        lambda: leaf(3) * 1,
        lambda x: x.mul_(ut.ones(2, 3)),
        r"output with shape \[3\] doesn't match the broadcast shape \[2, 3\].*mul_ cannot enlarge",
    ),
    "a float into integers": (
        lambda: ut.ones(3, dtype=ut.int64),
        lambda x: x.mul_(1.5),
        "result type Float can't be cast to the desired output type Long.*mul_ keeps the dtype",
    ),
    "a complex number into floats": (
        lambda: ut.ones(3),
        lambda x: x.add_(1j),
        "result type ComplexFloat can't be cast to the desired output type Float",
    ),
    "double precision into floats": (
        lambda: ut.ones(3),
        lambda x: x.float_power_(2),
        "base given to float_power_ has dtype Float but the operation's result requires dtype Double",
    ),
    "a mask from floats": (
        lambda: ut.ones(3),
        lambda x: x.sub_(x > 0),
        "Subtraction, the `-` operator, with a bool tensor is not supported",
    ),
    "unequal sizes": (lambda: ut.ones(3), lambda x: x.add_(ut.ones(2)), r"size of tensor a \(3\).*tensor b \(2\)"),
    "an expanded tensor": (lambda: ut.ones(3).expand(2, 3), lambda x: x.add_(1), "more than one element.*clone"),
    "overlapping windows": (lambda: ut.ones(4).unfold(0, 2, 1), lambda x: x.mul_(2), "more than one element"),
    "values that do not fit": (lambda: ut.ones(3), lambda x: x.copy_(ut.ones(2)), r"output with shape \[3\]"),
    "an assignment that does not fit": (lambda: ut.ones(3), lambda x: x.__setitem__(slice(0, 2), ut.ones(3)), "3"),
    "an index out of bounds": (lambda: ut.ones(3), lambda x: x.__setitem__(3, 1.0), "out of bounds"),
    "a fill by several numbers": (lambda: ut.ones(3), lambda x: x.fill_(ut.ones(3)), "0-dimension value tensor"),
    "resizing a tensor that requires grad": (lambda: leaf(3) * 1, lambda x: x.resize_(4), "cannot resize"),
    "set_ of another dtype": (lambda: ut.ones(3), lambda x: x.set_(ut.ones(3, dtype=ut.float64)), "Could not set"),
    "a view in place that is no view": (lambda: ut.ones(2, 3, 4), lambda x: x.t_(), r"t\(\) expects a tensor"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_left_as_it_was(what: str) -> None:
    make, change, message = REFUSED[what]
    x = make()
    values, shape, history = x.tolist(), x.shape, x.grad_fn
    version = None if x.is_inference() else x._version
    with pytest.raises((RuntimeError, IndexError), match=message):
        change(x)
    assert x.tolist() == values and x.shape == shape and x.grad_fn is history
    assert version is None or x._version == version


def test_memory_that_is_read_only_is_refused() -> None:
    import numpy as np

    array = np.ones(3)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writ"):
        x = ut.from_numpy(array)
    for change in (lambda: x.add_(1), lambda: x.zero_(), lambda: x.fill_(1.0), lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="read-only"):
            change()
    assert array.tolist() == [1, 1, 1]


def test_the_error_of_a_changed_tensor_carries_its_facts() -> None:
    x = leaf(5) + 1
    y = x * x
    with ut.no_grad():
        x += 1  # the change
    with pytest.raises(ModifiedInplaceError) as raised:
        y.sum().backward()
    error = raised.value
    assert (error.saved_by, error.shape, error.version, error.expected) == ("MulBackward0", (5,), 1, 0)
    assert re.search(r"add_ at .*test_errors\.py:\d+ in test_the_error", error.mutated_by or "")
    line = int(re.search(r":(\d+) in", error.mutated_by or "").group(1))  # type: ignore[union-attr]
    with open(__file__, encoding="utf-8") as source:
        assert "# the change" in source.read().splitlines()[line - 1]
    for words in ("FloatTensor [5]", "which is output 0 of Add,", "is at version 1; expected version 0", "clone()"):
        assert words in str(error)


MUTATORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a method": (lambda x: x.mul_(2), "mul_"),
    "an assignment": (lambda x: x.__setitem__(0, 1.0), "__setitem__"),
    "a view": (lambda x: x[0].zero_(), "zero_"),
    "a composite": (lambda x: x.masked_fill_(x > 0, 0.0), "masked_fill_"),
    "out=": (lambda x: ut.exp(ut.ones(5), out=x), "exp"),
    "division": (lambda x: x.div_(2), "div_"),
    "a random fill": (lambda x: x.uniform_(), "uniform_"),
    "from outside": (lambda x: ut.autograd.graph.increment_version(x), "increment_version"),
}


@pytest.mark.parametrize("how", MUTATORS)
def test_the_error_names_the_operation_that_changed_the_tensor(how: str) -> None:
    change, name = MUTATORS[how]
    x = leaf(5) * 1
    y = x.sin()
    with ut.no_grad():
        change(x)
    with pytest.raises(ModifiedInplaceError, match=rf"made by {name} at .*test_errors.py"):
        y.sum().backward()


NAMES: dict[str, tuple[Callable[[], Any], str]] = {
    "Add": (lambda: leaf(3) + 1, "output 0 of Add,"),
    "Sum1": (lambda: leaf(3, 2).sum(dim=1), "output 0 of Sum1,"),
    "leaf": (lambda: leaf(3), r"\[undertow.FloatTensor \[3\]\], is at version"),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_error_names_the_forward_operation(name: str) -> None:
    make, words = NAMES[name]
    x = make()
    y = x * x
    with ut.no_grad():
        x += 1
    with pytest.raises(ModifiedInplaceError, match=words):
        y.sum().backward()


def test_the_absolute_value_of_complex_numbers_is_not_written_over_them(L: Any) -> None:
    z = L.tensor([3 + 4j])
    for name in ("abs_", "absolute_"):
        with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
            getattr(z, name)()
    assert z.tolist() == [3 + 4j]
    assert L.tensor([-2.0]).abs_().tolist() == [2.0]


def test_products_of_integers_are_not_scaled_by_fractions() -> None:
    """PyTorch drops the fraction of `alpha` and `beta` here."""
    x = ut.full((2, 2), 2)
    for numbers in ({"alpha": 1.5}, {"beta": 0.5}):
        with pytest.raises(RuntimeError, match="must not be a floating point number"):
            x.addmm_(x, x, **numbers)
    assert x.tolist() == [[2, 2], [2, 2]]
