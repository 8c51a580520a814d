"""The frequencies that the elements of a Fourier transform stand for, and spectra in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes, namespace_of
from undertow.backend.interface import Array, DType
from undertow.ops.arguments.dims import numpy_spelling
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.sizes import as_int
from undertow.ops.create.creation import as_number, check_shape, leaf
from undertow.ops.declare import composite
from undertow.ops.fourier.transforms import as_tuple, one_dim
from undertow.ops.shape.flip_roll import roll
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def _frequencies(
    name: str,
    n: int,
    d: float,
    dtype: DType,
    device: Device | str | int | None,
    requires_grad: bool,
    first: int,
    count: int,
) -> Tensor:
    dtype = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype, name)
    if not dtypes.is_floating(dtype):
        raise RuntimeError(f"{name} requires a floating point or complex dtype: of complex ones, there are no ranges")
    check_shape(name, (n,))
    xp = namespace_of(device)
    counts = xp.arange(count, dtype=dtypes.float64) + first
    if first:
        counts = xp.roll(counts, first)
    with xp.errstate(all="ignore"):
        return leaf((counts / n / d).astype(dtype), xp, requires_grad)


@composite
def fft_fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies that the elements of `fft` stand for, of `n` samples that lie `d` apart.

    >>> import undertow as ut
    >>> ut.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    n, d = as_int("fft_fftfreq", "n", n), as_number("fft_fftfreq", "d", d)
    return _frequencies("fftfreq", n, d, dtype, device, requires_grad, -(n // 2), n)


@composite
def fft_rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies that the elements of `rfft` stand for.

    d  the distance of the samples

    >>> import undertow as ut
    >>> ut.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    n, d = as_int("fft_rfftfreq", "n", n), as_number("fft_rfftfreq", "d", d)
    return _frequencies("rfftfreq", n, d, dtype, device, requires_grad, 0, n // 2 + 1)


def _shifts(input: Array, dim: Any, sign: int) -> Tensor:
    dims = range(input.ndim) if dim is None else [one_dim(input, d) for d in as_tuple(dim) or ()]
    return roll(input, tuple([(input.shape[d] + (sign < 0)) // 2 for d in dims]), tuple(dims))


@composite(out=False)
@numpy_spelling
def fft_fftshift(input: Array, dim: Any = None) -> Tensor:
    """The elements of a spectrum by frequency, from the most negative to the most positive.

    >>> import undertow as ut
    >>> ut.fft.fftshift(ut.fft.fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifts(as_operand("fftshift", "input", input), dim, 1)


@composite(out=False)
@numpy_spelling
def fft_ifftshift(input: Array, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> import undertow as ut
    >>> ut.fft.ifftshift(ut.arange(4))
    tensor([2, 3, 0, 1])
    """
    return _shifts(as_operand("ifftshift", "input", input), dim, -1)
