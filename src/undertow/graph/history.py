"""What in-place changes do to the graph: a changed tensor moves to a new history, and its views find it when asked.

See Note [Stale views] in tensor/tensor.py.
"""

from __future__ import annotations

import re
import weakref
from typing import Any

from undertow.backend import dtypes
from undertow.compiled import keep_apart
from undertow.graph.accumulate import gradient_edge
from undertow.graph.copy_slices import CopySlices
from undertow.graph.edges import Edge
from undertow.graph.end_nodes import Cut
from undertow.graph.hooks import hooks_of
from undertow.graph.node import Node, node_extra
from undertow.modes import State, current, in_state
from undertow.tensor import LEAF, Tensor, View, current_edge
from undertow.tensor.extra import CUSTOM_FUNCTION, DEFAULT, INFERENCE, MULTIPLE_OUTPUTS, NO_GRAD
from undertow.tensor.lent_operations import lent
from undertow.tensor.tensor import install_refresh
from undertow.tensor.views import current_replay

#: a version that no memory has: the view's edge must be made anew
STALE = -1

# ---- the changed tensor


def rebase_history(tensor: Tensor, edge: Edge, position: int = 0) -> None:
    """Move a tensor that was changed in place (and its version counted) to the history that `edge` leads to.

    position  which of the node's edges leads to what the tensor was
    """
    view = None if tensor._extra is None else tensor._extra.view
    if view is None:
        set_edge(tensor, edge)
        return
    node = CopySlices(view.base, gradient_edge(view.base), current_replay(tensor), edge[0], position)
    keep_apart(node)
    if edge[0].keeps_outputs:
        node_extra(edge[0]).wrapper = weakref.ref(node)
    set_edge(view.base, node)
    leave_behind(tensor, view)


def leave_behind(tensor: Tensor, view: View) -> None:
    """Note that a change through a view left the view's edge behind."""
    view.version = STALE
    if not current().replay_views or tensor._extra.retains_grad:  # type: ignore[union-attr]
        current_edge(tensor)  # now: the switch may be another when somebody asks, and before a pass nobody may ask


def set_edge(tensor: Tensor, edge: Edge | None) -> None:
    """Give a tensor another history. retain_grad belongs to the tensor and moves along; hooks stay behind."""
    old, extra = tensor._edge, tensor._extra
    tensor._edge = edge
    if extra is None or not extra.retains_grad or old is None or old is LEAF or edge is None:
        return
    reference = hooks_of(old[0]).retain.pop(old[1], None)
    if reference is not None:
        hooks_of(edge[0]).retain[edge[1]] = reference


# ---- its views


def refresh(tensor: Tensor, view: View, version: int) -> Any:
    """The edge of a view whose memory was changed through a relative: that of the same view of the base now."""
    if view.creation is not DEFAULT:
        raise RuntimeError(refusal(tensor, "its base or another view of its base has been"))
    if not shares_memory(tensor, view.base):
        raise RuntimeError(LOST)
    view.replay = current_replay(tensor)
    again = in_state(State(), view.replay if current().replay_views else lent().by_memory(tensor), view.base)
    view.version = version
    set_edge(tensor, again._edge)
    return tensor._edge


install_refresh(refresh)


def recorded_edge(tensor: Tensor) -> Any:
    """The edge that an operation on the tensor records: its current one, or a Cut."""
    edge = current_edge(tensor)
    if edge is None:
        view = None if tensor._extra is None else tensor._extra.view
        if view is not None and view.base._edge is not None and dtypes.is_differentiable(tensor._array.dtype):
            return Cut(tensor)
    return edge


# ---- what cannot be followed

#: why a view that shows other memory than its base's has no history of changes
LOST = (
    "this view, or its base, was given other memory (by set_, resize_ or an assignment to .data) after the view was "
    "made, and then the memory of one of them was to be changed in place: the history of the view is lost. Take the "
    "view again, from the tensor as it is now, or change a clone() of it."
)


def shares_memory(tensor: Tensor, base: Tensor) -> bool:
    return not tensor._array.size or tensor._xp.may_share_memory(tensor._array, base._array)


def shows_base(tensor: Tensor, base: Tensor) -> bool:
    """Whether a view still shows the memory of its base."""
    extra = base._extra
    return extra is None or extra.rare is None or not extra.rare.moved or shares_memory(tensor, base)


def operation_name(node: Node) -> str:
    """The operation that a node stands for, as PyTorch's messages spell it: Add for AddBackward0, Sum1, MyFunction."""
    stem, number = re.fullmatch(r"(.*?)(?:Backward(\d*))?", node.name()).groups()  # type: ignore[union-attr]
    return stem + (number or "").lstrip("0")


def refusal(tensor: Tensor, event: str) -> str:
    """Why an in-place change that concerns a view made in a special way cannot be followed.

    event  "is being", or "its base or another view of its base has been"
    """
    creation = tensor._extra.view.creation  # type: ignore[union-attr]
    edge = tensor._edge
    return f"{_what(creation, edge, event)} {_why(creation)}"


def _what(creation: str, edge: Edge, event: str) -> str:
    recorded = edge is not None and edge is not LEAF
    if creation in (NO_GRAD, INFERENCE) or not recorded:
        of = f"Output {edge[1]} of {operation_name(edge[0])} is a view of a view which" if recorded else "A view"
        block = "inference mode" if creation is INFERENCE else "no_grad mode"
        outside = "in normal mode" if creation is INFERENCE else "with grad mode enabled"
        return f"{of} was created in {block} and {event} modified inplace {outside}."
    return f"Output {edge[1]} of {operation_name(edge[0])} is a view and {event} modified inplace."


def _why(creation: str) -> str:
    if creation is MULTIPLE_OUTPUTS:
        return (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    if creation is CUSTOM_FUNCTION:
        return (
            "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
            "logic to handle view+inplace would override the custom backward associated with the custom Function, "
            "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the "
            "custom Function."
        )
    block = "no_grad block" if creation is NO_GRAD else "inference_mode block"
    return (
        "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
        f"both the view and the inplace either both inside the {block} (if you don't want the inplace to be tracked) "
        "or both outside (if you want the inplace to be tracked)."
    )
