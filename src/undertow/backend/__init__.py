"""Arrays, devices and dtypes: the only room that imports an array library."""

import sys
from functools import cache
from typing import Any

from undertow.backend import dtypes as dtypes
from undertow.backend.cpu import cpu as cpu
from undertow.backend.interface import ArrayNamespace as ArrayNamespace
from undertow.backend.interface import Device as Device
from undertow.backend.interface import DeviceArray as DeviceArray


def namespace_of(device: object) -> ArrayNamespace:
    """The array functions of a device (a `Device`, a string such as "cpu", or None for the CPU)."""
    if device is None:
        return cpu
    device = device if isinstance(device, Device) else Device(device)
    if device.type == "cpu":
        return cpu
    if device.type == "sim":
        found: ArrayNamespace = simulated_devices().namespace(device)
        return found
    raise RuntimeError(
        f"device '{device}' is not available: this build has the CPU backend and simulated devices. Use device='cpu'."
    )


@cache  # in the module's own hands, because nothing can be imported while the interpreter ends
def simulated_devices() -> Any:
    from undertow.backend import simulated  # when one is first asked for: most programs never do

    return simulated


def namespace_of_array(array: object) -> ArrayNamespace:
    """The array functions of the device that an array lies on."""
    return array.namespace if isinstance(array, DeviceArray) else cpu


def devices_in_use() -> bool:
    """Whether any device but the CPU has ever been used."""
    simulated = sys.modules.get("undertow.backend.simulated")
    return simulated is not None and bool(simulated._namespaces)
