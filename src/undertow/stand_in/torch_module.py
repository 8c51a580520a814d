"""The module that is called `torch`: undertow's names, and those few whose meaning differs.

It is a module of its own, because PyTorch's version is asked for, and because `torch.ops` is not `undertow.ops`.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from types import ModuleType
from typing import Any

import undertow
from undertow.torch_names.absent import absent
from undertow.torch_names.missing import explanation

#: the name that undertow answers to
TORCH = "torch"

#: the PyTorch that undertow follows
TORCH_VERSION = f"2.13.0+undertow{undertow.__version__}"

#: modules that are not undertow's of the same name
ELSEWHERE = {
    "_functorch.vmap": "undertow.autograd.vmap.steps",
    "nn.parallel.data_parallel": "undertow.nn.parallel",
    "nn.parallel.distributed": "undertow.nn.parallel",
    "ops": "undertow.stand_in.aten",
    "return_types": "undertow.ops.declare.return_types",
    "version": "undertow.torch_names.torch_version",
}

#: rooms of undertow's own house, which are no names of PyTorch's
ROOMS = frozenset(
    "backend compiled data demo engine errors graph interop lazy_names methods modes own_files pytree refcounts "
    "settings sim stand_in torch_names as_torch OpMode Operation".split()
)


class TorchModule(ModuleType):
    """`torch`. A name is looked up in undertow when it is first asked for, and is an attribute from then on."""

    def __init__(self) -> None:
        super().__init__(TORCH, undertow.__doc__)
        self.__version__ = torch_version()
        self.__path__: list[str] = []
        self.__file__ = undertow.__file__
        self.torch = self  # as in PyTorch, whose __init__ imports it

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [found for found in dir(self) if not found.startswith("_")]
        if name in ELSEWHERE:
            value: Any = importlib.import_module(ELSEWHERE[name])
        elif name in ROOMS:
            raise AttributeError(f"module 'torch' has no attribute {name!r}")
        else:
            try:
                value = getattr(undertow, name)
            except AttributeError:
                value = self._module(name)
            if isinstance(value, ModuleType):
                with suppress(ModuleNotFoundError):  # of modules that undertow alone has
                    value = importlib.import_module(f"{TORCH}.{name}")
        setattr(self, name, value)
        return value

    def _module(self, name: str) -> Any:
        """A module that PyTorch imports with itself, so that programs do not."""
        if name in IMPORTED_WITH_TORCH:
            return importlib.import_module(f"torch.{name}")
        if name in COMPILED:
            return absent(f"torch.{name}")
        raise AttributeError(explanation(name).replace("'undertow'", "'torch'")) from None

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(undertow), *ELSEWHERE} - ROOMS)


#: modules that are attributes of PyTorch without having been imported
IMPORTED_WITH_TORCH = frozenset(
    "_C _VF __config__ _awaits _classes _compile _custom_op _custom_ops _decomp _dispatch _dynamo "
    "_environment _export _functorch _guards _higher_order_ops _jit_internal _library _linalg_utils _lobpcg "
    "_lowrank _meta_registrations _ops _prims _prims_common _refs _sources _subclasses _tensor "
    "_tensor_str _utils _utils_internal _vmap_internals _weights_only_unpickler ao autograd compiler cpu "
    "export futures fx hub jit library mps mtia multiprocessing nested onnx optim overrides package "
    "profiler quantization quasirandom serialization signal storage testing torch_version types utils xpu".split()
)


#: classes of PyTorch's compiled parts, which programs mention in annotations
COMPILED = frozenset(
    "PyTorchFileReader PyTorchFileWriter ScriptModule ScriptFunction ScriptMethod ScriptObject CompilationUnit "
    "Graph Node Value TracingState FunctionSchema DispatchKey DispatchKeySet "
    "AnyType BoolType ClassType DeviceObjType DictType EnumType FloatType FutureType IntType InterfaceType ListType "
    "NoneType NumberType OptionalType PyObjectType RRefType StringType TensorType TupleType UnionType".split()
)


class TorchVersion(str):
    """A version that compares with strings and tuples by its numbers, as PyTorch's does.

    >>> TorchVersion("2.13.0") > "2.9"
    True
    """

    def _numbers(self, other: Any = None) -> tuple[int, ...]:
        text = self if other is None else other
        parts = text.split("+")[0].split(".") if isinstance(text, str) else [str(part) for part in text]
        numbers = []
        for part in parts:
            digits = "".join(c for c in part if c.isdigit())
            numbers.append(int(digits) if digits else 0)
        return tuple((numbers + [0, 0, 0])[: max(3, len(numbers))])

    def __lt__(self, other: Any) -> bool:
        return self._numbers() < self._numbers(other)

    def __le__(self, other: Any) -> bool:
        return self._numbers() <= self._numbers(other)

    def __gt__(self, other: Any) -> bool:
        return self._numbers() > self._numbers(other)

    def __ge__(self, other: Any) -> bool:
        return self._numbers() >= self._numbers(other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and "+" in other:
            return str.__eq__(self, other)
        return isinstance(other, (str, tuple, list)) and self._numbers() == self._numbers(other)

    __hash__ = str.__hash__


def torch_version() -> TorchVersion:
    return TorchVersion(TORCH_VERSION)


def torch_module() -> TorchModule:
    """The one module `torch`."""
    if not _made:
        _made.append(TorchModule())
    return _made[0]


_made: list[TorchModule] = []
