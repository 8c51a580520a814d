"""GPUs: whether there is one, waiting for it, its memory. Tensors get there by `device="cuda"`; see docs/cuda.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.torch_names import module_aliases

if TYPE_CHECKING:
    from undertow.backend.interface import Device


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
    """How many GPUs tensors can be put on: one, `cuda:0`, or none."""
    return int(_backend().reason() is None)


def is_initialized() -> bool:
    """Whether a tensor has been on a GPU."""
    return bool(import_module("undertow.backend").devices_in_use()) and bool(_backend().is_ready())


def _extension(device: Device | str | int | None = None) -> Any:
    """What drives the GPU; RuntimeError if there is none, or not that one."""
    from undertow.backend.interface import Device

    why = _backend().reason()
    if why is not None:
        raise RuntimeError(f"No CUDA GPUs are available: {why} Ask undertow.cuda.is_available() first.")
    asked = Device("cuda", device) if isinstance(device, int) else None if device is None else Device(device)
    if asked is not None and (asked.type != "cuda" or asked.index not in (None, 0)):
        raise RuntimeError(f"invalid device ordinal: '{asked}'. undertow uses the first GPU, cuda:0, alone.")
    import_module("undertow.backend").namespace_of("cuda")
    return _backend().extension()


def current_device() -> int:
    """The number of the GPU that "cuda" stands for."""
    _extension()
    return 0


def set_device(device: Device | str | int) -> None:
    """Make a GPU the one that "cuda" stands for; there is one."""
    _extension(device)


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait until the GPU has done everything that it was given, and raise what has gone wrong there."""
    _extension(device).synchronize()


def get_device_name(device: Device | str | int | None = None) -> str:
    """What the GPU's maker calls it."""
    _extension(device)
    return str(_backend().properties()["name"])


def get_device_capability(device: Device | str | int | None = None) -> tuple[int, int]:
    """The GPU's generation: (9, 0) is Hopper."""
    _extension(device)
    found = _backend().properties()
    return found["major"], found["minor"]


def get_device_properties(device: Device | str | int | None = None) -> Any:
    """The GPU's `name`, `major`, `minor`, `total_memory` in bytes and `multi_processor_count`."""
    from types import SimpleNamespace

    _extension(device)
    return SimpleNamespace(**_backend().properties())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be used on a GPU: it is computed in float32."""
    return is_available()


@contextlib.contextmanager
def device(device: Device | str | int | None) -> Iterator[None]:
    """A context in which a GPU is the one that "cuda" stands for; -1 and None stand for none."""
    if device is not None and device != -1:
        set_device(device)
    yield


# ---- memory


def _memory(device: Device | str | int | None = None) -> dict[str, int]:
    """The numbers of the allocator; zeros where no GPU is used."""
    if not is_initialized():
        return dict.fromkeys(("allocated", "reserved", "most_allocated", "most_reserved"), 0)
    found: dict[str, int] = _extension(device).memory_stats()
    return found


def memory_allocated(device: Device | str | int | None = None) -> int:
    """The bytes of tensors on a GPU."""
    return _memory(device)["allocated"]


def max_memory_allocated(device: Device | str | int | None = None) -> int:
    """The most bytes that tensors had on a GPU, since the start or `reset_peak_memory_stats`."""
    return _memory(device)["most_allocated"]


def memory_reserved(device: Device | str | int | None = None) -> int:
    """The bytes that are kept for tensors on a GPU."""
    return _memory(device)["reserved"]


def max_memory_reserved(device: Device | str | int | None = None) -> int:
    """The most bytes that were kept for tensors on a GPU."""
    return _memory(device)["most_reserved"]


def reset_peak_memory_stats(device: Device | str | int | None = None) -> None:
    """Let `max_memory_allocated` and `max_memory_reserved` begin anew."""
    if is_initialized():
        _extension(device).reset_peak()


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats(device: Device | str | int | None = None) -> dict[str, int]:
    """What the allocator has counted, by PyTorch's names and its own; empty where no GPU is used."""
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
    }


def memory_summary(device: Device | str | int | None = None, abbreviated: bool = False) -> str:
    """The same as text; empty where no GPU is used."""
    return "\n".join([f"{name:32} {number:>16,}" for name, number in memory_stats(device).items()])


def empty_cache() -> None:
    """Give back memory of the GPU that is kept for later."""
    if is_initialized():
        _extension().empty_cache()


def set_host_functions(mode: str) -> None:
    """What to do with array functions that have no kernel for the GPU and are computed on the host.

    "allow" computes them there, "warn" warns once for each, and "error" raises NotImplementedError with its name.
    """
    if mode not in ("allow", "warn", "error"):
        raise ValueError(f"set_host_functions() takes 'allow', 'warn' or 'error', not {mode!r}")
    import_module("undertow.backend.cuda.tail").setting.mode = mode


def host_functions() -> dict[str, int]:
    """How often each array function has been computed on the host, because it has no kernel for the GPU."""
    return dict(import_module("undertow.backend.cuda.tail").counts)


# ---- launching


def set_launch_mode(mode: str) -> None:
    """How operations are sent to the GPU.

    "queue" (the default) sends many together, and sequences that repeat themselves as CUDA graphs; "direct" sends each
    at once; "blocking" also waits for each, so that an error is raised where its operation is. CUDA_LAUNCH_BLOCKING=1
    in the environment chooses the last.
    """
    _extension()
    import_module("undertow.backend.cuda").set_launch_mode(mode)


def launch_stats() -> dict[str, int]:
    """How many `launches` were asked for, how often they were sent (`flushes`), and how often as a graph (`graphs`)."""
    found: dict[str, int] = _extension().launch_stats()
    return found


# ---- random numbers: those of tensors on a GPU are drawn by the CPU's generator, and copied


def manual_seed(seed: int) -> None:
    """Nothing: numbers for tensors on a GPU are drawn by the CPU's generator, which `undertow.manual_seed` seeds."""


def manual_seed_all(seed: int) -> None:
    """Nothing, as `manual_seed`."""


def seed_all() -> None:
    """Nothing, as `manual_seed`."""


def get_rng_state_all() -> list[Any]:
    """The states of the generators of all GPUs: there is none, and `undertow.get_rng_state()` is the CPU's."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Put back what `get_rng_state_all` returned: nothing."""


def ipc_collect() -> None:
    """Give back memory of GPUs that was shared with other processes: there is none."""


module_aliases.register(__name__)


def __getattr__(name: str) -> Any:
    """What fewer programs mention."""
    if not name.startswith("__"):
        found = getattr(import_module("undertow.torch_names.cuda_names"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'undertow.cuda' has no attribute {name!r}")
