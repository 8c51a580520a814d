"""UnknownTangent: stands where a tangent exists that nobody can compute, and says so when somebody wants it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from undertow.autograd.batched_tensor import OPERATORS, Example
from undertow.backend.interface import Array
from undertow.graph.end_nodes import copy_of
from undertow.tensor import Tensor


class UnknownArray:
    """Tells the shape and dtype of the numbers that are unknown, and raises for everything else."""

    __slots__ = ("_error", "_like")

    def __init__(self, like: Array, error: Exception) -> None:
        self._like, self._error = like, error

    def __getattr__(self, name: str) -> Any:
        if name in Example.FACTS:
            return getattr(self._like, name)
        if name.startswith("__") and name != "__array_interface__":
            raise AttributeError(name)
        self.refuse()

    def refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise copy_of(self._error)


for _name in ("array", "array_ufunc", "getitem", "setitem", "iter", *OPERATORS.split()):
    setattr(UnknownArray, f"__{_name}__", UnknownArray.refuse)


class UnknownTangent(Tensor):
    """The tangent of a tensor, unknown because of `error`, which is raised when it is used."""

    __slots__ = ("error",)

    error: Exception

    def __init__(self, tensor: Tensor, error: Exception) -> None:
        super().__init__(UnknownArray(tensor._array, error), tensor._xp)
        self.error = error

    def of(self, tensor: Tensor) -> UnknownTangent:
        """The unknown tangent of a tensor that was computed from this one's."""
        return UnknownTangent(tensor, self.error)


def unknown_among(tangents: Iterable[Any]) -> UnknownTangent | None:
    """One of the tangents that is unknown; some of them may be lists."""
    for tangent in tangents:
        found = unknown_among(tangent) if isinstance(tangent, list) else tangent
        if type(found) is UnknownTangent:
            return found
    return None


def known(tangent: Tensor | None) -> Tensor | None:
    """The tangent; raise if it is unknown."""
    if type(tangent) is UnknownTangent:
        raise copy_of(tangent.error)
    return tangent
