"""What a function computes, written down operation by operation while it runs.

Two look on. Below all transformations, a GroundMode sees every operation on plain tensors. Above them, a
TorchFunctionMode sees what is not made of operations: functions that make tensors from nothing, or that compute with
values in ways of their own. Of those, the call itself is written down.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any, NamedTuple

from undertow.autograd.interceptors.op_mode import GroundMode, Operation, with_ground
from undertow.autograd.tensor_attributes import detach
from undertow.func.mutations import are_left_out
from undertow.modes import current, in_state, no_grad
from undertow.nn import Module, Parameter
from undertow.ops import REGISTRY
from undertow.ops.create.creation import empty_strided
from undertow.ops.inplace.methods import copy_
from undertow.refcounts import IN_VARIABLE
from undertow.scopes import call_with
from undertow.tensor import Tensor
from undertow.tensor.torch_function import asking
from undertow.torch_names.calls_of_aten import DECOMPOSITIONS, as_in_torch
from undertow.torch_names.overloads import Overloads

from ...overrides import TorchFunctionMode
from ..graph import Graph
from ..node import Node
from ..passes.shape_prop import _extract_tensor_metadata


class Tracked(NamedTuple):
    """A tensor of the trace, and the node that gives it.

    memory      the input, the constant or the result whose memory it looks at, by its id
    by_input    whether its value depends on inputs or random numbers
    """

    tensor: Tensor
    node: Node
    memory: int
    by_input: bool


class Constant(NamedTuple):
    """A tensor that the function found somewhere else; its value before the trace changed it."""

    tensor: Tensor
    node: Node
    before: Tensor


class OperationTrace(GroundMode):
    """Writes operations into a graph, and tensors that they find elsewhere into a module."""

    def __init__(self, graph: Graph, root: Module, decompositions: Any) -> None:
        self.graph, self.root = graph, root
        self.decompositions = {**DECOMPOSITIONS, **{str(key.__name__): value for key, value in decompositions.items()}}
        self.tracked: dict[int, Tracked] = {}
        self.arrays: dict[int, Tracked] = {}
        self.constants: dict[int, tuple[Tensor, Node]] = {}
        self.changed: dict[int, Constant] = {}
        self.replaced: dict[int, tuple[Node, Node]] = {}
        self.looked_at: set[int] = set()

    # ---- tensors and nodes

    def add_input(self, name: str, value: Any) -> None:
        node = self.graph.create_node("placeholder", name)
        node.meta["val"] = value
        if isinstance(value, Tensor):
            self.track(value, node, id(value), True)

    def track(self, tensor: Tensor, node: Node, memory: int, by_input: bool) -> None:
        found = Tracked(tensor, node, memory, by_input)
        self.tracked[id(tensor)] = self.arrays[id(tensor._array)] = found
        node.meta.update(val=without_values(tensor), tensor_meta=_extract_tensor_metadata(tensor))

    def found(self, tensor: Tensor) -> Tracked:
        """The node of a tensor. One that nobody has seen, but whose memory is known, was kept for a backward pass."""
        if id(tensor) not in self.tracked:
            same = self.arrays.get(id(tensor._array))
            if same is None:
                self.track(tensor, self.constant(tensor), id(tensor), False)
            else:
                self.track(tensor, same.node, same.memory, same.by_input)
        return self.tracked[id(tensor)]

    def constant(self, tensor: Tensor) -> Node:
        kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
        name = f"{kind}{sum([hasattr(self.root, f'{kind}{n}') for n in range(len(self.constants))])}"
        setattr(self.root, name, tensor)
        node = self.graph.get_attr(name)
        self.constants[id(tensor)] = tensor, node
        return node

    def arguments(self, value: Any) -> Any:
        """What a node keeps of the arguments of a call."""
        if isinstance(value, Tensor):
            return self.found(value).node
        if isinstance(value, tuple):
            items = [self.arguments(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, list):
            return [self.arguments(item) for item in value]
        if isinstance(value, dict):
            return {key: self.arguments(item) for key, item in value.items()}
        return value

    def add(self, target: Overloads, args: Any, kwargs: Any, result: Any, memory: Tensor | None, random: bool) -> None:
        """Write down a call that gave a result.

        memory  the argument at whose memory the result looks, if it does
        """
        inputs = [self.found(t) for t in tensors_in((args, kwargs))]
        by_input = random or any([each.by_input for each in inputs])
        node = self.graph.call_function(target, self.arguments(tuple(args)), self.arguments(dict(kwargs)))
        node.meta["random"] = random
        home = None if memory is None else self.found(memory).memory
        if isinstance(result, Tensor):
            self.track(result, node, id(result) if home is None else home, by_input)
        for number, item in enumerate(result if isinstance(result, tuple | list) else ()):
            if isinstance(item, Tensor):
                part = self.graph.call_function(operator.getitem, (node, number))
                self.track(item, part, id(item) if home is None else home, by_input)
        if home is not None:
            self.looked_at.add(home)

    # ---- what is seen

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call_with(asking, asking.get()._replace(modes=()), self.write_down, op, args, kwargs)

    def write_down(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instead = self.decompositions.get(str(op))
        if instead is not None:
            with self:
                result = instead(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if op.kind == "in_place":
            return self.write_change(op, args, kwargs)
        result = op(*args, **kwargs)
        name, function, shown = as_in_torch(op, args)
        target = Overloads("aten", name, function)
        self.add(target, shown, kwargs, result, args[0] if op.kind == "view" else None, op.kind == "random")
        return result

    def write_change(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0]
        home = self.found(tensor)
        if home.memory in self.constants and home.memory not in self.changed:
            constant, node = self.constants[home.memory]
            self.changed[home.memory] = Constant(constant, node, constant.detach().clone())
        inputs = [self.found(t) for t in tensors_in((args, kwargs))]
        by_input = any([each.by_input for each in inputs])
        shown = self.arguments((args, kwargs))
        result = op(*args, **kwargs)
        if are_left_out() and home.memory == id(tensor) and home.memory not in self.looked_at:
            node = self.graph.call_function(Overloads("aten", op.rstrip("_"), OutOfPlace(op)), *shown)
            if home.node.op in ("placeholder", "get_attr") or home.memory in self.replaced:
                original = self.replaced.get(home.memory, (home.node, node))[0]
                self.replaced[home.memory] = original, node
        else:
            node = self.graph.call_function(Overloads("aten", str(op), op), *shown)
        self.track(tensor, node, home.memory, by_input)
        return result

    def on_alias(self, alias: Tensor, tensor: Tensor) -> None:
        found = self.found(tensor)
        self.track(alias, found.node, found.memory, found.by_input)

    def on_cut(self, alias: Tensor, tensor: Tensor) -> None:
        if id(alias) not in self.tracked:
            self.add(Overloads("aten", "detach", detach), (tensor,), {}, alias, tensor, False)

    def on_function(self, function: Any, args: Any, kwargs: Any) -> Any:
        """A function as the program calls it."""
        name = function.__name__
        given = tensors_in((args, kwargs))
        if name in READING and any([id(t) in self.tracked and self.tracked[id(t)].by_input for t in given]):
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {name} - erroring out! It's "
                "likely that this is caused by data-dependent control flow or similar, and a graph holds no values: "
                "compute with the tensor instead (torch.where), or trace the parts before and behind."
            )
        result = self.as_one(function, args, kwargs) if looks_inside(name, args, kwargs) else function(*args, **kwargs)
        made = [t for t in tensors_in(result) if type(t) is Tensor and self.is_new(t, given)]
        if made and (not given or any([id(t) in self.tracked for t in given])):
            target = Overloads("aten", name, function)
            call_with(asking, asking.get()._replace(modes=()), self.add, target, args, kwargs, result, None, False)
        return result

    def as_one(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function that looks at values between its operations, none of which is written down."""
        result = in_state(with_ground(current(), None), function, *args, **kwargs)
        if any([t.requires_grad for t in tensors_in(result)]):
            raise NotImplementedError(
                f"make_fx: {function.__name__} looks at values to find its gradient, which a graph cannot say. Trace "
                "it without gradients (under torch.no_grad()), or trace the parts before and behind."
            )
        return result

    def is_new(self, tensor: Tensor, given: list[Tensor]) -> bool:
        return not (id(tensor) in self.tracked or id(tensor._array) in self.arrays or any([tensor is t for t in given]))

    # ---- the trace

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        with self, Functions(self):
            return function(*args)

    def finish(self, outputs: Any, restore: bool) -> None:
        """Write down what the function returns. After this the trace is over.

        restore  give tensors from elsewhere the values back that they had
        """
        for original, last in self.replaced.values():
            self.graph.call_function(Overloads("aten", "copy_", copy_), (original, last))
        self.graph.output(outputs)
        self.graph.eliminate_dead_code(lambda node: node.is_impure() or node.meta.get("random", False))
        for node in self.graph.nodes:
            node.meta.pop("random", None)
        self.tracked.clear()
        self.arrays.clear()
        self.constants.clear()
        while self.changed:
            tensor, node, before = self.changed.popitem()[1]
            if not node.users:
                continue
            delattr(self.root, node.target)
            if getrefcount(tensor) <= IN_VARIABLE:  # made by the function itself: each run has one of its own
                setattr(self.root, node.target, before)
                with self.graph.inserting_after(node):
                    copy = self.graph.call_function(Overloads("aten", "clone", REGISTRY["clone"].function))
                node.replace_all_uses_with(copy)
                copy.args = (node,)
            else:
                setattr(self.root, node.target, tensor)
                if restore:
                    with no_grad():
                        tensor.copy_(before)


class Functions(TorchFunctionMode):
    """Shows the trace the functions that the program calls."""

    def __init__(self, trace: OperationTrace) -> None:
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.trace.on_function(func, args, kwargs or {})


class OutOfPlace:
    """A change in place, made on a copy."""

    def __init__(self, change: Callable[..., Any]) -> None:
        self.change = change

    def __call__(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.change(tensor.clone(), *args, **kwargs)


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    return [t for item in value for t in tensors_in(item)] if isinstance(value, tuple | list) else []


def without_values(tensor: Tensor) -> Tensor:
    """What a tensor is, without its numbers; backwards in memory (a step that undertow has inside) it is not."""
    strides = [abs(step) for step in tensor.stride()]
    return empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta")


#: methods that give the values of a tensor to the program
READING = frozenset(("item", "tolist", "numpy", "to_bool", "to_float", "to_int", "to_complex", "to_index"))

#: functions whose gradients, or which themselves, look at values between their operations
LOOKING_INSIDE = frozenset(("grid_sample", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d"))


def looks_inside(name: str, args: Any, kwargs: Any) -> bool:
    is_maximum = name == "embedding_bag" and any([isinstance(v, str) and v == "max" for v in (*args, *kwargs.values())])
    return is_maximum or name in LOOKING_INSIDE
