"""The namespace that rules compute with when their own graph is wanted (`create_graph`, forward over reverse).

It has the same names as a backend's ArrayNamespace, but takes and returns tensors, and records. Operations join it as
they are declared, under their own name; where NumPy has a function of the same name with other arguments, or another
name for the same thing, an `adapter(...)` beside the operation speaks NumPy's form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.modes import no_grad
from undertow.tensor import Tensor


class RecordedNamespace:
    """Undertow's operations under the names that rules use."""

    #: the array functions behind the recorded tensors
    arrays = cpu
    #: what values are in this namespace, as `ndarray` and `asarray` say it for a backend
    ndarray = Tensor

    def asarray(self, value: Array) -> Array:
        return value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no recorded operation is named {name!r}; declare it, or give it an adapter in ops/")

    def __repr__(self) -> str:
        return "<recorded operations>"


recorded: Any = RecordedNamespace()


def on_tensors(xp: Namespace, function: Callable[..., Any], *arrays: Any) -> Any:
    """A function of tensors, given arrays, or tensors to be recorded; results are of the same kind."""
    if xp is recorded:
        return function(*arrays)
    with no_grad():
        found = function(*[Tensor(a, xp) for a in arrays])
    return tuple([None if x is None else x._array for x in found]) if isinstance(found, tuple) else found._array
