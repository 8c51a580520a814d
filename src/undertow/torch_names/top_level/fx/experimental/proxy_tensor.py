"""`make_fx`: a function as the graph of the operations that it comes to, derivatives and vmaps among them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from undertow import pytree
from undertow.nn import Module
from undertow.ops.random.generator import fork_rng
from undertow.tensor import Tensor
from undertow.torch_names.absent import absent
from undertow.torch_names.overloads import Overloads as Overloads

from ..graph import Graph
from ..graph_module import GraphModule
from .operation_trace import OperationTrace


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    **options: Any,
) -> Callable[..., GraphModule]:
    """A function that takes the arguments of `f`, runs it with them, and gives what was computed as a GraphModule.

    The graph holds single operations on plain tensors, by PyTorch's names (`torch.ops.aten.mm`): what a backward pass
    or a transformation inside `f` computes is in it, too. It can be run with other values of the same shapes, changed,
    and differentiated. Numbers and shapes are those of the trace, and a program that asks for the value of a tensor
    (`if x.sum() > 0:`, `x.item()`) cannot be traced.

    decomposition_table  {operation: function to trace in its place}
    tracing_mode         "real"; "fake", which computes with copies, so that no tensor of the program and no generator
                         is left changed by the trace

    >>> import undertow as ut
    >>> from undertow.fx.experimental.proxy_tensor import make_fx
    >>> slope = make_fx(ut.func.grad(lambda x: (x.sin() * x).sum()))(ut.ones(3))
    >>> [node.name for node in slope.graph.nodes if node.op == "call_function"]
    ['sin', 'expand', 'mul_1', 'mul_2', 'cos', 'mul_3', 'add']
    """
    if tracing_mode not in ("real", "fake"):
        raise NotImplementedError(
            f"make_fx(tracing_mode={tracing_mode!r}): sizes are numbers here and cannot be left open, as 'symbolic' "
            "asks for; use 'real' or 'fake', and trace again for other shapes"
        )

    @functools.wraps(f)
    def wrapped(*args: Any) -> GraphModule:
        return traced(f, args, decomposition_table or {}, tracing_mode == "fake")

    return wrapped


def traced(f: Callable[..., Any], args: tuple[Any, ...], decompositions: Any, is_fake: bool) -> GraphModule:
    leaves, structure = pytree.flatten(args)
    if is_fake:
        leaves = [copied(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    root, graph = Module(), Graph()
    trace = OperationTrace(graph, root, decompositions)
    for name, leaf in zip(names_of_inputs(f, structure), leaves, strict=True):
        trace.add_input(name, leaf)
    with fork_rng(enabled=is_fake):
        results = trace.run(f, structure.unflatten(leaves))
    outputs, output_structure = pytree.flatten(results)
    if all([child.kind is None for child in structure.children]):
        given: Any = output_structure.unflatten(trace.arguments(outputs))
    else:
        graph.pytree, given = (structure, output_structure), trace.arguments(outputs)
    del results, outputs, leaves, args
    trace.finish(given, restore=is_fake)
    return GraphModule(root, graph, getattr(f, "__name__", type(f).__name__))


def copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def names_of_inputs(f: Callable[..., Any], structure: Any) -> list[str]:
    """`x_1` for a parameter x that is one value; `arg0_1`, `arg1_1`, ... where there are containers."""
    try:
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    if len(names) < len(structure.children) or structure.count != len(structure.children):
        names = [f"arg{n}" for n in range(structure.count)]
    return [f"{name}_1" for name in names[: structure.count]]


def __getattr__(name: str) -> Any:
    if name.startswith(("__", "pytest", "setup", "setUp", "teardown", "tearDown")):  # which test runners look for
        raise AttributeError(name)
    return absent(f"torch.fx.experimental.proxy_tensor.{name}")
