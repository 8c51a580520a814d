"""What can be computed: every operation by name, as a function on tensors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.ops.declare import REGISTRY
from undertow.ops.pointwise.arithmetic import add
from undertow.tensor.lent_operations import LentOperations, lend

#: the families and their tables; a module joins by being named here. A family may import those above it: pointwise
#: operations know none, views know conjugation, reductions know what gathers and joins. What a rule computes with below
#: its own family it reaches by `xp`, or by `recorded` in a function on tensors.
FAMILIES = {
    "pointwise": "arithmetic exp_log sigmoid_logit abs_sign division trigonometric rounding powers complex where_clamp "
    "comparison_logic_bits float_parts activations gelu",
    "pointwise.special": "error_functions gamma incomplete_gamma bessel_i normal_distribution zeta polynomials "
    "bessel_scipy",
    "views": "clone dimensions slices splitting reshape as_strided copies",
    "create": "creation ranges like",
    "inplace": "overwriting forms methods views resize_and_set",
    "index": "index_tensors getitem setitem index_select masks nonzero_and_coordinates gather_scatter scatter_reduce",
    "shape": "joining meshgrid_and_combinations repeat flip_roll triangles_and_diagonals padding pixel_shuffle",
    "reduce": "sums_and_products logsumexp all_any extrema cumulative sorting unique statistics vector_norms distances "
    "calculus histograms segments",
    "random": "tensors",
    "linalg": "einsum_and_tensordot matmul addmm other_products covariance inverse_and_solve determinant triangular "
    "cholesky qr lu svd eigen norms pinv_rank_lstsq matrix_exp_and_power tensor_equations ldl householder ex_variants "
    "lobpcg low_rank",
    "network": "softmax layer_norm batch_and_group_norm dropout glu linear losses cross_entropy margin_losses "
    "fused_attention conv_kernels conv im2col pool_kernels pool interpolate grid_sample embedding embedding_bag "
    "ctc",
    "fourier": "transforms frequencies stft_and_windows",
    "sparse": "coo layouts compressed products softmax",
}

for _family, _tables in FAMILIES.items():
    for _table in _tables.split():
        import_module(f"undertow.ops.{_family}.{_table}")

# plain module attributes, because a module's __getattr__ costs a microsecond a call
globals().update({name: op.function for name, op in REGISTRY.items()})
__all__ = sorted(REGISTRY)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# they need the tables
from undertow.ops.create import creation as _creation  # noqa: E402
from undertow.ops.inplace import methods as _in_place  # noqa: E402
from undertow.ops.views import as_strided as _strided  # noqa: E402
from undertow.ops.views import by_memory as _by_memory  # noqa: E402

lend(
    LentOperations(
        from_sizes_or_data=_creation.from_sizes_or_data,
        by_memory=_by_memory.by_memory,
        clone=_in_place.copy_into_new,
        add=add,
        layout_for=_by_memory.layout_for,
        lay_out=_strided.lay_out,
        clone_as=_strided.clone_as,
        copy_in_place=_in_place.copy_,
        zero_in_place=_in_place.zero_,
    )
)
