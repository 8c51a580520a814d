"""What there is to say of a node before it runs: its line, the formulas of its rules, what it saved, its hooks."""

from __future__ import annotations

import linecache
from functools import cache
from typing import Any

from undertow.autograd.saved_tensors.ledger import saved_values
from undertow.backend.interface import DType
from undertow.graph.accumulate import AccumulateGrad
from undertow.graph.copy_slices import CopySlices
from undertow.graph.node import Node
from undertow.graph.user_lines import Site
from undertow.instrument.nodes import place_of
from undertow.ops.reference.formula_text import formula
from undertow.tensor import Tensor


def inner(node: Node) -> Node:
    """The node of the operation: CopySlices wraps it."""
    return node.node if isinstance(node, CopySlices) else node


def title_of(node: Node) -> str:
    """Its name, without the name of the library before a leaf's."""
    if isinstance(node, CopySlices):
        return f"CopySlices({title_of(node.node)})"
    return node.name().rpartition("::")[2]


def shape_of(node: Node) -> str:
    """The shapes of the gradients that it receives."""
    if isinstance(node, AccumulateGrad):
        return text_of_shape(node.variable.shape)
    return ", ".join([text_of_shape(one.shape) for one in node._input_metadata])


def text_of_shape(shape: Any) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def text_of_dtype(dtype: DType) -> str:
    return str(dtype).removeprefix("undertow.")


def dtype_of(node: Node) -> str:
    dtypes = [node.variable.dtype] if isinstance(node, AccumulateGrad) else [m.dtype for m in node._input_metadata]
    return ", ".join(dict.fromkeys([text_of_dtype(dtype) for dtype in dtypes]))


def saved_by(node: Node) -> list[list[Any]]:
    """What it keeps: name, shape, dtype, bytes, version."""
    found = []
    for saved in saved_values(node):
        value = saved.value
        packed = saved.kind == "packed"
        shape = "?" if packed else text_of_shape(value.shape)
        size = getattr(value._array if isinstance(value, Tensor) else value, "nbytes", None)
        version = value._version if isinstance(value, Tensor) and not value.is_inference() else None
        found.append([saved.argument, shape, "packed" if packed else text_of_dtype(value.dtype), size, version])
    return found


def hooks_on(node: Node) -> list[str]:
    """The hooks that will run with it, by kind."""
    found: list[str] = []
    hooks = None if node.extra is None else node.extra.hooks
    if hooks is not None:
        found += [f"tensor hook on output {nr}" for nr, those in hooks.tensor.items() for _ in those]
        found += ["retain_grad" for _ in hooks.retain]
        found += ["prehook" for _ in hooks.pre] + ["hook" for _ in hooks.post]
    if isinstance(node, AccumulateGrad):
        rare = node.variable._extra.rare if node.variable._extra is not None else None
        leaf_hooks = getattr(rare, "hooks", None) or ()
        found += ["tensor hook of the leaf" for _ in leaf_hooks]
    return found


class Lines:
    """The lines that nodes come from, and their texts; most nodes come from few."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[str, str]] = {(None, 0): ("", "")}

    def of(self, node: Node) -> tuple[str, str]:
        code, lasti = place = place_of(inner(node))
        if place not in self.known and code is not None:
            line = Site(code, lasti).line
            text = linecache.getline(code.co_filename, line).strip()
            self.known[place] = f"{code.co_filename}:{line} in {code.co_name}", text
        return self.known[place]


def formulas_of(node: Node) -> str:
    """How the gradient of each input is computed, one line each."""
    return _formulas(getattr(type(inner(node)), "op", None))


@cache
def _formulas(op: Any) -> str:
    if op is None:
        return ""
    if not isinstance(op.vjp, dict):
        return formula(op.vjp) if callable(op.vjp) else ""
    return "\n".join([f"{name}: {formula(rule)}" for name, rule in op.vjp.items() if rule is not None])
