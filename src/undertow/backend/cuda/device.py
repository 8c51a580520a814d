"""The device itself: the extension undertow._cuda, whether it can be used, and what is known of the GPU."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import Any


def is_emulated() -> bool:
    """Whether UNDERTOW_CUDA=emulate asks for a device whose kernels run on the CPU."""
    return os.environ.get("UNDERTOW_CUDA") == "emulate"


@functools.cache
def extension() -> Any:
    """undertow._cuda; RuntimeError where it was not built."""
    try:
        return import_module("undertow._cuda")
    except ImportError as error:
        raise RuntimeError(
            f"device 'cuda' needs the extension undertow._cuda, which is not there ({error}). It is built with "
            "undertow, by a C compiler; CUDA is not needed for that. Or use device='cpu'."
        ) from None


#: what is known of the GPU, once it was used: whether it is the emulated one -> its properties
_started: dict[bool, dict[str, Any]] = {}


def properties() -> dict[str, Any]:
    """What is known of the first GPU, which is made ready; RuntimeError if there is none."""
    wanted = is_emulated()
    if wanted not in _started:
        if _started:
            raise RuntimeError(
                "this process has used the emulated GPU, or a real one, and cannot use the other as well"
            )
        _started[wanted] = extension().start(wanted)
    return _started[wanted]


def is_ready() -> bool:
    """Whether the GPU has been used."""
    return bool(_started)


def reason() -> str | None:
    """Why there is no GPU to use; None if there is one."""
    if os.environ.get("UNDERTOW_CUDA") == "0":
        return "UNDERTOW_CUDA=0 turns it off."
    try:
        properties()
    except RuntimeError as error:
        return str(error)
    return None
