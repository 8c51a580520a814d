"""`torch.ops`: operations by the names of PyTorch's dispatcher, `torch.ops.aten.add.Tensor`.

An overload is the operation itself, which finds out by its arguments what is meant.

>>> import undertow as ut
>>> with ut.as_torch():
...     import torch
...
...     torch.ops.aten.mul.Tensor(torch.ones(2), torch.ones(2))
tensor([1., 1.])
"""

from __future__ import annotations

import importlib
from typing import Any

from undertow.ops import REGISTRY
from undertow.tensor import Tensor
from undertow.torch_names.absent import absent
from undertow.torch_names.overloads import Overloads


def _to_copy(
    self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool | None = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """What `Tensor.to` calls if there is something to do: always a copy."""
    if layout is not None and layout is not self.layout:
        raise NotImplementedError(f"_to_copy from {self.layout} to {layout}: call to_dense() or to_sparse()")
    copied: Tensor = self.to(
        dtype=dtype, device=device, non_blocking=non_blocking, copy=True, memory_format=memory_format
    )
    return copied.pin_memory() if pin_memory else copied


#: what programs call by no name that Tensor or undertow has
OF_ATEN: dict[str, Any] = {"alias": REGISTRY["alias"].function, "_to_copy": _to_copy}


class Operators:
    """`torch.ops.aten`, or the operations that a program has defined under a name of its own (`torch.library`)."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Overloads:
        if name.startswith(("__", "pytest")):
            raise AttributeError(name)
        function = find(name) if self._namespace in ("aten", "prims") else defined_by_programs(self._namespace, name)
        if function is None and self._namespace == "aten":  # classes with __torch_dispatch__ list what they know
            function = absent(f"torch.ops.aten.{name}")
        if function is None:
            raise AttributeError(f"'_OpNamespace' {self._namespace!r} object has no attribute {name!r}")
        made = Overloads(self._namespace, name, function)
        setattr(self, name, made)
        return made


def defined_by_programs(namespace: str, name: str) -> Any:
    """What a program has defined as `namespace::name`: found again at each call, for it may get another function."""
    defined = importlib.import_module("undertow.library").DEFINED
    path = f"{namespace}::{name}"
    return (lambda *args, **kwargs: defined[path](*args, **kwargs)) if path in defined else None


def find(name: str) -> Any:
    """undertow's function of that name, wherever it is."""
    for place in ("undertow", "undertow.nn.functional", "undertow.special", "undertow.linalg", "undertow.fft"):
        for spelling in (name, name.removeprefix("special_").removeprefix("linalg_").removeprefix("fft_")):
            function = getattr(importlib.import_module(place), spelling, None)
            if callable(function):
                return function
    method = getattr(importlib.import_module("undertow").Tensor, name, None)
    if callable(method):
        return method
    return OF_ATEN.get(name)


def load_library(path: str) -> None:
    raise OSError(
        f"torch.ops.load_library({path!r}): undertow, which stands for PyTorch here, cannot use operators compiled for "
        "PyTorch. Write them as an autograd.Function."
    )


_namespaces: dict[str, Operators] = {}


def __getattr__(name: str) -> Operators:
    if name.startswith(("__", "pytest")):
        raise AttributeError(name)
    return _namespaces.setdefault(name, Operators(name))
