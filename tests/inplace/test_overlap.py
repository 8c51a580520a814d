"""Operands in the memory that is written to: refused where PyTorch refuses them, before anything is changed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows

pytestmark = pytest.mark.torch

BINARY = ["add_", "sub_", "mul_", "div_", "pow_", "atan2_", "fmod_", "remainder_", "copy_", "eq_", "clamp_"]


def at(x: Any) -> Any:
    """Places for all elements."""
    return (x * 0 + 1).cumsum(0).long() - 1


#: what changes its first argument, given another
CHANGES: dict[str, Any] = {
    **{name: (lambda x, y, name=name: getattr(x, name)(y)) for name in BINARY},
    "add_, alpha": lambda x, y: x.add_(y, alpha=2),
    "lerp_": lambda x, y: x.lerp_(y, 0.5),
    "addcmul_": lambda x, y: x.addcmul_(y, y),
    "+=": lambda x, y: x.__iadd__(y),
    "x[:] = y": lambda x, y: x.__setitem__(slice(None), y),
    "x[...] = y": lambda x, y: x.__setitem__(Ellipsis, y),
    "x[mask] = y": lambda x, y: x.__setitem__(x > -1, y),
    "x[indices] = y": lambda x, y: x.__setitem__(at(x), y),
    "scatter_": lambda x, y: x.scatter_(0, at(x), y),
    "scatter_add_": lambda x, y: x.scatter_add_(0, at(x), y),
    "index_add_": lambda x, y: x.index_add_(0, at(x), y),
    "index_copy_": lambda x, y: x.index_copy_(0, at(x), y),
    "index_put_": lambda x, y: x.index_put_((at(x),), y),
    "put_": lambda x, y: x.put_(at(x), y),
    "fill_": lambda x, y: x.fill_(y[0]),
}

#: what writes into its second argument
OUTS: dict[str, Any] = {
    "add": lambda t, x, y: t.add(x, 1.0, out=y),
    "exp": lambda t, x, y: t.exp(x, out=y),
    "clamp": lambda t, x, y: t.clamp(x, 0, 1, out=y),
    "where": lambda t, x, y: t.where(x > 0, x, x, out=y),
    "cumsum": lambda t, x, y: t.cumsum(x, 0, out=y),
    "mv": lambda t, x, y: t.mv(t.eye(len(x)), x, out=y),
    "softmax": lambda t, x, y: t.softmax(x, 0, out=y),
    "gather": lambda t, x, y: t.gather(x, 0, t.arange(len(x)), out=y),
    "index_select": lambda t, x, y: t.index_select(x, 0, t.arange(len(x)), out=y),
    "take": lambda t, x, y: t.take(x, t.arange(len(x)), out=y),
    "cat": lambda t, x, y: t.cat([x[:2], x[2:]], out=y),
    "masked_select": lambda t, x, y: t.masked_select(x, x > -1, out=y),
    "sort": lambda t, x, y: t.sort(x, out=(y, t.empty(len(x), dtype=t.int64))),
}

#: the two, as parts of one memory
PAIRS: dict[str, Any] = {
    "shifted": lambda x: (x[1:], x[:-1]),
    "the same part": lambda x: (x[1:], x[1:]),
    "the same tensor": lambda x: (x, x),
    "with gaps": lambda x: (x[::2], x[:4]),
    "beside gaps": lambda x: (x[:4], x[::2]),
    "apart": lambda x: (x[:4], x[4:]),
}


def outcome(call: Any, library: Any, pair: Any) -> tuple[bool, list[float]]:
    x = library.arange(1.0, 9.0) / 9
    try:
        call(*pair(x))
    except RuntimeError as error:
        assert "refer to a single memory location" in str(error)
        return False, x.tolist()  # as it was
    return True, [round(v, 5) for v in x.tolist()]


@rows("pair", PAIRS)
@rows("name", CHANGES)
def test_changes_in_place(torch: ModuleType, name: str, pair: str) -> None:
    ours, theirs = (outcome(CHANGES[name], library, PAIRS[pair]) for library in (ut, torch))
    assert ours[0] == theirs[0]
    if pair not in ("with gaps", "beside gaps"):  # PyTorch's result depends on its order of work there
        assert ours[1] == pytest.approx(theirs[1], abs=2e-5)


@rows("pair", PAIRS)
@rows("name", OUTS)
def test_results_written_to_memory_that_is_read(torch: ModuleType, name: str, pair: str) -> None:
    ours, theirs = (
        outcome(lambda x, y, library=library: OUTS[name](library, x, y), library, PAIRS[pair])
        for library in (ut, torch)
    )
    assert ours[0] == theirs[0]


def test_a_matrix_and_its_transpose(torch: ModuleType) -> None:
    for library in (ut, torch):
        x = library.arange(9.0).reshape(3, 3)
        for change in (lambda x: x.add_(x.t()), lambda x: x.copy_(x.t()), lambda x: x.__setitem__(Ellipsis, x.t())):
            with pytest.raises(RuntimeError, match="refer to a single memory location"):
                change(x)
        x.t().add_(x.t())
        assert x.tolist() == (library.arange(9.0).reshape(3, 3) * 2).tolist()


def test_one_element_of_what_is_changed() -> None:
    x = ut.arange(1.0, 4.0)
    with pytest.raises(RuntimeError, match="would read what it has written"):
        x /= x[0]
    assert x.tolist() == [1, 2, 3]


def test_a_single_element_is_itself_however_many_dimensions_it_has(L: ModuleType) -> None:
    x = L.tensor(2.0)
    row = x.ravel()
    assert row.lerp_(x.unsqueeze_(0), 0.5).tolist() == [2.0]


#: values that are repeated in what they are assigned to, and lie in it themselves
REPEATED = [
    "x[:] = x[0]",
    "x[...] = x[1]",
    "x[1:] = x[1]",
    "x[:, 1:] = x[0, 0]",
    "x[0] = x[0, 0]",
    "x[1][:] = x[1, 0]",
    "x[:] = x[:, :1]",
    "x[True] = x[0]",
    "x[None] = x[0]",
]


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("statement", REPEATED)
def test_a_repeated_value_is_read_before_it_is_overwritten(statement: str, recorded: bool, torch: ModuleType) -> None:
    def run(L: ModuleType) -> list[Any]:
        leaf = L.arange(9.0).reshape(3, 3).requires_grad_(recorded)
        x = leaf * 1
        exec(statement, {"x": x})
        if recorded:
            (x * L.arange(9.0).reshape(3, 3)).sum().backward()
        return [x.tolist(), leaf.grad.tolist() if recorded else None]

    assert run(ut) == run(torch)


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_a_row_of_what_is_overwritten_is_read_whole(recorded: bool) -> None:
    """PyTorch reads elements that it has overwritten."""
    x = ut.arange(9.0, requires_grad=recorded).reshape(3, 3) * 1
    x[:, :2] = x[0, 1:]
    assert x.tolist() == [[1, 2, 2], [1, 2, 5], [1, 2, 8]]


def test_recorded_changes() -> None:
    x = ut.arange(1.0, 5.0, requires_grad=True) * 1
    version = x._version
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[1:] = x[:-1]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[1:].mul_(x[:-1])
    assert x._version == version
    x[0] *= 3
    x[1:] += x[1:]
    assert x.tolist() == [3, 4, 6, 8]


@pytest.mark.parametrize("seed", range(40))
def test_operands_with_gaps_are_read_as_they_were(seed: int) -> None:
    """NumPy's own assignment reads elements of vectors that it has overwritten."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))

    def part() -> slice:
        step = int(rng.integers(1, 4))
        start = int(rng.integers(0, 20 - step * (size - 1)))
        return slice(start, start + step * (size - 1) + 1, step)

    for _ in range(20):
        check_gaps(part(), part())


def check_gaps(to: slice, of: slice) -> None:
    start = np.arange(20.0)
    expected = start.copy()
    expected[to] = start[of]
    for write in (lambda x: x.__setitem__(to, x[of]), lambda x: x[to].copy_(x[of])):
        x = ut.arange(20.0)
        try:
            write(x)
        except RuntimeError:
            assert to.step == of.step == 1 and to != of
        else:
            assert x.tolist() == expected.tolist(), (to, of)


def test_tensors_without_elements_do_not_overlap(L: Any) -> None:
    x = L.ones(2, 0)
    assert L.stack([x, x], out=x).shape == (2, 2, 0)
