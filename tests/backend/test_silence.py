"""Infinities and NaN are results like others, of which nobody speaks; NumPy itself goes on to warn."""

from __future__ import annotations

import copy
import gc
import math
import signal
import threading
import warnings
import weakref
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.test_declare import clean_registry as clean_registry
from undertow.backend.silence import run_in_kept_silence
from undertow.modes import current
from undertow.ops.declare import REGISTRY, nondifferentiable
from undertow.ops.declare.apply import apply

inf = float("inf")

#: from zeros and numbers near the end of float32's range
RISKS: dict[str, Callable[[Any, Any], Any]] = {
    "unary": lambda zero, large: [zero.log(), zero.rsqrt(), large.exp(), large.acos(), zero.reciprocal(), large.sinh()],
    "arithmetic": lambda zero, large: [1 / zero, zero / zero, large * large, large + large, large * 1e300, zero % zero],
    "powers": lambda zero, large: [zero**-1, large**2.5, zero // zero, large.pow(large)],
    "sums": lambda zero, large: [large.sum(), large.mean(), large.var(), large.prod(), large.norm(), large.cumsum(0)],
    "softmax": lambda zero, large: [(large * inf).softmax(0), (large * -inf).log_softmax(0), large.logsumexp(0)],
    "products": lambda zero, large: [
        large @ large, ut.outer(large[:3], large[:3]), large[:2].reshape(1, 2) @ large[:2].reshape(2, 1),
        ut.mm(large.reshape(-1, 1), large[:1].reshape(1, 1)),
    ],
    "casts": lambda zero, large: [large.half(), large.double().mul(1e300).float(), (large * ut.nan).int()],
    "in place": lambda zero, large: [
        large.clone().mul_(large), large.clone().div_(0), large.clone().add_(large, alpha=3.0), zero.clone().log_(),
        large.clone().fill_(1e300), large.clone().copy_(large.double() * 1e300),
    ],
    "composed": lambda zero, large: [ut.addcmul(large, large, large), ut.lerp(large, -large, 3.0), ut.cat([1 / zero])],
    "indices": lambda zero, large: [large.clone().__setitem__(0, 1e300), large.double().mul(1e300).float()[:2]],
}  # fmt: skip


@pytest.mark.parametrize("count", [3, 2000, 40_000])
@pytest.mark.parametrize("risk", RISKS)
def test_operations_are_silent_whatever_numpy_is_told(risk: str, count: int) -> None:
    zero, large = ut.zeros(count), ut.full((count,), 3e38)
    with np.errstate(all="raise", under="ignore"):
        RISKS[risk](zero, large)
    leaf = ut.zeros(count, requires_grad=True)
    with np.errstate(all="raise", under="ignore"):
        (1 / leaf).sum().backward()
    assert leaf.grad.isinf().all()


def test_new_tensors_are_silent() -> None:
    with np.errstate(all="raise"):
        assert ut.tensor([1e300], dtype=ut.float32).item() == inf
        assert ut.as_tensor(np.array([1e300]), dtype=ut.float32).item() == inf
        assert ut.full((2,), 1e300).tolist() == [inf, inf]
        assert ut.arange(0, 1e39, 5e38).tolist() == [0, inf]


def test_other_threads_are_silent() -> None:
    found: list[Any] = []

    def work() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(ut.zeros(2000).log().max().item())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [-inf]


def test_what_the_program_asks_of_numpy_is_as_it_was() -> None:
    zero = np.zeros(2000)
    before = np.geterr()
    (1 / ut.tensor(zero)).log().sum()
    assert np.geterr() == before
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.log(zero)
    with np.errstate(divide="raise"):
        ut.tensor(zero).log()
        with pytest.raises(FloatingPointError):
            np.log(zero)


def test_modes_are_as_they_were_after_a_computation() -> None:
    x = ut.zeros(2000, requires_grad=True)
    with ut.no_grad():
        x[::2].log()
        assert not ut.is_grad_enabled()
        assert not x.log1p().requires_grad
    assert x[::2].log().requires_grad


# ---- other context variables: functions in Python are called in a context that is silent, and as the program's else

chosen: ContextVar[Any] = ContextVar("chosen", default="nothing")


def asking(found: list[Any]) -> Any:
    """An operation whose forward is a function in Python that looks at a context variable."""

    def forward(xp: Any, input: Any) -> Any:
        found.append((chosen.get(), ut.is_grad_enabled(), np.geterr()["divide"]))
        return xp.log(input)

    return nondifferentiable("_asking", forward, inputs=("input",))


def test_functions_find_the_programs_variables() -> None:
    found: list[Any] = []
    operation, x = asking(found), ut.zeros(3)

    def twice_in_each_mode() -> None:
        for _ in range(2):
            operation(x)
            with ut.no_grad():
                operation(x)
                operation(x)

    copy_context().run(twice_in_each_mode)
    plain = [("nothing", on, "ignore") for on in (True, False, False) * 2]
    assert found == plain

    def with_a_variable() -> None:
        chosen.set("something")
        twice_in_each_mode()

    copy_context().run(with_a_variable)
    assert found[6:] == [("something", *rest) for _, *rest in plain]
    twice_in_each_mode()
    assert found[12:] == plain


def test_what_a_signals_handler_sets_meanwhile_stays() -> None:
    def forward(xp: Any, input: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return xp.log(input)

    def handle(*_: Any) -> None:
        chosen.set("by the handler")
        ut.set_grad_enabled(False)

    operation = nondifferentiable("_signalling", forward, inputs=("input",))
    before = signal.signal(signal.SIGUSR1, handle)
    try:

        def program() -> tuple[Any, bool, Any]:
            operation(ut.zeros(3))
            return chosen.get(), ut.is_grad_enabled(), np.geterr()["divide"]

        assert copy_context().run(program) == ("by the handler", False, "warn")
        assert (chosen.get(), ut.is_grad_enabled()) == ("nothing", True)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_no_value_of_a_variable_is_kept() -> None:
    class Value:
        pass

    operation = nondifferentiable("_python", lambda xp, input: xp.log(np.array(input)), inputs=("input",))
    value = Value()
    reference = weakref.ref(value)

    def program(value: Any) -> None:
        chosen.set(value)
        operation(ut.zeros(3))
        with ut.autograd.graph.saved_tensors_hooks(lambda t, v=value: t, lambda t: t):
            operation(ut.zeros(3))

    copy_context().run(program, value)
    del value
    gc.collect()
    assert reference() is None


def test_errors_leave_the_context_as_it_was() -> None:
    def forward(xp: Any, input: Any) -> Any:
        raise KeyError("no such thing")

    operation = nondifferentiable("_failing", forward, inputs=("input",))
    for _ in range(3):
        with pytest.raises(KeyError, match="no such thing"):
            operation(ut.zeros(3))
        assert np.geterr()["divide"] == "warn"
        assert ut.is_grad_enabled()


def test_a_silence_that_is_in_use_is_not_waited_for() -> None:
    """Another thread computes in it, or the operation that a signal's handler has interrupted."""
    form = copy.copy(REGISTRY["log"].form)
    form.in_silence = run_in_kept_silence
    zero = ut.zeros(2)
    for call in (apply, lambda *args: run_in_kept_silence(apply, *args)):
        assert call(form, (zero,), current()).tolist() == [-math.inf, -math.inf]
    with pytest.raises(RuntimeError, match="already entered"):
        run_in_kept_silence(run_in_kept_silence, math.sqrt, 4.0)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(2))
