"""The value that flows: an array, the namespace that computes on it, and the edge its gradient leaves by.

A Tensor is plain data. Operators and methods are attached in `methods.py`, and what a gradient does is the business
of `graph` and `engine`.
"""

from __future__ import annotations

from typing import Any

from undertow.modes import State, current, set_state
from undertow.tensor.metadata import DEFAULT, INFERENCE, MULTIPLE_OUTPUTS, NO_GRAD, Extra, Size, VersionCounter

#: the edge of a leaf that requires grad; its AccumulateGrad node is found (or made) when a graph needs it
LEAF: Any = (None, 0)


class Tensor:
    """An n-dimensional array whose operations can be differentiated.

    Make one with `undertow.tensor(data, requires_grad=True)`, `zeros`, `randn`, `from_numpy`, ...

    >>> import undertow as ut
    >>> x = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    # _array  the data; always an array of the backend, never a NumPy scalar
    # _xp     the ArrayNamespace of its device
    # _edge   None: no gradient wanted; LEAF: a leaf that wants one; else the recorded node (see graph's OutputEdge)
    # _extra  None, or the Extra with everything else
    __slots__ = ("__weakref__", "_array", "_edge", "_extra", "_xp")

    _array: Any
    _xp: Any
    _edge: Any
    _extra: Extra | None

    # NumPy must ask us, not loop over the elements, in `ndarray + tensor`
    __array_priority__ = 1000

    def __init__(self, array: Any, xp: Any, edge: Any = None) -> None:
        self._array = array
        self._xp = xp
        self._edge = edge
        self._extra = None

    @property
    def shape(self) -> Size:
        return tuple.__new__(Size, self._array.shape)  # the sizes of an array need no check

    @property
    def ndim(self) -> int:
        return int(self._array.ndim)

    @property
    def dtype(self) -> Any:
        return self._array.dtype

    @property
    def device(self) -> Any:
        return self._xp.device

    @property
    def is_leaf(self) -> bool:
        edge = self._edge
        return edge is None or edge is LEAF

    @property
    def output_nr(self) -> int:
        edge = current_edge(self)
        return 0 if edge is None else int(edge[1])

    @property
    def _version(self) -> int:
        if self._extra is not None and self._extra.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version_of(self)


def current_edge(tensor: Tensor) -> Any:
    """The tensor's edge, brought up to date if its memory was changed through a relative.

    Note [Stale views]: an in-place operation gives the base of the changed memory a new history. Views of that memory
    are not searched for; each remembers the version its edge belongs to, and when that has passed, its edge is made
    anew by replaying the view on the base. So whoever wants the edge of a tensor that may be a view asks here.
    """
    extra = tensor._extra
    if extra is None or extra.view is None:
        return tensor._edge
    view = extra.view
    base_extra = view.base._extra
    counter = None if base_extra is None else base_extra.counter
    if counter is None or counter.value == view.version or tensor._edge is LEAF:
        return tensor._edge
    if view.base._edge is not None:
        if view.creation is not DEFAULT:
            raise RuntimeError(refusal(view.creation, tensor._edge, "its base or another view of its base has been"))
        outer = current()
        set_state(State())
        try:
            tensor._edge = view.replay(view.base)._edge
        finally:
            set_state(outer)
    view.version = counter.value
    return tensor._edge


def refusal(how: str, edge: Any, event: str) -> str:
    """Why an in-place change that concerns a view made in a special way cannot be followed.

    event  "is being", or "its base or another view of its base has been"
    """
    if how is NO_GRAD or how is INFERENCE:
        block = "no_grad block" if how is NO_GRAD else "inference_mode block"
        return (
            f"A view was created {how} and {event} modified inplace with grad mode enabled. Given that this use case is "
            "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the "
            f"inplace either both inside the {block} (if you don't want the inplace to be tracked) or both outside (if "
            "you want the inplace to be tracked)."
        )
    name = "" if edge is None or edge is LEAF else edge[0].name().rstrip("0123456789").removesuffix("Backward")
    which = f"Output {edge[1]} of {name} is a view and {event} modified inplace. " if name else ""
    if how is MULTIPLE_OUTPUTS:
        reason = (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace."
        )
    else:
        reason = (
            "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
            "logic to handle view+inplace would override the custom backward associated with the custom Function, "
            "leading to incorrect gradients."
        )
    return f"{which}{reason} You should replace the inplace operation by an out-of-place one."


def extra_of(tensor: Tensor) -> Extra:
    """The tensor's Extra, made if it has none."""
    extra = tensor._extra
    if extra is None:
        extra = tensor._extra = Extra()
    return extra


def version_of(tensor: Tensor) -> int:
    extra = tensor._extra
    if extra is None:
        return 0
    if extra.view is not None:
        extra = extra.view.base._extra
        if extra is None:
            return 0
    counter = extra.counter
    return 0 if counter is None else counter.value


def counter_of(tensor: Tensor) -> VersionCounter:
    """The version counter of the tensor's memory, made if there is none; a view's is its base's.

    See Note [Saved outputs].
    """
    extra = extra_of(tensor)
    if extra.view is not None:
        return counter_of(extra.view.base)
    if extra.counter is None:
        edge = tensor._edge
        if edge is None or edge is LEAF:
            extra.counter = VersionCounter()
        else:
            extra.counter = edge[0].counter_of_output(edge[1])
    return extra.counter


def share_memory(source: Tensor, alias: Tensor) -> None:
    """Let `alias`, whose array shares memory with source's, share its version counter."""
    extra_of(alias).counter = counter_of(source)
