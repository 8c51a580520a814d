"""Tracing in small: a model called with stand-ins for its inputs gives a graph, which can be changed and run.

What depends on values (`if x.sum() > 0:`) cannot be traced. Nothing is compiled: a GraphModule reads its graph.
"""

from __future__ import annotations

from typing import Any, TypeVar

from undertow.torch_names.absent import absent

from .graph import Graph as Graph
from .graph_module import GraphModule as GraphModule
from .graph_module import Interpreter as Interpreter
from .node import Node as Node
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy
from .proxy import TraceError as TraceError
from .tracer import Tracer as Tracer
from .tracer import symbolic_trace as symbolic_trace
from .tracer import wrap as wrap

T = TypeVar("T")


def has_side_effect(fn: T) -> T:
    return fn


def __getattr__(name: str) -> Any:
    if name.startswith(("__", "pytest")):
        raise AttributeError(name)
    return absent(f"torch.fx.{name}")
