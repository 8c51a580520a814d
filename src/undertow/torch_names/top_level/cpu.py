"""What programs ask about the CPU as a device: there is one, and it has done everything when a call returns."""

from undertow.torch_names.absent_device import Event as Event
from undertow.torch_names.absent_device import Stream as Stream
from undertow.torch_names.absent_device import current_allocated_memory as current_allocated_memory
from undertow.torch_names.absent_device import current_device as current_device
from undertow.torch_names.absent_device import current_stream as current_stream
from undertow.torch_names.absent_device import empty_cache as empty_cache
from undertow.torch_names.absent_device import is_bf16_supported as is_bf16_supported
from undertow.torch_names.absent_device import manual_seed as manual_seed
from undertow.torch_names.absent_device import manual_seed_all as manual_seed_all
from undertow.torch_names.absent_device import max_memory_allocated as max_memory_allocated
from undertow.torch_names.absent_device import memory_allocated as memory_allocated
from undertow.torch_names.absent_device import memory_reserved as memory_reserved
from undertow.torch_names.absent_device import set_device as set_device
from undertow.torch_names.absent_device import stream as stream
from undertow.torch_names.absent_device import synchronize as synchronize


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def is_initialized() -> bool:
    return True
