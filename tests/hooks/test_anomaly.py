"""Anomaly mode and debug logging."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.errors import AnomalyError


def is_enabled(L: ModuleType) -> tuple[bool, bool]:
    return L.is_anomaly_enabled(), L.is_anomaly_check_nan_enabled()


@pytest.fixture(autouse=True)
def switched_off() -> Iterator[None]:
    yield
    assert not ut.autograd.is_anomaly_enabled()


def texts(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in caught if w.category is UserWarning]


def run_watched(L: ModuleType, function: Callable[[], Any], **options: Any) -> tuple[Any, list[str]]:
    """What a function raises (or None) in anomaly mode, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with L.autograd.detect_anomaly(**options):
                function()
            error = None
        except RuntimeError as e:
            error = e.with_traceback(None)
    return error, texts(caught)


def returning_nan(L: ModuleType, output: int = 0) -> Any:
    class MyFunc(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            grads = [grad, grad]
            grads[output] = grad * float("nan")
            return tuple(grads)

    return MyFunc


# ---- switching


def test_it_nests_and_is_restored(L: ModuleType) -> None:
    assert is_enabled(L) == (False, True)
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        outer = L.autograd.detect_anomaly(check_nan=False)
    with outer:
        assert is_enabled(L) == (True, False)
        with L.autograd.set_detect_anomaly(True):
            assert is_enabled(L) == (True, True)
        assert is_enabled(L) == (True, False)
        with L.autograd.set_detect_anomaly(False):
            assert not is_enabled(L)[0]
    assert not is_enabled(L)[0]
    L.autograd.set_detect_anomaly(True)
    assert is_enabled(L) == (True, True)
    L.autograd.set_detect_anomaly(False)


def test_it_is_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), ut.autograd.set_detect_anomaly(True):
        raise ValueError("inside")


def test_it_concerns_all_threads(L: ModuleType) -> None:
    seen: list[Any] = []

    def work() -> None:
        y = L.ones(1, requires_grad=True) * 2
        seen.append(("traceback_" in y.grad_fn.metadata, is_enabled(L)[0]))

    with L.autograd.set_detect_anomaly(True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        work()
    work()
    assert seen == [(True, True), (True, True), (False, False)]


def test_grad_modes_entered_before_it_record_too() -> None:
    with ut.no_grad(), ut.enable_grad(), ut.autograd.set_detect_anomaly(True):
        assert "traceback_" in (ut.ones(1, requires_grad=True) * 2).grad_fn.metadata
        with ut.no_grad(), ut.enable_grad():
            assert "traceback_" in (ut.ones(1, requires_grad=True) * 2).grad_fn.metadata
    assert "traceback_" not in (ut.ones(1, requires_grad=True) * 2).grad_fn.metadata


# ---- nan


@pytest.mark.parametrize("output", [0, 1])
def test_nan_is_an_error_that_names_the_node_and_the_call(L: ModuleType, output: int) -> None:
    function, x = returning_nan(L, output), L.ones(2, requires_grad=True)
    error, told = run_watched(L, lambda: function.apply(x, x).sum().backward())
    assert f"Function 'MyFuncBackward' returned nan values in its {output}th output." in str(error)
    assert len(told) == 2
    assert "Anomaly Detection has been enabled" in told[0]
    assert told[1].startswith("Error detected in MyFuncBackward. Traceback of forward call that caused the error:\n")
    assert "function.apply(x, x)" in told[1]


def test_without_the_forward_pass_in_the_mode(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = returning_nan(L).apply(x, x).sum()
    _, told = run_watched(L, y.backward)
    assert "Error detected in MyFuncBackward. No forward pass information available" in told[1]
    if L is ut:  # the line is known without the mode
        assert f"recorded at {__file__}:" in told[1]


def test_nan_passes_unnoticed_without_the_check(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    error, _ = run_watched(L, lambda: returning_nan(L).apply(x, x).sum().backward(), check_nan=False)
    assert error is None
    assert x.grad.isnan().all()


def test_inf_is_an_error_if_asked_for() -> None:
    x = ut.zeros(2, requires_grad=True)

    def forward_and_backward() -> None:
        x.sqrt().sum().backward()

    assert run_watched(ut, forward_and_backward)[0] is None
    error, _ = run_watched(ut, forward_and_backward, check_inf=True)
    assert isinstance(error, AnomalyError)
    assert (error.node_name, error.output_nr, error.kind) == ("SqrtBackward0", 0, "inf")


def test_complex_nan_is_seen() -> None:
    x = ut.ones(2, dtype=ut.complex128, requires_grad=True)
    error, _ = run_watched(ut, lambda: returning_nan(ut).apply(x, x).abs().sum().backward())
    assert isinstance(error, AnomalyError)


def test_another_error_is_told_with_its_forward_call(L: ModuleType) -> None:
    def change_in_place() -> None:
        a = L.ones(3, requires_grad=True)
        b = a + 1
        c = b**2
        b += 1
        c.sum().backward()

    error, told = run_watched(L, change_in_place)
    assert "modified by an inplace operation" in str(error)
    sentences = [text.split(".")[0] for text in told]
    assert sentences == ["Anomaly Detection has been enabled", "Error detected in PowBackward0"]


def test_the_parents_are_told_in_a_double_backward(L: ModuleType) -> None:
    class Outer(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return returning_nan(L).apply(grad * x, grad + x)

    def twice() -> None:
        x = L.ones(2, requires_grad=True)
        (g,) = L.autograd.grad(Outer.apply(x).sum(), x, create_graph=True)
        g.sum().backward()

    error, told = run_watched(L, twice)
    assert "'MyFuncBackward' returned nan" in str(error)
    assert "returning_nan(L).apply" in told[1]
    assert "Previous calculation was induced by OuterBackward. Traceback of forward call that induced" in told[2]
    assert "Outer.apply(x)" in told[2]


def test_metadata_holds_traceback_and_parent(L: ModuleType) -> None:
    with L.autograd.set_detect_anomaly(True):
        x = L.ones(2, requires_grad=True)
        y = x.exp()
        (g,) = L.autograd.grad(y.sum(), x, create_graph=True)
    frames = y.grad_fn.metadata["traceback_"]
    assert isinstance(frames, list) and "y = x.exp()" in frames[-1]
    assert "parent_" not in y.grad_fn.metadata
    assert g.grad_fn.metadata["parent_"] is y.grad_fn


def test_tracebacks_show_the_program_and_nothing_of_undertow() -> None:
    with ut.autograd.set_detect_anomaly(True):
        node = ut.cat([ut.ones(1, requires_grad=True).square()]).grad_fn
    frames = node.metadata["traceback_"]
    assert "ut.cat([ut.ones" in frames[-1]
    assert not any("src/undertow" in frame or "<undertow" in frame for frame in frames)


def test_where_warnings_are_errors_it_prints(L: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    x = L.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        mode = L.autograd.detect_anomaly()
    with warnings.catch_warnings(), mode, pytest.raises(RuntimeError, match="returned nan"):
        warnings.simplefilter("error")
        returning_nan(L).apply(x, x).sum().backward()
    assert "Error detected in MyFuncBackward" in capsys.readouterr().err


# ---- why


def explained(function: Callable[[], Any]) -> AnomalyError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error, _ = run_watched(ut, function)
    assert isinstance(error, AnomalyError)
    return error


def line_of(marker: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        return f"{__file__}:{next(nr for nr, line in enumerate(file, 1) if line.rstrip().endswith(f'# {marker}'))} in"


def test_nan_behind_a_where() -> None:
    x = ut.tensor([0.0, 4.0], requires_grad=True)

    def program() -> None:
        root = x.sqrt()  # the root
        ut.where(x > 1, root, ut.zeros(2)).sum().backward()  # the mask

    error = explained(program)
    assert error.node_name == "SqrtBackward0" and line_of("the root") in error.created_at
    assert "0 * inf = nan" in error.cause
    assert f"The zeros come from WhereBackward0, recorded at {line_of('the mask')}" in error.cause


def test_nan_behind_a_mask_that_is_multiplied() -> None:
    x, mask = ut.tensor([0.0, 2.0], requires_grad=True), ut.tensor([0.0, 1.0])

    def program() -> None:
        kept = x.log().nan_to_num(neginf=0.0) * mask  # multiplied
        kept.sum().backward()

    def reciprocal() -> None:
        y = (x + 0).reciprocal()
        masked = y.masked_fill(x == 0, 0.0)  # filled
        (masked * 3).sum().backward()

    assert f"MaskedFillBackward0, recorded at {line_of('filled')}" in explained(reciprocal).cause
    assert "0 * inf = nan" in explained(program).cause


def test_nan_behind_an_index() -> None:
    x = ut.tensor([0.0, 4.0], requires_grad=True)

    def program() -> None:
        root = x.sqrt()
        root[1].backward()  # picked

    assert f"SelectBackward0, recorded at {line_of('picked')}" in explained(program).cause


@pytest.mark.parametrize("norm", [lambda x: (x * x).sum(), lambda x: (x**2).sum() * 3], ids=["product", "power"])
def test_nan_after_an_infinite_gradient(norm: Any) -> None:
    """The length of a vector is not differentiable at 0."""
    x = ut.zeros(2, requires_grad=True)

    def program() -> None:
        length = norm(x).sqrt()  # the length
        (length * 2).backward()

    cause = explained(program).cause
    assert "inf * 0 = nan" in cause
    assert f"The infinity comes from SqrtBackward0, recorded at {line_of('the length')}" in cause


def test_nan_after_an_infinite_gradient_that_was_given() -> None:
    x = ut.zeros(2, requires_grad=True)
    cause = explained(lambda: (x * x).backward(ut.tensor([float("inf"), 1.0]))).cause
    assert "inf * 0 = nan" in cause and "comes from" not in cause


def test_nan_from_a_number() -> None:
    x = ut.ones(2, requires_grad=True)
    cause = explained(lambda: (x * float("nan")).sum().backward()).cause
    assert cause == "It was recorded with the number nan for `other`."


def test_nan_from_the_forward_pass() -> None:
    x = ut.tensor([float("nan"), 1.0], requires_grad=True)
    assert explained(lambda: x.sin().sum().backward()).cause == (
        "Its saved `self` holds nan: that came out of the forward pass."
    )


def test_nan_that_was_given() -> None:
    x = ut.ones(2, requires_grad=True)
    given = ut.tensor([1.0, float("nan")])
    assert "given to the backward call" in explained(lambda: (x * 2).backward(given)).cause


def test_nan_that_only_arithmetic_explains() -> None:
    x = ut.ones(2, requires_grad=True)
    assert explained(lambda: returning_nan(ut).apply(x, x).sum().backward()).cause == ""


def test_nan_in_a_slice_that_was_changed_in_place() -> None:
    x = ut.tensor([0.0, 4.0], requires_grad=True)

    def program() -> None:
        y = x * 1
        y[:1].sqrt_()  # in a slice
        (y * ut.tensor([0.0, 1.0])).sum().backward()

    error = explained(program)
    assert error.node_name.endswith("::CopySlices") and line_of("in a slice") in error.created_at


# ---- what it leaves behind


def test_the_mode_keeps_nothing_alive() -> None:
    gc.disable()

    def make() -> list[Any]:
        with ut.autograd.set_detect_anomaly(True):
            x = ut.ones(2, requires_grad=True)
            y = x.exp()
            (g,) = ut.autograd.grad(y.sum(), x, create_graph=True)
            g.sum().backward()
        return [weakref.ref(t) for t in (x, y, g, y.grad_fn, g.grad_fn)]

    assert [reference() for reference in make()] == [None] * 5


def test_the_result_is_the_same_as_without() -> None:
    def run() -> Any:
        x = ut.tensor([0.5, 2.0], requires_grad=True)
        y = x * 1
        y[0].mul_(3)
        ((y.sin() * x).sum() + y.unbind(0)[1]).backward()
        return x.grad.tolist()

    expected = run()
    with ut.autograd.set_detect_anomaly(True):
        assert run() == expected


def test_saved_tensors_are_freed_in_the_mode_too() -> None:
    with ut.autograd.set_detect_anomaly(True):
        y = ut.ones(2, requires_grad=True).exp()
        y.sum().backward()
        with warnings.catch_warnings(), pytest.raises(RuntimeError, match="retain_graph=True"):
            warnings.simplefilter("ignore")
            y.sum().backward()


# ---- logging


def records_of(function: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.DEBUG, logger="undertow.autograd"):
        function()
    found = [record.getMessage() for record in caplog.records if record.name == "undertow.autograd"]
    caplog.clear()
    return found


def test_one_record_per_executed_node_in_order(caplog: pytest.LogCaptureFixture) -> None:
    a = ut.rand(10, requires_grad=True)
    b = a.mul(2).div(3).sum()
    c = b.clone()
    logged = records_of(lambda: ut.autograd.backward((b, c), retain_graph=True), caplog)
    names = ["CloneBackward0", "SumBackward0", "DivBackward0", "MulBackward0", "AccumulateGrad"]
    assert [name in text for name, text in zip(names, logged, strict=True)] == [True] * 5
    assert "with grad_outputs: [float32[]]" in logged[0] and "[float32[10]]" in logged[4]
    assert f"recorded at {__file__}:" in logged[0]
    (text,) = records_of(lambda: ut.autograd.grad(c, b), caplog)  # b's own node does not run
    assert "CloneBackward0" in text


def test_nothing_is_logged_at_another_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="undertow.autograd"):
        (ut.ones(2, requires_grad=True) * 2).sum().backward()
    assert caplog.records == []


def test_records_keep_nothing_of_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    gc.disable()
    x = ut.ones(2, requires_grad=True)
    y = x * 2
    node = weakref.ref(y.grad_fn)
    with caplog.at_level(logging.DEBUG, logger="undertow.autograd"):
        y.sum().backward()
    del y
    assert len(caplog.records) == 3 and node() is None


def test_the_decision_is_made_once_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow.engine import watch

    asked: list[int] = []
    monkeypatch.setattr(watch, "_watchers", [lambda: asked.append(1)])
    x = ut.ones(2, requires_grad=True)
    for _ in range(100):
        x = x * 2
    x.sum().backward()
    assert len(asked) == 1


def test_the_first_operation_that_gives_inf_or_nan_is_found() -> None:
    x = ut.tensor([0.0, 1.0], requires_grad=True)
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        with ut.autograd.detect_anomaly(check_forward=True) as _, pytest.raises(RuntimeError) as found:
            fine = x.masked_fill(x > 0, float("-inf")).exp()  # an infinity that was given
            y = x + 1
            z = (y * x).log()  # the line
            z * 0
        assert "log() gave inf of finite numbers, at " in str(found.value) and "test_anomaly.py:" in str(found.value)
        with ut.autograd.detect_anomaly(check_forward=True), pytest.raises(RuntimeError, match=r"div\(\) gave nan"):
            (fine - 1) / ut.zeros(2)
        x.log()  # outside nothing is looked at
        assert not ut.is_anomaly_enabled()
