"""The memory of tensors, under PyTorch's name for the module."""

from undertow.tensor.memory import Storage

UntypedStorage = TypedStorage = _LegacyStorage = Storage

__all__ = ["TypedStorage", "UntypedStorage"]
