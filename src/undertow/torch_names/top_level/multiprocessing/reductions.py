"""How tensors are sent to other processes, under PyTorch's name for the module."""

from multiprocessing.reduction import ForkingPickler as ForkingPickler

from undertow.interop.shared_memory.sending import reduce_tensor as reduce_tensor
from undertow.interop.shared_memory.sending import register
from undertow.nn.parameter import Buffer, Parameter
from undertow.tensor import Tensor


def init_reductions() -> None:
    """Let multiprocessing send tensors by their memory."""
    register(Tensor, Parameter, Buffer)
