"""A dictionary keyed by tensors, which it does not keep alive."""

from __future__ import annotations

import weakref
from typing import Any


class WeakTensorKeyDictionary:
    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref, Any]] = {}

    def __setitem__(self, tensor: Any, value: Any) -> None:
        key = id(tensor)
        self._values[key] = weakref.ref(tensor, lambda _: self._values.pop(key, None)), value

    def __getitem__(self, tensor: Any) -> Any:
        return self._values[id(tensor)][1]

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._values

    def __delitem__(self, tensor: Any) -> None:
        del self._values[id(tensor)]

    def __len__(self) -> int:
        return len(self._values)

    def get(self, tensor: Any, default: Any = None) -> Any:
        return self._values.get(id(tensor), (None, default))[1]
