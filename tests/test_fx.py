"""`undertow.fx`: models as graphs. The same program runs with PyTorch, and with undertow in a process of its own."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from types import ModuleType

PROGRAM = """
import copy
from torch import fx, nn
F = nn.functional

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.recurrent = nn.Linear(3, 4), nn.LSTM(4, 2)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, scale=2.0):
        y = self.inner(self.linear(x)) * scale + self.weight - self.shift
        out, (h, c) = self.recurrent(y.unsqueeze(0))
        z = torch.cat([F.relu(out), torch.sigmoid(out)], dim=-1).view(x.shape[0], -1)
        return z.sum(-1) - 1, h

model, x = Model(), torch.rand(5, 3)
traced = fx.symbolic_trace(model)
before = model(x)
print(all(torch.equal(p, q) for p, q in zip(before, traced(x))), torch.equal(traced(x, scale=1.0)[1], model(x, 1.0)[1]))
print([(n.op, n.name, getattr(n.target, "__name__", n.target), len(n.users)) for n in traced.graph.nodes])
print([[a.name for a in n.all_input_nodes] for n in traced.graph.nodes])
for node in traced.graph.nodes:
    if node.op == "call_function" and node.target is torch.sigmoid:
        with traced.graph.inserting_after(node):
            new = traced.graph.call_function(torch.tanh, node.args)
        try:
            traced.graph.erase_node(node)
        except RuntimeError:
            print("still used")
        node.replace_all_uses_with(new)
        traced.graph.erase_node(node)
traced.graph.lint()
traced.recompile()
print(torch.equal(traced(x)[0], before[0]))
print(sorted(dict(traced.named_parameters())) == sorted(dict(model.named_parameters())))
other = copy.deepcopy(traced)
print(torch.equal(other(x)[0], traced(x)[0]), other.linear.weight is traced.linear.weight, len(other.graph.nodes))
traced(x)[0].sum().backward()
print(model.linear.weight.grad is not None)
try:
    fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
except fx.proxy.TraceError as error:
    print(error)

print([n.op for n in fx.symbolic_trace(lambda x: torch.flatten(x).flatten()).graph.nodes])
function = fx.symbolic_trace(lambda x, y: (x + y).relu() @ torch.ones(2, 2) + abs(1 - y))
print([n.op for n in function.graph.nodes], function(torch.ones(2, 2), torch.ones(2, 2)).tolist())

class Kinds(fx.Interpreter):
    def run_node(self, n):
        result = super().run_node(n)
        n.meta["kind"] = type(result).__name__
        return result

Kinds(function).run(torch.ones(2, 2), torch.ones(2, 2))
print([n.meta["kind"] for n in function.graph.nodes])

class Whole(fx.Tracer):
    def is_leaf_module(self, m, name):
        return name == "inner" or super().is_leaf_module(m, name)

graph = Whole().trace(model)
print([n.target for n in graph.nodes if n.op == "call_module"])
unused = graph.create_node("call_function", torch.ones, (1,))
rest = fx.GraphModule(model, graph)
print(torch.equal(rest(x)[0], model(x)[0]))
"""


def test_the_same_program_with_both(torch: ModuleType) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(PROGRAM, {"torch": torch, "__name__": "__main__"})
    command = [sys.executable, "-m", "undertow", "run", "-c", "import torch\n" + PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == text.getvalue()


WRAPPED = """
import undertow as ut

def outside(x, n):
    return x * n

ut.fx.wrap("outside")
ut.fx.wrap("len")
traced = ut.fx.symbolic_trace(lambda x: outside(x, 3) + len(x))
print([n.name for n in traced.graph.nodes], traced(ut.ones(2)).tolist(), outside(ut.ones(1), 2).item())
traced.graph.eliminate_dead_code()
print(traced.code)
"""


def test_functions_that_are_not_to_be_looked_into() -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPED], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['x', 'outside', 'len_1', 'add', 'output'] [5.0, 5.0] 2.0",
        "def forward(self, x):",
        "    outside = outside(x, 3)",
        "    len_1 = len(x)",
        "    add = add(outside, len_1)",
        "    return add",
        "",
    ], done.stderr


BY_HAND = """
import undertow as ut
from undertow import fx

graph = fx.Graph()
tracer = fx.proxy.GraphAppendingTracer(graph)
x, y = [fx.Proxy(graph.placeholder(name), tracer) for name in "xy"]
total = ut.einsum("ij,jk->ik", (x, y)) + 1
graph.output(total.node)
einsum = next(node for node in graph.nodes if node.target is ut.einsum)
print(einsum.args == ("ij,jk->ik", x.node, y.node))  # unpacked, as PyTorch does before it asks
print(fx.GraphModule(ut.nn.Module(), graph)(ut.ones(2, 3), ut.ones(3, 2)).tolist())
print(isinstance(fx.Proxy(x.node).tracer, fx.proxy.GraphAppendingTracer))


def function(x, factor=2.0):
    return (x * factor).relu()


once = fx.symbolic_trace(function)
twice = fx.symbolic_trace(once)  # whose arguments have the names of the graph's inputs
print([node.name for node in twice.graph.nodes] == [node.name for node in once.graph.nodes])
x = ut.tensor([-1.0, 3.0])
print(twice(x).tolist(), twice(x, 3.0).tolist(), twice(x, factor=3.0).tolist())
"""


def test_a_graph_that_is_built_by_hand_and_one_that_is_traced_again() -> None:
    done = subprocess.run([sys.executable, "-c", BY_HAND], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "True",
        "[[4.0, 4.0], [4.0, 4.0]]",
        "True",
        "True",
        "[0.0, 6.0] [0.0, 9.0] [0.0, 9.0]",
    ], done.stderr


ASSERTED = """
import torch

def doubled(x):
    torch._assert(x.shape[-1] == 2, "two are wanted")
    return x * 2

traced = torch.fx.symbolic_trace(doubled)
print([n.name for n in traced.graph.nodes], traced(torch.ones(2)).tolist())
try:
    torch.jit.script(traced)(torch.ones(3))
except torch.jit.Error as error:
    print(error)
"""


def test_what_is_asserted_is_a_node_of_the_graph() -> None:
    command = [sys.executable, "-m", "undertow", "run", "-c", ASSERTED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['x', 'getattr_1', 'getitem', 'eq', '_assert', 'mul', 'output'] [2.0, 2.0]",
        "two are wanted",
    ], done.stderr


NAMED = """
import torch

graph = torch.fx.Graph()
names = ["_x", "0.a", "a.b", "__call__", "sumA", "len", "x_3", "x", "x_3", "x", "AbcD", "*a", "inf"]
named = [graph.create_node("call_module", "m", name=name).name for name in names]
named += [make(name).name for name in names for make in (graph.call_module, graph.call_method, graph.placeholder)]
print(named, [graph.call_function(function).name for function in (torch._assert, torch.add, len, max, torch.add)])
"""


def test_nodes_are_named_as_in_pytorch(torch: ModuleType) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(NAMED, {"__name__": "__main__"})
    done = subprocess.run([sys.executable, "-m", "undertow", "run", "-c", NAMED], capture_output=True, text=True)
    assert done.stdout == text.getvalue(), done.stderr
