"""What a call did, in all that a program can notice: to compare compiled objects with the functions behind them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import undertow as ut
from undertow.graph.user_lines import Site
from undertow.tensor import Tensor


def outcome(function: Any, call: Callable[..., Any], prepare: Callable[[], tuple[Any, ...]]) -> Any:
    """What `call(function, *tensors)` returns, or raises and warns, and what has become of the tensors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tensors = prepare()
        try:
            result = call(function, *tensors)
            error = None
        except Exception as found:
            result, error = None, (type(found), str(found))
    same = [k for k, t in enumerate(tensors) if t is result]
    facts = [facts_of(t) for t in (*tensors, *flat(result))]
    return {
        "error": error, "kind": type(result), "same": same, "facts": facts, "gradients": gradients(result, tensors),
        "warnings": [(w.category, str(w.message)) for w in caught],
    }  # fmt: skip


def flat(result: Any) -> list[Any]:
    return [t for t in (result if isinstance(result, tuple | list) else (result,)) if isinstance(t, Tensor)]


def facts_of(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    array, extra = value._array, value._extra
    found = [array.tolist(), array.shape, array.strides, array.dtype, array.flags.writeable, type(value)]
    found += [value.requires_grad, value._is_view(), value.is_inference(), asked(value, "is_leaf")]
    found += [history_of(value)]
    if value._is_view():
        base = value._base
        found += [extra.view.creation, extra.view.version, base._array.tolist(), steps(extra.view.replay)]
        found += [np.shares_memory(base._array, array) or not array.size]
    if not value.is_inference():
        counter = None if extra is None else extra.counter
        found += [value._version, None if counter is None else (counter.operation, counter.last_change())]
    return found


def asked(value: Any, name: str) -> Any:
    """An attribute, or the error that asking for it is: the history of some views is lost."""
    try:
        return getattr(value, name)
    except RuntimeError as error:
        return str(error)


def history_of(value: Any) -> Any:
    node = asked(value, "grad_fn")
    return node if isinstance(node, str) else history(node, 4)


def steps(replay: Any) -> Any:
    return [(step.function.op.name, plain(step.arguments), step.output) for step in replay.steps()]


def plain(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


def history(node: Any, depth: int) -> Any:
    if node is None or depth == 0:
        return None
    saved = {name: saved_value(node, name) for name in getattr(node, "saved_names", {})}
    below = [None if next_node is None else (history(next_node, depth - 1), k) for next_node, k in node.next_functions]
    return node.name(), line_of(node), saved, below, plain(getattr(node, "params", None))


def line_of(node: Any) -> Any:
    """Where the node was recorded. (The instruction may be told to lie a few places behind: those are its caches.)"""
    code = getattr(node, "code", None)
    return None if code is None else (code, Site(code, node.lasti).line)


def saved_value(node: Any, name: str) -> Any:
    try:
        return plain(getattr(node, f"_saved_{name}"))
    except RuntimeError as error:
        return str(error)


def gradients(result: Any, tensors: tuple[Any, ...]) -> Any:
    """The gradients of all tensors for a weighted sum of the results, or the error that asking for them is."""
    total: Any = 0
    for t in flat(result):
        node = asked(t, "grad_fn")
        if isinstance(node, str):
            return node
        if t.requires_grad and node is not None:
            weights = ut.arange(1.0, 1 + t.numel()).reshape(t.shape).to(t.dtype)
            total = total + (t * weights).sum()
    leaves = [t for t in tensors if isinstance(t, Tensor) and t.requires_grad]
    if not isinstance(total, Tensor) or not leaves:
        return None
    try:
        found = ut.autograd.grad(total, leaves, allow_unused=True, create_graph=True)
    except RuntimeError as error:
        return str(error)
    return [plain(g) for g in found]
