"""What is measured. A case builds the same work for undertow and for PyTorch: `make(lib)` is given one of the two.

The libraries share names and argument orders, so that a case is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import models
from benchmarks.sampling import Sampler, alone, fresh, import_of, statement

#: undertow's time as a part of PyTorch's: what each kind of work may cost at most
BUDGETS = {
    "op": 0.8,
    "recorded op": 0.9,
    "backward, per node": 0.5,
    "mixed chain": 0.65,
    "LSTM": 0.9,
    "small MLP": 1.0,
}


class Case(NamedTuple):
    """One row of the table.

    unit      what the time is for: "op", "node", "pass", "step", "import"
    budget    the largest ratio it should have, if there is one
    threads   whether the arrays are large enough for more than one thread to matter
    """

    name: str
    unit: str
    make: Callable[[Any], Sampler]
    budget: float | None = None
    threads: bool = False


# ---- single operations on tiny arrays

OPERATIONS = {
    "mul": "a * b",
    "add": "a + b",
    "mul by a number": "a * 2.0",
    "sin": "sin(a)",
    "sum": "a.sum()",
    "matmul 8x8": "m @ n",
}


def operands(lib: Any, recorded: str) -> dict[str, Any]:
    """`recorded`: "no", "leaf" (operands are leaves that require grad) or "inner" (results of operations)."""
    lib.manual_seed(0)
    sizes = {"a": (3,), "b": (3,), "m": (8, 8), "n": (8, 8)}
    made = {name: lib.randn(*size) for name, size in sizes.items()}
    if recorded != "no":
        made = {name: tensor.requires_grad_() for name, tensor in made.items()}
    if recorded == "inner":
        made = {name: tensor * 1.5 for name, tensor in made.items()}
    return {**made, "sin": lib.sin}


def operation(code: str, recorded: str) -> Callable[[Any], Sampler]:
    return lambda lib: statement(code, operands(lib, recorded))


def operations() -> Iterator[Case]:
    for name, code in OPERATIONS.items():
        yield Case(f"{name}, not recorded", "op", operation(code, "no"), BUDGETS["op"])
    for name, code in OPERATIONS.items():
        yield Case(f"{name}, recorded, of leaves", "op", operation(code, "leaf"), BUDGETS["recorded op"])
    for name, code in OPERATIONS.items():
        yield Case(f"{name}, recorded, of results", "op", operation(code, "inner"), BUDGETS["recorded op"])


# ---- graphs


def unary_chain(lib: Any, nodes: int) -> Any:
    x = lib.ones(3, requires_grad=True)
    for _ in range(nodes):
        x = lib.sin(x)
    return x


def binary_chain(lib: Any, nodes: int) -> Any:
    x = start = lib.ones(3, requires_grad=True)
    other = lib.full((3,), 1.001).requires_grad_()
    for _ in range(nodes):
        x = x * other
    return x + start


def mixed_chain(lib: Any, nodes: int) -> Any:
    x = lib.ones(3, requires_grad=True)
    other = lib.full((3,), 0.1).requires_grad_()
    for _ in range(nodes // 5):
        x = lib.sin(x * other + other) - x * 0.5
    return x


def fan_out(lib: Any, uses: int) -> Any:
    x = lib.ones(3, requires_grad=True)
    total = x
    for _ in range(uses):
        total = total + x
    return total


def backward_of(build: Callable[[Any, int], Any], nodes: int) -> Callable[[Any], Sampler]:
    """The backward pass alone, over a graph of `nodes` nodes."""

    def make(lib: Any) -> Sampler:
        seed = lib.ones(3)
        return fresh(lambda: (build(lib, nodes), seed), "subject[0].backward(subject[1])", nodes)

    return make


def both_ways(build: Callable[[Any, int], Any], size: int) -> Callable[[Any], Sampler]:
    """Building the graph, running it backward and freeing it."""

    def make(lib: Any) -> Sampler:
        def step() -> None:
            build(lib, size).sum().backward()

        return statement("step()", {"step": step})

    return make


def graphs(quick: bool) -> Iterator[Case]:
    per_node, deep = BUDGETS["backward, per node"], 10_000 if quick else 100_000
    many = 1_000 if quick else 10_000
    yield Case("backward, chain of sin", "node", backward_of(unary_chain, 1000), per_node)
    yield Case("backward, chain of mul", "node", backward_of(binary_chain, 1000), per_node)
    yield Case("backward, mixed chain", "node", backward_of(mixed_chain, 1000), per_node)
    yield Case("mixed chain of 1,000, both ways", "pass", both_ways(mixed_chain, 1000), BUDGETS["mixed chain"])
    yield Case(f"fan-out of {many:,}, both ways", "pass", both_ways(fan_out, many))
    yield Case(f"chain of {deep:,}: build, run, free", "pass", both_ways(unary_chain, deep))


# ---- models


def step_of(model: Callable[[Any], Callable[[], None]], seconds: float = 0.1) -> Callable[[Any], Sampler]:
    return lambda lib: statement("step()", {"step": model(lib)}, seconds=seconds)


def model_cases(quick: bool) -> Iterator[Case]:
    width, size = (256, 200_000) if quick else (2048, 4_000_000)
    small, lstm = BUDGETS["small MLP"], BUDGETS["LSTM"]
    yield Case("small MLP step (32 x 784-128-10)", "step", step_of(models.small_mlp), small, threads=True)
    yield Case(
        "small MLP step, with operators only", "step", step_of(models.small_mlp_of_operators), small, threads=True
    )
    by_itself = lambda lib: alone(lib.__name__, "small_mlp")
    yield Case("small MLP step, alone in its process", "step", by_itself, small)
    yield Case("LSTM, 100 steps, hidden 64, batch 16", "pass", step_of(models.lstm), lstm, threads=True)
    name = f"medium MLP step (512 x {width}-{width}-{width}-10)"
    yield Case(name, "step", step_of(lambda lib: models.medium_mlp(lib, width)), threads=True)
    name = f"tanh(a * b + c).sum(), {size:,} elements, both ways"
    yield Case(name, "pass", step_of(lambda lib: models.elementwise(lib, size)), threads=True)


def all_cases(quick: bool = False) -> list[Case]:
    """Every case; `quick` makes the large ones small, to try things out."""
    imports = Case("import", "import", lambda lib: import_of(lib.__name__))
    return [*operations(), *graphs(quick), *model_cases(quick), imports]
