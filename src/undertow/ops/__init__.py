"""What can be computed: every operation by name, as a function on tensors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.ops.declare import REGISTRY
from undertow.ops.inplace import forms
from undertow.tensor.lent_operations import LentOperations, lend

#: the families, in reading order, and their tables; a module joins by being named here
FAMILIES = {
    "pointwise": "arithmetic elementary powers complex where_clamp comparison float_parts activations gelu",
    "pointwise.special": "error_functions gamma bessel_i normal_distribution zeta polynomials bessel_scipy",
    "reduce": "sums_and_products extrema cumulative sorting statistics vector_norms gradient covariance histograms "
    "segments",
    "views": "dimensions slices splitting reshape as_strided copies",
    "shape": "joining rearranging padding pixel_shuffle",
    "index": "index_tensors getitem index_select masks gather_scatter scatter_reduce",
    "linalg": "einsum matmul addmm products factorizations eigen matrix_norms least_squares triangular lu matrix_exp "
    "tensor_equations ldl householder bounds ex_variants lobpcg low_rank",
    "fourier": "transforms frequencies stft",
    "network": "softmax layer_norm batch_norm losses cross_entropy embedding_losses attention conv_kernels conv im2col "
    "pool_kernels pool interpolate grid_sample embedding_bag",
    "create": "creation ranges like",
    "random": "tensors",
    "sparse": "coo layouts compressed products softmax",
}

for _family, _tables in FAMILIES.items():
    for _table in _tables.split():
        import_module(f"undertow.ops.{_family}.{_table}")
import_module("undertow.ops.older_forms")

# plain module attributes, because a module's __getattr__ costs a microsecond a call
globals().update({name: op.function for name, op in REGISTRY.items()})
__all__ = sorted(REGISTRY)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# they need the tables
from undertow.ops.create import creation as _creation  # noqa: E402
from undertow.ops.declare import out_argument, saved_attributes  # noqa: E402, F401
from undertow.ops.views import as_strided as _strided  # noqa: E402
from undertow.ops.views import in_place as _view_in_place  # noqa: E402

lend(
    LentOperations(
        from_sizes_or_data=_creation.from_sizes_or_data,
        by_memory=_view_in_place.by_memory,
        clone=forms.copy_into_new,
        add=REGISTRY["add"].function,
        layout_for=_view_in_place.layout_for,
        lay_out=_strided.lay_out,
        clone_as=_strided.clone_as,
        copy_in_place=forms.copy_,
        zero_in_place=forms.zero_,
    )
)
