"""Views: what they are views of, and which in-place changes they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

VIEWS: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: x.select(0, 1),
    "getitem": lambda x: x[1:, None],
    "slice": lambda x: x[:, ::2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "view": lambda x: x.view(6, 2),
    "view_as": lambda x: x.view_as(x),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(),
    "expand": lambda x: x.expand(1, 3, 4),
    "movedim": lambda x: x.movedim(0, 1),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "T": lambda x: x.T,
    "detach of a view's view": lambda x: x[0][1:],
}

PARTS: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda x: x.unbind()[1],
    "split": lambda x: x.split(2)[0],
    "chunk": lambda x: x.chunk(2)[1],
    "split_with_sizes": lambda x: x.split([1, 2])[1],
}


def matrix(L: Any, requires_grad: bool = True) -> tuple[Any, Any]:
    leaf = L.arange(12.0).reshape(3, 4).clone().requires_grad_(requires_grad)
    return leaf, leaf.clone()


@pytest.mark.parametrize("name", VIEWS | PARTS)
def test_a_view_knows_its_base_and_writes_reach_it(L: Any, name: str) -> None:
    _, x = matrix(L, requires_grad=False)
    v = (VIEWS | PARTS)[name](x)
    assert v._is_view() and v._base is x and not x._is_view() and x._base is None
    v.fill_(-1.0)
    assert float((x == -1).sum()) == len({*np.ravel(v.numpy())} and v.numpy().ravel())
    assert x._version == 1


@pytest.mark.parametrize("name", VIEWS)
def test_changing_a_view_changes_the_gradient_of_its_base(L: Any, name: str) -> None:
    leaf, x = matrix(L)
    VIEWS[name](x).mul_(5)
    x.sum().backward()
    _, plain = matrix(L, requires_grad=False)
    with L.no_grad():
        expected = L.ones_like(plain)
        VIEWS[name](expected).mul_(5)
    assert leaf.grad.tolist() == expected.tolist()
    assert type(x.grad_fn).__name__ == "CopySlices"


@pytest.mark.parametrize("name", VIEWS)
def test_changing_the_base_changes_the_history_of_its_views(L: Any, name: str) -> None:
    leaf, x = matrix(L)
    v = VIEWS[name](x)
    x.mul_(L.full((3, 4), 3.0))
    v.sum().backward()
    assert float(leaf.grad.sum()) == 3 * np.size(v.detach().numpy())


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_made_before_its_base_had_a_history_finds_it(L: Any, name: str) -> None:
    w = L.full((3, 4), 2.0, requires_grad=True)
    x = L.ones(3, 4)
    v = VIEWS[name](x)
    assert not v.requires_grad
    x.mul_(w)
    assert v.requires_grad
    with L.no_grad():
        assert v.grad_fn is not None
    (v * v).sum().backward()
    assert float(w.grad.sum()) == 4 * np.size(v.detach().numpy())


@pytest.mark.parametrize("name", PARTS)
def test_one_of_several_views_may_not_be_changed(L: Any, name: str) -> None:
    _, x = matrix(L)
    part = PARTS[name](x)
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views"):
        part.mul_(2)
    with pytest.raises(RuntimeError, match=r"Output [01] of .* is a view and is being modified inplace"):
        part[0].mul_(2) if part.dim() == 1 else part.mul_(2)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
        part.grad_fn


@pytest.mark.parametrize("name", ["unsafe_split", "unsafe_chunk"])
def test_parts_made_by_the_unsafe_forms_may_be_changed(L: Any, name: str) -> None:
    leaf, x = matrix(L)
    parts = getattr(x, name)(2)
    parts[0].mul_(2)
    sum(p.sum() for p in parts).backward()
    assert float(leaf.grad.sum()) in (12 + 8, 12 + 4)


def test_a_view_of_a_leaf_may_not_be_changed(L: Any) -> None:
    leaf, _ = matrix(L)
    for change in (lambda: leaf[0].mul_(2), lambda: leaf.__setitem__(0, 1.0), lambda: leaf.t()[0].zero_()):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used"):
            change()
    with pytest.raises(RuntimeError, match=r"^a leaf Variable that requires grad is being used"):
        leaf.mul_(2)
    assert leaf.tolist() == L.arange(12.0).reshape(3, 4).tolist() and leaf._version == 0


def test_a_view_that_is_a_leaf_itself_may_not_be_changed(L: Any) -> None:
    view = L.zeros(4)[1:]
    view.requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        view.mul_(2)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        view[1:].mul_(2)


def test_a_leaf_that_is_a_view_joins_the_history_written_into_its_base(L: Any) -> None:
    base, w = L.zeros(3), L.ones(3, requires_grad=True)
    view = base[:2].requires_grad_()
    base.add_(w)
    assert not view.is_leaf
    view.sum().backward()
    assert w.grad.tolist() == [1, 1, 0]


@pytest.mark.parametrize("changed", ["leaf", "view", "memory"])
def test_views_of_a_leaf_that_is_a_view_survive_changes_that_are_not_recorded(changed: str) -> None:
    memory = ut.zeros(4)
    leaf = memory.view(2, 2).requires_grad_()
    view = leaf[0]
    with ut.no_grad():
        {"leaf": leaf, "view": view, "memory": memory}[changed].fill_(3)
    assert view.requires_grad and not view.is_leaf
    (view * view).sum().backward()
    assert leaf.grad.tolist() == [[6, 6], [0, 0]]


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_view_made_under_no_grad_refuses_recorded_changes(L: Any, requires_grad: bool) -> None:
    _, x = matrix(L, requires_grad)
    with L.no_grad():
        v = x.view(-1)
    w = L.ones(12, requires_grad=True)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        v.mul_(w)
    with L.no_grad():
        v.mul_(2)
    assert float(x.detach().sum()) == 132


def test_a_view_made_under_no_grad_is_cut_off(L: Any) -> None:
    leaf, x = matrix(L)
    with L.no_grad():
        v = x.view(-1)
    assert v.requires_grad and v.is_leaf and v.grad_fn is None
    y = v * 2
    assert y.requires_grad
    (y.sum() + x.sum()).backward()
    assert leaf.grad.tolist() == [[1] * 4] * 3 and v.grad is None
    (unused,) = L.autograd.grad(x.sum(), v, allow_unused=True)
    assert unused is None


def test_a_view_of_a_view_made_under_no_grad_refuses_changes(L: Any) -> None:
    x = L.zeros(2)
    with L.no_grad():
        y = x.view(2)
    z = y.requires_grad_().view(2)
    with pytest.raises(RuntimeError, match=r"a view of a view .* is being .* inside the no_grad block"):
        z /= 2


def test_integers_seen_through_floats_do_not_require_grad(L: Any) -> None:
    x = L.ones(2, requires_grad=True) * 1
    v = x.view(L.int32)
    assert not v.requires_grad
    assert v.dtype == L.int32


@pytest.mark.parametrize("part", ["real", "imag"])
def test_parts_of_complex_tensors_are_views(L: Any, part: str) -> None:
    leaf = L.ones(3, dtype=L.complex128, requires_grad=True)
    x = leaf * 1
    getattr(x, part).mul_(3)
    y = L.view_as_real(x)
    y[..., 0].add_(1)
    (x.real + x.imag).sum().backward()
    expected = complex(3, 1) if part == "real" else complex(1, 3)
    assert leaf.grad.tolist() == [expected] * 3


# ---- taking a view again


def test_a_view_of_a_view_adds_one_step_and_copies_none() -> None:
    x = ut.zeros(3, 4)
    first = x.t()
    second = first[1:]
    assert second._extra.view.replay.before is first._extra.view.replay
    assert [step.function.op.name for step in second._extra.view.replay.steps()] == ["t", "slice"]


def test_twenty_thousand_views_of_views() -> None:
    """Built, changed at the far end, differentiated and freed, all without recursion."""
    w = ut.ones(2, 3, requires_grad=True)
    base = w * 2
    view = base
    for _ in range(10_000):
        view = view.t().view_as(view.t())
    view.mul_(5)
    view.sum().backward()
    assert w.grad.tolist() == [[10.0] * 3] * 2
    assert type(base.grad_fn).__name__ == "CopySlices"
    del view, base


def test_view_func_takes_the_same_view_of_another_base(L: Any) -> None:
    x = L.zeros(2, 3)
    view, other = x.t()[1:], L.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    again = view._view_func(other)
    assert again.tolist() == [[1, 4], [2, 5]] and again._base is other
    leaf = L.ones(2, 3, requires_grad=True)
    view._view_func(leaf).sum().backward()
    assert leaf.grad.tolist() == [[0, 1, 1], [0, 1, 1]]
    assert x.unbind(0)[1]._view_func(other).tolist() == [3, 4, 5]


def test_view_func_is_none_where_there_is_no_such_view(L: Any) -> None:
    x = L.zeros(2, 3)
    view = x[0]
    assert x._view_func(x) is None and x.detach()._view_func(x) is None
    assert view._view_func(L.zeros(5)) is None and view._view_func(L.zeros(3, 2).t()) is None


def test_a_view_of_one_element_survives_a_transposed_base(L: Any) -> None:
    w = L.ones(2, 3, dtype=L.float64, requires_grad=True)
    x = w * 1
    corner = x[0][0]
    x.t_()
    corner.exp_()  # whose gradient needs its result, looked up by its place in memory
    (g,) = L.autograd.grad(x.sum(), w, create_graph=True)
    (h,) = L.autograd.grad(g.sum(), w)
    e = L.ones((), dtype=L.float64).exp().item()
    assert g.tolist() == [[e, 1.0, 1.0], [1.0] * 3]
    assert h.tolist() == [[e, 0.0, 0.0], [0.0] * 3]


RETYPED: dict[str, tuple[str, Any]] = {
    "real": ("complex128", lambda L, x: x.real),
    "imag": ("complex128", lambda L, x: x.imag),
    "imag of a part": ("complex128", lambda L, x: x[1:].imag),
    "view_as_real": ("complex128", lambda L, x: L.view_as_real(x)[..., 1]),
    "view_as_complex": ("float64", lambda L, x: L.view_as_complex(x)),
    "a part of view_as_complex": ("float64", lambda L, x: L.view_as_complex(x)[1:]),
}
TURNS: dict[str, Any] = {"transpose_": lambda x: x.transpose_(0, 1), "unsqueeze_": lambda x: x.unsqueeze_(0)}


@pytest.mark.parametrize("turn", TURNS.values(), ids=list(TURNS))
@pytest.mark.parametrize(("dtype", "look"), RETYPED.values(), ids=list(RETYPED))
def test_parts_of_complex_numbers_survive_a_turned_base(dtype: str, look: Any, turn: Any) -> None:
    def change(w: Any) -> Any:
        x = w * 1
        part = look(ut, x)
        turn(x)
        part.mul_(3)
        return (x * x).sum() + part.abs().square().sum()

    w = ut.randn(2, 3, 2, dtype=getattr(ut, dtype), requires_grad=True)
    assert ut.autograd.gradcheck(change, (w,))
    assert ut.autograd.gradgradcheck(change, (w,))


@pytest.mark.parametrize("look", [lambda x: x[1:], lambda x: ut.view_as_real(x)], ids=["part", "view_as_real"])
def test_a_view_of_more_than_its_base_has_become_is_refused(look: Any) -> None:
    """PyTorch gives the elements that the base no longer shows a gradient of zero."""
    w = ut.ones(4, dtype=ut.complex128, requires_grad=True)
    x = w * 1
    view = look(x)
    x.as_strided_((1,), (1,))
    x.mul_(2)
    with pytest.raises(RuntimeError, match=r"history of (those elements cannot be found|the view is lost)"):
        view.abs().sum()
    assert x.detach().tolist() == [2.0]


def test_without_history_such_a_view_is_as_good_as_any(L: Any) -> None:
    x = L.arange(6.0)
    view = x[2:]
    x.as_strided_((1,), (1,))
    view[1:].mul_(10)
    assert view.tolist() == [2.0, 30.0, 40.0, 50.0]


STRIDED: dict[str, tuple[str, Any, list[Any], list[Any]]] = {
    "real": ("complex128", lambda x: x.real.as_strided((2,), (1,), 0), [0.0, 1.0], [2j, 0, 0]),
    "imag": ("complex128", lambda x: x.imag.as_strided((2,), (1,), 3), [3.0, 4.0], [0, 6j, 8]),
    "a part": (
        "float64",
        lambda x: ut.view_as_complex(x)[1:].as_strided((1,), (1,), 0),
        [1j],
        [[0, 2], [0, 0], [0, 0]],
    ),
    "its real": (
        "float64",
        lambda x: ut.view_as_complex(x).real.as_strided((1,), (1,), 3),
        [3.0],
        [[0, 0], [0, 6], [0, 0]],
    ),
}


@pytest.mark.parametrize(("dtype", "look", "values", "gradient"), STRIDED.values(), ids=list(STRIDED))
def test_the_memory_beside_parts_of_complex_numbers(dtype: str, look: Any, values: Any, gradient: Any) -> None:
    """PyTorch shows the same values, and gives what lies outside of the parts a gradient of zero."""
    w = ut.arange(6.0, dtype=ut.float64).view(3, 2)
    w = (ut.view_as_complex(w) if dtype == "complex128" else w).clone().requires_grad_()
    shown = look(w * 1)
    assert shown.tolist() == values
    shown.abs().square().sum().backward()
    assert w.grad.tolist() == gradient


TURNED: dict[str, Callable[[Any], Any]] = {
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "squeeze_": lambda v: v.squeeze_(),
    "t_": lambda v: v.t_(),
    "transpose_": lambda v: v.transpose_(0, 1),
}


@pytest.mark.parametrize("turn", TURNED.values(), ids=list(TURNED))
def test_a_view_turned_in_place_before_its_base_requires_grad(L: Any, turn: Callable[[Any], Any]) -> None:
    """A view that was changed has the history of its base, also one that the base gets only later."""
    base = L.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    view = base.view(3, 2)
    turn(view)
    base.requires_grad = True
    assert view.requires_grad and not view.is_leaf
    (view * view).sum().backward()
    assert base.grad.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
