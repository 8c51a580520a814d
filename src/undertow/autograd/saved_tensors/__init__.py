"""Hooks for saved tensors: decide what the graph keeps, and how it is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.graph.operation_node import SavedHooks
from undertow.graph.saved import SavedTensor
from undertow.modes import State, current, state_variable
from undertow.scopes import Scope
from undertow.tensor import Tensor


class saved_tensors_hooks(Scope):
    """Inside, every tensor saved for backward is kept as `pack_hook(tensor)` and used as `unpack_hook(packed)`.

    Hooks nest: the innermost pair counts. They concern this thread only.

    >>> import undertow as ut
    >>> x = ut.tensor([2.0], requires_grad=True)
    >>> with ut.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lambda packed: ut.tensor(packed)):
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor([4.])
    """

    variable = state_variable

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def inside(self, outer: State) -> State:
        if outer.no_saved_hooks is not None:
            raise RuntimeError(outer.no_saved_hooks)
        return outer.replace(saved_hooks=(*outer.saved_hooks, SavedHooks(self.pack_hook, self.unpack_hook)))

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(saved_hooks=inner.saved_hooks[:-1])


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in CPU memory and bring them back to their device when they are needed.

    device_type  accepted: tensors of all devices are kept so

    >>> import undertow as ut
    >>> x = ut.tensor([2.0], requires_grad=True)
    >>> with ut.autograd.graph.save_on_cpu():
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor([4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            moved = tensor.cpu()
            return tensor.detach() if moved is tensor else (tensor.device, moved)

        def unpack(packed: Any) -> Any:
            if isinstance(packed, Tensor):
                return packed
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


class disable_saved_tensors_hooks(Scope):
    """Inside, switching saved-tensor hooks on raises a RuntimeError with `error_message`.

    >>> import undertow as ut
    >>> with ut.autograd.graph.disable_saved_tensors_hooks("not here"):
    ...     print(ut.autograd.graph.are_saved_tensors_hooks_enabled())
    False
    """

    variable = state_variable

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def inside(self, outer: State) -> State:
        if outer.saved_hooks:
            raise RuntimeError(self.error_message)
        return outer.replace(no_saved_hooks=self.error_message)

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(no_saved_hooks=outer.no_saved_hooks)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with disable_saved_tensors_hooks(self.error_message):
                return function(*args, **kwargs)

        return wrapped


def are_saved_tensors_hooks_enabled() -> bool:
    """Whether saved-tensor hooks may be switched on here.

    >>> import undertow as ut
    >>> ut.autograd.graph.are_saved_tensors_hooks_enabled()
    True
    """
    return current().no_saved_hooks is None


def make_saved_tensor(tensor: Tensor, is_output: bool = False) -> SavedTensor:
    """A tensor saved as a node would save it: hooks that are on apply to it; `unpack()` gives it back.

    is_output  whether it is an output of the node that saves it

    >>> import undertow as ut
    >>> ut.autograd.graph.make_saved_tensor(ut.ones(2)).unpack()
    tensor([1., 1.])
    """
    saved = SavedTensor(tensor.detach() if is_output else tensor)
    state = current()
    if state.saved_hooks:
        saved.register_hooks(*state.saved_hooks[-1])
    return saved
