"""What programs ask to find the fastest device: a GPU, if there is one. See also cuda.py."""

from __future__ import annotations

from typing import Any

from undertow import cuda
from undertow.backend import Device


def is_available() -> bool:
    """Whether there is a device beside the CPU (and simulated ones, which are for tests).

    >>> import undertow as ut
    >>> device = ut.accelerator.current_accelerator().type if ut.accelerator.is_available() else "cpu"
    >>> device in ("cpu", "cuda")
    True
    """
    return cuda.is_available()


def device_count() -> int:
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device to compute on, or None."""
    return Device("cuda") if is_available() else None


def current_device_index() -> int:
    """The number of the device that "cuda" stands for."""
    return cuda.current_device()


def set_device_index(device: Device | str | int) -> None:
    """Make a device the one that "cuda" stands for."""
    cuda.set_device(device)


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait until a device has done everything that it was given."""
    cuda.synchronize(device)


def current_stream(device: Device | str | int | None = None) -> Any:
    """The stream that this thread's work on a device goes to."""
    return cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """Let this thread's work on a device go to a stream from now on."""
    cuda.set_stream(stream)


def empty_cache() -> None:
    """Give back memory of devices that is kept for later."""
    cuda.empty_cache()


current_device_idx, set_device_idx = current_device_index, set_device_index
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
memory_stats, reset_peak_memory_stats = cuda.memory_stats, cuda.reset_peak_memory_stats
