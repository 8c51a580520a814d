"""Operations in place in the compiled core do what the Python path does: to memory, versions, history, errors."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.outcomes import outcome
from tests.rows import together
from undertow.compiled import core

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)


def values(*shape: int, dtype: Any = np.float32) -> Any:
    return ut.from_numpy((np.arange(np.prod(shape), dtype=np.float64).reshape(shape) / 3 + 0.25).astype(dtype))


def leaf(*shape: int) -> Any:
    return values(*shape).requires_grad_()


def viewed_without_grad() -> Any:
    base = leaf(2, 3) * 1
    with ut.no_grad():
        return base[:]


def inference_tensor() -> Any:
    with ut.inference_mode():
        return values(2, 3) * 1


def retaining() -> Any:
    x = leaf(2, 3) * 1
    x.retain_grad()
    return x


def saved_elsewhere() -> Any:
    x = leaf(2, 3) * 1
    x.exp()
    (x * x).sum()
    return x


class Own(ut.Tensor):
    pass


#: tensors to change, each made anew
TARGETS: dict[str, Callable[[], Any]] = {
    "plain": lambda: values(2, 3),
    "double": lambda: values(2, 3, dtype=np.float64),
    "half": lambda: values(2, 3, dtype=np.float16),
    "whole numbers": lambda: ut.arange(6).reshape(2, 3),
    "bools": lambda: ut.ones(2, 3, dtype=ut.bool),
    "complex": lambda: values(2, 3) * (1 + 1j),
    "bfloat16": lambda: values(2, 3).to(ut.bfloat16),
    "no dimensions": lambda: ut.tensor(2.0),
    "empty": lambda: ut.zeros(0, 3),
    "transposed": lambda: values(3, 2).t(),
    "every other": lambda: values(2, 6)[:, ::2],
    "expanded": lambda: values(1, 3).expand(2, 3),
    "read-only": lambda: ut.from_numpy(np.broadcast_to(np.float32(2), (2, 3))),
    "large": lambda: values(50, 60),
    "recorded": lambda: leaf(2, 3) * 1,
    "leaf": lambda: leaf(2, 3),
    "view of recorded": lambda: (leaf(4, 3) * 1)[1:3],
    "view of view": lambda: (leaf(4, 6) * 1)[1:3].t()[::2].t(),
    "view of leaf": lambda: leaf(4, 3)[1:3],
    "view without grad": viewed_without_grad,
    "one of several views": lambda: (leaf(4, 3) * 1).chunk(2)[0],
    "keeps its output": lambda: leaf(2, 3).exp(),
    "detached": lambda: (leaf(2, 3) * 1).detach(),
    "inference": inference_tensor,
    "retains its gradient": retaining,
    "saved elsewhere": saved_elsewhere,
    "parameter": lambda: ut.nn.Parameter(values(2, 3)),
    "subclass": lambda: Own([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
}

CHANGES: dict[str, Callable[..., Any]] = {
    "add_": lambda f, x: f(x, values(3)),
    "add_ a number": lambda f, x: f(x, 2.5),
    "add_ an int": lambda f, x: f(x, 2),
    "add_ a large int": lambda f, x: f(x, 10**30),
    "add_ alpha": lambda f, x: f(x, values(2, 3), alpha=2),
    "add_ itself": lambda f, x: f(x, x),
    "add_ recorded": lambda f, x: f(x, leaf(2, 3)),
    "add_ its part": lambda f, x: f(x, x[:1]),
    "add_ double": lambda f, x: f(x, values(2, 3, dtype=np.float64)),
    "add_ too large": lambda f, x: f(x, values(4, 2, 3)),
    "add_ nonsense": lambda f, x: f(x, "a"),
    "add_ by name": lambda f, x: f(x, other=values(3)),
    "add_ two": lambda f, x: f(x, 1, 2, 3),
    "sub_": lambda f, x: f(x, values(2, 3), alpha=0.5),
    "mul_": lambda f, x: f(x, values(2, 3)),
    "mul_ itself": lambda f, x: f(x, x),
    "mul_ recorded": lambda f, x: f(x, leaf(3)),
    "mul_ a view of itself": lambda f, x: f(x, x.detach()),
    "mul_ a number": lambda f, x: f(x, -0.5),
    "true_divide_": lambda f, x: f(x, values(2, 3)),
    "true_divide_ by zero": lambda f, x: f(x, 0.0),
    "exp_": lambda f, x: f(x),
    "relu_": lambda f, x: f(x),
    "sigmoid_": lambda f, x: f(x),
    "sqrt_": lambda f, x: f(x),
    "neg_": lambda f, x: f(x),
    "pow_": lambda f, x: f(x, 2),
    "clamp_min_": lambda f, x: f(x, 0.5),
    "lerp_": lambda f, x: f(x, values(2, 3), 0.25),
    "addcmul_": lambda f, x: f(x, values(2, 3), values(2, 3), value=0.5),
    "eq_": lambda f, x: f(x, values(2, 3)),
    "floor_": lambda f, x: f(x),
    "copysign_": lambda f, x: f(x, -1.0),
    "cumsum_": lambda f, x: f(x, 0),
    "tril_": lambda f, x: f(x),
}

MODES: dict[str, Callable[[], Any]] = {
    "": contextlib.nullcontext,
    "no_grad": ut.no_grad,
    "inference": ut.inference_mode,
    "hooks": lambda: ut.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "anomaly": ut.autograd.detect_anomaly,
}


@pytest.mark.parametrize("change", CHANGES)
@together(target=TARGETS)
def test_a_change_is_the_one_python_makes(target: str, change: str) -> None:
    function = getattr(ut.Tensor, change.split()[0])
    assert type(function) is core.InPlace
    call, make = CHANGES[change], lambda: (TARGETS[target](),)
    assert outcome(function, call, make) == outcome(function.function, call, make)


@pytest.mark.parametrize("mode", MODES)
@together(
    target=["plain", "recorded", "leaf", "view of recorded", "inference"],
    change=["add_", "mul_ itself", "exp_", "relu_", "mul_ recorded", "lerp_"],
)
def test_modes(mode: str, target: str, change: str) -> None:
    function = getattr(ut.Tensor, change.split()[0])

    def within(f: Any, x: Any) -> Any:
        with MODES[mode]():
            return CHANGES[change](f, x)

    assert outcome(function, within, lambda: (TARGETS[target](),)) == outcome(
        function.function, within, lambda: (TARGETS[target](),)
    )


OVERWRITING: dict[str, Callable[..., Any]] = {
    "zero_": lambda f, x: f(x),
    "fill_": lambda f, x: f(x, 1.5),
    "fill_ int": lambda f, x: f(x, 3),
    "fill_ large": lambda f, x: f(x, 1000),
    "fill_ complex": lambda f, x: f(x, 1j),
    "fill_ tensor": lambda f, x: f(x, ut.tensor(2.0)),
    "copy_": lambda f, x: f(x, values(2, 3)),
    "copy_ broadcast": lambda f, x: f(x, values(3)),
    "copy_ recorded": lambda f, x: f(x, leaf(2, 3)),
    "copy_ double": lambda f, x: f(x, values(2, 3, dtype=np.float64)),
    "copy_ itself": lambda f, x: f(x, x),
    "copy_ by name": lambda f, x: f(x, src=values(2, 3)),
    "copy_ too large": lambda f, x: f(x, values(4, 2, 3)),
}


@pytest.mark.parametrize("change", OVERWRITING)
@together(
    given=[("", t) for t in TARGETS] + [(m, t) for m in MODES if m for t in ("leaf", "view of recorded", "inference")]
)
def test_overwriting(change: str, given: tuple[str, str]) -> None:
    mode, target = given
    function = getattr(ut.Tensor, change.split()[0])
    assert type(function) is core.Shortcut

    def within(f: Any, x: Any) -> Any:
        with MODES[mode]():
            return OVERWRITING[change](f, x)

    assert outcome(function, within, lambda: (TARGETS[target](),)) == outcome(
        function.function, within, lambda: (TARGETS[target](),)
    )


def test_what_numpy_would_raise_is_of_no_concern() -> None:
    x = ut.tensor([1.0, 0.0])
    with np.errstate(divide="raise"):
        x.log_()
    assert x.tolist() == [0, -np.inf]
    assert x._version == 1


def test_operands_may_overlap() -> None:
    """Those with gaps; others are refused (tests/inplace/test_overlap.py)."""
    x = ut.arange(8.0)
    x[::2].add_(x[:4])
    assert x.tolist() == [0, 1, 3, 3, 6, 5, 9, 7]
    x = ut.arange(8.0)
    x[:4].add_(x[1::2])
    assert x.tolist() == [1, 4, 7, 10, 4, 5, 6, 7]
    x.mul_(x)
    assert x.tolist() == [1, 16, 49, 100, 16, 25, 36, 49]


def test_the_line_of_the_program_is_told() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 1
    z = y * y
    y.mul_(2)  # this line
    with pytest.raises(RuntimeError, match=rf"made by mul_ at .*test_in_place.py:{line_of('# this line')}"):
        z.sum().backward()


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return 1 + next(k for k, line in enumerate(file) if line.rstrip().endswith(text))


def test_an_interceptor_sees_the_change() -> None:
    def changed(x: Any) -> Any:
        y = x * 1
        y.add_(x)
        y[0] = 0.0
        y.zero_()
        return y + x

    assert ut.func.vmap(changed)(ut.ones(2, 3)).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert ut.func.grad(lambda x: changed(x).sum())(ut.ones(3)).tolist() == [1, 1, 1]


def test_it_passes_for_a_function() -> None:
    assert ut.Tensor.add_.__name__ == "add_"
    assert "written into" in (ut.Tensor.add_.__doc__ or "")
    x = ut.ones(2)
    bound = x.add_
    assert bound(1) is x
    assert x.tolist() == [2, 2]


def test_nothing_is_left_behind() -> None:
    x, y = ut.randn(4, 4, requires_grad=True), ut.randn(4, 4)

    def step() -> None:
        h = x * 1
        h.add_(y).mul_(h)
        h[0].mul_(2.0)
        h[1] = 1.0
        h.sigmoid_()
        h.sum().backward()
        x.grad = None
        y.mul_(1.0).clamp_(-1, 1).copy_(y)
        for wrong in (lambda: x.add_(1), lambda: y.add_("a"), lambda: y.add_(ut.ones(3)), lambda: y[9]):
            with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
                wrong()

    def counts() -> list[int]:
        return [sys.getrefcount(v) for v in (x, y, x._array, y._array, None, True, ut.float32, ut.Tensor.add_)]

    for _ in range(3):
        step()
    while gc.collect():  # what other tests have left is gone before anything is counted
        pass
    objects, before = len(gc.get_objects()), counts()
    for _ in range(200):
        step()
    gc.collect()
    assert abs(len(gc.get_objects()) - objects) < 20
    assert max(abs(a - b) for a, b in zip(counts(), before, strict=True)) < 50


def test_threads_count_every_change_of_their_own() -> None:
    tensors = [ut.zeros(3) for _ in range(4)]

    def work(x: Any) -> None:
        for _ in range(2000):
            x.add_(1.0)

    threads = [threading.Thread(target=work, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(x._version, x.tolist()) for x in tensors] == [(2000, [2000.0] * 3)] * 4


#: large tensors, by how they lie
LARGE: dict[str, Callable[[], Any]] = {
    "plain": lambda: values(200, 300) / 1e4 - 1,
    "transposed": lambda: (values(300, 200) / 1e4 - 1).t(),
    "every other": lambda: (values(200, 600) / 1e4 - 1)[:, ::2],
    "recorded": lambda: (leaf(200, 300) / 1e4) - 1,
}

LARGE_CHANGES: dict[str, Callable[..., Any]] = {
    "relu_": lambda f, x: f(x),
    "sigmoid_": lambda f, x: f(x),
    "round_": lambda f, x: f(x),
    "clamp_": lambda f, x: f(x, -0.5, 0.5),
    "addcmul_": lambda f, x: f(x, values(300), values(200, 300), value=0.5),
    "addcmul_ itself": lambda f, x: f(x, x, x, value=0.5),
    "lerp_": lambda f, x: f(x, values(200, 1), 0.25),
}


@pytest.mark.parametrize("change", LARGE_CHANGES)
@pytest.mark.parametrize("target", LARGE)
def test_large_arrays_are_changed_where_they_lie(target: str, change: str) -> None:
    name, given = change.split()[0], LARGE_CHANGES[change]
    expected = given(getattr(ut.Tensor, name[:-1]), LARGE[target]())
    x = LARGE[target]()
    memory = x.data_ptr()
    assert given(getattr(ut.Tensor, name), x) is x
    assert (x.data_ptr(), x._version) == (memory, 1)
    np.testing.assert_array_equal(x.detach().numpy(), expected.detach().numpy())
    assert x.requires_grad == expected.requires_grad


def test_no_second_array_is_made_of_what_is_large() -> None:
    x, y = values(400, 400), values(400, 400)

    def change() -> None:
        x.relu_().clamp_(0.0, 1.0).sigmoid_().addcmul_(y, x).lerp_(y, 0.5)

    change()  # programs are made
    tracemalloc.start()
    try:
        change()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 8
    assert x._version == 10
