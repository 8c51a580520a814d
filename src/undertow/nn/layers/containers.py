"""Modules and parameters in lists and dictionaries."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from undertow.nn.module import Module, indented
from undertow.nn.parameter import Parameter
from undertow.tensor import Tensor


class Numbered(Module):
    """Modules under the names '0', '1', ...: what Sequential and ModuleList have in common."""

    def _place(self, index: Any) -> int:
        index = operator.index(index)
        size = len(self._modules)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return index % size

    def _name(self, index: Any) -> str:
        return list(self._modules)[self._place(index)]

    _get_abs_string_index = _name  # as PyTorch calls it, and subclasses do

    def _refill(self, modules: Iterable[Any]) -> None:
        found = list(modules)
        self._modules.clear()
        for i, module in enumerate(found):
            self._modules[str(i)] = module

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]
        for name in names:
            del self._modules[name]
        self._refill(self._modules.values())

    def append(self, module: Any) -> Any:
        """Add a module behind the others."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Add a module before the one at `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._refill(modules)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add modules behind the others."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int = -1) -> Any:
        """Take a module out and return it."""
        module = self._modules[self._name(key)]
        del self[key]
        return module


class Sequential(Numbered):
    """Modules one after the other: the output of each is the input of the next.

    *args  the modules; or one OrderedDict of names and modules

    >>> import undertow as ut
    >>> net = ut.nn.Sequential(ut.nn.Linear(2, 4), ut.nn.ReLU(), ut.nn.Linear(4, 1))
    >>> net(ut.ones(3, 2)).shape
    undertow.Size([3, 1])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def _repeats(self, other: Any) -> int:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return other

    def __mul__(self, other: int) -> Sequential:
        """The same modules, with the same parameters, again and again."""
        return Sequential(*list(self) * self._repeats(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        return self.extend(list(self) * (self._repeats(other) - 1))


class ModuleList(Numbered):
    """A list of modules, which are registered.

    >>> import undertow as ut
    >>> len(ut.nn.ModuleList([ut.nn.Linear(2, 2), ut.nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._name(index)]

    def __iadd__(self, modules: Iterable[Any]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Any]) -> ModuleList:
        return ModuleList([*self, *other])

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add modules behind the others."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        return super().extend(modules)

    def __repr__(self) -> str:
        """Modules that look the same are shown once."""
        groups: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        if not groups:
            return f"{self._get_name()}()"
        shown = [f"  ({a}): {t}" if a == b else f"  ({a}-{b}): {b - a + 1} x {t}" for a, b, t in groups]
        return "\n".join([f"{self._get_name()}(", *map(indented, shown), ")"])


class ModuleDict(Module):
    """A dictionary of modules, which are registered; it keeps their order.

    >>> import undertow as ut
    >>> list(ut.nn.ModuleDict({"first": ut.nn.Linear(2, 2)}))
    ['first']
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out and return it.

        key  its name
        """
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping, or from pairs of name and module."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        pairs = modules.items() if isinstance(modules, Mapping | ModuleDict) else checked_pairs("ModuleDict", modules)
        for name, module in pairs:
            self[name] = module


def checked_pairs(name: str, pairs: Iterable[Any]) -> Iterator[Any]:
    for k, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{k} should be Iterable; is {type(pair).__name__}")
        found = tuple(pair)
        if len(found) != 2:
            raise ValueError(f"{name} update sequence element #{k} has length {len(found)}; 2 is required")
        yield found


def as_parameter(value: Any) -> Any:
    """Tensors become parameters in the containers below; anything else is kept as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def described(value: Any, type_name: str = "") -> str:
    if isinstance(value, Tensor):
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        return f"{kind} containing: [{type_name or value.dtype} of size {'x'.join(map(str, value.shape))}]"
    return f"Object of type: {type(value).__name__}"


def legacy_name(value: Any) -> str:
    """The type as a ParameterDict shows it, which in PyTorch is the old one: 'undertow.FloatTensor'."""
    return value.type() if isinstance(value, Tensor) else ""


class ParameterList(Module):
    """A list of parameters, which are registered; tensors put into it become parameters.

    values  what it holds at first

    >>> import undertow as ut
    >>> len(ut.nn.ParameterList([ut.ones(2), ut.zeros(3)]))
    2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def _name(self, index: Any) -> str:
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([getattr(self, str(i)) for i in range(self._size)[index]])
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter behind the others.

        value  a parameter, or a tensor, which becomes one
        """
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters behind the others.

        values  parameters, or tensors, which become parameters
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {described(value)}" for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters, which are registered; tensors put into it become parameters.

    >>> import undertow as ut
    >>> list(ut.nn.ParameterDict({"scale": ut.ones(2)}))
    ['scale']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:  # AttributeError, because that is what PyTorch raises
            raise AttributeError(f"'{self._get_name()}' object has no attribute '{key}'")
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._keys and hasattr(type(self), key):
            raise KeyError(f"attribute '{key}' already exists")
        self._keys[key] = None
        setattr(self, key, as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return [self[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return [(key, self[key]) for key in self._keys]

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter, or the default.

        key  its name
        """
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter, which is the default if there was none.

        key  its name
        """
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out and return it.

        key  its name
        """
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Take all parameters out."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Add parameters from a mapping, or from pairs of name and parameter.

        As in PyTorch, those of a plain dict are added by the order of their names: optimizers count parameters.
        """
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        if isinstance(parameters, OrderedDict | ParameterDict):
            pairs: Iterable[Any] = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = [(key, parameters[key]) for key in sorted(parameters)]
        else:
            pairs = checked_pairs("ParameterDict", parameters)
        for key, value in pairs:
            self[key] = value

    def popitem(self) -> tuple[str, Any]:
        """Take the last parameter out; its name and itself."""
        key = next(reversed(self._keys), None)
        if key is None:
            raise KeyError("popitem(): dictionary is empty")
        return key, self.pop(key)

    def copy(self) -> ParameterDict:
        """Another one, of the same parameters."""
        return ParameterDict(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another one, with the same value under all the names.

        keys     the names
        default  the value
        """
        return ParameterDict([(key, default) for key in keys])

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> ParameterDict:
        joined = ParameterDict(other)
        joined.update(self)
        return joined

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {described(value, legacy_name(value))}" for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
