"""What can be computed: every operation by name, as a function on tensors."""

from __future__ import annotations

from importlib import import_module
from undertow.graph.accumulate import install_recorded
from undertow.graph.copy_slices import install_in_place
from undertow.ops import inplace
from undertow.ops.declare import REGISTRY

#: the op tables, in reading order; a module joins by being named here
TABLES = ("arithmetic", "elementwise", "powers", "choices", "complex", "comparison", "reductions", "truth", "extrema", "scans",
          "sorting", "statistics", "norms", "views", "parts",
          "splitting", "reshaping", "strided", "joining", "shape", "padding", "index_family", "indexing", "selecting", "masking", "scattering",
          "scatter_reduction", "overwriting", "einsum", "matmul", "addmm", "linalg", "decompositions", "activations", "special", "gamma", "softmax", "normalization", "losses", "classification", "similarity", "creation", "ranges", "likeness", "random")  # fmt: skip

for _table in TABLES:
    try:
        import_module(f"undertow.ops.{_table}")
    except ModuleNotFoundError as _error:
        if _error.name != f"undertow.ops.{_table}":
            raise
    except Exception as _error:  # CONSTRUCTION: so that one table being edited does not stop the others
        import sys

        print(f"!! table {_table} is broken: {type(_error).__name__}: {_error}", file=sys.stderr)


# plain module attributes, because a module's __getattr__ costs a microsecond a call
globals().update({name: op.function for name, op in REGISTRY.items()})
__all__ = sorted(REGISTRY)

install_recorded(clone=inplace.copy_into_new, add=REGISTRY["add"].function)
install_in_place(clone=REGISTRY["clone"].function, copy=inplace.copy_, zero=inplace.zero_)
