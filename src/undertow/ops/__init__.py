"""What can be computed: every operation by name, as a function on tensors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undertow.graph.accumulate import install_recorded
from undertow.graph.copy_slices import install_in_place
from undertow.ops import inplace
from undertow.ops.declare import REGISTRY

#: the op tables, in reading order; a module joins by being named here
TABLES = (
    # numbers
    *(
        "arithmetic",
        "elementwise",
        "powers",
        "special",
        "gamma",
        "bessel",
        "normal_tails",
        "zeta",
        "polynomials",
        "cylinder",
        "number_parts",
        "complex",
        "choices",
    ),
    *("comparison",),
    # along dimensions
    *("reductions", "extrema", "scans", "sorting", "statistics", "norms"),
    # shapes
    *("views", "parts", "splitting", "reshaping", "strided", "joining", "shape", "padding", "slopes"),
    # places
    *("index_family", "indexing", "selecting", "masking", "scattering", "scatter_reduction"),
    # products and matrices
    *("einsum", "matmul", "addmm", "linalg", "decompositions", "eigen", "matrix_norms"),
    *("covariance", "least_squares", "triangular", "lu", "matrix_exp", "tensor_equations", "spectral", "frequencies"),
    *("ldl", "reflections"),
    # networks
    *("activations", "gaussian", "softmax", "normalization", "channel_norms", "losses", "classification", "similarity"),
    *("attention",),
    *("convolution", "conv", "folding", "pooling", "pool", "resampling", "grids", "shuffling", "bags"),
    # new tensors
    *("creation", "ranges", "likeness", "random"),
    # made of the others
    *("copies", "windows", "bounds", "checked", "partial_eigen", "low_rank", "histograms", "segments", "older_forms"),
    # only what is not zero
    *("sparse", "sparse_conversions", "sparse_compressed", "sparse_products", "sparse_softmax"),
)

for _table in TABLES:
    import_module(f"undertow.ops.{_table}")

# plain module attributes, because a module's __getattr__ costs a microsecond a call
globals().update({name: op.function for name, op in REGISTRY.items()})
__all__ = sorted(REGISTRY)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


from undertow.ops import out_variants, saved_names, strided, view_inplace  # noqa: E402, F401  (they need the tables)

install_recorded(clone=inplace.copy_into_new, add=REGISTRY["add"].function)
install_in_place(
    layout_for=view_inplace.layout_for,
    lay_out=strided.lay_out,
    clone_as=strided.clone_as,
    copy_in_place=inplace.copy_,
    zero_in_place=inplace.zero_,
)
