"""Names of `torch.cuda` that fewer programs mention, and those that load what drives GPUs: streams and events."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from undertow.backend.cuda import device as _gpus
from undertow.backend.cuda.streams import Event as Event
from undertow.backend.cuda.streams import ExternalStream as ExternalStream
from undertow.backend.cuda.streams import Stream as Stream
from undertow.backend.cuda.streams import index_of
from undertow.backend.cuda.streams import sleep as _sleep  # noqa: F401  (PyTorch's tests call it)
from undertow.backend.streams import stream as _stream
from undertow.torch_names.functions import OutOfMemoryError as OutOfMemoryError


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "undertow has no graphs to capture: sequences of launches that repeat themselves become CUDA graphs by "
        "themselves, and its random numbers for GPUs are the CPU's."
    )


graph = make_graphed_callables = refuse
utilization = get_rng_state = refuse


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


class StreamContext(contextlib.ExitStack):
    """Send the work of this thread to a stream, and let "cuda" stand for its device; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> StreamContext:
        super().__enter__()
        if self.stream is not None:
            self.enter_context(_gpus.chosen(self.stream.device.index))
            self.enter_context(_stream(self.stream))
        return self


def stream(stream: Any) -> StreamContext:
    """`with stream(s): ...`: what this thread asks of a GPU goes to the stream."""
    return StreamContext(stream)


def device_of(obj: Any) -> Any:
    """A context in which "cuda" stands for the GPU that a tensor is on."""
    return _gpus.chosen(obj.device.index if obj.is_cuda else None)


def nothing(*args: Any, **kwargs: Any) -> None:
    """There is nothing to count or to set."""


reset_accumulated_memory_stats = nothing
set_per_process_memory_fraction = set_rng_state = init = seed = nothing


def is_current_stream_capturing() -> bool:
    return False


def get_arch_list() -> list[str]:
    return []


def get_gencode_flags() -> str:
    return ""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU sees the memory of another."""
    first, second = index_of(device), index_of(peer_device)
    for index in (first, second):
        _gpus.check(index)
    return bool(_gpus.extension().can_reach_peer(first, second))


default_generators: tuple[Any, ...] = ()
has_half, has_magma = True, False
