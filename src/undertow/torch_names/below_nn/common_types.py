"""Types for annotations of layers: a number, or a tuple of as many."""

from __future__ import annotations

from typing import Any

from undertow.tensor import Tensor

#: a number, or as many as there are dimensions
_size_any_t = _size_1_t = _size_2_t = _size_3_t = _size_4_t = _size_5_t = _size_6_t = int | tuple[int, ...]
_size_any_opt_t = _size_2_opt_t = _size_3_opt_t = int | tuple[int | None, ...] | None
_ratio_2_t = _ratio_3_t = _ratio_any_t = float | tuple[float, ...]
_tensor_list_t = _maybe_indices_t = Tensor | tuple[Tensor, ...]
_scalar_or_tuple_any_t = _scalar_or_tuple_1_t = _scalar_or_tuple_2_t = _scalar_or_tuple_3_t = Any
_scalar_or_tuple_4_t = _scalar_or_tuple_5_t = _scalar_or_tuple_6_t = Any
