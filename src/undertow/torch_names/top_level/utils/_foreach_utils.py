"""Lists of tensors, sorted by what functions on lists need alike."""

from __future__ import annotations

from typing import Any


def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> dict[Any, Any]:
    """(device, dtype) of the tensors in the first list -> those at the same places of all lists, and the places."""
    groups: dict[Any, Any] = {}
    for n, tensor in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for into, values in zip(lists, tensorlistlist, strict=True):
            if values:
                into.append(values[n])
        places.append(n)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cpu"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _device_has_foreach_support(device: Any) -> bool:
    return True


def _has_foreach_support(tensors: Any, device: Any) -> bool:
    return True
