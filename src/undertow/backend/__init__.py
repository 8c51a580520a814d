"""Arrays, devices and dtypes: the only room that imports an array library."""

import sys
from functools import cache
from typing import Any

from undertow.backend import dtypes as dtypes
from undertow.backend.cpu import cpu as cpu
from undertow.backend.interface import ArrayNamespace as ArrayNamespace
from undertow.backend.interface import Device as Device
from undertow.backend.interface import DeviceArray as DeviceArray
from undertow.backend.interface import default_device as default_device


def namespace_of(device: object) -> ArrayNamespace:
    """The array functions of a device: a `Device`, a string such as "cpu", or None for the default device."""
    if device is None:
        default = default_device.get()
        if default is None:
            return cpu
        device = default[0]
    device = device if isinstance(device, Device) else Device(device)
    if device.type == "cpu":
        return cpu
    if device.type == "sim":
        found: ArrayNamespace = simulated_devices().namespace(device)
        return found
    if device.type == "meta":
        return meta_namespace()
    from undertow.backend import cuda  # when one is first asked for, as above

    return cuda.namespace(device)


@cache  # in the module's own hands, because nothing can be imported while the interpreter ends
def simulated_devices() -> Any:
    from undertow.backend import simulated  # when one is first asked for: most programs never do

    return simulated


def namespace_of_array(array: object) -> ArrayNamespace:
    """The array functions of the device that an array lies on."""
    return array.namespace if isinstance(array, DeviceArray) else cpu


def namespace_of_gradient(grad: object) -> ArrayNamespace:
    """The same for a gradient: an array, or a tensor (which may be one example of a batch, and show no array)."""
    found: ArrayNamespace | None = getattr(grad, "_xp", None)
    return namespace_of_array(grad) if found is None else found


def meta_namespace() -> ArrayNamespace:
    """The array functions of the meta device, which are loaded when it is first used."""
    global _meta
    if _meta is None:
        from undertow.backend import meta

        _meta = meta.namespace()
    return _meta


_meta: ArrayNamespace | None = None


def devices_in_use() -> bool:
    """Whether any device but the CPU has ever been used."""
    simulated, cuda = (sys.modules.get(f"undertow.backend.{name}") for name in ("simulated", "cuda"))
    return (
        _meta is not None
        or (simulated is not None and bool(simulated._namespaces))
        or (cuda is not None and cuda._namespace is not None)
    )
