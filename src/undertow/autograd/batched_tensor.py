"""BatchedTensor: what a function under vmap sees in place of a batch of examples.

It has the shape of one example, and holds the tensor with all of them. Operations on it run once for the whole batch
(see vmap/__init__.py). Its numbers cannot be read: there are as many as there are examples.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import core
from undertow.errors import UndertowError
from undertow.tensor import Tensor, current_edge

if TYPE_CHECKING:
    from undertow.autograd.vmap.level import VmapLevel
    from undertow.graph.edges import Edge


class VmapError(UndertowError, RuntimeError):
    """Something was asked of a batch of examples that makes sense for one example only."""


class Example:
    """Stands for the array of a BatchedTensor: tells shape and dtype of one example, and refuses everything else."""

    FACTS = frozenset({"dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def first(self) -> Array:
        """The array of the first example, to look at how it lies in memory."""
        return self._array

    def __getattr__(self, name: str) -> Any:
        if name == "item":
            raise VmapError(
                "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on "
                "a Tensor, as it has another value for each example: please try to rewrite what you're doing with "
                "other operations."
            )
        if name.startswith("__") and name != "__array_interface__":
            raise AttributeError(name)
        refuse(f"reading the array of a tensor (.{name})")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("turning a tensor into an array")

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("computing with the array of a tensor")

    def __getitem__(self, index: Any) -> NoReturn:
        refuse("reading the array of a tensor")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        refuse("writing to the array of a tensor")

    def __iter__(self) -> NoReturn:
        refuse("reading the array of a tensor")


def _refused(self: Example, *args: Any) -> NoReturn:
    refuse("computing with the array of a tensor")


for _fact in Example.FACTS:
    setattr(Example, _fact, property(attrgetter(f"_array.{_fact}")))

OPERATORS = "abs add and bool eq float ge gt int le lt matmul mul ne neg or pow radd rmul rsub rtruediv sub truediv"
for _operator in OPERATORS.split():
    setattr(Example, f"__{_operator}__", _refused)


def refuse(what: str) -> NoReturn:
    raise VmapError(
        f"vmap: {what} is not possible under vmap, where it stands for many examples at once (or outside of the vmap "
        "that made it). Use undertow's operations, or loop over the examples."
    )


class BatchedTensor(Tensor):
    """A batch of examples, under the vmap `level`. `value` has one dimension more, number `dim`."""

    __slots__ = ("_dim", "_level", "_value")

    stands_for_many = True
    _value: Tensor
    _dim: int
    _level: Any

    def __init__(self, value: Tensor, dim: int, level: VmapLevel) -> None:
        self._value, self._dim, self._level = value, dim, level
        self._array = Example(example_array(value._array, dim, value._xp))
        self._xp = value._xp
        self._extra = None

    @property
    def _edge(self) -> Any:
        return current_edge(self._value)

    @_edge.setter
    def _edge(self, edge: Edge) -> None:
        raise VmapError(
            "You are attempting to call Tensor.requires_grad_() (or to change the history of a tensor) inside of a "
            "function being transformed by vmap. This is unsupported: use undertow.func.grad inside of it instead."
        )

    def __bool__(self) -> bool:
        raise VmapError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
            "support that yet: its value differs from example to example. Use undertow.where instead."
        )

    def __repr__(self) -> str:
        return f"BatchedTensor(level={self._level.number}, dim={self._dim}, value={self._value!r})"

    def __format__(self, spec: str) -> str:
        return repr(self)


if core is not None:
    core.bind(BatchedTensor=BatchedTensor, Example=Example)
#: the same as BatchedTensor, quicker
batch: Callable[[Tensor, int, VmapLevel], BatchedTensor] = BatchedTensor if core is None else core.batch


def example_array(array: Array, dim: int, xp: Namespace) -> Array:
    """An array that looks like one example."""
    if isinstance(array, Example):
        array = array._array
    if array.shape[dim]:
        if dim == 0:
            return array[0, ...]
        return array[(slice(None),) * dim + (0, Ellipsis)]  # the Ellipsis keeps a 0-d array an array
    return xp.empty(array.shape[:dim] + array.shape[dim + 1 :], array.dtype)


def physical(tensor: Tensor) -> Tensor:
    """The tensor that really has memory, below all vmap levels."""
    while type(tensor) is BatchedTensor:
        tensor = tensor._value
    return tensor


def zeros_like_batch(like: Tensor, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Zeros of a given shape, as many as `like` has examples."""
    if type(like) is not BatchedTensor:
        return Tensor(like._xp.zeros(shape, dtype), like._xp)
    size = like._value.shape[like._dim]
    return BatchedTensor(zeros_like_batch(like._value, (size, *shape), dtype), 0, like._level)
