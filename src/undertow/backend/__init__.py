"""Arrays, devices and dtypes: the only room that imports an array library."""

from undertow.backend import dtypes as dtypes
from undertow.backend import simulated as simulated
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
        return simulated.namespace(device)
    raise RuntimeError(
        f"device '{device}' is not available: this build has the CPU backend and simulated devices. Use device='cpu'."
    )


def namespace_of_array(array: object) -> ArrayNamespace:
    """The array functions of the device that an array lies on."""
    return array.namespace if isinstance(array, DeviceArray) else cpu


def devices_in_use() -> bool:
    """Whether any device but the CPU has ever been used."""
    return bool(simulated._namespaces)
