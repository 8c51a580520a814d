"""What programs ask about a kind of device that is not there: the answers of `undertow.mps`, `mtia` and `xpu`."""

from __future__ import annotations

from typing import Any

from undertow.torch_names.functions import Event as Event
from undertow.torch_names.functions import Stream as Stream


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def is_initialized() -> bool:
    return False


def current_device() -> str:
    return "cpu"


def set_device(device: Any) -> None:
    """There is nothing to choose."""


def synchronize(device: Any = None) -> None:
    """Everything is done."""


def empty_cache() -> None:
    """Nothing is kept."""


def manual_seed(seed: int) -> None:
    """`undertow.manual_seed` seeds the CPU's generator."""


manual_seed_all = manual_seed


def current_stream(device: Any = None) -> Stream:
    return Stream()


def stream(stream: Any) -> Any:
    return stream


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = current_allocated_memory = memory_allocated
