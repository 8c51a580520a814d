"""What programs ask to find the fastest device: there is none beside the CPU. See also cuda.py."""

from __future__ import annotations

from undertow.backend import Device


def is_available() -> bool:
    """Whether there is a device beside the CPU (and simulated ones, which are for tests).

    >>> import undertow as ut
    >>> ut.accelerator.current_accelerator().type if ut.accelerator.is_available() else "cpu"
    'cpu'
    """
    return False


def device_count() -> int:
    return 0


def current_accelerator() -> Device | None:
    """The device to compute on, or None."""
    return None
