"""What operations keep for the backward pass, in arrays and in Python objects."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.models import functions

HEADER = ["", "saved", "saved by torch", "peak of backward", "Python blocks"]

#: operand size, and its bytes
SIDE = 512
UNIT = SIDE * SIDE * 4

OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a + b": lambda lib, a, b: a + b,
    "a * b": lambda lib, a, b: a * b,
    "a * 2.0": lambda lib, a, b: a * 2.0,
    "a / b": lambda lib, a, b: a / b,
    "a ** 2": lambda lib, a, b: a**2,
    "sin(a)": lambda lib, a, b: lib.sin(a),
    "exp(a)": lambda lib, a, b: lib.exp(a),
    "relu(a)": lambda lib, a, b: lib.relu(a),
    "a.sum()": lambda lib, a, b: a.sum(),
    "a.mean(1)": lambda lib, a, b: a.mean(1),
    "a @ b": lambda lib, a, b: a @ b,
    "linear(a, b)": lambda lib, a, b: functions(lib).linear(a, b),
    "a.T": lambda lib, a, b: a.T,
    "a[3:]": lambda lib, a, b: a[3:],
    "cat([a, b])": lambda lib, a, b: lib.cat([a, b]),
    "softmax(a, 1)": lambda lib, a, b: lib.softmax(a, 1),
    "cross_entropy(a, ...)": lambda lib, a, b: functions(lib).cross_entropy(a, lib.zeros(SIDE).to(lib.int64)),
}


def operands(lib: Any) -> list[Any]:
    """Results, so that their gradients are freed as they are in the middle of a model."""
    lib.manual_seed(0)
    return [lib.randn(SIDE, SIDE, requires_grad=True) * 1.0 for _ in range(2)]


def saved_bytes(lib: Any, operation: Callable[..., Any]) -> int:
    """Bytes of the distinct arrays that the operation saves."""
    found = {}

    def pack(tensor: Any) -> Any:
        found[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    a, b = operands(lib)
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        operation(lib, a, b)
    return sum(found.values())


def backward_peak(lib: Any, operation: Callable[..., Any]) -> int:
    """The most memory a backward pass holds beyond what was there before: gradients and scratch arrays."""
    a, b = operands(lib)
    out = operation(lib, a, b)
    seed = lib.ones_like(out)
    gc.collect()
    tracemalloc.start()
    out.backward(seed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def blocks(lib: Any, operation: Callable[..., Any], count: int = 200) -> float:
    """Blocks of Python's allocator that a recorded operation and its result take."""
    a, b = [lib.ones(2, 2, requires_grad=True) for _ in range(2)]
    small = lambda: operation(lib, a, b)
    small()
    kept: list[Any] = [None] * count
    before = sys.getallocatedblocks()
    for k in range(count):
        kept[k] = small()
    return (sys.getallocatedblocks() - before) / count


def table() -> list[list[str]]:
    ours = importlib.import_module("undertow")
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    return [HEADER, *[row(name, operation, ours, torch) for name, operation in OPERATIONS.items()]]


def row(name: str, operation: Callable[..., Any], ours: Any, torch: Any) -> list[str]:
    theirs = "-" if torch is None else f"{saved_bytes(torch, operation) / UNIT:.1f}"
    saved, peak = saved_bytes(ours, operation) / UNIT, backward_peak(ours, operation) / UNIT
    count = "-" if "cross_entropy" in name else f"{blocks(ours, operation):.0f}"
    return [name, f"{saved:.1f}", theirs, f"{peak:.1f}", count]
