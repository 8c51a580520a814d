"""Switches that PyTorch's programs set at their top: defaults of dtype and device, precision, threads."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from undertow.backend import Device, default_device, dtypes, namespace_of
from undertow.backend.threads import get_num_threads as get_num_threads
from undertow.backend.threads import set_num_threads as set_num_threads
from undertow.ops.create.to_dtype_and_device import dtype_of_type_name
from undertow.ops.create.typed_tensors import TensorType

PRECISIONS = ("highest", "high", "medium")

_precision = "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told.

    >>> import undertow as ut
    >>> ut.get_float32_matmul_precision()
    'highest'
    """
    return _precision


def set_float32_matmul_precision(precision: str) -> None:
    """How far products of float32 may be rounded: on a GPU "high" and "medium" allow tf32. The CPU's are always exact.

    precision  "highest", "high" or "medium"

    >>> import undertow as ut
    >>> ut.set_float32_matmul_precision("high")
    >>> ut.get_float32_matmul_precision()
    'high'
    >>> ut.set_float32_matmul_precision("highest")
    """
    global _precision
    if precision not in PRECISIONS:
        warnings.warn(f"{precision} is not one of {PRECISIONS}; the call has no effect.", stacklevel=2)
        return
    _precision = precision
    import_module("undertow.backend.cuda.precision").allow_tf32_in_products(precision != "highest")


def get_default_device() -> Device:
    """The device of tensors that are made without `device=`.

    >>> import undertow as ut
    >>> ut.get_default_device()
    device(type='cpu')
    """
    default = default_device.get()
    return Device("cpu") if default is None else default[0]


def set_default_device(device: Device | str | int) -> None:
    """Where tensors are made without `device=`, in this thread; None for the CPU.

    >>> import undertow as ut
    >>> ut.set_default_device("meta")
    >>> ut.ones(2).device
    device(type='meta')
    >>> ut.set_default_device(None)
    """
    if device is not None:
        namespace_of(device)  # a device that is not there is an error now
    default_device.set(None if device is None else (Device(device), None))


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype`, by an old name of a type: FloatTensor, or "undertow.DoubleTensor".

    t  the type, or its name

    >>> import undertow as ut
    >>> ut.set_default_dtype(ut.float32)  # its newer name
    """
    warnings.warn(
        "undertow.set_default_tensor_type() is deprecated, please use undertow.set_default_dtype() instead.",
        stacklevel=2,
    )
    dtype = t.dtype if isinstance(t, TensorType) else dtype_of_type_name(t)
    if not dtypes.is_floating(dtype):
        raise TypeError("only floating-point types are supported as the default type")
    dtypes.set_default_dtype(dtype)
