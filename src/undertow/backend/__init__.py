"""Arrays, devices and dtypes: the only room that imports an array library."""

from undertow.backend import dtypes as dtypes
from undertow.backend.cpu import cpu as cpu
from undertow.backend.interface import ArrayNamespace as ArrayNamespace
from undertow.backend.interface import Device as Device


def namespace_of(device: object) -> ArrayNamespace:
    """The array functions of a device (a `Device`, a string such as "cpu", or None for the CPU)."""
    if device is None:
        return cpu
    device = device if isinstance(device, Device) else Device(device)
    if device.type == "cpu":
        return cpu
    raise RuntimeError(
        f"device '{device}' is not available: this build has only the CPU backend. Use device='cpu'."
    )
