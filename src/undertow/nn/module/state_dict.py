"""state_dict and load_state_dict: the parameters and buffers of a Module by dotted name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow import ops
from undertow.graph.hooks import RemovableHandle, add_hook
from undertow.modes import no_grad
from undertow.nn.module.walking import Tree
from undertow.nn.parameter import Parameter
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.nn.module import Module

#: under this name a module keeps what `get_extra_state` returned
EXTRA_STATE = "_extra_state"


class Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(Keys):
    """What load_state_dict found missing in the dictionary, and what it found no place for."""

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            f"_{super().__repr__()}" if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"
        )


class StateHooks:
    """The hooks around state_dict and load_state_dict of one module."""

    def __init__(self) -> None:
        self.save_pre: OrderedDict[int, Any] = OrderedDict()
        self.save: OrderedDict[int, Any] = OrderedDict()
        self.load_pre: OrderedDict[int, Any] = OrderedDict()
        self.load: OrderedDict[int, Any] = OrderedDict()


NO_HOOKS = StateHooks()


def place_of_hooks(own: str, kind: str) -> property:
    """A module's hooks of a kind, as an attribute; `own` is the method that gives all of them."""

    def get(self: Any) -> Any:
        return getattr(getattr(self, own)(), kind)

    def put(self: Any, hooks: Any) -> None:
        setattr(getattr(self, own)(), kind, hooks)

    return property(get, put)


class Report:
    """What a load gathers about itself."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []

    def raise_errors(self, name: str, strict: bool) -> None:
        found = self.errors
        if strict and self.unexpected:
            found = [f"Unexpected key(s) in state_dict: {quoted(self.unexpected)}. ", *found]
        if strict and self.missing:
            found = [f"Missing key(s) in state_dict: {quoted(self.missing)}. ", *found]
        if found:
            raise RuntimeError(f"Error(s) in loading state_dict for {name}:\n\t" + "\n\t".join(found))


def quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class InPlaceHook:
    """A hook that changes the state it is given, and returns nothing."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> None:
        if self.hook(*args) is not None:
            raise RuntimeError("state_dict post-hook must return None: change the dictionary it is given")


class Stateful(Tree):
    """The part of Module that writes and reads state dictionaries."""

    #: raised by a class when what it keeps changes; written to `_metadata`
    _version = 1
    _undertow_state_hooks: StateHooks = NO_HOOKS

    def _own_state_hooks(self) -> StateHooks:
        if self._undertow_state_hooks is NO_HOOKS:
            self.__dict__["_undertow_state_hooks"] = StateHooks()
        return self._undertow_state_hooks

    _state_dict_pre_hooks = place_of_hooks("_own_state_hooks", "save_pre")
    _state_dict_hooks = place_of_hooks("_own_state_hooks", "save")
    _load_state_dict_post_hooks = place_of_hooks("_own_state_hooks", "load")

    # ---- writing

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers of this module and all below it, by dotted name.

        The tensors share memory with the module's, without history (keep_vars: they are the module's).

        destination  a dict to put them into; None: a new one
        keep_vars    the tensors themselves, with their history

        >>> import undertow as ut
        >>> list(ut.nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata: dict[str, Any] = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._undertow_state_hooks.save_pre.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._undertow_state_hooks.save.values():
            result = hook(self, destination, prefix, metadata)
            destination = destination if result is None else result
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write this module's own part."""
        for name, tensor in own_state(self):
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        """Override to put anything else into the state_dict; `set_extra_state` gets it back.

        >>> import undertow as ut
        >>> class Counted(ut.nn.Module):
        ...     count = 3
        ...
        ...     def get_extra_state(self):
        ...         return self.count
        ...
        ...     def set_extra_state(self, state):
        ...         self.count = state
        >>> Counted().state_dict()
        OrderedDict([('_extra_state', 3)])
        """
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Override to take back what `get_extra_state` returned.

        state  what it returned

        >>> import undertow as ut
        >>> class Counted(ut.nn.Module):
        ...     count = 3
        ...
        ...     def get_extra_state(self):
        ...         return self.count
        ...
        ...     def set_extra_state(self, state):
        ...         self.count = state
        >>> model = Counted()
        >>> _ = model.load_state_dict({"_extra_state": 7})
        >>> model.count
        7
        """
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    # ---- reading

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copy the tensors of a state_dict into the parameters and buffers of the same names.

        Values may be tensors, NumPy arrays, or tensors of another library that NumPy can read.

        strict      names must match exactly
        assign      the tensors take the place of the module's, instead of being copied into them
        state_dict  names and values

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.load_state_dict(model.state_dict())
        <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None) or {}
        report = Report()
        load_into(self, dict(state_dict), "", metadata, assign, report)
        report.raise_errors(type(self).__name__, strict)
        return IncompatibleKeys(report.missing, report.unexpected)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Read this module's own part; a class may override it to read what an older version wrote."""
        arguments = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook, with_module in list(self._undertow_state_hooks.load_pre.values()):
            hook(self, *arguments) if with_module else hook(*arguments)
        own = dict(own_state(self))
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own.items():
            if prefix + name in state_dict:
                problem = take(self, name, tensor, prefix + name, state_dict[prefix + name], assign)
                error_msgs.extend([problem] if problem else [])
            elif strict:
                missing_keys.append(prefix + name)
        load_extra_state(self, state_dict, prefix + EXTRA_STATE, strict, missing_keys, unexpected_keys)
        if strict:
            unexpected_keys.extend(keys_without_place(self, state_dict, prefix, own))

    # ---- hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module writes its state.

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> _ = linear.register_state_dict_pre_hook(lambda module, prefix, keep_vars: print("before"))
        >>> _ = linear.state_dict()
        before
        """
        return add_hook(self._own_state_hooks().save_pre, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after the module and its children have written.

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> _ = linear.register_state_dict_post_hook(lambda module, state, prefix, metadata: print(list(state)))
        >>> _ = linear.state_dict()
        ['weight', 'bias']
        """
        return add_hook(self._own_state_hooks().save, InPlaceHook(hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`, but the hook may return another dictionary."""
        return add_hook(self._own_state_hooks().save, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, ...)` with the arguments of `_load_from_state_dict` before the module reads its state.

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> _ = linear.register_load_state_dict_pre_hook(lambda module, state, *rest: print(sorted(state)))
        >>> _ = linear.load_state_dict(linear.state_dict())
        ['bias', 'weight']
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Any:
        return add_hook(self._own_state_hooks().load_pre, (hook, with_module))  # type: ignore[arg-type]

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after a load; it may change the two lists of keys.

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> _ = linear.register_load_state_dict_post_hook(lambda module, keys: print(keys.missing_keys))
        >>> _ = linear.load_state_dict({"weight": ut.ones(1, 1)}, strict=False)
        ['bias']
        """
        return add_hook(self._own_state_hooks().load, hook)


def copy_into(own: Tensor, found: Tensor) -> None:
    with no_grad():
        own.copy_(found if found._xp is own._xp else found.to(own.device))


def own_state(module: Any) -> Iterator[tuple[str, Any]]:
    for name, tensor in module._parameters.items():
        if tensor is not None:
            yield name, tensor
    for name, tensor in module._buffers.items():
        if tensor is not None and name not in module._non_persistent_buffers_set:
            yield name, tensor


def load_into(module: Any, state: dict[str, Any], prefix: str, metadata: Any, assign: bool, report: Report) -> None:
    local = dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(state, prefix, local, True, report.missing, report.unexpected, report.errors)
    for name, child in module._modules.items():
        if child is not None:
            path = f"{prefix}{name}."
            part = {key: value for key, value in state.items() if key.startswith(path)}
            load_into(child, part, path, metadata, assign, report)
    keys = IncompatibleKeys(report.missing, report.unexpected)
    for hook in module._undertow_state_hooks.load.values():
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                "values, if incompatible_keys need to be modified, it should be done inplace."
            )


def take(module: Any, name: str, own: Tensor, key: str, found: Any, assign: bool) -> str | None:
    """Copy or assign one tensor; what went wrong, if anything did."""
    if hasattr(own, "materialize") and hasattr(found, "materialize"):
        return None  # neither has a shape yet: see lazy.py
    if not isinstance(found, Tensor):
        if not hasattr(found, "__array__"):
            return (
                f'While copying the parameter named "{key}", expected Tensor or Tensor-like object from checkpoint '
                f"but received {type(found)}"
            )
        found = ops.as_tensor(found.__array__())
    if own.ndim == 0 and found.shape == (1,):
        found = found[0]
    if found.shape != own.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {found.shape} from checkpoint, the shape in "
            f"current model is {own.shape}."
        )
    try:
        assign_tensor(module, name, own, found) if assign else copy_into(own, found)
    except Exception as error:
        return (
            f'While copying the parameter named "{key}", whose dimensions in the model are {own.shape} and whose '
            f"dimensions in the checkpoint are {found.shape}, an exception occurred : {error.args}."
        )
    return None


def assign_tensor(module: Module, name: str, own: Tensor, found: Tensor) -> None:
    if isinstance(own, Parameter):
        found = Parameter(found.detach()) if not isinstance(found, Parameter) else found
        found.requires_grad_(own.requires_grad)
    setattr(module, name, found)


def load_extra_state(
    module: Any, state: Any, key: str, strict: bool, missing: list[str], unexpected: list[str]
) -> None:
    if type(module).set_extra_state is not Stateful.set_extra_state:
        if key in state:
            module.set_extra_state(state[key])
        elif strict:
            missing.append(key)
    elif strict and key in state:
        unexpected.append(key)


def keys_without_place(module: Any, state: dict[str, Any], prefix: str, own: dict[str, Any]) -> Iterator[str]:
    for key in state:
        if key.startswith(prefix) and key != prefix + EXTRA_STATE:
            name, _, rest = key[len(prefix) :].partition(".")
            if name not in (module._modules if rest else own):
                yield key


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix, such as DataParallel's "module.", off the names of a state_dict, in place."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in [key for key in metadata if key and (key + ".").startswith(prefix)]:
        metadata[key[len(prefix) :]] = metadata.pop(key)
