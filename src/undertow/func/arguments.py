"""Choosing arguments by number, checking what functions return, and what is common to both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow import pytree
from undertow.autograd.alias import on_memory
from undertow.autograd.batched_tensor import physical
from undertow.autograd.interceptors.stack import active
from undertow.autograd.tensor_attributes import detached, get_requires_grad
from undertow.graph.accumulate import AccumulateGrad, gradient_edge
from undertow.graph.node import Node
from undertow.modes import no_grad
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

Argnums = int | tuple[int, ...]


def checked_argnums(argnums: Any, count: int) -> tuple[int, ...]:
    """The numbers of the chosen arguments, counted from 0."""
    if isinstance(argnums, tuple) and not argnums:
        raise RuntimeError("argnums must be non-empty")
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for number in numbers:
        if not isinstance(number, int):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
        if not -count <= number < count:
            raise RuntimeError(f"Got argnum={number}, but only {count} positional inputs")
    wrapped = tuple([n % count for n in numbers])
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return wrapped


def replaced(args: Sequence[Any], numbers: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """The arguments, with others in the chosen places."""
    found = list(args)
    for number, value in zip(numbers, values, strict=True):
        found[number] = value
    return found


def check_tensors(leaves: Sequence[Any], api: str, what: str) -> None:
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{api}: Expected all {what} to be Tensors, got unsupported type {type(leaf)}")


def check_outputs(leaves: Sequence[Any], api: str) -> None:
    """Raise unless a function returned tensors, one at least."""
    if not leaves or leaves == [None]:
        raise RuntimeError(f"{api}: Expected f to be a function that has non-empty output (got output = None or ())")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}")


def split_aux(result: Any, has_aux: bool, api: str) -> tuple[Any, Any]:
    """What a function returned, and the rest that is not to be differentiated."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result


def zeros_like(tensor: Tensor) -> Tensor:
    return REGISTRY["zeros_like"].function(tensor)


# ---- history beyond the transformation


def nodes_of(tensors: Sequence[Tensor]) -> list[Node]:
    edges = [gradient_edge(physical(t)) for t in tensors if get_requires_grad(t)]
    return [edge[0] for edge in edges if edge is not None]


def reaches_others(tensors: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Whether the tensors have a history beyond `own`: whether anybody else can differentiate them."""
    ours = set(nodes_of(own))
    seen: set[Node] = set()
    stack = nodes_of(tensors)
    while stack:
        node = stack.pop()
        if node in seen or node in ours:
            # an alias of a tensor that requires grad is a node with edges of its own
            if node in ours and node.next_edges:
                return True
            continue
        seen.add(node)
        if type(node) is AccumulateGrad:
            return True
        stack.extend([edge[0] for edge in node.next_edges if edge is not None])
    return False


def released(tree: Any, own: Sequence[Tensor], recording: bool) -> Any:
    """A result without the history that only the transformation itself could use."""

    def one(leaf: Tensor) -> Any:
        if not isinstance(leaf, Tensor) or not get_requires_grad(leaf):
            return leaf
        return leaf if recording and reaches_others([leaf], own) else without_history(leaf)

    return pytree.tree_map(one, tree)


def without_history(tensor: Tensor) -> Tensor:
    """The tensor without history, but with its tangents."""
    if not active().duals:
        return on_memory(tensor, detached)  # of a batch, too: a view made in no_grad would find its history again
    with no_grad():
        return REGISTRY["view_as"].function(tensor, tensor)
