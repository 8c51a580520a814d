"""Random functions, which view and change what they are given, under all transformations: against differences.

A program that is refused is fine; one that computes must be right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import func
from undertow.autograd.checkpoint import checkpoint

STEPS = """X.sin() | X.exp() | X * Y | X + Y | X - Y | X.lerp(Y, 0.3) | X.cumsum(0) | X.sum(0) | X.reciprocal()
X.clone() | X.tanh() | ut.stack([X, Y]) | ut.cat([X, Y]) | X.new_zeros(X.shape).copy_(X)
ut.select_scatter(X, Y[0], 0, 0) | X.prod(0) | X.flip(0)
ut.as_strided_scatter(X.contiguous(), Y[:1], Y[:1].shape, ut.empty(Y[:1].shape).stride())
ut.complex(X, Y).mul_(1j).real | ut.view_as_real(ut.complex(X, Y)) | ut.where(X > 0.55, X, Y)"""
VIEWS = """X[0] | X[1:] | X[..., 0] | X.t() | X.contiguous() | X.view(-1) | X.unsqueeze(0) | X.movedim(0, -1)
X.diagonal() | X.unbind(0)[-1] | X.as_strided((2,), (1,), X.storage_offset()) | X.unfold(-1, 2, 1)
X.expand(2, *X.shape) | X.squeeze()"""
CHANGES = """X.mul_(Y) | X.add_(Y) | X.exp_() | X.copy_(Y) | X[0] = Y | X[..., 0] = Y | X[1:] = 0.3 | X.t_()
X[X > 0.63] = 0.4 | X.view(-1)[0] = 0.7 | X.index_add_(0, ut.tensor([0]), Y[:1]) | X[[0]] = Y[:1] | X.transpose_(0, -1)
X.diagonal().mul_(Y) | X.contiguous().as_strided((2,), (1,)).zero_() | X.unsqueeze_(0)
X[None].mul_(Y) | X.cumprod_(0) | X[0].mul_(Y[-1])"""
TRANSFORMED = """func.grad(lambda a: (a * a * X).sum())(X) | func.vmap(lambda a: a.sin() * a.sum())(X)
func.jvp(lambda a: a * a, (X,), (Y,))[1] | func.jacrev(lambda a: a.sin() * a)(X.reshape(-1)).sum(0)
func.jacfwd(lambda a: (a * a).cumsum(0))(X.reshape(-1)).sum(0) | func.vmap(func.grad(lambda a: (a**3).sum()))(X)
again(lambda a: a.sin() * a, X) | again(lambda a: a.clone().mul_(a), X) | copied(lambda: X * X * Y)
copied(lambda: func.grad(lambda a: (a**3).sum())(X)) | func.vmap(lambda a: a.clone().mul_(X[0]))(X)"""
KINDS = [re.split(r" \| |\n", table) for table in (STEPS, VIEWS, CHANGES, TRANSFORMED)]
SHAPE = (2, 3)


def again(function: Callable[..., Any], *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False)


def copied(function: Callable[[], Any]) -> Any:
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return function()


def point(scale: float = 1.0) -> Any:
    return (ut.arange(1.0, 7.0, dtype=ut.float64).view(SHAPE) * 0.17 + 0.0531) * scale


def surroundings() -> dict[str, Any]:
    other = ut.arange(1.0, 7.0, dtype=ut.float64).view(SHAPE) * 0.13 + 0.2
    return {"ut": ut, "func": func, "again": again, "copied": copied, "v0": other}


def body(seed: int) -> list[str]:
    """Lines that run, and what they return."""
    draw, known = random.Random(seed), surroundings()
    known["v1"] = point() * 1
    lines = []
    for number in range(2, draw.randrange(5, 10)):
        names = [n for n in known if n[0] == "v"]
        x = draw.choice(names[1:])
        y = draw.choice([n for n in names if known[n].shape == known[x].shape])
        table = draw.choices(KINDS, (3, 3, 4, 2))[0]
        line = re.sub(r"\bY\b", y, re.sub(r"\bX\b", x, draw.choice(table)))
        line = line if table is KINDS[2] else f"v{number} = {line}"
        try:
            exec(line, known)
        except (RuntimeError, IndexError, ValueError):
            continue
        lines.append(line)
    values = [known[n] for n in known if n[0] == "v"]
    tame = all([v.numel() and v.isfinite().all() and v.abs().max() < 30 and v.numel() < 60 for v in values])
    chosen = draw.choice([n for n in known if n[0] == "v"][-3:])
    return [*lines, f"return {chosen} * 1"] if tame else []


def made(lines: list[str]) -> Callable[[Any], Any]:
    known = surroundings()
    exec("def function(v1):\n    v1 = v1 * 1\n    " + "\n    ".join(lines), known)

    def function(x: Any) -> Any:
        known["v0"] = surroundings()["v0"]  # which may have been changed
        return known["function"](x)

    return function


def differences(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    columns = []
    for direction in ut.eye(x.numel(), dtype=ut.float64).view(-1, *x.shape) * step:
        columns.append((function(x + direction) - function(x - direction)).detach().numpy() / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


def by_passes(function: Callable[[Any], Any]) -> Any:
    return ut.autograd.functional.jacobian(function, point())


def claims(function: Callable[[Any], Any]) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """What is computed in some way, and what it has to be."""

    def gradient(x: Any) -> Any:
        return func.grad(lambda t: function(t).sin().sum())(x)

    points = ut.stack([point(), point(0.9)])
    slopes = differences(function, point())
    yield "passes", lambda: by_passes(function), lambda: slopes
    yield "checkpoint", lambda: by_passes(lambda x: again(function, x)), lambda: slopes
    yield "copies", lambda: by_passes(lambda x: copied(lambda: function(x))), lambda: slopes
    yield "jacrev", lambda: func.jacrev(function)(point()), lambda: slopes
    yield "jacfwd", lambda: func.jacfwd(function)(point()), lambda: slopes
    yield "vmap", lambda: func.vmap(function)(points), lambda: np.stack([function(x).numpy() for x in points])
    rows = lambda: np.stack([differences(function, x) for x in points])
    yield "vmap of jacrev", lambda: func.vmap(func.jacrev(function))(points), rows
    curvature = lambda: differences(gradient, point(), 1e-5)
    yield "jacfwd of grad", lambda: func.jacfwd(gradient)(point()), curvature
    yield "jacrev of jacfwd", lambda: func.jacrev(func.jacfwd(lambda x: function(x).sin().sum()))(point()), curvature


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", [0, pytest.param(40, marks=pytest.mark.long)])
def test_random_functions_have_the_derivatives_that_differences_show(start: int) -> None:
    for seed in range(start, start + (40 if not start else 200)):
        lines = body(seed)
        if not lines:
            continue
        for name, compute, expected in claims(made(lines)):
            try:
                found, right = compute().detach().numpy(), expected()
            except RuntimeError:
                continue
            np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-4, err_msg=f"{name}, seed {seed}: {lines}")
