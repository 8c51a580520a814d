"""What is measured. A case builds the same work for undertow and for PyTorch: `make(lib)` is given one of the two.

The libraries share names and argument orders, so that a case is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import derivatives, models, training
from benchmarks.sampling import Sampler, alone, fresh, import_of, statement

#: undertow's time as a part of PyTorch's: what each kind of work may cost at most
BUDGETS = {
    "op": 0.8,
    "recorded op": 0.9,
    "backward, per node": 0.5,
    "mixed chain": 0.65,
    "LSTM": 0.9,
    "small MLP": 1.0,
    "medium MLP": 1.1,
    "filled rows": 0.6,
    "Hessian-vector product": 0.8,
    "vmap beside a loop": 0.2,
    "bundle adjustment": 0.6,
    "transformer": 1.2,
    "CNN": 2.5,
    "rows": 1.5,
    "small MLP of modules": 0.7,
    "LSTM of modules": 0.9,
    "Adam": 0.5,
}


class Case(NamedTuple):
    """One row of the table.

    unit      what the time is for: "op", "node", "pass", "step", "import"
    budget    the largest ratio it should have, if there is one
    threads   whether the arrays are large enough for more than one thread to matter
    other     what to compare with, if it is not the same work in PyTorch but other work in the same library
    """

    name: str
    unit: str
    make: Callable[[Any], Sampler]
    budget: float | None = None
    threads: bool = False
    other: Callable[[Any], Sampler] | None = None


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
    medium = BUDGETS["medium MLP"]
    yield Case(name, "step", step_of(lambda lib: models.medium_mlp(lib, width)), medium, threads=True)
    rows = 1000 if quick else 100_000
    for kind in ("sparse", "dense"):
        name = f"embedding step (640 of {rows:,} x 64, {kind} gradient)"
        yield Case(name, "step", step_of(embedding_of(rows, kind == "sparse")))
    name = "1,000 rows of 16 assigned one by one, both ways"
    yield Case(name, "pass", step_of(models.filled_rows), BUDGETS["filled rows"])
    name = f"tanh(a * b + c).sum(), {size:,} elements, both ways"
    yield Case(name, "pass", step_of(lambda lib: models.elementwise(lib, size)), threads=True)


def embedding_of(rows: int, sparse: bool) -> Callable[[Any], Callable[[], None]]:
    return lambda lib: models.embedding(lib, rows, sparse)


# ---- derivatives


def derivative_cases() -> Iterator[Case]:
    product, loop, adjustment = (
        BUDGETS[name] for name in ("Hessian-vector product", "vmap beside a loop", "bundle adjustment")
    )
    yield Case("Hessian-vector product of the small MLP", "product", step_of(derivatives.hvp), product)
    rows, at_once = (step_of(derivatives.of(derivatives.jacobian, vectorize=v)) for v in (False, True))
    yield Case("Jacobian of 100 outputs, row by row", "matrix", rows)
    yield Case("Jacobian of 100 outputs, with vmap", "matrix", at_once)
    yield Case("Jacobian with vmap, beside undertow's own row by row", "matrix", at_once, loop, other=rows)
    yield Case(
        "bundle adjustment, Jacobian, 20 observations", "matrix", step_of(derivatives.bundle_adjustment), adjustment
    )


def network_cases(quick: bool) -> Iterator[Case]:
    rows, size = BUDGETS["rows"], 128 if quick else 1024
    name = "transformer block (8 x 128 x 256, 4 heads), both ways"
    yield Case(name, "pass", step_of(models.transformer_block, 0.2), BUDGETS["transformer"], threads=True)
    name = "small CNN (32 x 1-16-32 x 28 x 28), both ways"
    yield Case(name, "pass", step_of(models.small_cnn, 0.2), BUDGETS["CNN"], threads=True)
    for function in ("softmax", "layer_norm", "cross_entropy"):
        yield Case(f"{function}, {size} x {size}, both ways", "pass", step_of(over_rows(function, size)), rows)
    for function in ("log_softmax", "rms_norm", "batch_norm", "gelu", "logsumexp"):
        yield Case(f"{function}, {size} x {size}, both ways", "pass", step_of(over_rows(function, size)))


def training_cases(quick: bool) -> Iterator[Case]:
    width = 256 if quick else 2048
    name = "small MLP step with nn and optim"
    yield Case(name, "step", step_of(training.mlp_of_modules), BUDGETS["small MLP of modules"], threads=True)
    name = f"medium MLP step with nn and Adam (512 x {width}-{width}-{width}-10)"
    medium = step_of(lambda lib: training.medium_mlp_of_modules(lib, width))
    yield Case(name, "step", medium, BUDGETS["medium MLP"], threads=True)
    name = "LSTM step with nn and optim (16 x 30 x 64)"
    yield Case(name, "step", step_of(training.lstm_of_modules, 0.2), BUDGETS["LSTM of modules"], threads=True)
    yield Case("Adam, 100 parameters of 10 elements", "step", step_of(training.adam_of_small), BUDGETS["Adam"])


def over_rows(function: str, size: int) -> Callable[[Any], Callable[[], None]]:
    return lambda lib: models.over_rows(lib, function, size)


def all_cases(quick: bool = False) -> list[Case]:
    """Every case; `quick` makes the large ones small, to try things out."""
    imports = Case("import", "import", lambda lib: import_of(lib.__name__))
    large = [*model_cases(quick), *network_cases(quick), *training_cases(quick), *derivative_cases()]
    return [*operations(), *graphs(quick), *large, imports]
