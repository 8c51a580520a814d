"""GPUs: whether there is one, waiting for it, its memory. Tensors get there by `device="cuda"`; see docs/cuda.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.torch_names import missing, module_aliases

if TYPE_CHECKING:
    from undertow.backend.cuda.streams import Stream
    from undertow.backend.interface import Array, Device
    from undertow.tensor import Tensor


def _backend() -> Any:
    return import_module("undertow.backend.cuda.device")  # when a program asks, and not with undertow


def is_available() -> bool:
    """Whether tensors can be put on a GPU, so that `"cuda" if ut.cuda.is_available() else "cpu"` is a device.

    >>> import undertow as ut
    >>> ut.device("cuda" if ut.cuda.is_available() else "cpu").type in ("cpu", "cuda")
    True
    """
    return device_count() > 0


def device_count() -> int:
    """How many GPUs tensors can be put on: `cuda:0`, `cuda:1`, ...

    Example: `ut.cuda.device_count()`
    """
    return int(_backend().count()) if _backend().reason() is None else 0


def is_initialized() -> bool:
    """Whether a tensor has been on a GPU.

    Example: `ut.cuda.is_initialized()`
    """
    return bool(import_module("undertow.backend").devices_in_use()) and bool(_backend().is_ready())


def _index(device: Device | str | int | None = None) -> int:
    """The number of a GPU; RuntimeError if there is none, or not that one."""
    from undertow.backend.interface import Device

    why = _backend().reason()
    if why is not None:
        raise RuntimeError(f"No CUDA GPUs are available: {why} Ask undertow.cuda.is_available() first.")
    if isinstance(device, int):
        index = device if device >= 0 else _backend().current()
    else:
        asked = Device("cuda") if device is None else Device(device)
        if asked.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {asked}")
        index = _backend().current() if asked.index is None else asked.index
    import_module("undertow.backend").namespace_of(Device("cuda", index))
    return int(index)


def _extension(device: Device | str | int | None = None) -> Any:
    """What drives GPUs, at work on one of them."""
    index, extension = _index(device), _backend().extension()
    extension.enter(index)
    return extension


def current_device() -> int:
    """The number of the GPU that "cuda" stands for.

    Example: `ut.cuda.current_device()`
    """
    return _index()


def set_device(device: Device | str | int) -> None:
    """Make a GPU the one that "cuda" stands for.

    Example: `ut.cuda.set_device(0)`
    """
    _backend().choose(_index(device))


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait until the GPU has done everything that it was given, and raise what has gone wrong there.

    Example: `ut.cuda.synchronize()`
    """
    _extension(device).synchronize()


def get_device_name(device: Device | str | int | None = None) -> str:
    """What the GPU's maker calls it.

    Example: `ut.cuda.get_device_name(0)`
    """
    return str(_backend().properties(_index(device))["name"])


def get_device_capability(device: Device | str | int | None = None) -> tuple[int, int]:
    """The GPU's generation: (9, 0) is Hopper.

    Example: `ut.cuda.get_device_capability(0)`
    """
    found = _backend().properties(_index(device))
    return found["major"], found["minor"]


def get_device_properties(device: Device | str | int | None = None) -> Any:
    """The GPU's `name`, `major`, `minor`, `total_memory` in bytes and `multi_processor_count`.

    Example: `ut.cuda.get_device_properties(0).total_memory`
    """
    from types import SimpleNamespace
    from uuid import UUID

    found = dict(_backend().properties(_index(device)))
    found["uuid"] = UUID(bytes=found["uuid"])
    return SimpleNamespace(**found)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be used on a GPU: it is computed in float32.

    including_emulation  accepted, without effect

    Example: `ut.cuda.is_bf16_supported()`
    """
    return is_available()


def device(device: Device | str | int | None) -> Any:
    """A context in which a GPU is the one that "cuda" stands for; -1 and None stand for none.

    >>> import undertow as ut
    >>> if ut.cuda.is_available():
    ...     with ut.cuda.device(0):
    ...         assert ut.ones(2, device="cuda").device.index == 0
    """
    leaves = device is None or (isinstance(device, int) and device < 0)
    return _backend().chosen(None if leaves else _index(device))


# ---- memory


def _memory(device: Device | str | int | None = None) -> dict[str, int]:
    """The numbers of the allocator; zeros where no GPU is used."""
    if not is_initialized():
        return dict.fromkeys(("allocated", "reserved", "most_allocated", "most_reserved"), 0)
    found: dict[str, int] = _extension(device).memory_stats()
    return found


def memory_allocated(device: Device | str | int | None = None) -> int:
    """The bytes of tensors on a GPU.

    Example: `ut.cuda.memory_allocated()`
    """
    return _memory(device)["allocated"]


def max_memory_allocated(device: Device | str | int | None = None) -> int:
    """The most bytes that tensors had on a GPU, since the start or `reset_peak_memory_stats`.

    Example: `ut.cuda.max_memory_allocated()`
    """
    return _memory(device)["most_allocated"]


def memory_reserved(device: Device | str | int | None = None) -> int:
    """The bytes that are kept for tensors on a GPU.

    Example: `ut.cuda.memory_reserved()`
    """
    return _memory(device)["reserved"]


def max_memory_reserved(device: Device | str | int | None = None) -> int:
    """The most bytes that were kept for tensors on a GPU.

    Example: `ut.cuda.max_memory_reserved()`
    """
    return _memory(device)["most_reserved"]


def reset_peak_memory_stats(device: Device | str | int | None = None) -> None:
    """Let `max_memory_allocated` and `max_memory_reserved` begin anew.

    Example: `ut.cuda.reset_peak_memory_stats()`
    """
    if is_initialized():
        _extension(device).reset_peak()


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats(device: Device | str | int | None = None) -> dict[str, int]:
    """What the allocator has counted, by PyTorch's names and its own; empty where no GPU is used.

    Example: `ut.cuda.memory_stats()['allocated_bytes.all.peak']`
    """
    if not is_initialized():
        return {}
    found = _memory(device)
    return {
        "allocated_bytes.all.current": found["allocated"],
        "allocated_bytes.all.peak": found["most_allocated"],
        "reserved_bytes.all.current": found["reserved"],
        "reserved_bytes.all.peak": found["most_reserved"],
        "allocation.all.allocated": found["allocations"],
        "num_alloc_retries": found["retries"],
        "num_ooms": found["out_of_memory"],
        "num_device_alloc": found["driver_allocations"],
        "blocks_held_for_streams": found["held"],
    }


def memory_stats_as_nested_dict(device: Device | str | int | None = None) -> dict[str, Any]:
    """`memory_stats` with a dict in the place of each dot.

    Example: `ut.cuda.memory_stats_as_nested_dict()['allocated_bytes']`
    """
    nested: dict[str, Any] = {}
    for name, number in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = number
    return nested


def memory_summary(device: Device | str | int | None = None, abbreviated: bool = False) -> str:
    """The same as text; empty where no GPU is used.

    Example: `print(ut.cuda.memory_summary())`
    """
    return "\n".join([f"{name:32} {number:>16,}" for name, number in memory_stats(device).items()])


def memory_snapshot(device: Device | str | int | None = None) -> list[dict[str, Any]]:
    """Every block of memory that is kept: its address, size, stream, and whether it is in use or for later.

    Example: `ut.cuda.memory_snapshot()`
    """
    if not is_initialized():
        return []
    return [
        {"address": address, "total_size": size, "stream": stream, "state": "inactive" if free else "active_allocated"}
        for address, size, stream, free in sorted(_extension(device).memory_blocks())
    ]


def mem_get_info(device: Device | str | int | None = None) -> tuple[int, int]:
    """The bytes of memory that a GPU has left for anybody, and all it has.

    Example: `ut.cuda.mem_get_info()`
    """
    left, total = _extension(device).free_memory()
    return int(left), int(total)


def empty_cache() -> None:
    """Give back memory of GPUs that is kept for later.

    Example: `ut.cuda.empty_cache()`
    """
    if is_initialized():
        for index in import_module("undertow.backend.cuda").namespaces_in_use():
            _extension(index).empty_cache()


def set_host_functions(mode: str) -> None:
    """What to do with array functions that have no kernel for the GPU and are computed on the host.

    "allow" computes them there, "warn" warns once for each, and "error" raises NotImplementedError with its name.

    mode  one of these words

    Example: `ut.cuda.set_host_functions('allow')`
    """
    if mode not in ("allow", "warn", "error"):
        raise ValueError(f"set_host_functions() takes 'allow', 'warn' or 'error', not {mode!r}")
    import_module("undertow.backend.cuda.tail").setting.mode = mode


def host_functions() -> dict[str, int]:
    """How often each array function has been computed on the host, because it has no kernel for the GPU.

    Example: `ut.cuda.host_functions()`
    """
    return dict(import_module("undertow.backend.cuda.tail").counts)


# ---- streams


def current_stream(device: Device | str | int | None = None) -> Stream:
    """The stream that this thread's work on a GPU goes to.

    Example: `ut.cuda.current_stream()`
    """
    found: Stream = _space(device).current_stream()
    return found


def default_stream(device: Device | str | int | None = None) -> Stream:
    """The stream that a GPU's work goes to unless another is chosen.

    Example: `ut.cuda.default_stream()`
    """
    found: Stream = _space(device).default_stream
    return found


def set_stream(stream: Stream | None) -> None:
    """Let this thread's work on a GPU go to a stream from now on; `with stream(s):` ends by itself.

    Example: `ut.cuda.set_stream(ut.cuda.default_stream())`
    """
    if stream is not None:
        _backend().choose(stream.device.index)
        streams = import_module("undertow.backend.streams")
        streams.choose_streams({**streams.chosen_streams(), stream.device: stream})


def _space(device: Device | str | int | None) -> Any:
    return import_module("undertow.backend.cuda").namespace_of_index(_index(device))


# ---- launching


def set_launch_mode(mode: str) -> None:
    """How operations are sent to the GPU.

    "queue" (the default) sends many together, and sequences that repeat themselves as CUDA graphs; "direct" sends each
    at once; "blocking" also waits for each, so that an error is raised where its operation is. CUDA_LAUNCH_BLOCKING=1
    in the environment chooses the last.

    mode  one of these words

    Example: `ut.cuda.set_launch_mode('queue')`
    """
    _extension()
    import_module("undertow.backend.cuda").set_launch_mode(mode)


def launch_stats() -> dict[str, int]:
    """How many `launches` were asked for, how often they were sent (`flushes`), and how often as a graph (`graphs`).

    `joined` of them were part of another launch.

    Example: `ut.cuda.launch_stats()`
    """
    found: dict[str, int] = _extension().launch_stats()
    return found


# ---- random numbers: each GPU draws in its own memory, and a seed gives the numbers that it gives in PyTorch


def _generator(device: Device | str | int | None = None) -> Any:
    """The default generator of a GPU."""
    return import_module("undertow.ops.random.generator").default_of(_space(device))


def manual_seed(seed: int) -> None:
    """Seed the generator of the current GPU; without a GPU nothing happens.

    seed  an integer

    Example: `ut.cuda.manual_seed(0)`
    """
    if is_available():
        _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs, also of those that are not used yet.

    seed  an integer

    Example: `ut.cuda.manual_seed_all(0)`
    """
    import_module("undertow.ops.random.generator").seed_gpus(int(seed))


def seed() -> None:
    """Seed the generator of the current GPU with a number that nobody can foresee.

    Example: `ut.cuda.seed()`
    """
    if is_available():
        _generator().seed()


def seed_all() -> None:
    """Seed the generators of all GPUs with one number that nobody can foresee.

    Example: `ut.cuda.seed_all()`
    """
    from os import urandom

    manual_seed_all(int.from_bytes(urandom(8), "little"))


def get_rng_state(device: Device | str | int | None = None) -> Tensor:
    """The state of a GPU's generator, as a tensor of bytes: PyTorch's.

    Example: `ut.cuda.get_rng_state()`
    """
    return _generator(device).get_state()


def set_rng_state(new_state: Array, device: Device | str | int | None = None) -> None:
    """Continue a GPU's generator from a state that `get_rng_state` returned.

    new_state  the state

    Example: `ut.cuda.set_rng_state(ut.cuda.get_rng_state())`
    """
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of the generators of all GPUs.

    Example: `len(ut.cuda.get_rng_state_all())`
    """
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Put back what `get_rng_state_all` returned.

    new_states  a list, a state for each GPU

    Example: `ut.cuda.set_rng_state_all(ut.cuda.get_rng_state_all())`
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def ipc_collect() -> None:
    """Give back memory of GPUs that was shared with other processes: there is none.

    Example: `ut.cuda.ipc_collect()`
    """


module_aliases.register(__name__)


def __getattr__(name: str) -> Any:
    """What fewer programs mention."""
    if name == "_initialized":
        return is_initialized()
    if not name.startswith("__"):
        found = getattr(import_module("undertow.torch_names.cuda_names"), name, None)
        if found is not None:
            return found
    raise missing.NoSuchName(name, "cuda")
