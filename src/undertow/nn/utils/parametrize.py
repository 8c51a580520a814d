"""Parameters that are functions of others: `module.weight` becomes f(original), and the original is what is trained."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ContextDecorator, suppress
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import DType
from undertow.modes import no_grad
from undertow.nn.layers.containers import ModuleDict, ModuleList
from undertow.nn.module import Module
from undertow.nn.parameter import Parameter
from undertow.scopes import Scope
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class Cache:
    """Values of parametrized tensors inside `cached()`, by module and name."""

    depth = 0
    values: dict[tuple[int, str], Any] = {}  # noqa: RUF012  (one for the process, as the switch is)


class _CacheDepth:
    """In how many blocks of `cached` the program is, as a variable; see scopes.py."""

    def get(self) -> int:
        return Cache.depth

    def set(self, depth: int) -> None:
        Cache.depth = depth
        if not depth:
            Cache.values.clear()


class cached(Scope, ContextDecorator):
    """Compute each parametrized tensor once inside the block, however often it is read.

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> layer.bias is layer.bias
    False
    >>> with parametrize.cached():
    ...     layer.bias is layer.bias
    True
    """

    variable = _CacheDepth()

    def inside(self, outer: int) -> int:
        return outer + 1

    def after(self, inner: int, outer: int) -> int:
        return inner - 1


def put(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The modules that make a tensor, in order, and the original(s) that they make it of.

    original  the tensor that is trained; original0, original1, ... if the first module takes several
    modules   the modules, in the order in which they are called
    unsafe    allow another shape or dtype

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> made_by = layer.parametrizations.bias
    >>> len(made_by), ut.equal(made_by(), 2 * made_by.original)
    (1, True)
    """

    def __init__(self, modules: list[Any], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        found = inverted(modules, original)
        self.is_tensor = isinstance(found, Tensor)
        self.ntensors = 1 if self.is_tensor else len(found)
        if self.is_tensor:
            self._keep_original(original, found)
        else:
            for k, part in enumerate(found):
                put(self, f"original{k}", like(original, part))
        if not unsafe:
            check_made(self(), shape, dtype)

    def _keep_original(self, original: Tensor, found: Tensor) -> None:
        if found.dtype != original.dtype:
            raise ValueError(
                f"When `right_inverse` outputs one tensor, it may not change the dtype: original is {original.dtype}, "
                f"got {found.dtype}"
            )
        with no_grad():
            original.data = found.data  # so that an optimizer that knows the tensor goes on training it
        put(self, "original", original)

    def originals(self) -> list[Any]:
        """What the first module is called with."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the original(s) so that the parametrized tensor becomes `value`."""
        with no_grad():
            for module in list(self)[::-1]:
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            found = self._checked_parts(value)
            for own, part in zip(self.originals(), found, strict=True):
                if own.shape == part.shape and own.dtype == part.dtype:
                    own.copy_(part)
                else:
                    own.data = part.data

    def _checked_parts(self, value: Tensor) -> list[Any]:
        """What the last right_inverse returned, as tensors for the originals."""
        if self.is_tensor and not isinstance(value, Tensor):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
        if not self.is_tensor and not isinstance(value, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value)}.")
        parts = [value] if self.is_tensor else list(value)
        if len(parts) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                f"length {len(parts)}."
            )
        for k, (own, part) in enumerate(zip(self.originals(), parts, strict=True)):
            if not isinstance(part, Tensor):
                raise ValueError(
                    f"`right_inverse` must return a sequence of tensors. Got element {k} of type {type(part).__name__}"
                )
            if own.dtype != part.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {part.dtype} while `original` has dtype "
                    f"{own.dtype} (Tensor {k} returned by `right_inverse` has dtype {part.dtype} while `original{k}` "
                    f"has dtype {own.dtype})"
                )
        return parts

    def forward(self) -> Any:
        first, *rest = list(self)
        made = first(*self.originals())
        for module in rest:
            made = module(made)
        return made


def inverted(modules: list[Any], original: Array) -> Any:
    """What the modules would make the original of: one tensor or several. Who cannot tell counts as the identity."""
    inverses = [module.right_inverse for module in reversed(modules) if hasattr(module, "right_inverse")]
    found = original
    with no_grad():
        for inverse in inverses:
            with suppress(NotImplementedError):
                found = inverse(found)
    if not isinstance(found, Tensor | Sequence):
        raise ValueError(
            "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
            f"{type(found).__name__}"
        )
    for k, part in enumerate([] if isinstance(found, Tensor) else found):
        if not isinstance(part, Tensor):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                f"{k} of the sequence with type {type(part).__name__}."
            )
    return found


def check_made(made: Any, shape: Sequence[int], dtype: DType) -> None:
    """A tensor that is made must be like the one it stands for."""
    if not isinstance(made, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    if made.dtype != dtype:
        raise ValueError(
            "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is "
            f"enabled: it was {dtype}, and would be {made.dtype}"
        )
    if made.shape != shape:
        raise ValueError(
            "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is "
            f"enabled: it was {list(shape)}, and would be {list(made.shape)}"
        )


def like(original: Tensor, tensor: Tensor) -> Tensor:
    """A tensor of the kind of another: a parameter if that is one."""
    tensor, wanted = tensor.detach().clone(), original.requires_grad
    return Parameter(tensor, wanted) if isinstance(original, Parameter) else tensor


# ---- the class of a parametrized module has a property for each of its tensors


def parametrized_class(base: Any) -> type:
    """A class for one module, which properties can be added to."""

    def deep_copy(self: Module, memo: dict[int, Any]) -> Any:
        made = memo.get(id(self))
        if made is None:
            made = memo[id(self)] = object.__new__(parametrized_class(base))
            made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
            for name in self.parametrizations:
                add_property(made, name)
        return made

    def refuse(self: Module, protocol: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(): save that, and "
            "parametrize again before loading it."
        )

    members = {"__module__": base.__module__, "__deepcopy__": deep_copy, "__reduce_ex__": refuse}
    return type(f"Parametrized{base.__name__}", (base,), members)


def add_property(module: Module, name: str) -> None:
    def read(self: Module) -> Any:
        made_by = self.parametrizations[name]
        if not Cache.depth:
            return made_by()
        key = id(self), name
        if key not in Cache.values:
            Cache.values[key] = made_by()
        return Cache.values[key]

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one of its tensors, is parametrized.

    tensor_name  of which tensor; None: any

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "weight")
    (True, False)
    """
    found = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Let a parameter or buffer be made by a module from now on.

    unsafe           allow another shape or dtype
    tensor_name      of which tensor
    parametrization  the module; `right_inverse`, if it has that, sets the original

    >>> import undertow as ut
    >>> class Symmetric(ut.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = ut.nn.Linear(3, 3)
    >>> layer = ut.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> ut.equal(layer.weight, layer.weight.T), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        add_to_list(module.parametrizations[tensor_name], parametrization, unsafe)
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.__class__ = parametrized_class(type(module))
            module.parametrizations = ModuleDict()
        add_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{type(module).__name__}' does not have a parameter, a buffer, or a parametrized element with "
            f"name '{tensor_name}'"
        )
    return module


def add_to_list(modules: ParametrizationList, parametrization: Module, unsafe: bool) -> None:
    """One more function after the others; the originals stay what they are."""
    if not unsafe:
        before = modules()
        made = parametrization(before)
        check_made(made, before.shape, before.dtype)
        check_inverse(parametrization, made, before)
    modules.append(parametrization)
    modules.unsafe |= unsafe


def check_inverse(parametrization: Module, made: Tensor, before: Tensor) -> None:
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(made)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    if back.dtype != before.dtype:
        raise ValueError(
            f"The tensor returned by parametrization.right_inverse must have the same dtype as {before.dtype}, which "
            f"{type(parametrization).__name__} is given. Got: {back.dtype}"
        )
    if back.shape != before.shape:
        raise ValueError(
            f"The tensor returned by parametrization.right_inverse must have the same shape as {list(before.shape)}, "
            f"which {type(parametrization).__name__} is given. Got: {list(back.shape)}"
        )


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a parametrized tensor a plain one again.

    leave_parametrized  with the value it has; otherwise with its original's
    module              whose
    tensor_name         of which tensor

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> value = layer.bias.detach()
    >>> layer = parametrize.remove_parametrizations(layer, "bias")
    >>> ut.equal(layer.bias, value), parametrize.is_parametrized(layer)
    (True, False)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {type(module).__name__} does not have a parametrization on {tensor_name}")
    modules = module.parametrizations[tensor_name]
    original = modules.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
            original = settled(original, value, modules.is_tensor)
    elif not modules.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    put(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def settled(original: Tensor, value: Tensor, is_single: bool) -> Tensor:
    if not is_single:
        return Parameter(value.detach().clone()) if isinstance(original, Parameter) else value.detach().clone()
    original.data = value.detach().clone()
    return original


def type_before_parametrizations(module: Module) -> type:
    """The class of a module as it was before it was parametrized.

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> type(layer).__name__, parametrize.type_before_parametrizations(layer).__name__
    ('ParametrizedLinear', 'Linear')
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Any, to_module: Any, tensor_name: str | None = None) -> Any:
    """Parametrize another module as this one is, with copies of its parametrizations.

    from_module, to_module  this one, and the other
    tensor_name             of which tensor; None: all

    >>> import undertow as ut
    >>> from undertow.nn.utils import parametrize
    >>> class Twice(ut.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = parametrize.register_parametrization(ut.nn.Linear(2, 1), "bias", Twice())
    >>> other = parametrize.transfer_parametrizations_and_params(layer, ut.nn.Linear(2, 1))
    >>> ut.equal(other.bias, layer.bias)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in [tensor_name] if tensor_name else list(from_module.parametrizations):
        for parametrization in from_module.parametrizations[name]:
            register_parametrization(to_module, name, copy.deepcopy(parametrization), unsafe=True)
        sources = from_module.parametrizations[name].originals()
        with no_grad():
            for own, source in zip(to_module.parametrizations[name].originals(), sources, strict=True):
                own.copy_(source)
    return to_module
