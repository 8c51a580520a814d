"""Python numbers in the place of tensors: taken by the functions that take them in PyTorch, and by no other."""

from __future__ import annotations

from itertools import product
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.ops.declare import REGISTRY

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

#: PyTorch refuses a number; here it is refused because it is no matrix
LENIENT = {"linalg_matrix_exp"}
SPACES = ("linalg", "special", "fft")


def function_of(library: Any, name: str) -> Any:
    found = getattr(library, name, None)
    space, _, rest = name.partition("_")
    return getattr(getattr(library, space), rest, None) if found is None and space in SPACES else found


def is_comparable(torch: Any, name: str) -> bool:
    """Whether it is a declared operation whose first arguments are its tensors, and that both libraries have."""
    op = REGISTRY[name]
    if name != op.name or name[0] == "_" or op.kind not in ("primitive", "nondifferentiable") or op.optional:
        return False
    inputs_alone = op.inputs == op.ordered[: len(op.inputs)] and set(op.params) <= set(op.defaults)
    return inputs_alone and None not in (function_of(torch, name), function_of(ut, name))


def is_refused(function: Any, args: list[Any]) -> bool:
    """Whether the kinds of the arguments are; what their values lead to does not matter."""
    try:
        function(*args)
    except TypeError as error:
        return "must be Tensor" in str(error) or "invalid combination" in str(error)
    except Exception:
        return False
    return False


def calls(library: Any, count: int, integers: bool) -> list[list[Any]]:
    values = [1, 2] if integers else [0.5, 0.25]
    return [[2 if number else library.tensor(values) for number in row] for row in product([False, True], repeat=count)]


def test_numbers_are_taken_where_pytorch_takes_them(torch: ModuleType) -> None:
    compared = [name for name in REGISTRY if is_comparable(torch, name)]
    assert len(compared) > 150
    wrong = []
    for name in compared:
        count, integers = len(REGISTRY[name].inputs), name.startswith(("bitwise", "gcd", "lcm"))
        pairs = zip(calls(ut, count, integers), calls(torch, count, integers), strict=True)
        for ours, theirs in pairs:
            if is_refused(function_of(ut, name), ours) != is_refused(function_of(torch, name), theirs):
                wrong.append((name, [type(a).__name__ for a in ours]))
    assert {name for name, _ in wrong} <= LENIENT, wrong


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"exp\(\): argument 'input' \(position 1\) must be Tensor, not float. Make it"):
        ut.exp(1.5)
    assert ut.exp(ut.tensor([0.0])).tolist() == [1.0]
    assert ut.add(1, 2).item() == 3


def test_functions_made_of_others_need_one_tensor(torch: ModuleType) -> None:
    names = [name for name in dir(torch.special) if "_polynomial_" in name and not name.startswith("special")]
    assert len(names) == 12
    for library in (ut, torch):
        for function in (library.float_power, *[getattr(library.special, name) for name in names]):
            assert is_refused(function, [2, 3])
            assert not is_refused(function, [library.tensor([0.5]), 3]) and not is_refused(
                function, [2, library.ones(1)]
            )


def test_windows_are_dense_and_of_two_dtypes(torch: ModuleType) -> None:
    for library in (ut, torch):
        for name in ("hann", "kaiser", "bartlett", "gaussian", "cosine", "exponential", "nuttall"):
            window = getattr(library.signal.windows, name)
            assert window(3, dtype=library.float64, layout=library.strided).dtype == library.float64
            for options in ({"dtype": library.float16}, {"dtype": library.int64}, {"layout": library.sparse_coo}):
                with pytest.raises(ValueError, match=r"float32 or float64|strided tensors only"):
                    window(3, **options)


def test_functions_of_two_tensors_that_are_no_declared_operations(torch: ModuleType) -> None:
    for library in (ut, torch):
        for function in (library.max, library.min, library.allclose):
            assert is_refused(function, [2, library.ones(2)])
        assert is_refused(library.allclose, [library.ones(2), 1.0])


def test_one_tensor_is_no_list_of_tensors(torch: ModuleType) -> None:
    for name in "cat concat concatenate stack hstack vstack dstack column_stack row_stack linalg.multi_dot".split():
        for library in (ut, torch):
            with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
                attrgetter(name)(library)(library.ones(2, 2))


def test_numpy_compares_with_numbers_and_joins_rows() -> None:
    x = ut.tensor([[1.0, 2.0]])
    assert np.isclose(x, 1).tolist() == [[True, False]] and np.isclose(x, np.array([1.0, 2.0])).all()
    assert np.allclose(x, [1.0, 2.0]) is True
    for join in (np.column_stack, np.dstack, np.vstack, np.hstack, np.concatenate, np.stack):
        np.testing.assert_array_equal(join(x).numpy(), join(x.numpy()))
