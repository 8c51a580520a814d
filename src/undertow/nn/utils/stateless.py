"""Calling a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.nn.parameter import Parameter
from undertow.scopes import Scope
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.nn.module import Module


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs), with tensors in the place of the parameters and buffers of these dotted names.

    A tensor that the module assigns to one of them during the call is put into the dictionary that was given.

    tie_weights  what is one tensor under two names stays one if a tensor is given for either
    strict       every parameter and buffer must be given, and nothing else; otherwise further tensors are attributes
                 during the call

    >>> import undertow as ut
    >>> layer = ut.nn.Linear(2, 1, bias=False)
    >>> weight = ut.tensor([[1.0, 2.0]], requires_grad=True)
    >>> ut.nn.utils.stateless.functional_call(layer, {"weight": weight}, ut.ones(2)).item()
    3.0
    """
    given = parameters_and_buffers
    tensors: Any = given if isinstance(given, Mapping) else {k: v for part in given for k, v in part.items()}
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with other_tensors(module, tensors, tie_weights, strict):
        return module(*args, **(kwargs or {}))


#: in the place of a tensor where there was none
MISSING = object()


class TensorsOfModule:
    """Some of a module's tensors as a variable (see scopes.py): a dict, by name."""

    def __init__(self, places: dict[str, tuple[Any, str]]) -> None:
        self.places = places

    def get(self) -> dict[str, Any]:
        return {name: members.get(last, MISSING) for name, (members, last) in self.places.items()}

    def set(self, tensors: dict[str, Any]) -> None:
        for name, (members, last) in self.places.items():
            if tensors[name] is MISSING:
                members.pop(last, None)
            else:
                members[last] = tensors[name]


class other_tensors(Scope):
    """Inside, a module has other tensors."""

    def __init__(self, module: Module, given: Any, tie_weights: bool, strict: bool) -> None:
        own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
        self.given_tensors = given
        self.tensors = with_ties(own, given) if tie_weights else dict(given)
        if strict:
            check_names(module, own, self.tensors)
        self.variable = TensorsOfModule({name: place_of(module, name, t) for name, t in self.tensors.items()})

    def inside(self, outer: dict[str, Any]) -> dict[str, Any]:
        return self.tensors

    def after(self, inner: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
        self.changed = {name: None if t is MISSING else t for name, t in inner.items() if name in self.given_tensors}
        return outer

    def ended(self) -> None:
        write_back(self.given_tensors, self.changed)


def _reparametrize_module(
    module: Module,
    parameters_and_buffers: Mapping[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Any:
    """Inside, a module has other tensors: what libraries use that call it several times.

    stack_weights  the order in which PyTorch puts tensors back, which makes no difference here

    >>> import undertow as ut
    >>> layer = ut.nn.Linear(2, 1, bias=False)
    >>> with ut.nn.utils.stateless._reparametrize_module(layer, {"weight": ut.ones(1, 2)}):
    ...     layer(ut.ones(2)).item()
    2.0
    """
    return other_tensors(module, parameters_and_buffers, tie_weights, strict)


def with_ties(own: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given tensors, also under the other names of those that they stand for."""
    tied: dict[int, list[str]] = {}
    for name, tensor in own.items():
        tied.setdefault(id(tensor), []).append(name)
    found = dict(given)
    for names in tied.values():
        values = [given[name] for name in names if name in given]
        if any(value is not values[0] for value in values):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. Consider using "
                "tie_weights=False"
            )
        found.update(dict.fromkeys(names, values[0]) if values else {})
    return found


def check_names(module: Module, own: dict[str, Any], tensors: dict[str, Any]) -> None:
    unknown, missing = sorted(set(tensors) - set(own)), sorted(set(own) - set(tensors))
    problems = [f"Unexpected key(s): {', '.join(map(repr, unknown))}."] if unknown else []
    problems += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
    if problems:
        lines = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{lines}")


def place_of(module: Module, target: str, tensor: Array) -> tuple[Any, str]:
    """The dictionary that a dotted name leads to, and the name in it."""
    path, _, name = target.rpartition(".")
    if not name:
        raise KeyError('tensor name can\'t be empty string ""')
    if tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of undertow.Tensor: it is given for {target}")
    owner = module.get_submodule(path)
    for members in (owner._parameters, owner._buffers):
        if name in members:
            return members, name
    if not isinstance(getattr(owner, name, tensor), Tensor):
        raise TypeError(f"attribute `{name}` of {owner._get_name()} is not an instance of undertow.Tensor")
    return (owner._parameters if isinstance(tensor, Parameter) else owner.__dict__), name


def write_back(given: Any, changed: dict[str, Any]) -> None:
    """What the module put in the place of a tensor that it was given."""
    for name, tensor in changed.items():
        if given[name] is not tensor:
            given[name] = tensor
