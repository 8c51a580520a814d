"""From tensors to Python's numbers and NumPy's arrays: `item`, `tolist`, `numpy`, `float(x)`.

Plain functions with the tensor first; `methods.py` makes them methods. Conversions that give another tensor, and so
have a derivative, are operations: see ops/create/to_dtype_and_device.py.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.errors import warn_once
from undertow.modes import current
from undertow.tensor.tensor import Tensor, current_edge

# ---- to Python numbers


def item(self: Tensor) -> Any:
    """The single element as a Python number; no gradient flows through it.

    >>> import undertow as ut
    >>> ut.tensor([2.5]).item()
    2.5
    """
    if self._array.size != 1:
        raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
    return self._array.item()


def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers (a number for a 0-d tensor).

    >>> import undertow as ut
    >>> ut.tensor([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return self._array.tolist()


def python_number(self: Tensor, complex_: bool = False) -> Any:
    """The single element, for `float(t)` and its kin: a real number unless `complex_`."""
    if self._array.size != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    if current_edge(self) is not None:
        warn_once(
            "scalar-of-tensor-that-requires-grad",
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
            "Consider using tensor.detach() first.",
        )
    number = self._array.item()
    if not complex_ and isinstance(number, complex):
        if number.imag:
            raise RuntimeError(
                f"value cannot be converted to type double without overflow: {number} has an imaginary part. "
                "Use complex(tensor), or tensor.real."
            )
        return number.real
    return number


def to_bool(self: Tensor) -> bool:
    """`bool(tensor)`, of a single element.

    >>> import undertow as ut
    >>> ut.is_nonzero(ut.tensor([1.0]))
    True
    """
    size = self._array.size
    if size != 1:
        what = "no values" if size == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(self._array.item())


def to_int(self: Tensor) -> int:
    """`int(tensor)`; ValueError for NaN, OverflowError for infinity."""
    return int(python_number(self))


def to_float(self: Tensor) -> float:
    """`float(tensor)`."""
    return float(python_number(self))


def to_complex(self: Tensor) -> complex:
    """`complex(tensor)`."""
    return complex(python_number(self, complex_=True))


def to_index(self: Tensor) -> int:
    """What makes `values[tensor]` and `range(tensor)` work: an integer of a single element."""
    if self._array.size != 1 or self._array.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self._array.item())


# ---- to arrays


def numpy(self: Tensor, *, force: bool = False) -> Array:
    """The tensor as a NumPy array that shares its memory.

    force  allow tensors that require grad: their history is left behind

    >>> import undertow as ut
    >>> ut.ones(2).numpy()
    array([1., 1.], dtype=float32)
    """
    if not force and current().grad_enabled and current_edge(self) is not None:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self._xp.device.type != "cpu":
        if force:
            return cpu.take_over(self._array)
        raise TypeError(
            f"can't convert {self._xp.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )
    return self._array.view()  # a view, so that setting its shape cannot change the tensor's


#: attribute -> function; `methods.py` puts them on Tensor
METHODS: dict[str, Any] = {
    "__bool__": to_bool,
    "__complex__": to_complex,
    "__float__": to_float,
    "__index__": to_index,
    "__int__": to_int,
    "is_nonzero": to_bool,
    "item": item,
    "numpy": numpy,
    "tolist": tolist,
}
