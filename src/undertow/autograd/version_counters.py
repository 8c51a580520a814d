"""Version counters in the user's hands: say that memory was changed, or that it does not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.tensor import Tensor, counter_of, version_of

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def increment_version(tensors: Array) -> None:
    """Say that the memory of a tensor (or of several) was changed by somebody else, a NumPy program for instance.

    tensors  a tensor, or several

    >>> import undertow as ut
    >>> x = ut.zeros(2)
    >>> x.numpy()[0] = 1
    >>> ut.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for tensor in several(tensors):
        counter_of(tensor).bump("increment_version")


def unsafe_set_version_counter(tensors: Tensor | Sequence[Tensor], versions: int | Sequence[int]) -> None:
    """Set the version counters of tensors. A graph that saved them will not notice changes that this hides."""
    for tensor, version in zip(several(tensors), several(versions), strict=True):
        if version < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {version}")
        counter_of(tensor).value = version


class unsafe_preserve_version_counter:
    """What happens to these tensors inside does not count as a change: their versions are put back at the end.

    Gradients of graphs that need the former values will silently be wrong; the caller knows that there are none.
    """

    def __init__(self, tensors: Tensor | Sequence[Tensor]) -> None:
        self.tensors = several(tensors)
        self.versions = [version_of(tensor) for tensor in self.tensors]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        unsafe_set_version_counter(self.tensors, self.versions)


#: by the name under which libraries ask for it
_unsafe_preserve_version_counter = unsafe_preserve_version_counter


def several(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, Tensor | int) else tuple(values)
