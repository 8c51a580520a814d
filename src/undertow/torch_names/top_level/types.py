"""Types for annotations, by PyTorch's names."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any

from undertow.backend import Device
from undertow.tensor import Size, Tensor
from undertow.tensor.memory import Storage as Storage

Number = int | float | bool
PySymType = int | float | bool
FileLike = str | os.PathLike[str] | IO[bytes]
_TensorOrTensors = Tensor | Sequence[Tensor]
_dtype = Any
_device = Device
_size = Size | list[int] | tuple[int, ...]
_symsize = _size
_layout = Any
_qscheme = Any
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool
_dispatchkey = str | Any
Device = Any  # type: ignore[assignment,misc]  # whatever names a device
