"""`undertow.sparse`: what torch.sparse has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.ops.create import typed_tensors
from undertow.ops.create.typed_tensors import TensorType
from undertow.ops.sparse.coo import sparse_coo_tensor
from undertow.ops.sparse.products import sampled_addmm as sampled_addmm
from undertow.ops.sparse.products import sparse_addmm as addmm
from undertow.ops.sparse.products import sparse_mm as mm
from undertow.ops.sparse.products import sparse_sum as sum
from undertow.ops.sparse.softmax import sparse_log_softmax as log_softmax
from undertow.ops.sparse.softmax import sparse_softmax as softmax
from undertow.ops.sparse.softmax import sparse_spdiags as spdiags

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class SparseTensorType(TensorType):
    """A class that makes sparse tensors of one dtype: `FloatTensor(indices, values, size)`."""

    def __call__(cls, *arguments: Any) -> Tensor:
        if all([type(n) is int for n in arguments]):
            return sparse_coo_tensor(size=arguments, dtype=cls.dtype)
        return sparse_coo_tensor(*arguments, dtype=cls.dtype)

    def __instancecheck__(cls, value: Array) -> bool:
        return super().__instancecheck__(value) and value.is_sparse


def _sparse_type(dense: TensorType) -> SparseTensorType:
    about = f"Sparse tensors of {dense.dtype}. `undertow.sparse_coo_tensor` says it better."
    body = {"dtype": dense.dtype, "__doc__": about, "__module__": "undertow.sparse"}
    return SparseTensorType(dense.__name__, (), body)


DoubleTensor, FloatTensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor = [
    _sparse_type(getattr(typed_tensors, f"{name}Tensor"))
    for name in ("Double", "Float", "Long", "Int", "Short", "Char", "Byte")
]

__all__ = ["addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]
