"""Progress: of a program's loops, and of undertow's own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

import undertow as ut
from undertow.instrument import progress
from undertow.long_loops import long_loop, shown


def test_a_loop_of_the_program() -> None:
    out = io.StringIO()
    bar = progress(iter("abc"), total=3, name="letters", file=out)
    found = []
    for letter in bar:
        bar.note = letter
        found.append(letter)
    assert found == ["a", "b", "c"] and len(bar) == 3
    assert "letters c" in out.getvalue().splitlines()[-1]
    with pytest.raises(TypeError, match="not known"):
        len(progress(iter("abc")))


def test_loops_inside_a_block() -> None:
    out = io.StringIO()
    x = ut.randn(3, dtype=ut.float64, requires_grad=True)
    with progress(file=out):
        assert ut.autograd.gradcheck(ut.sin, (x,))
        wanted = ut.autograd.functional.jacobian(ut.sin, x)
    assert "gradcheck" in out.getvalue() and "jacobian" in out.getvalue()
    assert bool((wanted == ut.autograd.functional.jacobian(ut.sin, x)).all())
    assert shown.get() is None


def lines_of(call: Callable[[], Any]) -> str:
    out = io.StringIO()
    with progress(file=out):
        call()
    return out.getvalue()


def test_every_long_loop_is_shown() -> None:
    x, model = ut.randn(4), ut.nn.BatchNorm1d(2)
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("2/2 vmap", lambda: ut.vmap(ut.sin, chunk_size=2)(x)),
        ("2/2 vmap", lambda: ut.func.jacrev(ut.sin, chunk_size=2)(x)),
        ("2/2 vmap", lambda: ut.func.jacfwd(ut.sin, chunk_size=2)(x)),
        ("4/4 jacobian", lambda: ut.autograd.functional.hessian(lambda x: x.sin().sum(), x)),
        ("1/1 sparsity pattern", lambda: ut.autograd.functional.sparsity_pattern(ut.sin, x)),
        ("3/3 update_bn", lambda: ut.optim.swa_utils.update_bn([ut.ones(3, 2)] * 3, model)),
        ("2/2 hessian", lambda: ut.interop.value_and_jac(lambda x: (x**3).sum()).hess([1.0, 2.0])),
    ]
    for words, call in cases:
        assert f"step {words}" in " ".join(lines_of(call).splitlines()[-1].split())


def an_lbfgs(**options: Any) -> Callable[[], Any]:
    point = ut.tensor([3.0, -2.0], requires_grad=True)
    optimizer = ut.optim.LBFGS([point], max_iter=3, max_eval=9, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        ut.autograd.functional.jacobian(ut.sin, ut.ones(2))  # a loop inside
        loss = (point**4).sum()
        loss.backward()
        return loss

    return lambda: (optimizer.step(closure), point.tolist())


def test_steps_of_lbfgs() -> None:
    out = io.StringIO()
    without, argument = an_lbfgs()(), an_lbfgs(progress=out)()
    assert without == argument
    assert [line.split()[:3] for line in out.getvalue().splitlines()] == [
        ["step", f"{k}/3", "LBFGS"] for k in (1, 2, 3)
    ]
    inner = [line.split()[2] for line in lines_of(an_lbfgs()).splitlines()]
    assert inner == ["jacobian", "jacobian", "LBFGS", "LBFGS", "LBFGS"]  # the first value is computed before the loop


def test_outside_a_block_a_loop_is_what_it_was() -> None:
    items = range(3)
    assert long_loop(items, 3, "loop") is items


def test_a_loop_that_is_left_early() -> None:
    out = io.StringIO()
    for k in progress(range(100), file=out):
        if k == 50:
            break
    assert "100/100" not in out.getvalue()


def test_tqdm_draws_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def tqdm(items: Any, **options: Any) -> Any:
        calls.append(options)
        return items

    monkeypatch.setattr("undertow.instrument.progress_bars.find_tqdm", lambda: tqdm)
    assert list(progress([1, 2], name="mine")) == [1, 2]
    assert calls == [{"total": 2, "desc": "mine"}]


def test_without_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert list(progress([1, 2])) == [1, 2]
    assert "2/2" in capsys.readouterr().err
