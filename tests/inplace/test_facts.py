"""Random programs of views, changes in place, Functions and modes: after every step each tensor is as PyTorch's is.

`test_programs.py` compares gradients with a model; this compares what a program can ask of its tensors: whether they
require grad, are leaves or views, how often they were changed, how they lie in memory, which steps are refused, and in
the end the gradients. Steps that undertow takes and PyTorch refuses end a program, since from there on it is another.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

PROGRAMS, STEPS = 200, 12
OVERLAPS = ("several elements share", "more than one element", "refer to a single memory location")


def assign(x: Any, key: Any, value: Any) -> None:
    x[key] = value


VIEWS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("x[0]", lambda L, x: x[0]), ("x[1:]", lambda L, x: x[1:]), ("x[::2]", lambda L, x: x[::2]),
    ("x[..., 1]", lambda L, x: x[..., 1]), ("x[None]", lambda L, x: x[None]), ("t", lambda L, x: x.t()),
    ("view(-1)", lambda L, x: x.view(-1)), ("reshape(-1)", lambda L, x: x.reshape(-1)),
    ("flatten", lambda L, x: x.flatten()), ("unsqueeze", lambda L, x: x.unsqueeze(-1)),
    ("squeeze", lambda L, x: x.squeeze()), ("diagonal", lambda L, x: x.diagonal()),
    ("expand", lambda L, x: x.expand(2, *x.shape)), ("narrow", lambda L, x: x.narrow(0, 0, 1)),
    ("permute", lambda L, x: x.permute(*range(x.ndim)[::-1])), ("view_as", lambda L, x: x.view_as(x)),
    ("unfold", lambda L, x: x.unfold(0, 2, 1)), ("unbind", lambda L, x: x.unbind(0)[0]),
    ("split", lambda L, x: x.split(1)[-1]), ("chunk", lambda L, x: x.chunk(2)[0]),
    ("movedim", lambda L, x: x.movedim(0, -1)), ("unflatten", lambda L, x: x.unflatten(0, (-1, 1))),
    ("detach", lambda L, x: x.detach()), ("data", lambda L, x: x.data), ("contiguous", lambda L, x: x.contiguous()),
    ("real", lambda L, x: x.real), ("x[[0]]", lambda L, x: x[[0]]), ("x[:0]", lambda L, x: x[:0]),
    ("a leaf on it", lambda L, x: x.detach().requires_grad_()), ("clone", lambda L, x: x.clone()),
]  # fmt: skip

CHANGES: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("mul_(2)", lambda L, x, y: x.mul_(2)), ("add_(y)", lambda L, x, y: x.add_(y)),
    ("mul_(y)", lambda L, x, y: x.mul_(y)), ("sin_", lambda L, x, y: x.sin_()), ("tanh_", lambda L, x, y: x.tanh_()),
    ("zero_", lambda L, x, y: x.zero_()), ("fill_", lambda L, x, y: x.fill_(3.0)),
    ("copy_(y)", lambda L, x, y: x.copy_(y)), ("relu_", lambda L, x, y: x.relu_()),
    ("x[0] = 1", lambda L, x, y: assign(x, 0, 1.0)), ("x[0] = y[0]", lambda L, x, y: assign(x, 0, y[0])),
    ("x[1:] = y[1:]", lambda L, x, y: assign(x, slice(1, None), y[1:])),
    ("x[x > 0.5] = 0", lambda L, x, y: assign(x, x.detach() > 0.5, 0.0)),
    ("x[[0]] = y[[0]]", lambda L, x, y: assign(x, [0], y[[0]])),
    ("requires_grad_", lambda L, x, y: x if x._is_view() else x.requires_grad_()),
    ("clamp_", lambda L, x, y: x.clamp_(-1, 1)),
    ("index_fill_", lambda L, x, y: x.index_fill_(0, L.tensor([0]), 2.0)), ("out=", lambda L, x, y: L.add(x, y, out=x)),
    ("masked_fill_", lambda L, x, y: x.masked_fill_(x.detach() > 0, 1.0)), ("lerp_", lambda L, x, y: x.lerp_(y, 0.5)),
    ("pow_", lambda L, x, y: x.pow_(2)), ("div_", lambda L, x, y: x.div_(y)), ("x += 1", lambda L, x, y: x.__iadd__(1)),
    ("data.mul_", lambda L, x, y: x.data.mul_(2)), ("detach().mul_", lambda L, x, y: x.detach().mul_(2)),
    ("index_copy_", lambda L, x, y: x.index_copy_(0, L.tensor([0]), y[:1])), ("tril_", lambda L, x, y: x.tril_()),
    ("index_add_", lambda L, x, y: x.index_add_(0, L.tensor([0]), y[:1])), ("cumsum_", lambda L, x, y: x.cumsum_(0)),
    ("foreach", lambda L, x, y: L._foreach_mul_([x], 2.0) and None),
]  # fmt: skip

COMPUTATIONS: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("x * 2", lambda L, x, y: x * 2), ("x * y", lambda L, x, y: x * y), ("x + y", lambda L, x, y: x + y),
    ("sin", lambda L, x, y: x.sin()), ("sum", lambda L, x, y: x.sum()), ("sum(0)", lambda L, x, y: x.sum(0)),
    ("x @ y", lambda L, x, y: x @ y.mT), ("cat", lambda L, x, y: L.cat([x, y])), ("x ** 2", lambda L, x, y: x**2),
    ("stack", lambda L, x, y: L.stack([x, y])), ("softmax", lambda L, x, y: x.softmax(-1)),
    ("where", lambda L, x, y: L.where(x > 0, x, y)), ("index", lambda L, x, y: x[[0, 0]]),
    ("a leaf", lambda L, x, y: L.zeros_like(x, requires_grad=True)), ("grad", lambda L, x, y: x.grad),
    ("saving", lambda L, x, y: functions(L)[0].apply(x)), ("same", lambda L, x, y: functions(L)[1].apply(x)),
    ("view", lambda L, x, y: functions(L)[2].apply(x)), ("dirty", lambda L, x, y: functions(L)[3].apply(x)),
]  # fmt: skip


@functools.cache
def functions(L: Any) -> tuple[Any, ...]:
    """Custom Functions: one that saves, and three that return what they were given, as it is, in part, or changed."""

    class Saving(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3 + 0 * ctx.saved_tensors[0]

    class Same(L.autograd.Function):
        forward = staticmethod(lambda ctx, x: x)
        backward = staticmethod(lambda ctx, grad: grad * 2)

    class View(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.rest = (x.shape[0] - 1, *x.shape[1:])
            return x[:1]

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return L.cat([grad, L.zeros(ctx.rest, dtype=grad.dtype)])

    class Dirty(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(3)

        backward = staticmethod(lambda ctx, grad: grad * 3)

    return Saving, Same, View, Dirty


# ---- a program


class Program:
    """One random program, run in both libraries step by step."""

    def __init__(self, torch: Any, seed: int) -> None:
        self.choose, self.libraries, self.log = random.Random(seed), (ut, torch), []
        numbers = np.random.default_rng(seed)
        self.pools: tuple[list[Any], list[Any]] = ([], [])
        for shape, requires_grad in (((2, 3), True), ((3,), True), ((2, 3), False)):
            values = numbers.uniform(0.2, 1.5, shape)
            for library, pool in zip(self.libraries, self.pools, strict=True):
                pool.append(library.tensor(values, requires_grad=requires_grad))
        for pool in self.pools:
            pool.append(pool[0].clone())

    def run(self) -> None:
        for _ in range(STEPS):
            if not self.step():
                return
            for ours, theirs in zip(*self.pools, strict=True):
                assert facts(ours) == facts(theirs), self.log
                np.testing.assert_allclose(values(ours), values(theirs), atol=1e-9, err_msg=str(self.log))
        for number in range(len(self.pools[0])):
            self.compare_gradients(number)

    def step(self) -> bool:
        """Take one; whether the program goes on."""
        tensors = self.pools[1]
        i = self.choose.choice(
            [self.choose.randrange(len(tensors)), max(0, len(tensors) - 1 - self.choose.randrange(3))]
        )
        j = self.choose.choice([k for k, t in enumerate(tensors) if t.shape == tensors[i].shape])
        name, call = self.choose.choice([*VIEWS, *CHANGES, *COMPUTATIONS])
        no_grad = self.choose.random() < 0.15
        self.log.append(f"{'no_grad ' if no_grad else ''}{name} x={i} y={j}")
        arguments = [(pool[i],) if (name, call) in VIEWS else (pool[i], pool[j]) for pool in self.pools]
        results, errors = self.in_both(lambda k: call(self.libraries[k], *arguments[k]), no_grad)
        if errors[1] is not None:
            return errors[0] is not None and name not in ("dirty", "foreach")  # PyTorch's may have begun to write
        if errors[0] is not None and any([words in str(errors[0]) for words in OVERLAPS]):
            return False  # PyTorch writes to such memory, in the order of the elements
        assert errors[0] is None, (self.log, errors[0])
        if (name, call) not in CHANGES:
            self.keep(results, i)
        return True

    def keep(self, results: list[Any], i: int) -> None:
        assert (results[0] is None) == (results[1] is None), self.log
        assert (results[0] is self.pools[0][i]) == (results[1] is self.pools[1][i]), self.log
        if results[0] is not None and results[0] is not self.pools[0][i]:
            for pool, result in zip(self.pools, results, strict=True):
                pool.append(result)

    def compare_gradients(self, number: int) -> None:
        if not self.pools[1][number].requires_grad:
            return

        def gradients(k: int) -> list[Any]:
            pool = self.pools[k]
            grad = self.libraries[k].autograd.grad
            return list(grad(pool[number].sum(), pool[:2], retain_graph=True, allow_unused=True))

        results, errors = self.in_both(gradients, False)
        if errors[1] is None:
            assert errors[0] is None, (self.log, number, errors[0])
            for ours, theirs in zip(*results, strict=True):
                assert (ours is None) == (theirs is None), (self.log, number)
                if ours is not None:
                    np.testing.assert_allclose(values(ours), values(theirs), atol=1e-9, err_msg=str(self.log))

    def in_both(self, call: Callable[[int], Any], no_grad: bool) -> tuple[list[Any], list[Exception | None]]:
        results, errors = [], []
        for k, library in enumerate(self.libraries):
            try:
                with library.set_grad_enabled(not no_grad):
                    results.append(call(k))
                errors.append(None)
            except Exception as error:
                results.append(None)
                errors.append(error)
        return results, errors


def values(tensor: Any) -> Any:
    return tensor.detach().numpy()


def facts(tensor: Any) -> dict[str, Any]:
    """What a program can ask; "refused" where it may not ask any more."""
    strides = [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1] if tensor.numel() else []
    found = {
        "shape": tuple(tensor.shape), "strides": strides, "offset": tensor.storage_offset() if tensor.numel() else 0,
        "requires_grad": tensor.requires_grad, "version": tensor._version, "output_nr": tensor.output_nr,
        "is_view": tensor._is_view(),
    }  # fmt: skip
    try:
        return found | {"is_leaf": tensor.is_leaf, "has grad_fn": tensor.grad_fn is not None}
    except RuntimeError:
        return found | {"is_leaf": "refused"}


@pytest.mark.slow
def test_programs(torch: Any) -> None:
    for seed in range(PROGRAMS):
        Program(torch, seed).run()
