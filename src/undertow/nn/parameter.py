"""Parameter and Buffer: tensors that say what a Module should take them for.

Both are subclasses of Tensor that add nothing to it but a name: operations ask a tensor for its array and edge, never
for its class, and give plain Tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import dtypes
from undertow.compiled import core
from undertow.tensor import LEAF, Tensor, share_memory
from undertow.tensor.torch_function import never

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def adopt(tensor: Tensor, data: Array, requires_grad: bool) -> None:
    """Make `tensor`, which is new, a leaf on the memory of `data`."""
    if data is None:
        data = ops.empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(
            f"{type(tensor).__name__} wraps a Tensor, but was given {type(data).__name__}: make one first, "
            "for instance with undertow.tensor(...)"
        )
    if requires_grad and not dtypes.is_differentiable(data._array.dtype):
        raise RuntimeError(
            f"Only Tensors of floating point and complex dtype can require gradients; this one is {data._array.dtype}. "
            "Convert it, or pass requires_grad=False."
        )
    Tensor.__init__(tensor, data._array, data._xp, LEAF if requires_grad else None)
    share_memory(data, tensor)


class Parameter(Tensor):
    """A leaf that a Module counts among its parameters once it is assigned to an attribute.

    It shows the memory of `data`, and requires a gradient unless told otherwise.

    data           a tensor; None: an empty one
    requires_grad  whether it gets a gradient

    >>> import undertow as ut
    >>> ut.nn.Parameter(ut.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    results_keep_class = False
    __torch_function__ = staticmethod(never)

    def __init__(self, data: Array | None = None, requires_grad: bool = True) -> None:
        adopt(self, data, requires_grad)

    def __repr__(self) -> str:
        plain = Tensor(self._array, self._xp, self._edge)
        return f"Parameter containing:\n{plain!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A copy without the gradient, as PyTorch makes it."""
        if id(self) not in memo:
            data: Any = Tensor(self._array.copy(order="K"), self._xp)
            memo[id(self)] = type(self)(data, self._edge is not None)
        return memo[id(self)]


class Buffer(Tensor):
    """A tensor that a Module counts among its buffers once it is assigned to an attribute.

    persistent  whether it is part of the module's state_dict
    data        a tensor; None: an empty one

    >>> import undertow as ut
    >>> ut.nn.Buffer(ut.ones(2))
    tensor([1., 1.])
    """

    results_keep_class = False
    __torch_function__ = staticmethod(never)

    def __init__(self, data: Array | None = None, *, persistent: bool = True) -> None:
        adopt(self, data, False)
        self.persistent = persistent

    def __repr__(self) -> str:
        return repr(Tensor(self._array, self._xp, self._edge))


if core is not None:
    core.bind(Parameter=Parameter)
