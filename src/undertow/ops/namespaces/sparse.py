"""`undertow.sparse`: what torch.sparse has."""

from __future__ import annotations

from undertow.ops.declare import REGISTRY

mm = REGISTRY["sparse_mm"].function
addmm = REGISTRY["sparse_addmm"].function
log_softmax = REGISTRY["sparse_log_softmax"].function
sampled_addmm = REGISTRY["sampled_addmm"].function
softmax = REGISTRY["sparse_softmax"].function
spdiags = REGISTRY["sparse_spdiags"].function
sum = REGISTRY["sparse_sum"].function

__all__ = ["addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]
