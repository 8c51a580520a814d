"""Calling a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def functional_call(
    module: Any,
    parameters_and_buffers: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs), with tensors in the place of the parameters and buffers of these dotted names.

    strict  every parameter and buffer must be given

    >>> import undertow as ut
    >>> layer = ut.nn.Linear(2, 1, bias=False)
    >>> weight = ut.tensor([[1.0, 2.0]], requires_grad=True)
    >>> ut.nn.utils.stateless.functional_call(layer, {"weight": weight}, ut.ones(2)).item()
    3.0
    """
    given = parameters_and_buffers
    tensors = dict(given) if isinstance(given, Mapping) else {k: v for part in given for k, v in part.items()}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with other_tensors(module, tensors, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def other_tensors(module: Any, tensors: dict[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    unknown, missing = sorted(set(tensors) - set(own)), sorted(set(own) - set(tensors))
    if unknown or (strict and missing):
        raise RuntimeError(f"functional_call: unexpected key(s) {unknown}, missing key(s) {missing}")
    if tie_weights:
        by_id = {id(own[name]): tensor for name, tensor in tensors.items()}
        tensors = {
            name: tensors.get(name, by_id.get(id(t))) for name, t in own.items() if name in tensors or id(t) in by_id
        }
    places = [(*place_of(module, name), tensor) for name, tensor in tensors.items()]
    former = [(members, name, members[name]) for members, name, _ in places]
    try:
        for members, name, tensor in places:
            members[name] = tensor
        yield
    finally:
        for members, name, tensor in former:
            members[name] = tensor


def place_of(module: Any, target: str) -> tuple[Any, str]:
    """The dictionary of members that a dotted name leads to, and the name in it."""
    path, _, name = target.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if name in owner._parameters else owner._buffers), name
