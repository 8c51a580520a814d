"""Names of `torch.cuda` that fewer programs mention, and those that load what drives GPUs: streams and events."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from undertow.backend.cuda import device as _gpus
from undertow.backend.cuda import namespace, namespace_of_index
from undertow.backend.cuda.streams import Event as Event
from undertow.backend.cuda.streams import ExternalStream as ExternalStream
from undertow.backend.cuda.streams import Stream as Stream
from undertow.backend.cuda.streams import index_of
from undertow.backend.cuda.streams import sleep as _sleep  # noqa: F401  (PyTorch's tests call it)
from undertow.backend.streams import stream as _stream
from undertow.errors import OutOfMemoryError as OutOfMemoryError
from undertow.ops.random.generator import default_of


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "undertow has no graphs to capture: sequences of launches that repeat themselves become CUDA graphs by "
        "themselves, random numbers included."
    )


graph = make_graphed_callables = refuse
utilization = refuse


class OfGpus:
    """Nothing is of this class: tensors on a GPU are of class Tensor, and `x.is_cuda` and `x.dtype` tell more."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refuse()


class CUDAGraph(OfGpus):
    """Nothing is of this class: launches that repeat become CUDA graphs by themselves."""


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
    """`with stream(s): ...`: what this thread asks of a GPU goes to the stream.

    Example: `ut.cuda.stream(ut.cuda.Stream())`
    """
    return StreamContext(stream)


def device_of(obj: Any) -> Any:
    """A context in which "cuda" stands for the GPU that a tensor is on."""
    return _gpus.chosen(obj.device.index if obj.is_cuda else None)


def nothing(*args: Any, **kwargs: Any) -> None:
    """There is nothing to count or to set."""


reset_accumulated_memory_stats = nothing
set_rng_state = seed = nothing
reset_accumulated_host_memory_stats = reset_peak_host_memory_stats = set_sync_debug_mode = nothing


def init() -> None:
    """Make the current GPU ready, which its first use does by itself."""
    namespace().here()


_lazy_init = init


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Call a function once GPUs can be used: now, or never where there are none."""
    if _gpus.reason() is None:
        callable()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used GPUs: not known before the first use, which says so."""
    return False


def _is_compiled() -> bool:
    """Whether GPUs are thought of: what drives them is always built."""
    return True


#: GPU -> what part of its memory this process may have
_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let this process have no more than a part of a GPU's memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = index_of(device)
    extension = namespace_of_index(index).here()
    most = int(fraction * _gpus.properties(index)["total_memory"])
    extension.set_memory_limit(max(most, 1) if fraction < 1 else 0)
    _fractions[index] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """What part of a GPU's memory this process may have."""
    return _fractions.get(index_of(device), 1.0)


def host_memory_stats() -> dict[str, Any]:
    """What is known of pinned memory: nothing is kept for later."""
    return {}


def get_allocator_backend() -> str:
    return "native"


def get_sync_debug_mode() -> int:
    """Whether to tell where the program waits for a GPU: no."""
    return 0


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that another library has made, by the driver's handle."""
    found: Stream = ExternalStream(data_ptr, device)
    return found


def initial_seed() -> int:
    """What the generator of the current GPU was seeded with."""
    return default_of(namespace()).initial_seed()


def is_tf32_supported() -> bool:
    """Whether the current GPU can round float32 to tf32 in products."""
    return bool(_gpus.properties(_gpus.current())["major"] >= 8)


def is_current_stream_capturing() -> bool:
    return False


def get_arch_list() -> list[str]:
    """The kinds of GPU that kernels are made for: those there are, because they are compiled at their first use."""
    found = [_gpus.properties(index) for index in range(_gpus.count())] if _gpus.reason() is None else []
    return sorted({f"sm_{each['major']}{each['minor']}" for each in found})


def get_gencode_flags() -> str:
    return ""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU sees the memory of another."""
    first, second = index_of(device), index_of(peer_device)
    for index in (first, second):
        _gpus.check(index)
    return bool(_gpus.extension().can_reach_peer(first, second))


def __getattr__(name: str) -> Any:
    """`default_generators`: those of all GPUs, which are made when a program asks for them."""
    if name == "default_generators":
        count = _gpus.count() if _gpus.reason() is None else 0
        return tuple([default_of(namespace_of_index(index)) for index in range(count)])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


has_half, has_magma = True, False
