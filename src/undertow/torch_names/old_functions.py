"""Functions that PyTorch has given up, or announces to, and that older programs call."""

from __future__ import annotations

import math
from typing import Any

from undertow.backend.dtypes import default_dtype
from undertow.graph.user_lines import warn_user
from undertow.ops.inplace.out_argument import public_function


def range(start: float = 0, end: float | None = None, step: float = 1, *, dtype: Any = None, **options: Any) -> Any:
    """The numbers from `start` to `end`, which is one of them; `arange` is the function to use.

    step       how far apart they are
    **options  those of `arange`

    >>> import warnings
    >>> import undertow as ut
    >>> with warnings.catch_warnings(action="ignore"):
    ...     ut.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    warn_user(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = math.floor((end - start) / step) + 1
    behind = start + count * step
    if type(behind) is float:  # as far from the last number as from the one behind it, whatever was rounded
        behind -= step / 2
    dtype = default_dtype() if dtype is None and options.get("out") is None else dtype
    return public_function("arange")(start, behind, step, dtype=dtype, **options)
