"""Modules as functions of their parameters, for the transformations: functional_call, stack_module_state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd.alias import differentiable_alias
from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.modes import no_grad
from undertow.nn.layers.normalization import BatchNorm
from undertow.nn.utils import stateless
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.nn.module import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in the place of its parameters and buffers, by their dotted names.

    tie_weights                 what is one tensor under two names stays one if a tensor is given for either
    strict                      every parameter and buffer must be given, and nothing else
    parameter_and_buffer_dicts  names and tensors: a dict, or several

    >>> import undertow as ut
    >>> from undertow.func import functional_call, grad
    >>> layer = ut.nn.Linear(2, 1, bias=False)
    >>> grad(lambda p: functional_call(layer, p, ut.ones(2)).sum())({"weight": ut.zeros(1, 2)})
    {'weight': tensor([[1., 1.]])}
    """
    given = parameter_and_buffer_dicts
    parts = [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else [given]
    for part in parts:
        if not isinstance(part, Mapping):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(part)}"
            )
    repeated = [name for name, times in Counter([name for part in parts for name in part]).items() if times > 1]
    if repeated:
        raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    tensors = parts[0] if len(parts) == 1 else parts
    return stateless.functional_call(module, tensors, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of modules of the same kind, stacked by name, and their buffers: an ensemble for `vmap`.

    models  a list of modules with the same parameters

    >>> import undertow as ut
    >>> from undertow.func import functional_call, stack_module_state, vmap
    >>> models = [ut.nn.Linear(3, 1) for _ in range(5)]
    >>> params, buffers = stack_module_state(models)
    >>> vmap(lambda p: functional_call(models[0], p, ut.ones(3)))(params).shape
    undertow.Size([5, 1])
    """
    members = list(models)
    if not members:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(type(m) is not type(members[0]) for m in members):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if any(m.training != members[0].training for m in members):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    return _stacked([dict(m.named_parameters()) for m in members]), _stacked([dict(m.named_buffers()) for m in members])


def _stacked(states: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: _new_leaf([state[name] for state in states]) for name in states[0]}


def _new_leaf(tensors: list[Any]) -> Tensor:
    """One tensor of all; a leaf that requires grad if they do."""
    if len({get_requires_grad(t) for t in tensors}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected the tensors of one name to have the same .requires_grad in all models: "
            "stacked they are one tensor, which requires grad or does not."
        )
    with no_grad():
        stacked: Tensor = REGISTRY["stack"].function(tensors)
    return differentiable_alias(stacked, connected=False) if get_requires_grad(tensors[0]) else stacked


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let every batch norm in a module use the statistics of its batch and keep none, in place; return the module.

    Running statistics are changed in place by each example, which `vmap` refuses for tensors that all examples share.

    root  the module

    >>> import undertow as ut
    >>> from undertow.func import replace_all_batch_norm_modules_
    >>> replace_all_batch_norm_modules_(ut.nn.BatchNorm1d(3)).running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
