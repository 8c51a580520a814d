"""How multiprocessing writes a tensor: where its memory is, and not what is in it.

The memory is named by a descriptor, which the receiving process asks the sending one for, or inherits if it is being
started. So the sender must live until a tensor has been received.
"""

from __future__ import annotations

import os
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from undertow.interop.pickling import attributes, rebuild
from undertow.interop.shared_memory.blocks import POSSIBLE, received_segment, segment_of
from undertow.interop.shared_memory.moving import share
from undertow.tensor import Tensor, current_edge
from undertow.tensor.memory import address

if POSSIBLE:
    from multiprocessing.reduction import DupFd


def register(*classes: type[Tensor]) -> None:
    """Let multiprocessing send tensors of these classes (and of no class derived from them) by their memory."""
    for cls in classes if POSSIBLE else ():
        ForkingPickler.register(cls, reduce_tensor)


def reduce_tensor(tensor: Tensor) -> Any:
    """What multiprocessing's pickler writes. A tensor that is not in shared memory is moved there first."""
    if current_edge(tensor) is not None and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    if type(tensor._array) is not np.ndarray:
        return tensor.__reduce_ex__(4)  # what is on devices, or sparse, is copied
    share([tensor])
    array = tensor._array
    segment: Any = segment_of(array)
    offset = address(array) - address(segment.bytes()) if array.size else 0
    place = os.getpid(), handle_of(segment.block.descriptor), segment.block.size, segment.offset, segment.size
    form = array.shape, array.dtype, offset, array.strides, array.flags.writeable
    return receive_tensor, (type(tensor), place, form, current_edge(tensor) is not None), attributes(tensor)


def handle_of(descriptor: int) -> Any:
    """A descriptor as another process can have it: inherited by a process that is being started, or asked for later."""
    starting: Any = get_spawning_popen()
    if starting is not None and starting.method == "spawn" and descriptor in starting._fds:
        return starting.DupFd(descriptor)  # it goes along with another tensor, and may be named once only
    return DupFd(descriptor)


def receive_tensor(cls: type[Tensor], place: Any, form: Any, requires_grad: bool) -> Tensor:
    """The tensor on the memory that another process has sent."""
    sender, handle, *facts = place
    try:
        descriptor = handle.detach()
    except (OSError, EOFError) as error:
        raise RuntimeError(
            f"a tensor cannot be received: the process {sender}, which has sent it, is gone, and so is the memory "
            "that was to be shared. Let the sender live until everything is received (end it by an event, or join it "
            "after the last get()), or send NumPy arrays, which are copied."
        ) from error
    segment = received_segment(descriptor, *facts)
    shape, dtype, offset, strides, is_writeable = form
    array = np.ndarray(shape, dtype, segment.bytes(), offset, strides)
    array.flags.writeable = is_writeable
    register(cls)  # it may be sent on
    return rebuild(cls, array, "cpu", requires_grad)
