"""Arrays, devices and dtypes: the only room that imports an array library."""

import sys

from undertow.backend import dtypes as dtypes

# With the rest, not when first used: a signal handler or the child of a fork may come in the middle of an import.
from undertow.backend import simulated as simulated
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
    if type(device) is not Device:
        if device == "cpu":
            return cpu
        device = Device(device)
    if device.type == "cpu":
        return cpu
    if device.type == "sim":
        return simulated.namespace(device)
    if device.type == "meta":
        return meta_namespace()
    from undertow.backend import cuda  # most programs ask for none, and it is large

    return cuda.namespace(device)


def namespace_of_array(array: object) -> ArrayNamespace:
    """The array functions of the device that an array lies on."""
    return getattr(array, "namespace", cpu)


def meta_namespace() -> ArrayNamespace:
    """The array functions of the meta device, which are loaded when it is first used."""
    global _meta
    if _meta is None:
        from undertow.backend import meta

        _meta = meta.namespace()
    return _meta


_meta: ArrayNamespace | None = None


def send_to_devices(behind_pass: bool = False) -> None:
    """Send what devices were asked for, where it is written down first: at the end of a pass, and of a step.

    behind_pass  a few launches may wait for those of a step, if the device has something to do
    """
    cuda = sys.modules.get("undertow.backend.cuda")
    if cuda is not None and cuda._namespaces:
        cuda.flush(behind_pass)


def devices_in_use() -> bool:
    """Whether any device but the CPU has ever been used."""
    cuda = sys.modules.get("undertow.backend.cuda")
    return _meta is not None or bool(simulated._namespaces) or (cuda is not None and bool(cuda._namespaces))


def gpus_in_use() -> list[ArrayNamespace]:
    """The array functions of the GPUs that have been used."""
    cuda = sys.modules.get("undertow.backend.cuda")
    return [] if cuda is None else [space for _, space in sorted(cuda._namespaces.items())]
