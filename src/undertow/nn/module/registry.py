"""What a Module is made of: parameters, buffers and other modules, each an attribute and registered under its name.

Note [Members are attributes]: PyTorch finds `module.weight` in `__getattr__`, at a price of 400 ns a time. Here the
dictionaries `_parameters`, `_buffers` and `_modules` write through to the module's own `__dict__`, so that reading
costs what reading any attribute does. They stay the truth: `__getstate__` leaves the copies out. A class with a
`__getattr__` of its own is asked for its members, as in PyTorch: theirs are in the dictionaries alone.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from undertow.graph.hooks import RemovableHandle, add_hook
from undertow.nn.parameter import Buffer, Parameter
from undertow.tensor import Tensor
from undertow.torch_names import missing

if TYPE_CHECKING:
    from undertow.nn.module import Module

#: the dictionaries of members
KINDS = ("_parameters", "_buffers", "_modules")


class Members(dict[str, Any]):
    """Members of a module by name. See Note [Members are attributes]."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, members: Iterable[Any] = ()) -> None:
        super().__init__()
        self._owner = weakref.ref(owner)
        self.update(members)

    def _attributes(self) -> dict[str, Any]:
        """The module's own dictionary; another one if the module is gone, or its class wants to see each access."""
        owner = self._owner()
        return {} if owner is None or type(owner).__getattr__ is not Registry.__getattr__ else owner.__dict__

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._attributes()[name] = value

    def _forget(self, name: str) -> None:
        owner = self._owner()
        if owner is not None:
            owner.__dict__.pop(name, None)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._forget(name)

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self._forget(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *others: Any, **named: Any) -> None:
        for name, value in dict(*others, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Members:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class Registry:
    """The part of Module that registers what is assigned to it."""

    #: whether `__init__` goes on to the next class, for a mixin that stands after Module among the bases
    call_super_init = False

    training: bool
    _parameters: Members
    _buffers: Members
    _modules: Members
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            refuse_arguments(self, args, kwargs)
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = Members(self)
        own["_buffers"] = Members(self)
        own["_modules"] = Members(self)
        own["_non_persistent_buffers_set"] = set()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ---- assignment

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            leave_others(self, "_parameters", name, "parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Registry) and name not in self.__dict__.get("_parameters", ()):
            leave_others(self, "_modules", name, "module")
            self._modules[name] = seen_by_hooks(self, "_modules", name, value)
        elif isinstance(value, Buffer) and not is_taken(self, name):
            if name not in self.__dict__.get("_buffers", ()):
                check_name(self, "_buffers", name, "buffer")
            self.register_buffer(name, value, value.persistent)
        else:
            set_plain(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Python asks for what is not there; subclasses and programs call it for what was registered, too
        for kind in KINDS:
            if name in self.__dict__.get(kind, ()):
                return self.__dict__[kind][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{missing.of_modules(name)}")

    def __delattr__(self, name: str) -> None:
        for kind in KINDS:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    # ---- registration by name

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Add a parameter (or None, which says that there could be one).

        name   its name, without a dot
        param  a Parameter, or None

        >>> import undertow as ut
        >>> model = ut.nn.Module()
        >>> model.register_parameter("scale", ut.nn.Parameter(ut.ones(1)))
        >>> model.scale
        Parameter containing:
        tensor([1.], requires_grad=True)
        """
        check_name(self, "_parameters", name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' (undertow.nn.Parameter or None "
                "required)"
            )
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                f"express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = None if param is None else seen_by_hooks(self, "_parameters", name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state, but is not trained.

        persistent  whether it is part of the state_dict
        name        its name, without a dot

        >>> import undertow as ut
        >>> model = ut.nn.Module()
        >>> model.register_buffer("steps", ut.zeros(1))
        >>> list(model.state_dict())
        ['steps']
        """
        check_name(self, "_buffers", name, "buffer")
        if tensor is not None and not may_be_buffer(tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (undertow Tensor or None required)"
            )
        self._buffers[name] = seen_by_hooks(self, "_buffers", name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Add a child module (or None) under a name.

        name    its name, without a dot
        module  a module, or None

        >>> import undertow as ut
        >>> model = ut.nn.Module()
        >>> model.add_module("linear", ut.nn.Linear(2, 3))
        >>> model.linear
        Linear(in_features=2, out_features=3, bias=True)
        """
        if module is not None and not isinstance(module, Registry):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        check_name(self, "_modules", name, "module")
        self._modules[name] = seen_by_hooks(self, "_modules", name, module)

    def register_module(self, name: str, module: Module) -> None:
        """`add_module`.

        name    its name, without a dot
        module  a module, or None

        >>> import undertow as ut
        >>> model = ut.nn.Module()
        >>> model.register_module("linear", ut.nn.Linear(2, 3))
        >>> model.linear
        Linear(in_features=2, out_features=3, bias=True)
        """
        self.add_module(name, module)

    # ---- copying and pickling

    def __getstate__(self) -> dict[str, Any]:
        members = {name for kind in KINDS for name in self.__dict__.get(kind, ())}
        state = {name: value for name, value in self.__dict__.items() if name not in members}
        return state | {kind: dict(state[kind]) for kind in KINDS if kind in state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = self.__dict__
        own.update({name: value for name, value in state.items() if name not in KINDS})
        own.setdefault("_non_persistent_buffers_set", set())
        for kind in KINDS:
            own[kind] = Members(self, state.get(kind, ()))


def refuse_arguments(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name = type(module).__name__
    if kwargs:
        raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if args:
        raise TypeError(f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given")


def is_taken(module: Any, name: str) -> bool:
    """Whether a parameter or a module has the name; neither gives way to a buffer."""
    return name in module.__dict__.get("_parameters", ()) or name in module.__dict__.get("_modules", ())


def leave_others(module: Any, kind: str, name: str, what: str) -> None:
    """Forget what else has the name; the module must have been initialised."""
    own = module.__dict__
    if kind not in own:
        raise AttributeError(
            f"cannot assign {what} before Module.__init__() call: begin __init__ with super().__init__()"
        )
    if name not in own[kind]:
        own.pop(name, None)
    for other in KINDS:
        if other != kind:
            own[other].pop(name, None)
    module._non_persistent_buffers_set.discard(name)


def may_be_buffer(value: Any) -> bool:
    """Whether it is a tensor, or of a class that takes part in operations as one does."""
    return isinstance(value, Tensor) or hasattr(value, "__torch_function__")


def set_plain(module: Any, name: str, value: Any) -> None:
    own = module.__dict__
    if value is None or may_be_buffer(value):
        for kind in KINDS:
            if name in own.get(kind, ()) and (value is None or kind == "_buffers"):
                own[kind][name] = value if kind == "_parameters" else seen_by_hooks(module, kind, name, value)
                return
    for kind, wanted in (("_parameters", "parameter"), ("_modules", "child module"), ("_buffers", "buffer")):
        if name in own.get(kind, ()):
            classes = {"_parameters": "Parameter", "_modules": "Module", "_buffers": "Buffer, Tensor"}[kind]
            raise TypeError(
                f"cannot assign '{type(value).__name__}' as {wanted} '{name}' (undertow.nn.{classes} or None expected)"
            )
    if name in KINDS:
        value = replaced_members(module, name, value)
    object.__setattr__(module, name, value)


def replaced_members(module: Module, kind: str, members: Any) -> Members:
    """`module._parameters = {...}`."""
    if kind in module.__dict__:
        module.__dict__[kind].clear()
    return Members(module, members)


def check_name(module: Any, kind: str, name: Any, what: str) -> None:
    if kind not in module.__dict__:
        raise AttributeError(f"cannot assign {what} before Module.__init__() call")
    if not isinstance(name, str):
        raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
    if "." in name:
        raise KeyError(f'{what} name can\'t contain ".", got: "{name}"')
    if name == "":
        raise KeyError(f'{what} name can\'t be empty string ""')
    if name not in module.__dict__[kind] and hasattr(module, name):
        raise KeyError(f"attribute '{name}' already exists")


# ---- hooks on what is registered in any module

REGISTRATION_HOOKS: dict[str, OrderedDict[int, Callable[[Any, str, Any], Any]]] = {
    kind: OrderedDict() for kind in KINDS
}


def seen_by_hooks(module: Any, kind: str, name: str, value: Any) -> Any:
    """What is registered: the value, or what the last of the hooks that returned something has made of it."""
    for hook in list(REGISTRATION_HOOKS[kind].values()):
        found = hook(module, name, value)
        if found is not None:
            value = found
    return value


def register_module_parameter_registration_hook(hook: Callable[[Any, str, Any], Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` when any module registers a parameter; what it returns takes the place of it."""
    return add_hook(REGISTRATION_HOOKS["_parameters"], hook)


def register_module_buffer_registration_hook(hook: Callable[[Any, str, Any], Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when any module registers a buffer; what it returns takes the place of it."""
    return add_hook(REGISTRATION_HOOKS["_buffers"], hook)


def register_module_module_registration_hook(hook: Callable[[Any, str, Any], Any]) -> RemovableHandle:
    """Call `hook(module, name, child)` when any module registers another; what it returns takes the place of it."""
    return add_hook(REGISTRATION_HOOKS["_modules"], hook)
