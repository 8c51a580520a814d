"""`undertow.sparse`: what torch.sparse has for sparse COO tensors."""

from __future__ import annotations

from undertow.ops.declare import REGISTRY

mm = REGISTRY["sparse_mm"].function
addmm = REGISTRY["sparse_addmm"].function
sum = REGISTRY["sparse_sum"].function

__all__ = ["addmm", "mm", "sum"]
