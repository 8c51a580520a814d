"""Names of `torch.cuda` that programs mention on machines without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from undertow.torch_names.functions import Event as Event
from undertow.torch_names.functions import OutOfMemoryError as OutOfMemoryError
from undertow.torch_names.functions import Stream as Stream


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "No CUDA GPUs are available: undertow has the CPU and simulated devices. Ask undertow.cuda.is_available() "
        "first."
    )


get_device_capability = get_device_properties = current_stream = default_stream = refuse
graph = make_graphed_callables = set_stream = refuse
mem_get_info = utilization = get_rng_state = refuse


class OfGpus:
    """A class of objects on a GPU: nothing is one of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refuse()


class CUDAGraph(OfGpus): ...


class FloatTensor(OfGpus): ...


class DoubleTensor(OfGpus): ...


class HalfTensor(OfGpus): ...


class BFloat16Tensor(OfGpus): ...


class ByteTensor(OfGpus): ...


class CharTensor(OfGpus): ...


class ShortTensor(OfGpus): ...


class IntTensor(OfGpus): ...


class LongTensor(OfGpus): ...


class BoolTensor(OfGpus): ...


class StreamContext(contextlib.nullcontext[Any]):
    """A context in which a GPU's work would be done in another order."""


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """A context in which another GPU would be the current one; -1 and None stand for none."""
    if device is not None and device != -1:
        refuse()
    yield


def device_of(obj: Any) -> Any:
    """The same for the GPU of a tensor, of which there is none."""
    return contextlib.nullcontext()


def nothing(*args: Any, **kwargs: Any) -> None:
    """There is no GPU whose memory could be counted."""


reset_peak_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = (
    nothing
)
set_per_process_memory_fraction = set_rng_state = init = seed = nothing


def memory_stats(device: Any = None) -> dict[str, Any]:
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return ""


def memory_cached(device: Any = None) -> int:
    return 0


max_memory_cached = memory_cached


def is_current_stream_capturing() -> bool:
    return False


def get_arch_list() -> list[str]:
    return []


def get_gencode_flags() -> str:
    return ""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return False


default_generators: tuple[Any, ...] = ()
has_half, has_magma = True, False
