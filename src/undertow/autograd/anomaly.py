"""Anomaly mode: find the operation whose gradient went wrong.

While it is on, every recorded node keeps the traceback of its forward call (`metadata["traceback_"]`) and, if it was
recorded while another node's backward ran, that node (`metadata["parent_"]`); and every backward pass looks for nan in
what each node returns. An error then says which node, which line, and, where it can tell, why.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from undertow.backend import dtypes
from undertow.backend.cpu import broadcasts_to
from undertow.backend.interface import Array
from undertow.backend.limits import is_finite
from undertow.backend.sparse.compressed import to_dense
from undertow.backend.sparse.protocol import AnySparse
from undertow.engine.tasks import current_task
from undertow.engine.watch import Watch, install_watcher
from undertow.errors import AnomalyError
from undertow.graph.copy_slices import CopySlices
from undertow.graph.node import Node, site_of
from undertow.graph.user_lines import warn_user
from undertow.modes import Anomaly, State, anomaly, anomaly_variable, current, set_state
from undertow.own_files import OWN_FILES
from undertow.scopes import Scope
from undertow.tensor import Tensor

# ---- switching it


class detect_anomaly(Scope, contextlib.ContextDecorator):
    """Inside, errors in backward show the forward call they come from, and nan in a gradient is an error.

    check_nan      look for nan in the gradients each node returns
    check_inf      look for infinities, too
    check_forward  look for both in what each operation of this thread computes: the first one that gives an infinity or
                   nan of finite numbers is an error

    It concerns all threads, and makes everything slower: a mode for debugging.

    >>> import warnings
    >>> import undertow as ut
    >>> x = ut.tensor([0.0, 4.0], requires_grad=True)
    >>> y = ut.where(x > 1, x.sqrt(), 0.0).sum()
    >>> with warnings.catch_warnings(action="ignore"), ut.autograd.detect_anomaly():
    ...     try:
    ...         y.backward()
    ...     except RuntimeError as error:
    ...         print(str(error)[:63])
    Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    variable: Any = anomaly_variable

    def __new__(cls, check_nan: bool = True, check_inf: bool = False, check_forward: bool = False) -> Any:
        return super().__new__(_AlsoForward if check_forward else cls)

    def __init__(self, check_nan: bool = True, check_inf: bool = False, check_forward: bool = False) -> None:
        self._wanted = Anomaly(bool(check_nan), bool(check_inf), note_forward)
        warnings.warn(
            "Anomaly Detection has been enabled. It slows the forward and the backward pass down and is meant for "
            "debugging only.",
            stacklevel=2,
        )

    def inside(self, outer: Anomaly | None) -> Anomaly:
        return self._wanted


class _AnomalyAndState:
    """What is set by anomaly mode that looks forward, too, as one variable (see scopes.py)."""

    def get(self) -> tuple[Anomaly | None, State]:
        return anomaly(), current()

    def set(self, wanted: tuple[Anomaly | None, State]) -> None:
        set_state(wanted[1])
        anomaly_variable.set(wanted[0])


class _AlsoForward(detect_anomaly):
    variable = _AnomalyAndState()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from undertow.autograd.interceptors.first_not_finite import FirstNotFinite  # which few programs need

        super().__init__(*args, **kwargs)
        self._mode = FirstNotFinite()

    def inside(self, outer: Any) -> Any:
        return super().inside(outer[0]), self._mode.inside(outer[1])

    def after(self, inner: Any, outer: Any) -> Any:
        return outer[0], self._mode.after(inner[1], outer[1])


class set_detect_anomaly(Scope):
    """Switch anomaly mode on or off: at once as a call, until the end of the block as a context manager.

    check_nan  whether a NaN in a gradient is an error
    check_inf  whether an infinity is one, too

    >>> import undertow as ut
    >>> with ut.autograd.set_detect_anomaly(True):
    ...     print(ut.is_anomaly_enabled())
    True
    """

    variable = anomaly_variable
    at_once = True

    def prepare(self, mode: bool, check_nan: bool = True, check_inf: bool = False) -> None:
        self._wanted = Anomaly(bool(check_nan), bool(check_inf), note_forward) if mode else None

    def inside(self, outer: Anomaly | None) -> Anomaly | None:
        return self._wanted


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on: see `detect_anomaly`.

    >>> import undertow as ut
    >>> ut.is_anomaly_enabled()
    False
    """
    return anomaly() is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for nan; True, its default, while the mode is off.

    >>> import undertow as ut
    >>> ut.is_anomaly_check_nan_enabled()
    True
    """
    wanted = anomaly()
    return wanted is None or wanted.check_nan


def is_anomaly_check_inf_enabled() -> bool:
    """Whether anomaly mode looks for infinities, too.

    >>> import undertow as ut
    >>> ut.autograd.is_anomaly_check_inf_enabled()
    False
    """
    wanted = anomaly()
    return wanted is not None and wanted.check_inf


# ---- recording


def note_forward(node: Node) -> None:
    """Let a node that was just recorded remember the call, and the node in whose backward it happened."""
    node.metadata["traceback_"] = forward_traceback()
    task = current_task()
    if task is not None and task.node is not None:
        node.metadata["parent_"] = task.node


def forward_traceback() -> list[str]:
    """The stack as `traceback.format_stack` shows it, without undertow's own frames."""
    frames = traceback.walk_stack(sys._getframe(1))
    return [_frame_text(f.f_code, line) for f, line in frames if not OWN_FILES[f.f_code.co_filename]][::-1]


@functools.lru_cache(maxsize=4096)  # a loop records its nodes from a few lines, below the same long stack
def _frame_text(code: CodeType, line: int) -> str:
    source = linecache.getline(code.co_filename, line).strip()
    return f'  File "{code.co_filename}", line {line}, in {code.co_name}\n' + (f"    {source}\n" if source else "")


# ---- telling


def _inner(node: Node) -> Node:
    """The node of the operation: CopySlices wraps it."""
    return node.node if isinstance(node, CopySlices) else node


def _history(node: Node) -> Iterator[str]:
    """The forward call of a node, then those of the nodes in whose backward it was recorded."""
    yield f"Error detected in {node.name()}. " + _call(node, "caused the error")
    parent = _inner(node).metadata.get("parent_")
    while parent is not None:
        told = _call(parent, "induced the previous calculation")
        yield f"\n\nPrevious calculation was induced by {parent.name()}. {told}"
        parent = _inner(parent).metadata.get("parent_")


def _call(node: Node, what: str) -> str:
    frames = _inner(node).metadata.get("traceback_")
    if frames:
        return f"Traceback of forward call that {what}:\n{''.join(frames)}"
    site = site_of(_inner(node))
    known = f" Its line is known all the same: it was recorded at {site}." if site else ""
    return f"No forward pass information available: switch anomaly mode on before the forward pass to get it.{known}"


def _warn(text: str) -> None:
    """Warn; where warnings are errors, print instead, as an error is already under way."""
    try:
        warn_user(text)
    except Warning:
        print(f"Warning: {text}", file=sys.stderr)


# ---- watching a pass


def _array(grad: Array) -> Array:
    array = grad._array if isinstance(grad, Tensor) else grad
    return to_dense(array) if isinstance(array, AnySparse) else array


def _is_nan(array: Array) -> Any:
    return array != array


def _is_inf(array: Array) -> Array:
    return abs(array) == float("inf")


class AnomalyWatch(Watch):
    """Looks at what the nodes of one pass return.

    masks   node -> the nodes before it that made zeros in the gradient on its way there, nearest last
    origin  node -> the node before it that made an infinity in the gradient
    """

    def __init__(self, wanted: Anomaly) -> None:
        self.wanted = wanted
        self.masks: dict[Node, tuple[Node, ...]] = {}
        self.origin: dict[Node, Node] = {}

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        given = [_array(g) for g in grads if g is not None]
        found = [None if r is None else _array(r) for r in results]
        for nr, array in enumerate(found):
            if array is not None and not is_finite(array):
                if self.wanted.check_nan and _is_nan(array).any():
                    raise self.error(node, nr, "nan", self.cause_of_nan(node, given, array))
                if self.wanted.check_inf and _is_inf(array).any():
                    raise self.error(node, nr, "inf", cause_of_inf(node, given))
        self.follow(node, given, found)

    def failed(self, node: Node, error: BaseException) -> None:
        for text in _history(node):
            _warn(text)

    def error(self, node: Node, nr: int, kind: str, cause: str) -> AnomalyError:
        return AnomalyError(node.name(), nr, kind, site_of(_inner(node)), cause)

    def follow(self, node: Node, given: list[Any], found: list[Any]) -> None:
        """Remember who made the zeros and infinities in what goes on."""
        before, origin = self.masks.get(node, ()), self.origin.get(node, node)
        for edge, array in zip(node.next_edges, found, strict=True):
            if edge is not None and array is not None:
                masks = (*before, node) if makes_zeros(given, array) else before
                if masks:
                    self.masks[edge[0]] = masks[-8:]
                if not is_finite(array):
                    self.origin[edge[0]] = origin

    def cause_of_nan(self, node: Node, given: list[Any], array: Array) -> str:
        if any(_is_nan(g).any() for g in given):
            return (
                "The gradient that reached it held nan already, although no node returned nan: it was given to the "
                "backward call, or is a sum of +inf and -inf."
            )
        if holds_where_nan(given, array, lambda g: g == 0):
            return self.zero_times_inf(node)
        in_forward = _cause_in_forward(node, _is_nan, "nan")
        if not in_forward and holds_where_nan(given, array, _is_inf):
            return self.inf_times_zero(node)
        return in_forward or _cause_in_forward(node, _is_inf, "inf")

    def zero_times_inf(self, node: Node) -> str:
        name = node.name()
        text = "The gradient that reached it is exactly 0 where the nan is, and the operation has no finite derivative "
        text += "there: 0 * inf = nan."
        masks = self.masks.get(node)
        if not masks:
            return text
        mask = next((m for m in reversed(masks) if m.name().startswith(MASKS)), masks[-1])
        site = site_of(_inner(mask))
        return (
            f"{text} The zeros come from {mask.name()}{f', recorded at {site}' if site else ''}, which hides these "
            f"elements after {name} has computed them. Hide them before, too: give the operation "
            "where(mask, x, a harmless value) instead of x."
        )

    def inf_times_zero(self, node: Node) -> str:
        text = (
            "The gradient that reached it is infinite where the nan is, and the derivative is 0 there: inf * 0 = nan."
        )
        origin = self.origin.get(node)
        if origin is None:
            return text
        site = site_of(_inner(origin))
        return (
            f"{text} The infinity comes from {origin.name()}{f', recorded at {site}' if site else ''}, which has an "
            "infinite derivative at the value it was given (a square root at 0, for instance): keep its input away "
            "from there."
        )


#: names of nodes that a program masks with, as opposed to those that happen to make a zero
MASKS = ("Where", "Masked", "Index", "Select", "Slice", "Gather", "Take", "Clamp", "Relu", "Maximum", "Minimum")


def makes_zeros(given: list[Any], array: Array) -> bool:
    """Whether a node returned zeros where the gradient it was given has none."""
    zeros = array == 0
    if not zeros.any():
        return False
    for grad in given:
        if grad.shape == array.shape:
            return bool((zeros & (grad != 0)).any())
    return all((grad != 0).all() for grad in given)


def holds_where_nan(given: list[Any], array: Array, is_special: Callable[[Any], Any]) -> bool:
    """Whether the gradient that came in is special (0, or inf) wherever the one that went out is nan."""
    fitting = [g for g in given if broadcasts_to(g.shape, array.shape)]
    return bool(fitting) and not any((~is_special(g) & _is_nan(array)).any() for g in fitting)


def cause_of_inf(node: Node, given: list[Any]) -> str:
    if any(_is_inf(g).any() for g in given):
        return "The gradient that reached it held inf already: it was given to the backward call, or is a sum."
    return _cause_in_forward(node, _is_inf, "inf")


def _cause_in_forward(node: Node, is_bad: Any, kind: str) -> str:
    """Say so if a tensor or a number that the node saved in the forward pass was not finite."""
    from undertow.autograd.saved_tensors.ledger import saved_numbers, saved_values

    for argument, how, value in saved_values(node):
        if how != "packed":
            array = _array(value)
            if dtypes.is_differentiable(array.dtype) and is_bad(array).any():
                return f"Its saved `{argument}` holds {kind}: that came out of the forward pass."
    for argument, number in saved_numbers(node):
        if is_bad(number):
            return f"It was recorded with the number {number} for `{argument}`."
    return ""


def _watch_if_enabled() -> Watch | None:
    wanted = anomaly()
    return None if wanted is None else AnomalyWatch(wanted)


install_watcher(_watch_if_enabled)
