"""Names of `torch.cuda` that fewer programs mention; of streams and graphs there are none yet."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from undertow.torch_names.functions import Event as Event
from undertow.torch_names.functions import OutOfMemoryError as OutOfMemoryError
from undertow.torch_names.functions import Stream as Stream


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "undertow has no streams, graphs and generators of GPUs yet: all work of cuda:0 goes to one stream."
    )


current_stream = default_stream = refuse
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


def device_of(obj: Any) -> Any:
    """The same for the GPU of a tensor."""
    return contextlib.nullcontext()


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
    return False


default_generators: tuple[Any, ...] = ()
has_half, has_magma = True, False
