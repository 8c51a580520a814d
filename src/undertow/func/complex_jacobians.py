"""Jacobians with complex numbers: two real columns (or rows) made one complex number, where that is possible.

complex input, complex output   df/dz, for a holomorphic function; an error for any other
complex input, real output      df/dx + i df/dy, what `grad` returns
real input, complex output      df/dx
"""

from __future__ import annotations

from typing import Any

from undertow.autograd.batched_tensor import physical
from undertow.ops import REGISTRY
from undertow.tensor import Tensor


def imaginary(basis: Tensor) -> Tensor:
    """The basis, turned by a right angle in the complex plane."""
    return REGISTRY["mul"].function(basis, 1j)


def as_one_complex(along_real: Tensor, along_imag: Tensor, output: Tensor, input: Tensor, mode: str) -> Tensor:
    """One Jacobian from the products with the real and with the imaginary unit vectors.

    They are cotangents (mode "reverse", two of them for a complex output) or tangents ("forward", for a complex input).
    """
    into, out_of = output.dtype.kind == "c", input.dtype.kind == "c"
    if into and out_of:
        check_holomorphic(along_real, along_imag)
        return REGISTRY["conj"].function(along_real) if mode == "reverse" else along_real
    if (into and mode == "reverse") or (out_of and mode == "forward"):
        return REGISTRY["add"].function(along_real, imaginary(along_imag))
    return along_real


def check_holomorphic(along_real: Tensor, along_imag: Tensor) -> None:
    """Raise unless a step along i changes the function by i times what a step along 1 does."""
    one, other = physical(along_real), physical(along_imag)
    xp: Any = one._xp
    limit = 1e-3 if one._array.dtype.itemsize == 8 else 1e-6
    if not xp.allclose(other._array, 1j * one._array, rtol=limit, atol=limit, equal_nan=True):
        raise RuntimeError(
            "the function is not holomorphic: its derivative along the imaginary axis is not i times that along the "
            "real one, so its Jacobian is no complex matrix. Write it as a function of real tensors (view_as_real)."
        )
