"""Keeping gradients from growing too large."""

from __future__ import annotations

from typing import Any

from undertow import ops
from undertow.backend import cpu
from undertow.graph.user_lines import warn_user
from undertow.modes import no_grad
from undertow.ops.namespaces.foreach_together import changed_together, norm_together
from undertow.ops.reduce.vector_norms import vector_norm
from undertow.tensor import Tensor


def parameters_of(parameters: Any) -> list[Any]:
    if isinstance(parameters, Tensor):
        return [parameters]
    found = list(parameters)
    if not found:
        warn_user("`parameters` is an empty generator, no gradient clipping will occur.")
    return found


def get_total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors, as if they were one vector.

    tensors             tensors, or one
    norm_type           of which norm; inf takes the largest element
    error_if_nonfinite  raise if it is nan or infinite
    foreach             accepted, without effect

    >>> import undertow as ut
    >>> ut.nn.utils.get_total_norm([ut.tensor([3.0]), ut.tensor([4.0])])
    tensor(5.)
    """
    tensors, norm_type = [tensors] if isinstance(tensors, Tensor) else list(tensors), float(norm_type)
    if not tensors:
        return ops.zeros(())
    with no_grad():
        total = norm_together(tensors, norm_type)
        if total is not None:
            pass
        elif len(tensors) == 1:
            total = vector_norm(tensors[0], norm_type)
        else:
            device = tensors[0].device
            norms = [vector_norm(t, norm_type).to(device) for t in tensors]
            total = vector_norm(ops.stack(norms, 0), norm_type)
    if error_if_nonfinite and not bool(ops.isfinite(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Multiply all gradients with max_norm / total_norm, if that is below 1.

    parameters  tensors, or one, whose `.grad` counts
    max_norm    the length they have at most, then
    total_norm  what `get_total_norm` returned
    foreach     accepted, without effect

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> (5 * x).sum().backward()
    >>> ut.nn.utils.clip_grads_with_norm_([x], 1.0, ut.tensor(5.0))
    >>> x.grad
    tensor([1.0000])
    """
    grads = [p.grad for p in parameters_of(parameters) if p.grad is not None]
    with no_grad():
        factor = ops.clamp_max(max_norm / (total_norm + 1e-6), 1.0)
        if grads and changed_together("mul", grads, (factor,)):
            return
        for grad in grads:
            grad.mul_(factor if grad._xp is cpu else factor.to(grad.device))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Shorten all gradients together to max_norm, in place; returns their norm before.

    parameters          tensors, or one, whose `.grad` counts
    max_norm            the length they have at most, then
    norm_type           of which norm; inf takes the largest element
    error_if_nonfinite  raise if the norm is nan or infinite, before anything is changed
    foreach             accepted, without effect

    >>> import undertow as ut
    >>> p = ut.nn.Parameter(ut.zeros(2))
    >>> p.grad = ut.tensor([3.0, 4.0])
    >>> ut.nn.utils.clip_grad_norm_([p], 1.0).item()
    5.0
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    parameters = parameters_of(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, float(norm_type), error_if_nonfinite)
    if grads:
        clip_grads_with_norm_(parameters, float(max_norm), total)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """`clip_grad_norm_`, by the name that it had.

    *args, **kwargs  its arguments

    >>> import warnings
    >>> import undertow as ut
    >>> with warnings.catch_warnings(action="ignore"):
    ...     ut.nn.utils.clip_grad_norm([], 1.0)
    tensor(0.)
    """
    warn_user("`clip_grad_norm` is deprecated: write `clip_grad_norm_`, for it changes gradients.", FutureWarning)
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Cut off every element of the gradients at clip_value, and at its negative, in place.

    parameters  tensors, or one, whose `.grad` counts
    clip_value  the greatest absolute value
    foreach     accepted, without effect

    >>> import undertow as ut
    >>> x = ut.ones(1, requires_grad=True)
    >>> (5 * x).sum().backward()
    >>> ut.nn.utils.clip_grad_value_([x], 1.0)
    >>> x.grad
    tensor([1.])
    """
    grads = [p.grad for p in parameters_of(parameters) if p.grad is not None]
    with no_grad():
        for grad in grads:
            grad.clamp_(-clip_value, clip_value)
