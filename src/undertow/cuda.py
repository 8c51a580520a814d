"""What programs ask before they use a GPU. There is no GPU backend yet, and the answers say so."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from undertow.torch_names import module_aliases

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def is_available() -> bool:
    """Whether tensors can be put on a GPU: no, so `"cuda" if ut.cuda.is_available() else "cpu"` is the CPU.

    >>> import undertow as ut
    >>> ut.device("cuda" if ut.cuda.is_available() else "cpu")
    device(type='cpu')
    """
    return device_count() > 0


def device_count() -> int:
    """How many GPUs tensors can be put on."""
    return 0


def is_initialized() -> bool:
    return False


def manual_seed(seed: int) -> None:
    """Seed the generators of the GPUs, of which there are none; `undertow.manual_seed` seeds the CPU's."""


def manual_seed_all(seed: int) -> None:
    """Seed the generators of the GPUs, of which there are none; `undertow.manual_seed` seeds the CPU's."""


def empty_cache() -> None:
    """Give back memory of GPUs that is kept for later: there is none."""


def memory_allocated(device: Device | str | int | None = None) -> int:
    """The bytes of tensors on a GPU."""
    return 0


def max_memory_allocated(device: Device | str | int | None = None) -> int:
    """The most bytes that tensors had on a GPU."""
    return 0


def memory_reserved(device: Device | str | int | None = None) -> int:
    """The bytes that are kept for tensors on a GPU."""
    return 0


def max_memory_reserved(device: Device | str | int | None = None) -> int:
    """The most bytes that were kept for tensors on a GPU."""
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes in bfloat16."""
    return False


def seed_all() -> None:
    """Seed the generators of the GPUs, of which there are none."""


def get_rng_state_all() -> list[Any]:
    """The states of the generators of all GPUs: there is none, and `undertow.get_rng_state()` is the CPU's."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Put back what `get_rng_state_all` returned: nothing."""


def ipc_collect() -> None:
    """Give back memory of GPUs that was shared with other processes: there is none."""


def _refuse() -> NoReturn:
    raise RuntimeError(
        "No CUDA GPUs are available: undertow has the CPU and simulated devices. Ask undertow.cuda.is_available() "
        "first."
    )


def current_device() -> NoReturn:
    _refuse()


def set_device(device: Device | str | int) -> NoReturn:
    _refuse()


def get_device_name(device: Device | str | int | None = None) -> NoReturn:
    _refuse()


def synchronize(device: Device | str | int | None = None) -> NoReturn:
    _refuse()


module_aliases.register(__name__)


def __getattr__(name: str) -> Any:
    """What fewer programs mention."""
    if not name.startswith("__"):
        found = getattr(import_module("undertow.torch_names.cuda_names"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'undertow.cuda' has no attribute {name!r}")
