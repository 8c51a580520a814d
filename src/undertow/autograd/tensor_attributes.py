"""What a tensor is to autograd: requires_grad, grad, grad_fn, data, detach, hooks. Attached to Tensor in methods.py."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.batched_tensor import BatchedTensor
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.backend.sparse.compressed import form_of
from undertow.errors import warn_of_volatile
from undertow.graph.accumulate import grad_dtype_of, keep_former, refresh_accumulate_node
from undertow.graph.hooks import RemovableHandle, add_hook, hooks_of, retain_at, tensor_hooks_of
from undertow.graph.node import Node, next_sequence_nr
from undertow.modes import Interceptor, current
from undertow.tensor import LEAF, Tensor, counter_of, current_edge, extra_of, without_history
from undertow.tensor.extra import INFERENCE_EXTRA
from undertow.tensor.subclasses import as_class, class_of
from undertow.tensor.tensor import SUBCLASSES, requires_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array

# ---- requires_grad


def get_requires_grad(self: Tensor) -> bool:
    """Whether operations on it are recorded, so that gradients reach it."""
    return requires_grad(self)


def set_requires_grad(self: Tensor, value: bool) -> None:
    edge = self._edge if value else current_edge(self)
    if edge is not None and edge is not LEAF:
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
        )
    if value and not dtypes.is_differentiable(self._array.dtype):
        raise RuntimeError(
            f"only Tensors of floating point dtype can require gradients (must be floating point or complex dtype); "
            f"this one is {self._array.dtype}. Convert it first, for instance with .float()."
        )
    if value and self._extra is not None and self._extra.inference and not current().inference:
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. Use a clone() of it, "
            "which is a normal tensor."
        )
    self._edge = LEAF if value else None


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Switch `requires_grad` on (or off) and return the tensor.

    >>> import undertow as ut
    >>> ut.ones(1).requires_grad_()
    tensor([1.], requires_grad=True)
    """
    if self.is_leaf or not requires_grad:
        set_requires_grad(self, requires_grad)
    return self


# ---- grad


def get_grad(self: Tensor) -> Tensor | None:
    """What backward passes have added up for it; None before the first."""
    extra = self._extra
    grad = None if extra is None else extra.grad
    if grad is None and self._edge is not None and self._edge is not LEAF and not (extra and extra.retains_grad):
        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
            "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
            "Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make "
            "sure you access the leaf Tensor instead.",
            stacklevel=2,
        )
    return grad


def set_grad(self: Tensor, grad: Array | None) -> None:
    if grad is not None:
        check_grad(self, grad)
    extra_of(self).grad = grad


def delete_grad(self: Tensor) -> None:
    extra_of(self).grad = None


def check_grad(self: Tensor, grad: Array) -> None:
    """Raise unless `grad` can be the gradient of the tensor."""
    if not isinstance(grad, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}")
    if grad is self:
        raise RuntimeError("can't assign Variable as its own grad")
    wanted = grad_dtype_of(self)
    if wanted is not None and grad._array.dtype != wanted:
        explicit = self._extra is not None and self._extra.grad_dtype is not ...
        if explicit:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{grad._array.dtype}' to a tensor with grad_dtype "
                f"'{dtypes.SCALAR_NAMES[wanted]}' ({wanted}). The gradient must match the tensor's grad_dtype."
            )
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{grad._array.dtype}' to a tensor with dtype "
            f"'{self._array.dtype}' (incompatible tensor type). Convert the gradient first."
        )
    if grad._xp is not self._xp:
        raise RuntimeError(
            f"attempting to assign a gradient located on device '{grad.device}' to a tensor located on device "
            f"'{self.device}'. Move the gradient first."
        )
    if grad._array.shape != self._array.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(grad._array.shape)}' to a tensor of size "
            f"'{list(self._array.shape)}'. Please ensure that the gradient and the tensor are the same size"
        )


def get_grad_dtype(self: Tensor) -> DType | None:
    """The dtype that `.grad` is kept in; None for any."""
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    found = grad_dtype_of(self)
    return None if found is None else dtypes.public(found)


def set_grad_dtype(self: Tensor, dtype: DType | None) -> None:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    extra = extra_of(self)
    if extra.grad is not None and dtype is not None and extra.grad._array.dtype != dtype:
        raise RuntimeError(
            f"Cannot set grad_dtype to {dtype} because there is already a gradient of dtype {extra.grad._array.dtype}. "
            "Clear or convert the gradient first."
        )
    extra.grad_dtype = dtype
    refresh_accumulate_node(self)


# ---- graph


def refuse_deletion(self: Tensor) -> None:
    """The deleter of attributes that a tensor always has."""
    raise RuntimeError("this attribute of a Tensor cannot be deleted")


def get_volatile(self: Tensor) -> bool:
    """False: a name from before `no_grad`."""
    warnings.warn("volatile was removed (Variable.volatile is always False): use no_grad()", stacklevel=2)
    return False


def set_volatile(self: Tensor, volatile: bool) -> None:
    warn_of_volatile()


def get_grad_fn(self: Tensor) -> Node | None:
    """The node that will be given its gradient, if it is the result of recorded operations; None for a leaf."""
    edge = current_edge(self)
    return None if edge is None or edge is LEAF else edge[0]


def detach(self: Tensor) -> Tensor:
    """The same data without history; memory and version counter are shared.

    >>> import undertow as ut
    >>> ut.ones(1, requires_grad=True).detach().requires_grad
    False
    """
    intercept = current().intercept
    if not isinstance(intercept, Interceptor):
        return detached(self)
    alias = intercept.detach(detach, detached, self)
    tell_of_cut(alias, self)
    return alias


def tell_of_cut(alias: Tensor, tensor: Tensor) -> None:
    """Tell whoever stands below all transformations of a tensor without the history of another."""
    ground = current().ground
    if isinstance(ground, Interceptor):
        while type(alias) is BatchedTensor and type(tensor) is BatchedTensor:
            alias, tensor = alias._value, tensor._value
        ground.cut_off(alias, tensor)


def detached(tensor: Tensor) -> Tensor:
    """`detach` for the library's own ends: operation modes are not shown it."""
    if type(tensor) is BatchedTensor:
        return BatchedTensor(detached(tensor._value), tensor._dim, tensor._level)
    return of_its_class(without_history(tensor), tensor)


def of_its_class(alias: Tensor, tensor: Tensor) -> Tensor:
    """A new alias of a tensor, as one of its class."""
    return alias if not SUBCLASSES or type(tensor) is Tensor else as_class(alias, class_of((tensor,)))


def detach_(self: Tensor) -> Tensor:
    """Cut the tensor off from its history, in place."""
    if type(self) is BatchedTensor:
        detach_(self._value)
        return self
    if self._extra is not None and self._extra.view is not None:
        raise RuntimeError(
            "Can't detach views in-place: use detach() instead. If you are using DistributedDataParallel (DDP) for "
            "training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets."
        )
    if self._edge is not None and self._edge is not LEAF:
        counter_of(self)  # makes the nodes that saved this tensor look at it more closely
        extra_of(self).detached_at = next_sequence_nr()
    self._edge = None
    if self._extra is not None and self._extra.tangents is not None:
        self._extra.tangents.clear()
    return self


def get_data(self: Tensor) -> Tensor:
    """The tensor's data as a tensor that shares memory, but neither history nor version counter."""
    if type(self) is BatchedTensor:
        return BatchedTensor(get_data(self._value), self._dim, self._level)
    alias = Tensor(self._array, self._xp)
    if self._extra is not None and self._extra.inference:
        alias._extra = INFERENCE_EXTRA
    tell_of_cut(alias, self)
    return of_its_class(alias, self)


def set_data(self: Tensor, source: Array) -> None:
    if not isinstance(source, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(source).__name__}")
    if self._edge is not None and not dtypes.is_differentiable(source._array.dtype):
        raise RuntimeError(
            "data set to a tensor that requires gradients must be floating point or complex dtype, but got "
            f"{source._array.dtype}"
        )
    if form_of(self).layout != form_of(source).layout:
        raise RuntimeError(
            "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: "
            f"one is {form_of(self).layout} and one is {form_of(source).layout}. Call to_dense() or to_sparse() first."
        )
    counter_of(self)  # it belongs to the tensor and stays; and makes the nodes that saved this tensor look at it
    extra = extra_of(self)
    if source._array is not self._array:
        extra_of(self if extra.view is None else extra.view.base).moved = True
    if source._array.shape != self._array.shape:
        extra.resized_at = next_sequence_nr()
        if self._edge is LEAF:
            keep_former(self, "an assignment to .data")
    self._array = source._array
    self._xp = source._xp
    refresh_accumulate_node(self)


def get_base(self: Tensor) -> Tensor | None:
    return self._extra.view.base if self._extra is not None and self._extra.view is not None else None


def is_inference(self: Tensor) -> bool:
    """Whether the tensor was made in inference mode, and so can never be recorded.

    >>> import undertow as ut
    >>> with ut.inference_mode():
    ...     x = ut.ones(1)
    >>> x.is_inference()
    True
    """
    return self._extra is not None and self._extra.inference


# ---- hooks


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call `hook(grad)` whenever the tensor's gradient is computed; what it returns, if not None, takes its place.

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> x.sum().backward()
    >>> x.grad
    tensor([10., 10.])
    """
    if not requires_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return add_hook(tensor_hooks_of(self), hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call `hook(tensor)` each time a gradient has been added to the leaf's `.grad`.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> _ = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
    >>> (2 * x).sum().backward()
    tensor([2.])
    """
    if not requires_grad(self):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    extra = extra_of(self)
    if extra.post_accumulate_hooks is None:
        extra.post_accumulate_hooks = OrderedDict()
    return add_hook(extra.post_accumulate_hooks, hook)


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of a tensor that is not a leaf in its `.grad`, too.

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> y = 2 * x
    >>> y.retain_grad()
    >>> (3 * y).sum().backward()
    >>> y.grad
    tensor([3.])
    """
    edge = current_edge(self)
    if not requires_grad(self):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if edge is None or edge is LEAF:
        return
    retain_at(edge, self)


def get_retains_grad(self: Tensor) -> bool:
    """Whether `retain_grad()` was called: backward passes then store `.grad`, though it is no leaf."""
    # the edge as it was recorded: this asks nothing of a view that may no longer be used
    return self._extra is not None and self._extra.retains_grad and self._edge is not None and self._edge is not LEAF


def get_backward_hooks(self: Tensor) -> Any:
    edge = current_edge(self)
    if edge is None or edge is LEAF:
        return None if self._extra is None else self._extra.hooks
    hooks = None if edge[0].extra is None else edge[0].extra.hooks
    return None if hooks is None else hooks.tensor.get(edge[1])


def get_post_accumulate_hooks(self: Tensor) -> Any:
    return None if self._extra is None else self._extra.post_accumulate_hooks


def set_backward_hooks(self: Tensor, hooks: Any) -> None:
    edge = current_edge(self)
    if edge is None or edge is LEAF:
        extra_of(self).hooks = hooks
    elif hooks is None:
        hooks_of(edge[0]).tensor.pop(edge[1], None)
    else:
        hooks_of(edge[0]).tensor[edge[1]] = hooks


def register_node_hook(self: Node, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(grad_inputs, grad_outputs)` after the node has run; it may return replacements of grad_inputs."""
    return add_hook(hooks_of(self).post, hook)


def register_node_prehook(self: Node, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(grad_outputs)` before the node runs; it may return replacements."""
    return add_hook(hooks_of(self).pre, hook)


def register_node_hook_dict(self: Node, tensor: Tensor) -> None:
    """Run the hooks in `tensor._backward_hooks` on the tensor's gradient, also those added to it later."""
    hooks = get_backward_hooks(tensor)
    if hooks is not None:
        hooks_of(self).tensor.setdefault(tensor.output_nr, hooks)
