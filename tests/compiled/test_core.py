"""The compiled core gives what the plain path gives: values, graphs, errors, warnings, lifetimes."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
import weakref
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.backend import cpu
from undertow.compiled import core
from undertow.graph.user_lines import set_site_recording
from undertow.ops.declare import REGISTRY, plans
from undertow.ops.declare.core_plan import bound, operation_plan, pull_plan
from undertow.ops.network.layer_norm import native_layer_norm

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)


def python_of(function: Any) -> Any:
    """The Python function behind a compiled operation."""
    return function.function if type(function) is core.Operation else function


USUAL = sorted(name for name, op in REGISTRY.items() if type(op.function) is core.Operation and op.name == name)


def test_most_operations_are_compiled() -> None:
    assert {"add", "mul", "sin", "matmul", "_sum_all", "transpose", "relu"} <= set(USUAL) | {"matmul"}
    assert len(USUAL) > 300


# ------------------------------------------------------------------ formulas

FORMULAS = [
    lambda xp, a, b: a * b + 2.0 * a - b / a,
    lambda xp, a, b: -(a - b) * (1 - a * a),
    lambda xp, a, b: xp.sin(a) ** 2 + xp.maximum(a, b),
    lambda xp, a, b: a if a.ndim == 1 else b,
    lambda xp, a, b: a @ b if a.shape == b.shape else None,
    lambda xp, a, b: xp.conj(a) * xp.conj(3),
    lambda xp, a, b: xp.sum(a, axis=0, keepdims=True) + len(a.shape),
    lambda xp, a, b: (a, b, 1.5),
    lambda xp, a, b: a.shape[0] // 2 % 3 << 1,
    lambda xp, a, b: xp.where(a > b, a, b) if a is not None and b is not None else a,
    lambda xp, a, b: not a.ndim or b is None,
    lambda xp, a, b: xp.add(xp.multiply(a, b), xp.divide(a, 4)),
    lambda xp, a, b: ~(a < b),
]  # fmt: skip


ORDERED = {2, 9, 12}  # those that ask which number is larger, which complex ones do not answer


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(k, d) for k in range(len(FORMULAS)) for d in "fdD" if d != "D" or k not in ORDERED],
)
def test_a_formula_has_the_value_python_gives_it(number: int, dtype: Any) -> None:
    formula = FORMULAS[number]
    rng = np.random.default_rng(number)
    a, b = (rng.uniform(1, 2, 5).astype(dtype) for _ in "ab")
    before = a.copy(), b.copy()
    found = evaluate(bound(formula, {"a": 0, "b": 1}, cpu), a, b)
    assert_equal(found, formula(cpu, a, b))
    assert (a == before[0]).all()
    assert (b == before[1]).all()


def evaluate(formula: Any, *arguments: Any) -> Any:
    return core.evaluate(formula, arguments)


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        for f, e in zip(found, expected, strict=True):
            assert_equal(f, e)
    elif isinstance(expected, np.ndarray | np.generic):
        assert np.asarray(found).dtype == expected.dtype
        assert np.asarray(found).tobytes() == expected.tobytes()
    else:
        assert found == expected
        assert type(found) is type(expected)


def test_formulas_are_trees_not_calls() -> None:
    trees = [bound(f, {"a": 0, "b": 1}, cpu) for f in FORMULAS]
    assert [tree[0] for tree in trees[:2]] == ["binary", "binary"]
    assert all(tree[:3] != ("call", None, ("constant", f)) for tree, f in zip(trees, FORMULAS, strict=True))


@pytest.mark.parametrize(
    "description",
    [
        (),
        ("sum",),
        ("binary",),
        ("binary", "?", ("argument", 0), ("argument", 0)),
        ("argument", "a"),
        5,
        ("call", None, 7),
    ],
)
def test_a_wrong_tree_is_refused(description: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        evaluate(description, np.ones(2))


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (2, 3)),
    ((), ()),
    ((3,), ()),
    ((), (3,)),
    ((2, 3), (3,)),
    ((0,), (0,)),
    ((2000,), (2000,)),
]


@rows("symbol", "+-*/")
@rows(("left", "right"), SHAPES)
@rows("dtype", [np.float32, np.float64, np.float16, np.int64, np.complex64])
def test_small_arithmetic_is_numpys_to_the_bit(symbol: str, left: Any, right: Any, dtype: Any) -> None:
    rng = np.random.default_rng(7)
    a, b = (np.asarray(rng.uniform(-3, 3, s) * 5).astype(dtype) + dtype(20) for s in (left, right))
    operators = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide}
    for x, y in (
        (a, b),
        (a, 2.5),
        (2.5, a),
        (a, 3),
        (3, a),
        (a.T, b.T if a.ndim == b.ndim else 2.0),
        (a[::-1] if a.ndim else a, b),
    ):
        found = evaluate(("binary", symbol, ("argument", 0), ("argument", 1)), x, y)
        assert_equal(np.asarray(found), np.asarray(operators[symbol](x, y)))


@pytest.mark.parametrize(
    ("symbol", "x", "y", "kind"),
    [("*", 1e38, 1e38, "over"), ("/", 1.0, 0.0, "divide"), ("/", 0.0, 0.0, "invalid"), ("*", 1e-38, 1e-38, "under"),
     ("-", np.inf, np.inf, "invalid"), ("+", 3e38, 3e38, "over")],
)  # fmt: skip
def test_floating_point_errors_are_not_spoken_of(symbol: str, x: float, y: float, kind: str) -> None:
    formula = ("binary", symbol, ("argument", 0), ("argument", 1))
    a, b = np.array([1, x], np.float32), np.array([1, y], np.float32)
    operators = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide}
    for count in (2, 2000):
        left, right = np.resize(a, count), np.resize(b, count)
        with np.errstate(**{kind: "raise"}):  # type: ignore[call-overload]
            found = evaluate(formula, left, right)
        with np.errstate(all="ignore"):
            assert_equal(found, operators[symbol](left, right))


def test_intermediate_results_are_reused_and_arguments_never() -> None:
    big = np.ones(100_000)
    formula = bound(lambda xp, a: ((a + 1) * 2 - 3) / 4, {"a": 0}, cpu)
    evaluate(formula, big)
    tracemalloc.start()
    try:
        result = evaluate(formula, big)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (big == 1).all()
    assert (result == 0.25).all()
    assert peak < 1.5 * big.nbytes


def test_an_error_in_the_middle_leaves_the_intermediate_results_to_nobody() -> None:
    def fail(x: Any) -> None:
        raise LookupError

    formula = (
        "binary",
        "+",
        ("binary", "*", ("argument", 0), ("argument", 0)),
        ("call", None, ("constant", fail), ("argument", 0)),
    )
    array = np.ones(3)
    before = sys.getrefcount(array)
    for _ in range(100):
        with pytest.raises(LookupError):
            evaluate(formula, array)
    assert sys.getrefcount(array) == before


# ------------------------------------------------------------------ operations


@rows("name", USUAL)
def test_every_plan_can_be_read(name: str) -> None:
    op = REGISTRY[name]
    plan = operation_plan(op)
    assert plan is not None
    assert len(plan.names) == len(op.ordered)
    if op.node_class is not None:
        assert pull_plan(op.form) is not None


def test_the_header_says_what_the_plans_say() -> None:
    """csrc/plan.h is made from plans.py at build time: the core knows the version of the plans it was built for."""
    text = Path(plans.__file__).read_bytes()
    assert f"{zlib.crc32(text):08x}" == core.PLAN_VERSION


@pytest.mark.parametrize("plan", [(), (1, 2), "plan", ((),) * 9])
def test_a_wrong_plan_is_refused(plan: Any) -> None:
    operation = core.Operation(lambda x: x, lambda: plan)
    with pytest.raises((TypeError, ValueError)):
        operation(ut.ones(2))


def test_an_operation_passes_for_its_function() -> None:
    add = ut.add
    assert add.__name__ == add.__qualname__ == "add"
    assert "other" in inspect.signature(add).parameters
    assert "out" in inspect.signature(add).parameters
    assert add.op is REGISTRY["add"]
    assert ut.Tensor.mul is REGISTRY["mul"].function
    assert repr(ut.Tensor.mul) == repr(python_of(ut.Tensor.mul))
    assert copy.deepcopy(add) is add
    assert pickle.loads(pickle.dumps(ut.sin)) is ut.sin
    assert weakref.ref(add)() is add
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        add.nothing


@pytest.mark.parametrize(
    "call",
    [
        lambda: ut.mul(ut.ones(2)),
        lambda: ut.mul(ut.ones(2), ut.ones(2), ut.ones(2)),
        lambda: ut.mul(ut.ones(2), other=ut.ones(2), wrong=1),
        lambda: ut.mul(ut.ones(2), ut.ones(2), other=ut.ones(2)),
        lambda: ut.mul(ut.ones(2), "three"),
        lambda: ut.mul(ut.ones(2), ut.ones(3)),
        lambda: ut.mul(ut.ones(2), None),
        lambda: ut.sin(),
        lambda: ut.add(ut.ones(2), ut.ones(2), 2),
    ],
)
def test_wrong_calls_raise_what_python_raises(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((TypeError, RuntimeError)) as compiled:
        call()
    for name in ("mul", "sin", "add"):
        monkeypatch.setattr(ut, name, python_of(getattr(ut, name)))
    with pytest.raises((TypeError, RuntimeError)) as python:
        call()
    assert (compiled.type, str(compiled.value)) == (python.type, str(python.value))


def test_keywords_and_defaults() -> None:
    x, y = ut.tensor([1.0, 2.0]), ut.tensor([3.0, 5.0])
    assert ut.add(input=x, other=y, alpha=2).tolist() == [7, 12]
    assert ut.add(x, other=y).tolist() == [4, 7]
    assert x.softmax(dim=0).sum().item() == pytest.approx(1)
    assert x.cumsum(axis=0).tolist() == [1, 3]


def test_the_node_is_the_one_python_makes() -> None:
    x = ut.randn(3, requires_grad=True)
    y = ut.randn(3)
    for name in ("mul", "add", "true_divide", "matmul"):
        if type(REGISTRY[name].function) is not core.Operation:
            continue
        function = REGISTRY[name].function
        found, expected = function(x, y).grad_fn, python_of(function)(x, y).grad_fn
        assert type(found) is type(expected)
        assert (found.shape, found.dtype, found.params) == (expected.shape, expected.dtype, expected.params)
        assert found.sequence_nr < expected.sequence_nr
        assert found.next_functions == expected.next_functions
        assert [s for s in dir(found) if s.startswith("_saved")] == [s for s in dir(expected) if s.startswith("_saved")]


def test_the_line_is_that_of_the_program() -> None:
    x = ut.ones(2, requires_grad=True)
    node = (x * 2).grad_fn
    assert node.code is sys._getframe().f_code
    module = ut.nn.Linear(2, 2)
    assert module(x).grad_fn.code is sys._getframe().f_code
    set_site_recording(False)
    try:
        assert (x * 2).grad_fn.code is None
    finally:
        set_site_recording(True)
    assert (x * 2).grad_fn.code is sys._getframe().f_code


def test_views_know_their_base_and_how_to_be_taken_again() -> None:
    x = ut.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 1
    view = y.t().unsqueeze(0)
    assert view._base is y
    view[0, 0].mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == [[2, 1, 1], [2, 1, 1]]
    with ut.no_grad():
        assert x.t()._is_view()
    with ut.inference_mode():
        inside = ut.ones(2, 2)
    assert inside.t().is_inference()


# ------------------------------------------------------------------ lifetimes and threads


def settled_count() -> int:
    """How many objects there are when those of other tests are gone and tuples of constants are known as such."""
    before, now = -1, 0
    while before != now:
        gc.collect()
        before, now = now, len(gc.get_objects())
    return now


def test_nothing_is_left_behind() -> None:
    x = ut.randn(4, requires_grad=True)
    w = ut.randn(4, requires_grad=True)

    def step() -> None:
        y = ((x * w + 2.0).sin() * x).t().sum()
        y.backward()
        x.grad = w.grad = None

    def failing() -> None:
        y = x * w
        y.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()
        with pytest.raises(RuntimeError):
            x + ut.ones(3)

    for work in (step, failing):
        for _ in range(3):
            work()
        before = settled_count()
        counts = [sys.getrefcount(v) for v in (x, w, x._array, None, True, ut.float32)]
        for _ in range(200):
            work()
        gc.collect()
        assert abs(len(gc.get_objects()) - before) < 20
        after = [sys.getrefcount(v) for v in (x, w, x._array, None, True, ut.float32)]
        assert max(abs(a - b) for a, b in zip(after, counts, strict=True)) < 50


def test_a_graph_dies_without_the_collector() -> None:
    gc.disable()
    try:
        x = ut.randn(3, requires_grad=True)
        y = (x * x).sin()
        node, dead = weakref.ref(y.grad_fn), weakref.ref(y)
        del y
        assert node() is None
        assert dead() is None
    finally:
        gc.enable()


def test_a_long_chain_is_run_and_freed() -> None:
    x = ut.ones(1, requires_grad=True)
    y = x
    for _ in range(200_000):
        y = y + x
    y.backward()
    assert x.grad.item() == 200_001
    del y


def test_signals_and_other_threads_get_their_turn() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x
    for _ in range(30_000):
        y = y * 1.0
    turns, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = turns[0]
        for _ in range(5):
            y.sum().backward(retain_graph=True)
        assert turns[0] > before
    finally:
        done.set()
        thread.join()


def test_threads_that_share_leaves_lose_no_gradient() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            x = ut.zeros(3, requires_grad=True)
            barrier = threading.Barrier(4)

            def work(x: Any = x, barrier: Any = barrier) -> None:
                barrier.wait()
                for _ in range(10):
                    (x * 1.0).sum().backward()

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert x.grad.tolist() == [40, 40, 40]
    finally:
        sys.setswitchinterval(interval)


# ------------------------------------------------------------------ with and without

PROGRAM = """
import undertow as ut, numpy as np
from undertow.compiled import core
from undertow.graph.user_lines import set_site_recording
ut.manual_seed(0)
model = ut.nn.Sequential(ut.nn.Linear(5, 7), ut.nn.Tanh(), ut.nn.LayerNorm(7), ut.nn.Linear(7, 3))
optimizer = ut.optim.Adam(model.parameters(), lr=0.1)
x, t = ut.randn(11, 5), ut.randint(0, 3, (11,))
for _ in range(5):
    optimizer.zero_grad()
    loss = ut.nn.functional.cross_entropy(model(x), t)
    loss.backward()
    optimizer.step()
print(core is None, repr(loss.item()))
"""


def run_program(**environment: str) -> list[str]:
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    ).stdout.split()


def test_the_same_program_without_the_core() -> None:
    compiled, pure = run_program(UNDERTOW_PURE="0"), run_program(UNDERTOW_PURE="1")
    assert (compiled[0], pure[0]) == ("False", "True")
    assert float(compiled[1]) == pytest.approx(float(pure[1]), rel=1e-5)


def test_a_core_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow import compiled

    monkeypatch.setattr(compiled, "_plan_version", lambda: "another")
    with pytest.warns(RuntimeWarning, match="belongs to another version"):
        assert compiled._load()[0] is None
    monkeypatch.setenv("UNDERTOW_PURE", "1")
    assert compiled._load()[0] is None


def test_what_is_told_must_be_known() -> None:
    with pytest.raises(TypeError, match="knows no nonsense"):
        core.bind(nonsense=1)


def test_subclasses_are_served_too() -> None:
    class Mine(ut.Tensor):
        """A tensor that computes its edge, as those of vmap do."""

        results_keep_class = False

        @property
        def _edge(self) -> Any:  # type: ignore[override]
            return self.other._edge

        @_edge.setter
        def _edge(self, edge: Any) -> None:
            pass

    leaf = ut.ones(2, requires_grad=True)
    mine = Mine(np.array([2.0, 3.0], np.float32), leaf._xp)
    mine.other = leaf * 5  # type: ignore[attr-defined]
    result = mine * ut.tensor([10.0, 100.0])
    assert type(result) is ut.Tensor
    assert result.tolist() == [20, 300]
    result.sum().backward()
    assert leaf.grad.tolist() == [50, 500]

    parameter = ut.nn.Parameter(ut.ones(2))
    (parameter * parameter).sum().backward()
    assert parameter.grad.tolist() == [2, 2]


def test_the_core_is_not_used_without_the_interpreters_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow import compiled

    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    found, status = compiled._load()
    assert found is None and "PYTHON_GIL=0" in status


def functions_called_by(call: Any) -> set[str]:
    found = set()
    sys.setprofile(lambda frame, event, _: found.add(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_nodes_that_saved_outputs_without_history_are_run_by_the_core() -> None:
    x, w = ut.randn(3, 4, requires_grad=True), ut.randn(4, requires_grad=True)
    for _ in range(2):
        out, mean, _ = native_layer_norm(x, (4,), w, None, 1e-5)
        called = functions_called_by(lambda out=out: out.backward(ut.ones(3, 4), retain_graph=True))
    assert "unpack_output" in called and called.isdisjoint({"evaluate", "pull", "unpack"})
    mean.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    out = native_layer_norm(x, (4,), w, None, 1e-5)[0]
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()
    seen = []
    out = native_layer_norm(x, (4,), w, None, 1e-5)[0]
    out.grad_fn.register_hook(lambda *given: seen.append(given))
    out.sum().backward()
    assert len(seen) == 1
    packed = []
    with ut.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: packed.append(t) or t):
        out = native_layer_norm(x, (4,), w, None, 1e-5)[0]
    count = len(packed)
    out.sum().backward()
    assert len(packed) == 2 * count > 0
