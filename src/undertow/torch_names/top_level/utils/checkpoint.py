"""`undertow.autograd.checkpoint`, under PyTorch's name for it."""

from collections.abc import Iterable

from undertow.autograd.checkpoint import *  # noqa: F403
from undertow.autograd.checkpoint import __all__ as __all__
from undertow.graph.user_lines import warn_user
from undertow.tensor import Tensor


def detach_variable(inputs: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments with leaves in the place of tensors: the same values, which require grad if those do."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple([leaf(value) if isinstance(value, Tensor) else value for value in inputs])


def leaf(tensor: Tensor) -> Tensor:
    made = tensor.detach()
    made.requires_grad = tensor.requires_grad
    return made


def check_backward_validity(inputs: Iterable[object]) -> None:
    """Warn if none of the arguments requires grad."""
    if not any([isinstance(value, Tensor) and value.requires_grad for value in inputs]):
        warn_user("None of the inputs have requires_grad=True. Gradients will be None", UserWarning)


def get_device_states(*args: object) -> tuple[list[int], list[object]]:
    """The devices of the tensors among the arguments, other than the CPU, and their generators' states: none here."""
    return [], []


def set_device_states(devices: object, states: object, *, device_type: object = None) -> None:
    """Put back what `get_device_states` has found."""
