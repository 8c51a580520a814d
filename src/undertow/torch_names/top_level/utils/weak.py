"""Dicts that keep no key alive, and take tensors as keys: by which object it is, not by the numbers in it."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any
from weakref import ref


class WeakIdRef(ref[Any]):
    """A weak reference that is equal to others of the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, ref) else None
        return self is other if mine is None or theirs is None else mine is theirs


class TensorWeakRef(WeakIdRef):
    """A weak reference to a tensor."""


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict whose entries go with their keys.

    >>> import undertow as ut
    >>> x = ut.ones(2)
    >>> names = WeakIdKeyDictionary({x: "weight"})
    >>> names[x], ut.ones(2) in names
    ('weight', False)
    >>> del x
    >>> len(names)
    0
    """

    def __init__(self, dict: Any = None, ref_type: type[WeakIdRef] = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        self.update(dict or {})

    def _key(self, key: Any) -> WeakIdRef:
        data = self.data
        return self.ref_type(key, lambda gone: data.pop(gone, None))

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._key(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # a number, say, to which there are no weak references
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key in [kept() for kept in list(self.data)] if key is not None])

    def __len__(self) -> int:
        return len(self.data)

    def keyrefs(self) -> list[WeakIdRef]:
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        return type(self)(self)


class WeakTensorKeyDictionary(WeakIdKeyDictionary):
    """The same, for tensors."""


__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]
