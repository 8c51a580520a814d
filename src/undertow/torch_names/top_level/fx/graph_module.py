"""A Graph that can be called, with the modules and parameters that it names; and what runs a graph."""

from __future__ import annotations

import copy
from typing import Any

from undertow.nn import Module, Parameter
from undertow.tensor import Tensor

from .graph import Graph
from .node import Node, map_arg


class Interpreter:
    """Runs a GraphModule node by node. Subclasses see every node, and may do something else in its place."""

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module, self.graph = module, module.graph if graph is None else graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """What the output node gives."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        left = {node: len(node.users) for node in self.graph._nodes}
        for node in self.graph._nodes:
            if node in self.env:
                continue
            self.env[node] = result = self.run_node(node)
            if node.op == "output":
                return self.graph.process_outputs(result) if enable_io_processing else result
            if self.garbage_collect_values:
                for given in node.all_input_nodes:
                    left[given] -= 1
                    if not left[given]:
                        del self.env[given]
        return None

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        return map_arg((n.args, n.kwargs), lambda node: self.env[node])

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        return map_arg(args, lambda node: self.env[node])

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        return self.fetch_attr(target)

    def fetch_attr(self, target: str) -> Any:
        found = self.module
        for name in target.split("."):
            found = getattr(found, name)
        return found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        return args[0]


class GraphModule(Module):
    """A module whose `forward` is a Graph.

    root  a module (or a dict of names) from which what the graph names is taken, not copied
    """

    _class_name = ""

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self._class_name = class_name
        if isinstance(root, Module):
            self.training = root.training
        for node in graph._nodes:
            if node.op in ("call_module", "get_attr"):
                take_over(self, root, str(node.target))
        self.graph = graph

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "graph":
            value.owning_module = self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        inputs = [] if self.graph.pytree else [node for node in self.graph._nodes if node.op == "placeholder"]
        for node in inputs[len(args) :]:
            if node.target in kwargs:
                given.append(kwargs.pop(node.target))
            elif node.args:
                given.append(node.args[0])
        return Interpreter(self).run(*given)

    def recompile(self) -> str:
        """Nothing is compiled: `forward` reads the graph."""
        return self.code

    @property
    def code(self) -> str:
        return self.graph.code()

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        if print_output:
            print(self.code)
        return self.code

    def add_submodule(self, target: str, m: Any) -> bool:
        """Put a module at a path, with empty modules on the way."""
        place(self, target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        *path, last = target.split(".")
        owner: Any = self
        for name in path:
            owner = getattr(owner, name, None)
        if owner is None or last not in owner._modules:
            return False
        del owner._modules[last]
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node calls."""
        used = [str(node.target) for node in self.graph._nodes if node.op in ("call_module", "get_attr")]
        for name in [name for name, _ in self.named_modules() if name]:
            if not any([target == name or target.startswith(f"{name}.") for target in used]):
                inside = any([name.startswith(f"{target}.") for target in used])
                if not inside:
                    self.delete_submodule(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = GraphModule.__new__(type(self))
        Module.__init__(made)
        made.__setstate__(copy.deepcopy({k: v for k, v in self.__getstate__().items() if k != "graph"}, memo))
        made.graph = copy.deepcopy(self.graph)
        return made

    def _get_name(self) -> str:
        return self._class_name or type(self).__name__


def take_over(module: Any, root: Any, target: str) -> None:
    """Give the module what the root has at a path."""
    if isinstance(root, dict):
        place(module, target, root[target])
        return
    found = root
    for name in target.split("."):
        found = getattr(found, name)
    place(module, target, found)


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """PyTorch's name and order of arguments, which libraries with GraphModules of their own use."""
    take_over(to_module, from_module, target)


class _CodeOnlyModule(Module):
    """A module that has the attributes of a dict: what a copy of a GraphModule is made from."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


#: where `meta` keeps attributes that copies are to have, too
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def place(module: Any, target: str, value: Any) -> None:
    *path, last = target.split(".")
    for name in path:
        inner = getattr(module, name, None)
        if inner is None:
            inner = Module()
            module.add_module(name, inner)
        module = inner
    if isinstance(value, Module):
        module._modules[last] = value
    elif isinstance(value, Tensor) and not isinstance(value, Parameter) and not hasattr(module, last):
        module.register_buffer(last, value)
    else:
        setattr(module, last, value)
