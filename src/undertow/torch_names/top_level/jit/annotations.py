"""Types for annotations, which PyTorch's compiler of Python reads."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple",
           "Union"]  # fmt: skip
