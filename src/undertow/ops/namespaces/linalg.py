"""`undertow.linalg`: linear algebra under the names of torch.linalg and numpy.linalg."""

from __future__ import annotations

from undertow.errors import LinAlgError as LinAlgError
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.out_argument import namespace_function

#: the operations registered as `linalg_<name>`, and the ones torch.linalg shares with the package itself
NAMES = {name: name for name in ("diagonal", "matmul", "matrix_power")}
NAMES |= {op.removeprefix("linalg_"): op for op in REGISTRY if op.startswith("linalg_")}

globals().update({name: namespace_function(op) for name, op in NAMES.items()})
__all__ = sorted(NAMES)
__name__ = "undertow.linalg"  # as programs find it, and as errors tell it
