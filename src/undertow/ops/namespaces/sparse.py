"""`undertow.sparse`: what torch.sparse has."""

from __future__ import annotations

from undertow.ops.sparse.products import sampled_addmm as sampled_addmm
from undertow.ops.sparse.products import sparse_addmm as addmm
from undertow.ops.sparse.products import sparse_mm as mm
from undertow.ops.sparse.products import sparse_sum as sum
from undertow.ops.sparse.softmax import sparse_log_softmax as log_softmax
from undertow.ops.sparse.softmax import sparse_softmax as softmax
from undertow.ops.sparse.softmax import sparse_spdiags as spdiags

__all__ = ["addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]
