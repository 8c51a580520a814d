"""Random programs, run by undertow and by PyTorch side by side: after every step the same objects are alive.

A program makes tensors, drops them, hooks them, changes them, runs backward passes. Tensors are watched by weak
references; nodes through an object in their metadata, which lives as long as the node (PyTorch's Python nodes are made
when somebody looks). The garbage collector is off.
"""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow as ut


class Token:
    """Lives as long as the node whose metadata it is in."""


UNARY = {
    "tanh": lambda x: x.tanh(),  # saves its output
    "sin": lambda x: x.sin(),  # saves its input
    "neg": lambda x: -x,  # saves no tensor
    "view": lambda x: x[:],
    "sort": lambda x: x.sort()[0],
    "part": lambda x: x.unbind(0)[1].repeat(2),
    "detach": lambda x: x.detach(),
    "sum": lambda x: x.sum().repeat(2),
    "clone": lambda x: x.clone(),
}

CHANGES = {
    "neg_": lambda x: x.neg_(),
    "tanh_": lambda x: x.tanh_(),
    "slice": lambda x: x[:1].neg_(),
}


def keeping(L: ModuleType) -> Any:
    """A Function that saves its input and its output, and has an attribute."""

    class Keeping(L.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x.tanh()
            ctx.save_for_backward(x, out)
            ctx.note = Token()
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            _, out = ctx.saved_tensors
            return grad * (1 - out * out)

    return Keeping


class Machine:
    """Runs a program in one library, and knows what is alive."""

    def __init__(self, L: ModuleType) -> None:
        self.L = L
        self.handles: dict[int, Any] = {}  # what the program holds
        self.edges: list[Any] = []
        self.tensors: list[Any] = []  # weak references
        self.nodes: list[Any] = []
        self.raised = False
        self.function = keeping(L)

    def hold(self, tensor: Any) -> None:
        self.handles[len(self.tensors)] = tensor
        self.tensors.append(weakref.ref(tensor))
        self.watch(tensor)

    def watch(self, tensor: Any) -> None:
        if tensor.requires_grad:
            node = self.L.autograd.graph.get_gradient_edge(tensor).node
            if "token" not in node.metadata:
                node.metadata["token"] = token = Token()
                self.nodes.append(weakref.ref(token))

    def step(self, name: str, a: int, b: int) -> None:
        self.raised = False
        try:
            self.run(name, a, b)
        except RuntimeError:
            self.raised = True

    def pick(self, k: int) -> Any:
        return self.handles[sorted(self.handles)[k % len(self.handles)]]

    def run(self, name: str, a: int, b: int) -> None:
        if name == "leaf" or not self.handles:
            self.hold(self.L.tensor([1.0, 2.0], requires_grad=True))
        elif name == "drop":
            del self.handles[sorted(self.handles)[a % len(self.handles)]]
        elif name in UNARY:
            self.hold(UNARY[name](self.pick(a)))
        elif name == "function":
            self.hold(self.function.apply(self.pick(a)))
        elif name == "gradient":
            (found,) = self.L.autograd.grad(self.pick(a).sum(), self.pick(b), create_graph=True, allow_unused=True)
            if found is not None:
                self.hold(found)
        elif name == "packed":
            with self.L.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), self.L.tensor):
                self.hold(self.pick(a) * self.pick(b))
        elif name == "mul":
            self.hold(self.pick(a) * self.pick(b))
        elif name in CHANGES:
            CHANGES[name](self.pick(a))
            self.watch(self.pick(a))
        elif name == "retain_grad":
            self.pick(a).retain_grad()
        elif name == "hook":
            self.pick(a).register_hook(lambda grad: grad * 2)
        elif name == "edge":
            self.edges.append(self.L.autograd.graph.get_gradient_edge(self.pick(a)))
        elif name == "drop edges":
            self.edges.clear()
        elif name == "forget grad":
            self.pick(a).grad = None
        else:
            self.pick(a).sum().backward(retain_graph=name == "backward, keep")

    def alive(self) -> tuple[list[int], list[int], bool]:
        tensors, nodes = [[k for k, ref in enumerate(refs) if ref() is not None] for refs in (self.tensors, self.nodes)]
        return tensors, nodes, self.raised


STEPS = [*UNARY, *CHANGES, "leaf", "mul", "mul", "function", "gradient", "packed", "drop", "drop", "drop",
         "retain_grad", "hook", "edge", "drop edges", "forget grad", "backward", "backward, keep"]  # fmt: skip

programs = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.integers(0, 5)), min_size=5, max_size=25)


@pytest.mark.torch
@given(programs)
def test_the_same_objects_are_alive(torch: ModuleType, program: list[tuple[str, int, int]]) -> None:
    gc.disable()
    machines = [Machine(ut), Machine(torch)]
    for number, (name, a, b) in enumerate(program):
        for machine in machines:
            machine.step(name, a, b)
        ours, theirs = [machine.alive() for machine in machines]
        assert ours == theirs, f"after step {number}, {name}({a}, {b})"
