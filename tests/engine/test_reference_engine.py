"""The real engine and the sequential reference engine, on the same graphs.

A program is a list of steps over a growing pool of tensors of shapes (), (3,) and (3, 3), which broadcast
with each other.  Steps share operands, so diamonds and fan-out are the rule; `unbind` gives a node with
three outputs, most of them unused; roots are drawn with repetition, leaves and dependent roots included.
Both engines run on the graph of one forward pass.  With PyTorch as the library the same tests check the
reference itself.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference_engine import ReferenceEngine

Tensor = Any  # in a list of gradients also None, for a leaf that none reached
LEAF_SHAPES: tuple[tuple[int, ...], ...] = ((3, 3), (3,), (), (3, 3))


@pytest.fixture(scope="module", params=["undertow", "torch"])
def lib(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "torch":
        return request.getfixturevalue("torch")
    return importlib.import_module("undertow")


# ------------------------------------------------------------------ programs


def multiply_into_row(a: Tensor, b: Tensor) -> Tensor:
    """Write into a view, so that the copy's history is rebased onto a CopySlices node."""
    copy = a.clone()
    if copy.ndim == 2:
        copy[0].mul_(b if b.ndim < 2 else b[1])
    else:
        copy.mul_(b if b.ndim == 0 else b.sum())
    return copy


STEPS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "add": lambda a, b: (a + b,),
    "mul": lambda a, b: (a * b,),
    "sin": lambda a, b: (a.sin(),),
    "exp": lambda a, b: (a.exp(),),
    "matmul": lambda a, b: (a.matmul(b) if a.ndim and b.ndim else a * b,),
    "sum": lambda a, b: (a.sum(),),
    "sum_rows": lambda a, b: (a.sum(dim=0) if a.ndim else a,),
    "view": lambda a, b: (a.view(a.numel()).view(tuple(a.shape)),),
    "unbind": lambda a, b: tuple(a.unbind()) if a.ndim else (a,),
    "square": lambda a, b: (a * a,),
    "multiply_into_row": lambda a, b: (multiply_into_row(a, b),),
}


class Step(NamedTuple):
    name: str
    a: int
    b: int


class Program(NamedTuple):
    steps: list[Step]
    roots: list[int]


# `a` counts back from the newest tensor, which makes graphs deep; `b` counts from the oldest, which gives
# the leaves and the first results many consumers.
INDICES = st.integers(0, 7)
STEP = st.builds(Step, st.sampled_from(sorted(STEPS)), INDICES, INDICES)
PROGRAMS = st.builds(
    Program,
    steps=st.lists(STEP, min_size=8, max_size=20),
    roots=st.lists(INDICES, min_size=1, max_size=4),
)


def large_program(seed: int, length: int = 150) -> Program:
    rng = random.Random(seed)
    steps = [Step(rng.choice(sorted(STEPS)), rng.randrange(20), rng.randrange(20)) for _ in range(length)]
    return Program(steps, roots=[rng.randrange(10) for _ in range(5)])


class Run(NamedTuple):
    leaves: list[Tensor]
    roots: list[Tensor]
    gradients: list[Tensor]


def run_forward(lib: ModuleType, program: Program) -> Run:
    rng = np.random.default_rng(0)
    leaves = [lib.tensor(rng.uniform(-1, 1, shape), requires_grad=True) for shape in LEAF_SHAPES]
    pool = list(leaves)
    for name, a, b in program.steps:
        results = STEPS[name](pool[-1 - a % len(pool)], pool[b % len(pool)])
        pool.extend(tamed(result) for result in results)
    roots = [pool[-1 - index % len(pool)] for index in program.roots]
    gradients = [lib.tensor(rng.uniform(-1, 1, tuple(root.shape))) for root in roots]
    return Run(leaves, roots, gradients)


def tamed(tensor: Tensor) -> Tensor:
    """Keep values small, so that no program overflows however often it squares and exponentiates."""
    return tensor.sin() if np.abs(tensor.detach().numpy()).max() > 3 else tensor


# ------------------------------------------------------------------ running both engines


def edge_of(lib: ModuleType, tensor: Tensor) -> tuple[Any, int]:
    node, output_nr = tuple(lib.autograd.graph.get_gradient_edge(tensor))[:2]
    return node, output_nr


def reference_gradients(lib: ModuleType, run: Run) -> list[Tensor]:
    roots = [edge_of(lib, root) for root in run.roots]
    by_leaf = ReferenceEngine().run_backward(roots, run.gradients)
    return [by_leaf.get(leaf) for leaf in run.leaves]


def engine_gradients(lib: ModuleType, run: Run, **options: bool) -> list[Tensor]:
    return list(lib.autograd.grad(run.roots, run.leaves, run.gradients, allow_unused=True, **options))


def assert_equal_gradients(actual: list[Tensor], expected: list[Tensor | None]) -> None:
    assert [g is None for g in actual] == [g is None for g in expected]
    for a, e in zip(actual, expected, strict=True):
        if a is not None and e is not None:
            np.testing.assert_allclose(a.detach().numpy(), e.detach().numpy(), rtol=1e-10, atol=1e-10)
            assert tuple(a.shape) == tuple(e.shape)


@given(program=PROGRAMS)
def test_grad_agrees(lib: ModuleType, program: Program) -> None:
    run = run_forward(lib, program)
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    assert_equal_gradients(engine_gradients(lib, run), expected)


@given(program=PROGRAMS)
def test_backward_agrees(lib: ModuleType, program: Program) -> None:
    run = run_forward(lib, program)
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    assert all(leaf.grad is None for leaf in run.leaves), "the reference must not touch .grad"
    lib.autograd.backward(run.roots, run.gradients)
    assert_equal_gradients([leaf.grad for leaf in run.leaves], expected)


@given(program=PROGRAMS)
def test_second_derivative_agrees(lib: ModuleType, program: Program) -> None:
    """First derivatives with a graph of their own, differentiated by the engine that made them."""
    run = run_forward(lib, program)
    by_reference = second_run(lib, run, reference_gradients(lib, run))
    by_engine = second_run(lib, run, engine_gradients(lib, run, create_graph=True))
    assert (by_reference is None) == (by_engine is None)
    if by_reference is None or by_engine is None:
        return
    with lib.no_grad():
        expected = reference_gradients(lib, by_reference)
    assert_equal_gradients(engine_gradients(lib, by_engine), expected)


def second_run(lib: ModuleType, run: Run, first: list[Tensor]) -> Run | None:
    """The gradients that depend on the leaves become the roots; None when all of them are constant."""
    roots = [g for g in first if g is not None and g.requires_grad]
    ones = [lib.tensor(np.ones(tuple(root.shape))) for root in roots]
    return Run(run.leaves, roots, ones) if roots else None


@pytest.mark.parametrize("seed", range(8))
def test_large_program_agrees(lib: ModuleType, seed: int) -> None:
    run = run_forward(lib, large_program(seed))
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    assert_equal_gradients(engine_gradients(lib, run), expected)


# ------------------------------------------------------------------ graphs with a known answer


def test_a_chain_deeper_than_the_recursion_limit(lib: ModuleType) -> None:
    x = lib.tensor(np.array([0.5, -0.5]), requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0 + x * 0.001
    run = Run([x], [y.sum()], [lib.tensor(np.array(1.0))])
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    np.testing.assert_allclose(expected[0].numpy(), [4.0, 4.0])
    assert_equal_gradients(engine_gradients(lib, run), expected)


def test_diamond_doubles_through_every_level(lib: ModuleType) -> None:
    """y = 2**40 x through 40 additions: right only if each node waits for both of its edges."""
    x = lib.tensor(np.array(1.0), requires_grad=True)
    y = x
    for _ in range(40):
        y = y + y
    run = Run([x], [y], [lib.tensor(np.array(1.0))])
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    assert float(expected[0]) == 2.0**40
    assert_equal_gradients(engine_gradients(lib, run), expected)


def test_last_output_alone_of_a_multi_output_node(lib: ModuleType) -> None:
    x = lib.tensor(np.arange(3.0), requires_grad=True)
    run = Run([x], [x.unbind()[2]], [lib.tensor(np.array(5.0))])
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    np.testing.assert_array_equal(expected[0].numpy(), [0.0, 0.0, 5.0])
    assert_equal_gradients(engine_gradients(lib, run), expected)


def test_a_root_that_another_root_depends_on(lib: ModuleType) -> None:
    x = lib.tensor(np.array(3.0), requires_grad=True)
    y = x * x
    one = lib.tensor(np.array(1.0))
    run = Run([x], [y * y, y, y, x], [one, one, one, one])
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    assert float(expected[0]) == 4 * 3.0**3 + 2 * (2 * 3.0) + 1
    assert_equal_gradients(engine_gradients(lib, run), expected)


def test_real_leaf_of_a_complex_product(lib: ModuleType) -> None:
    """Whoever drops the imaginary part, the rule or the delivery, a real leaf gets a real gradient."""
    x = lib.tensor(np.array([1.0, 2.0]), requires_grad=True)
    z = lib.tensor(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    run = Run([x, z], [x * z], [lib.tensor(np.array([1 + 1j, 1j]))])
    with lib.no_grad():
        expected = reference_gradients(lib, run)
    np.testing.assert_allclose(expected[0].numpy(), [3.0, -1.0])
    assert_equal_gradients(engine_gradients(lib, run), expected)
