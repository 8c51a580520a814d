"""What is refused of a change in place, before the first byte changes."""

from __future__ import annotations

from undertow.backend import dtypes
from undertow.backend.interface import Array, DType
from undertow.graph.history import LOST, STALE, refusal, shows_base
from undertow.modes import current
from undertow.tensor import LEAF, Tensor, current_edge
from undertow.tensor.extra import DEFAULT
from undertow.tensor.memory import unlocked
from undertow.tensor.tensor import requires_grad
from undertow.tensor.version_counter import NO_COUNTER


def check_in_place(tensor: Tensor, name: str, recorded: bool = False) -> None:
    """Refuse an in-place change that autograd could not follow.

    recorded  whether a gradient is asked of one of the operation's arguments
    """
    state = current()
    if state.grad_enabled and (recorded or requires_grad(tensor)):
        check_history(tensor, name)
    if tensor._extra is not None and tensor._extra.counter is NO_COUNTER and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
            f"normal tensor before doing inplace update. ({name} would change memory that has no version counter.)"
        )
    if state.before_change is not None:
        state.before_change(tensor)


def check_history(tensor: Tensor, name: str) -> None:
    view = None if tensor._extra is None else tensor._extra.view
    if view is not None and view.creation is not DEFAULT:
        raise RuntimeError(refusal(tensor, "is being"))
    if view is not None and not shows_base(tensor, view.base):
        raise RuntimeError(LOST)
    is_asked = requires_grad(tensor)
    if view is not None and (view.base._edge is LEAF or (is_asked and view.base._edge is None)):
        raise RuntimeError(
            f"a view of a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a "
            "clone() of it, or do the change under no_grad.)"
        )
    if view is not None and tensor._edge is None and view.base._edge is not None:
        view.version = STALE  # its version was preserved, though its base has a history by now
    if current_edge(tensor) is LEAF:
        raise RuntimeError(
            f"a leaf Variable that requires grad is being used in an in-place operation. ({name}: change a clone() of "
            "it, or do the change under no_grad.)"
        )


def unlock(tensor: Tensor) -> None:
    """Let a part of an expanded tensor be written to, if no two elements of that part share memory.

    NumPy hands expanded arrays out read-only, and every part of them. What is read-only for another reason stays so.
    """
    array, view = tensor._array, None if tensor._extra is None else tensor._extra.view
    if array.flags.writeable or view is None or not view.base._array.flags.writeable:
        return
    reach = 0  # how far, in bytes, the dimensions of smaller stride extend
    for stride, n in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if n > 1 and stride < reach + array.itemsize:
            return
        reach += stride * (n - 1)
    if tensor._xp.may_share_memory(array, view.base._array):
        tensor._array = unlocked(tensor._xp, array, view.base._array)


def check_fit(target: Array, shape: tuple[int, ...], dtype: DType, name: str) -> None:
    """Refuse to write a result of this shape and dtype into the array `target`."""
    if shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}: {name} "
            "cannot enlarge the tensor it changes"
        )
    if dtype is not target.dtype and dtypes.CATEGORY[dtype.kind] > dtypes.CATEGORY[target.dtype.kind]:
        raise RuntimeError(
            f"result type {dtypes.SCALAR_NAMES[dtype]} can't be cast to the desired output type "
            f"{dtypes.SCALAR_NAMES[target.dtype]}: {name} keeps the dtype of the tensor it changes"
        )
    if not target.flags.writeable:
        raise RuntimeError(
            f"unsupported operation: more than one element of the written-to tensor refers to a single memory location "
            f"(it is expanded), or its memory is read-only: {name} cannot change it. Please clone() the tensor before "
            "performing the operation."
        )
