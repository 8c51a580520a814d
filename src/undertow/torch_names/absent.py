"""What stands for modules of PyTorch that undertow does not have: they can be imported, and say so when they are used.

A library that imports `torch.distributed.fsdp` for the few who train on many GPUs runs for all others.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from undertow.torch_names.missing import BELOW, INSTEAD


class AbsentError(NotImplementedError):
    """Something of PyTorch that undertow does not have was used."""


def explanation(path: str) -> str:
    """What to say of `torch.onnx.export`, with what to do instead of it."""
    parts = path.split(".")[1:]
    for count in range(len(parts), 0, -1):
        module, name = ".".join(parts[: count - 1]), parts[count - 1]
        reason = BELOW.get(module, {}).get(name) or INSTEAD.get(f"{module}.{name}".lstrip("."))
        if reason:
            return f"undertow, which stands for PyTorch here, does not have {path}: {reason}"
    return (
        f"undertow, which stands for PyTorch here, does not have {path}: leave out the part of the program "
        "that uses it, or run that part with PyTorch."
    )


class AbsentClass(type):
    """The class of a name that was asked of an absent module: nothing is one of it, and calling it raises.

    A name may be anything, and a class does for most of what a program does with names before it uses them: it tells
    whether something is an instance, derives from it, annotates, or takes an attribute of it as a default.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AbsentError(explanation(cls.__absent__))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith(("__", "pytest")):
            raise AttributeError(name)
        return absent(f"{cls.__absent__}.{name}")

    def __instancecheck__(cls, instance: object) -> bool:
        return False

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls in getattr(subclass, "__mro__", ())

    def __iter__(cls) -> NoReturn:
        raise AbsentError(explanation(cls.__absent__))

    def __bool__(cls) -> bool:
        return True

    def __or__(cls, other: Any) -> Any:  # of annotations
        return Any

    __ror__ = __or__

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __repr__(cls) -> str:
        return f"<{cls.__absent__}, which undertow does not have>"


def absent(path: str) -> Any:
    """What stands for a name of an absent module."""
    module, _, name = path.rpartition(".")
    return AbsentClass(name, (), {"__absent__": path, "__module__": module})


class AbsentModule(ModuleType):
    """A module that PyTorch has and undertow has not."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name}, which undertow does not have.")
        self.__path__: list[str] = []
        self.__all__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "pytest")):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = absent(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, which undertow does not have>"
