"""`undertow.functional`: functions of the package under the names that torch.functional has, too."""

from __future__ import annotations

from undertow.ops.arguments.sizes import common_shape as broadcast_shapes
from undertow.ops.declare import REGISTRY

NAMES = """
atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum istft lu meshgrid
norm pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index
""".split()

globals().update({name: REGISTRY[name].function for name in NAMES})
__all__ = ["broadcast_shapes", *NAMES]
