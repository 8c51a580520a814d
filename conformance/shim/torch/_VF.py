"""`torch._VF`: functions that PyTorch keeps out of its public namespace."""

from typing import Any

import undertow


def unique_dim(tensor: Any, dim: int, **kwargs: Any) -> Any:
    return undertow.unique(tensor, dim=dim, **kwargs)
