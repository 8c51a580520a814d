"""Tracing: a module or a function is called with Proxies, and what it does with them becomes a Graph."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from undertow.nn import Module, Parameter, Sequential
from undertow.tensor import Tensor
from undertow.tensor.torch_function import enable

from . import proxy
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .proxy import Proxy, TraceError, collect

#: functions that `wrap` was told of: the names of a module, and the name
_wrapped: list[tuple[dict[str, Any], str]] = []


def parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. Those of a GraphModule's `forward` are what its graph begins with."""
    graph_module = getattr(function, "__self__", None)
    if not isinstance(graph_module, GraphModule):
        return inspect.signature(function).parameters
    kinds = {
        0: inspect.Parameter.POSITIONAL_OR_KEYWORD,
        1: inspect.Parameter.VAR_POSITIONAL,
        2: inspect.Parameter.VAR_KEYWORD,
    }
    found = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            name = str(node.target).lstrip("*")
            default = node.args[0] if node.args else inspect.Parameter.empty
            found[name] = inspect.Parameter(name, kinds[len(str(node.target)) - len(name)], default=default)
    return found


class Tracer:
    """Makes the Graph of a module. Subclasses say which modules are not to be looked into (`is_leaf_module`)."""

    def __init__(self, autowrap_modules: Any = (), autowrap_functions: Any = (), **options: Any) -> None:
        self.root: Any = None
        self.graph = Graph()

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Whether a module is one node: those of undertow are, but Sequential."""
        return type(m).__module__.startswith(("undertow.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Any) -> str:
        for name, module in self.root.named_modules():
            if module is mod:
                return str(name)
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the call of a module becomes."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    # ---- nodes and arguments

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None
    ) -> Any:
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: Any = None,
        type_expr: Any = None,
        factory: Any = None,
    ) -> Any:
        node = self.create_node(
            kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name, type_expr
        )
        return (factory or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as a node keeps it: Proxies as their nodes, parameters and other tensors by their names."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {key: self.create_arg(item) for key, item in a.items()}
        if isinstance(a, slice):
            return slice(*[self.create_arg(item) for item in (a.start, a.stop, a.step)])
        if isinstance(a, Tensor):
            return self.create_node("get_attr", self.name_of_tensor(a), (), {})
        return a

    def name_of_tensor(self, tensor: Tensor) -> str:
        """Where the root has a parameter, a buffer or an attribute; other tensors become attributes of it."""
        kinds = self.root.named_parameters() if isinstance(tensor, Parameter) else self.root.named_buffers()
        for name, value in kinds:
            if value is tensor:
                return str(name)
        n = 0
        while hasattr(self.root, f"_tensor_constant{n}") and getattr(self.root, f"_tensor_constant{n}") is not tensor:
            n += 1
        setattr(self.root, f"_tensor_constant{n}", tensor)
        return f"_tensor_constant{n}"

    # ---- what a trace cannot do

    def iter(self, obj: Proxy) -> Iterator[Any]:
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument."
        )

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    # ---- the trace

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """Call the module, or the function, with a Proxy for each argument."""
        enable()
        self.graph = Graph(tracer_cls=type(self))
        self.root = root if isinstance(root, Module) else Module()
        function = root.forward if isinstance(root, Module) else root
        args, kwargs = self.create_args_for_root(function, concrete_args or {})
        with self.modules_are_seen(), wrapped_functions(self):
            result = function(*args, **kwargs)
        self.graph.output(self.create_arg(result))
        return self.graph

    def create_args_for_root(self, function: Any, concrete: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in parameters_of(function).items():
            if name in concrete:
                value: Any = concrete[name]
            else:
                default = () if parameter.default is parameter.empty else (parameter.default,)
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
                stars = "**" if parameter.kind is parameter.VAR_KEYWORD else stars
                value = self.create_proxy("placeholder", stars + name, default, {})
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            elif parameter.kind is not parameter.VAR_KEYWORD:
                args.append(value)
        return args, kwargs

    @contextmanager
    def modules_are_seen(self) -> Iterator[None]:
        """Inside, calls of modules come to `call_module` first."""
        usual = Module.__call__
        tracer = self

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            found: list[Proxy] = []
            collect((args, kwargs), found)
            if not found:
                return usual(module, *args, **kwargs)
            return tracer.call_module(module, lambda *a, **k: usual(module, *a, **k), args, kwargs)

        Module.__call__ = call  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Module.__call__ = usual  # type: ignore[method-assign]


@contextmanager
def wrapped_functions(tracer: Tracer) -> Iterator[None]:
    """Inside, functions that `wrap` was told of are single nodes if they are called with a Proxy."""
    before = [(names, name, names.get(name), name in names) for names, name in _wrapped]

    def recording(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            found: list[Proxy] = []
            collect((args, kwargs), found)
            return tracer.create_proxy("call_function", function, args, kwargs) if found else function(*args, **kwargs)

        return call

    for names, name in _wrapped:
        builtins = names.get("__builtins__", {})
        known = builtins if isinstance(builtins, dict) else vars(builtins)
        names[name] = recording(names.get(name, known.get(name)))
    try:
        yield
    finally:
        for names, name, value, was_there in before:
            if was_there:
                names[name] = value
            else:
                del names[name]


class GraphAppendingTracer(Tracer):
    """Has what is done with Proxies added to a graph that is there already, by a program that builds one by hand."""

    def __init__(self, graph: Graph) -> None:
        enable()
        super().__init__()
        self.graph, self.root = graph, Module()


proxy.GraphAppendingTracer = GraphAppendingTracer


def wrap(fn_or_name: Any) -> Any:
    """Say that a function of the calling module is a single node when a model is traced."""
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped.append((sys._getframe(1).f_globals, name))
    return fn_or_name


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """The module, or the function, as a GraphModule.

    >>> import undertow as ut
    >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.ReLU())
    >>> [node.op for node in ut.fx.symbolic_trace(model).graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
