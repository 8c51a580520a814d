"""Answers `import torch` with undertow, so that PyTorch's own autograd tests run on it unchanged.

Public names are undertow's, looked up when they are used: what undertow lacks fails the test that uses
it, with an AttributeError that says so, and no other. PyTorch's private spellings and its test tools live here
alone; `nn` and `optim` are undertow's, but for two layers whose graph the tests look at.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import math
import os
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np

import undertow

from . import _dtypes, _spelling
from . import _ops as ops
from ._legacy import typed_tensors
from ._undertow import forward, late, lookup

__version__ = "2.13.0"
__getattr__ = forward("")

inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
Tensor = late("Tensor")
Size = late("Size")
dtype = np.dtype
device = late("device")
strided, jagged = late("strided"), "jagged"
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc = (
    late("sparse_coo"),
    late("sparse_csr"),
    late("sparse_csc"),
    late("sparse_bsr"),
    late("sparse_bsc"),
)

globals().update({name: getattr(undertow, np.dtype(kind).name, np.dtype(kind)) for name, kind in _dtypes.NAMES.items()})
globals().update(typed_tensors())
_spelling.apply()


def ones(*args: Any, **kwargs: Any) -> Any:
    return undertow.ones(*args, **kwargs)


def zeros(*args: Any, **kwargs: Any) -> Any:
    return undertow.zeros(*args, **kwargs)


def randn(*args: Any, **kwargs: Any) -> Any:
    return undertow.randn(*args, **kwargs)


def rand(*args: Any, **kwargs: Any) -> Any:
    return undertow.rand(*args, **kwargs)


def tensor(*args: Any, **kwargs: Any) -> Any:
    return undertow.tensor(*args, **kwargs)


def save(value: Any, file: Any) -> None:
    """As a pickle, which tensors can be: the tests write to files of any name. (undertow.save is for trees of data.)"""
    with open(file, "wb") if isinstance(file, str | os.PathLike) else contextlib.nullcontext(file) as stream:
        pickle.dump(value, stream)


def load(file: Any, **kwargs: Any) -> Any:
    with open(file, "rb") if isinstance(file, str | os.PathLike) else contextlib.nullcontext(file) as stream:
        return pickle.load(stream)


def _unique(tensor: Any, sorted: builtins.bool = True, return_inverse: builtins.bool = False) -> Any:
    return undertow.unique(tensor, sorted=sorted, return_inverse=return_inverse)


def _unique2(tensor: Any, **kwargs: Any) -> Any:
    return undertow.unique(tensor, **kwargs)


def get_device_module(device: Any = None) -> Any:
    return cuda


cuda = undertow.cuda
xpu = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, is_bf16_supported=lambda: False)
accelerator = undertow.accelerator


# `from . import nn` would ask __getattr__ first, and find undertow's
for _name in ("_C", "_VF", "_dynamo", "_vmap_internals", "autograd", "backends", "nn", "optim", "profiler", "testing",
              "utils"):  # fmt: skip
    importlib.import_module(f"{__name__}.{_name}")
