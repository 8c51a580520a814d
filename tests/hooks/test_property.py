"""Random hooks on random graphs: the engine, the reference engine and PyTorch must write the same log.

A program is data: operations on numbered tensors, then hooks on them, then one pass. It is run by each library, and by
the reference engine over undertow's graph. Hooks write what they saw; some of them replace the gradient.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import undertow as ut
from tests.hooks.hooked_reference import HookedReferenceEngine, Registry

LEAVES = 2
UNARY, BINARY = ("sin", "double", "clone", "sort"), ("mul", "add")
TWO_OUTPUTS = ("split", "unbind")  # a Function and an operation
KINDS = ("tensor", "scale", "retain", "pre", "scale pre", "post", "scale post", "accumulated")


class Operation(NamedTuple):
    name: str
    inputs: tuple[int, ...]


class Program(NamedTuple):
    operations: list[Operation]
    hooks: list[tuple[str, int]]
    inputs: list[int] | None
    accumulate: bool


@st.composite
def programs(draw: Any) -> Program:
    count, operations = LEAVES, []
    for _ in range(draw(st.integers(1, 7))):
        name = draw(st.sampled_from([*UNARY, *BINARY, *TWO_OUTPUTS]))
        pick = st.integers(0, count - 1)
        operations.append(Operation(name, tuple(draw(pick) for _ in range(2 if name in BINARY else 1))))
        count += 2 if name in TWO_OUTPUTS else 1
    places = st.integers(0, count - 1)
    hooks = draw(st.lists(st.tuples(st.sampled_from(KINDS), places), max_size=12))
    inputs = draw(st.none() | st.lists(places, min_size=1, max_size=3, unique=True))
    return Program(operations, hooks, inputs, draw(st.booleans()))


def splitter(L: ModuleType) -> Any:
    class Split(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, one: Any, two: Any) -> Any:
            return one * 2 + two * 3

    return Split.apply


def build(L: ModuleType, program: Program) -> list[Any]:
    tensors = [L.tensor([0.5 + k, -1.0 - k], dtype=L.float64, requires_grad=True) for k in range(LEAVES)]
    split = splitter(L)
    for name, inputs in program.operations:
        chosen = [tensors[i] for i in inputs]
        if name in TWO_OUTPUTS:
            tensors.extend(split(*chosen) if name == "split" else L.stack([*chosen, *chosen]).unbind(0))
        elif name == "sort":
            tensors.append(chosen[0].sort()[0])  # of whose outputs one has no gradient
        else:
            tensors.append(chosen[0] * 2 if name == "double" else getattr(L, name)(*chosen))
    return tensors


def shown(grad: Any) -> Any:
    """A gradient as plain data; rounded, because the libraries' last bits differ."""
    if isinstance(grad, tuple):
        return tuple(shown(g) for g in grad)
    return None if grad is None else [round(v, 9) + 0.0 for v in grad.reshape(-1).tolist()]


class Hooks:
    """The hooks of a program, as functions that write into a log; made once for every run."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def make(self, number: int, kind: str) -> Any:
        def tensor(grad: Any) -> Any:
            self.log.append((number, kind, shown(grad)))
            return grad * 3 if kind == "scale" and grad is not None else None

        def pre(grads: tuple[Any, ...]) -> Any:
            self.log.append((number, kind, shown(grads)))
            return tuple(None if g is None else g * 5 for g in grads) if kind == "scale pre" else None

        def post(results: tuple[Any, ...], grads: tuple[Any, ...]) -> Any:
            self.log.append((number, kind, shown(results), shown(grads)))
            return tuple(None if r is None else r * 7 for r in results) if kind == "scale post" else None

        def accumulated(leaf: Any) -> None:
            self.log.append((number, kind))

        return {"tensor": tensor, "scale": tensor, "pre": pre, "scale pre": pre, "post": post, "scale post": post,
                "accumulated": accumulated}[kind]  # fmt: skip


def registrable(program: Program, tensors: list[Any]) -> list[tuple[int, str, Any]]:
    """The hooks that make sense: post-accumulate ones go on leaves, retain_grad does nothing there."""
    found = []
    for number, (kind, place) in enumerate(program.hooks):
        leaf = place < LEAVES
        if (kind == "accumulated") == leaf or kind not in ("accumulated", "retain"):
            found.append((number, kind, tensors[place]))
    return [(n, k, t) for n, k, t in found if not (k == "retain" and t.is_leaf)]


def edge_of(L: ModuleType, tensor: Any) -> Any:
    return tuple(L.autograd.graph.get_gradient_edge(tensor)[:2])


def run(L: ModuleType, program: Program) -> tuple[Any, ...]:
    """The log, the captured gradients and every `.grad`, as the library has them."""
    tensors, hooks = build(L, program), Hooks()
    nodes = [edge_of(L, t)[0] for t in tensors]  # AccumulateGrad nodes live as long as somebody holds them
    for number, kind, tensor in registrable(program, tensors):
        if kind == "retain":
            tensor.retain_grad()
            continue
        node = edge_of(L, tensor)[0]
        register = {"pre": node.register_prehook, "post": node.register_hook}.get(kind.removeprefix("scale "))
        if kind == "accumulated":
            register = tensor.register_post_accumulate_grad_hook
        (register or tensor.register_hook)(hooks.make(number, kind))
    loss, seed, captured = tensors[-1], L.ones(2, dtype=L.float64), []
    if program.inputs is None:
        loss.backward(seed)
    elif program.accumulate:
        loss.backward(seed, inputs=[tensors[i] for i in program.inputs])
    else:
        captured = L.autograd.grad(loss, [tensors[i] for i in program.inputs], seed, allow_unused=True)
    del nodes
    kept = [t.grad for t in tensors if t.is_leaf or t.retains_grad]
    return hooks.log, [shown(g) for g in captured], [shown(g) for g in kept]


def run_reference(program: Program) -> tuple[Any, ...]:
    tensors, hooks, registry = build(ut, program), Hooks(), Registry()
    edges = [edge_of(ut, t) for t in tensors]
    retained = set()
    if program.inputs is not None and program.accumulate:  # what backward accumulates into retains its gradient
        retained |= {edges[i] for i in program.inputs}
    for number, kind, tensor in registrable(program, tensors):
        edge = edge_of(ut, tensor)
        if kind == "retain":
            retained.add(edge)
        elif kind in ("tensor", "scale"):
            registry.add_tensor_hook(edge, hooks.make(number, kind))
        else:
            getattr(registry, kind.removeprefix("scale "))[edge[0]].append(hooks.make(number, kind))
    for node, nr in retained:
        registry.retained[node].append(nr)
    wanted = None if program.inputs is None else [edges[i] for i in program.inputs]
    engine = HookedReferenceEngine(registry, wanted, run_captured=program.accumulate)
    with ut.no_grad():
        engine.run(edges[-1], ut.ones(2, dtype=ut.float64))
    captured = [] if wanted is None or program.accumulate else [engine.captured.get(e) for e in wanted]
    kept = []
    for edge, tensor in zip(edges, tensors, strict=True):
        if tensor.is_leaf:
            kept.append(engine.leaves.get(edge[0]))
        elif edge in retained:
            kept.append(engine.retained.get(edge))
    return hooks.log, [shown(g) for g in captured], [shown(g) for g in kept]


def comparable(program: Program) -> Program:
    """Without the hooks that PyTorch treats otherwise, on purpose of ours, when inputs are chosen.

    It captures before the tensor hooks if the node runs for another input.
    """
    if program.inputs is None:
        return program
    return program._replace(hooks=[(k, p) for k, p in program.hooks if k != "scale"])


@given(programs())
@settings(max_examples=60)
def test_the_engine_agrees_with_the_reference(program: Program) -> None:
    assert run(ut, program) == run_reference(program)


@pytest.mark.torch
@given(program=programs())
@settings(max_examples=60)
def test_the_engine_agrees_with_pytorch(torch: ModuleType, program: Program) -> None:
    program = comparable(program)
    assert run(ut, program) == run(torch, program)
