"""Datasets that are chained by methods: the classes that programs derive from. PyTorch's own pipes are not here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from undertow.data.datasets import Dataset, IterableDataset

Pipe = TypeVar("Pipe")


class _Chained:
    functions: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any, **options: Any) -> None:
        if function_name in cls.functions:
            raise ValueError(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Chained, IterableDataset):
    """Examples in the order in which they come, from another pipe perhaps.

    >>> @functional_datapipe("doubled")
    ... class Doubled(IterDataPipe):
    ...     def __init__(self, source):
    ...         self.source = source
    ...
    ...     def __iter__(self):
    ...         return (2 * x for x in self.source)
    >>> class Numbers(IterDataPipe):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(Numbers().doubled())
    [0, 2, 4]
    """

    functions: ClassVar[dict[str, Any]] = {}


class MapDataPipe(_Chained, Dataset):
    """Examples by their keys, from another pipe perhaps.

    >>> import undertow as ut
    >>> class Squares(ut.data.MapDataPipe):
    ...     def __getitem__(self, key):
    ...         return key * key
    ...
    ...     def __len__(self):
    ...         return 3
    >>> [Squares()[k] for k in range(3)]
    [0, 1, 4]
    """

    functions: ClassVar[dict[str, Any]] = {}


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[type[Pipe]], type[Pipe]]:
    """Let a class of pipes be a method of all others, by this name.

    enable_df_api_tracing  accepted, without effect

    >>> import undertow as ut
    >>> @ut.data.functional_datapipe("squared")
    ... class Squared(ut.data.IterDataPipe):
    ...     def __init__(self, source):
    ...         self.source = source
    ...
    ...     def __iter__(self):
    ...         return (value * value for value in self.source)
    >>> class Numbers(ut.data.IterDataPipe):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(Numbers().squared())
    [0, 1, 4]
    """

    def register(cls: type[Pipe]) -> type[Pipe]:
        base = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        if issubclass(cls, base):
            base.register_datapipe_as_function(name, cls)
        return cls

    return register
