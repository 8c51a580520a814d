"""What a call of a vmapped function does before and after it: its arguments become batches, and its outputs tensors.

The functions have PyTorch's names and arguments, and a call looks each up when it needs it: libraries replace three of
them (`torch._functorch.vmap._process_batched_inputs`, `_create_batched_inputs`, `_unwrap_batched`), so that containers
of tensors are batches as one. What is called a level here is a VmapLevel, where PyTorch has a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from undertow import pytree
from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.interceptors.stack import active, under
from undertow.autograd.vmap.level import VmapLevel
from undertow.ops import REGISTRY
from undertow.tensor import Tensor as Tensor


def _get_name(func: Any) -> str:
    if isinstance(func, functools.partial):
        return f"functools.partial({_get_name(func.func)}, ...)"
    return getattr(func, "__name__", repr(func))


# ---- before


def _process_batched_inputs(
    in_dims: Any, args: tuple[Any, ...], func: Callable[..., Any]
) -> tuple[int, list[int | None], list[Any], Any]:
    """How many examples there are, the batch dimension of each leaf of the arguments, the leaves, their structure."""
    prefix = f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, int | tuple):
        raise ValueError(
            f"{prefix}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
            f"inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_get_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
            "vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = pytree.flatten(args)
    dims = pytree.broadcast(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{prefix}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{pytree.flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    checked = [_checked_dim(prefix, leaf, dim) for leaf, dim in zip(leaves, dims, strict=True)]
    return _validate_and_get_batch_size(checked, leaves), checked, leaves, spec


def _checked_dim(prefix: str, leaf: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{prefix}Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{prefix}Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -leaf.ndim <= dim < leaf.ndim:
        raise ValueError(
            f"{prefix}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.ndim} "
            f"so expected in_dim to satisfy -{leaf.ndim} <= in_dim < {leaf.ndim}."
        )
    return dim % leaf.ndim


def _validate_and_get_batch_size(flat_in_dims: Sequence[int | None], flat_args: Sequence[Any]) -> int:
    sizes = [leaf.shape[d] for leaf, d in zip(flat_args, flat_in_dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _add_batch_dim(tensor: Tensor, in_dim: int, vmap_level: VmapLevel) -> BatchedTensor:
    return BatchedTensor(tensor, in_dim % tensor.ndim, vmap_level)


def _create_batched_inputs(
    flat_in_dims: Sequence[int | None], flat_args: Sequence[Any], vmap_level: VmapLevel, args_spec: Any
) -> Any:
    """The arguments as the function sees them."""
    leaves = [
        leaf if dim is None else BatchedTensor(leaf, dim, vmap_level)
        for leaf, dim in zip(flat_args, flat_in_dims, strict=True)
    ]
    return args_spec.unflatten(leaves)


# ---- after


def _unwrap_batched(
    batched_outputs: Any, out_dims: Any, vmap_level: VmapLevel, batch_size: int, func: Callable[..., Any]
) -> Any:
    """The outputs with all examples."""
    leaves, spec = pytree.flatten(batched_outputs)
    dims = pytree.broadcast(out_dims, spec)
    if dims is None and isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.kind is None:
        dims = list(out_dims)
    if dims is None:
        raise ValueError(
            f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
            f"structure of `outputs`. out_dims has structure {pytree.flatten(out_dims)[1]} but outputs has "
            f"structure {spec}."
        )
    name = _get_name(func)
    return spec.unflatten(
        [_maybe_remove_batch_dim(name, o, vmap_level, batch_size, d) for o, d in zip(leaves, dims, strict=True)]
    )


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: VmapLevel, batch_size: int, out_dim: int | None
) -> Any:
    """An output with all examples, the batch where it was asked for."""
    if out_dim is None:
        if vmap_level.is_batched(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you "
            "mean to set out_dims= to None for output?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _remove_batch_dim(tensor: Tensor, level: VmapLevel, batch_size: int, out_dim: int) -> Tensor:
    value, at = level.unwrap(tensor)
    if at is None:
        value, at = level.front(tensor), 0
    if not -value.ndim <= out_dim < value.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-value.ndim}, {value.ndim - 1}], but got {out_dim})"
        )
    if at == out_dim % value.ndim:
        return value
    return under(active().without(level), REGISTRY["movedim"].function, value, at, out_dim)
