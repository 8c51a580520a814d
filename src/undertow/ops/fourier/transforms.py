"""Fourier transforms: of complex signals, of real ones, and of spectra with Hermitian symmetry.

All of them are made of three kernels, which are each other's derivatives:

    _fft_c2c    complex to complex, forward or inverse
    _fft_r2c    real to complex, forward; `onesided` keeps the half of the last dimension that decides the other
    _fft_c2r    the half of a Hermitian spectrum to the real signal, inverse

`normalization` is 0 for none, 1 for a division by the square root of the number of elements, 2 by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import laid_out
from undertow.ops.arguments.dims import numpy_spelling, wrap_dim
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand, type_name
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.fourier.along_one_dim import transformed
from undertow.ops.pointwise.complex import conj, conj_physical
from undertow.ops.shape.padding import constant_pad_nd
from undertow.ops.views.clone import to_dtype
from undertow.ops.views.dimensions import at
from undertow.ops.views.slices import narrow
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

NONE, BY_ROOT_N, BY_N = 0, 1, 2

#: the three normalizations as NumPy's functions name them
OF_FORWARD = ("backward", "ortho", "forward")
OF_INVERSE = ("forward", "ortho", "backward")


# ---- the kernels


def _nested(input: Array, out: Array, dim: Sequence[int]) -> Array:
    """The result as PyTorch's lies in memory: the signal innermost, around it the other dimensions as the input's."""
    if input.flags.c_contiguous and out.flags.c_contiguous and [*dim] == [*range(out.ndim - len(dim), out.ndim)]:
        return out
    others = [d for d in range(input.ndim) if d not in dim]
    return laid_out(out, [*by_stride(input, others), *dim])


def by_stride(input: Array, dims: Iterable[int]) -> list[int]:
    """Dimensions from the outermost to the innermost."""
    return sorted(dims, key=lambda d: -abs(input.strides[d]))


def _complex_transform(xp: Namespace, input: Array, dim: tuple[int, ...], normalization: int, inverse: bool) -> Array:
    if not dim:
        return input.copy(order="K")
    name, norm = ("ifft", OF_INVERSE[normalization]) if inverse else ("fft", OF_FORWARD[normalization])
    out = input
    for axis in reversed(dim):
        out = transformed(xp, name, out, axis, norm)
    return _nested(input, out, by_stride(input, dim))


def _real_transform(xp: Namespace, input: Array, dim: tuple[int, ...], normalization: int, onesided: bool) -> Array:
    out = transformed(xp, "rfft" if onesided else "fft", input, dim[-1], OF_FORWARD[normalization])
    for axis in reversed(dim[:-1]):
        out = transformed(xp, "fft", out, axis, OF_FORWARD[normalization])
    return _nested(input, out, [*by_stride(input, dim[:-1]), dim[-1]])


def _hermitian_transform(
    xp: Namespace, input: Array, dim: tuple[int, ...], normalization: int, last_dim_size: int
) -> Array:
    if dim[:-1]:
        input = _complex_transform(xp, input, dim[:-1], normalization, True)
    out = transformed(xp, "irfft", input, dim[-1], OF_INVERSE[normalization], last_dim_size)
    return _nested(input, out, dim[-1:])


def _scale_pairs(xp: Namespace, input: Array, dim: int, size: int, factor: float) -> Array:
    """Half a spectrum with the elements that stand for two (of `size` along `dim`) multiplied by `factor`."""
    out = input * factor
    for single in (slice(0, 1), slice((size + 1) // 2, None)):  # few elements, where those that stand for two are many
        out[at(dim, single)] = input[at(dim, single)]
    return out


scale_spectrum_pairs = primitive(
    "_scale_spectrum_pairs",
    forward=_scale_pairs,
    vjp={"input": lambda xp, g, dim, size, factor: xp._scale_spectrum_pairs(g, dim, size, factor)},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
)

fft_c2c = primitive(
    "_fft_c2c",
    forward=_complex_transform,
    vjp={"input": lambda xp, g, dim, normalization, inverse: xp._fft_c2c(g, dim, normalization, not inverse)},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
    node="FftC2CBackward0",
    autocast="float32",
    order="as_computed",
)


def _real_gradient(xp: Namespace, g: Array, input_shape: Any, dim: Any, normalization: int, onesided: bool) -> Array:
    if not onesided:
        return xp.real(xp._fft_c2c(g, dim, normalization, True))
    size = input_shape[dim[-1]]
    return xp._fft_c2r(xp._scale_spectrum_pairs(g, dim[-1], size, 0.5), dim, normalization, size)


fft_r2c = primitive(
    "_fft_r2c",
    forward=_real_transform,
    vjp={"input": _real_gradient},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
    node="FftR2CBackward0",
    autocast="float32",
    order="as_computed",
)


def _hermitian_gradient(xp: Namespace, g: Array, dim: Any, normalization: int, last_dim_size: int) -> Array:
    half = xp._fft_r2c(g, dim, normalization, True)
    return xp._scale_spectrum_pairs(half, dim[-1], last_dim_size, 2.0)


fft_c2r = primitive(
    "_fft_c2r",
    forward=_hermitian_transform,
    vjp={"input": _hermitian_gradient},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
    node="FftC2RBackward0",
    autocast="float32",
    order="as_computed",
)


# ---- arguments


@in_float32
def signal(name: str, input: Array, to_complex: bool = False) -> Array:
    """The input as a tensor of floats or, if asked for, of complex numbers."""
    input = as_operand(name, "input", input)
    dtype = input.dtype
    if dtype.kind == "c":
        return input
    if not dtypes.is_floating(dtype):
        dtype = dtypes.default_dtype()
    if dtype.itemsize == 2:
        kind = dtypes.SCALAR_NAMES[dtype]
        raise RuntimeError(f"Unsupported dtype {kind}: {name} transforms float32 and float64. Convert the input first.")
    return to_dtype(input, dtypes.complex_of(dtype) if to_complex else dtype)


def _refuse_complex(name: str, input: Array, real: str) -> None:
    if input.dtype.kind == "c":
        raise RuntimeError(
            f"{name} expects a {real} input tensor, but got {type_name(input)}. Take its real part, "
            "or use the transform of complex signals."
        )


def _scaling(norm: str | None, forward: bool) -> int:
    if norm not in (None, *OF_FORWARD):
        raise RuntimeError(f'Invalid normalization mode: "{norm}". Use "forward", "backward" or "ortho".')
    return (OF_FORWARD if forward else OF_INVERSE).index(norm or "backward")


def _check_length(n: int) -> None:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")


def one_dim(input: Array, dim: int) -> int:
    if input.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, input.ndim)


def as_tuple(sizes: Any) -> tuple[int, ...] | None:
    return None if sizes is None else tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)


def _shape_and_dims(input: Array, s: Any, dim: Any) -> tuple[list[int], tuple[int, ...]]:
    """The sizes of the signal, and the dimensions that it has them in."""
    s, dim = as_tuple(s), as_tuple(dim)
    if dim is not None:
        dim = tuple([one_dim(input, d) for d in dim])
        if len(set(dim)) < len(dim):
            raise RuntimeError(f"FFT dims must be unique, but got {dim}")
    if s is not None:
        if dim is not None and len(dim) != len(s):
            raise RuntimeError(f"When given, dim and shape arguments must have the same length: got {dim} and {s}")
        if len(s) > input.ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {input.ndim} dimensions.")
    if dim is None:
        dim = tuple(range(input.ndim - (input.ndim if s is None else len(s)), input.ndim))
    sizes = [input.shape[d] if n == -1 else n for d, n in zip(dim, [-1] * len(dim) if s is None else s, strict=True)]
    for n in sizes:
        _check_length(n)
    return sizes, dim


def _resized(input: Array, dims: Sequence[int], sizes: Sequence[int]) -> Array:
    """The input cut, or filled up with zeros behind, to have these sizes along these dimensions."""
    shape = input.shape
    if all([shape[d] == n for d, n in zip(dims, sizes, strict=True)]):
        return input
    more = [0] * (2 * input.ndim)
    for d, n in zip(dims, sizes, strict=True):
        if input.shape[d] > n:
            input = narrow(input, d, 0, n)
        more[2 * (input.ndim - 1 - d) + 1] = max(n - input.shape[d], 0)
    return constant_pad_nd(input, tuple(more)) if any(more) else input


# ---- one dimension


def _complex_1d(name: str, input: Array, n: int | None, dim: int, norm: str | None, forward: bool) -> Array:
    input = signal(name, input)
    if input.dtype.kind != "c":
        return _real_1d(name, input, n, dim, norm, forward, False)
    dim = one_dim(input, dim)
    n = input.shape[dim] if n is None else n
    _check_length(n)
    return fft_c2c(_resized(input, [dim], [n]), (dim,), _scaling(norm, forward), not forward)


def _real_1d(
    name: str, input: Array, n: int | None, dim: int, norm: str | None, forward: bool, onesided: bool
) -> Array:
    input = signal(name, input)
    _refuse_complex(name, input, "real")
    dim = one_dim(input, dim)
    n = input.shape[dim] if n is None else n
    _check_length(n)
    out = fft_r2c(_resized(input, [dim], [n]), (dim,), _scaling(norm, forward), onesided)
    return out if forward else conj(out)


def _hermitian_1d(name: str, input: Array, n: int | None, dim: int, norm: str | None, forward: bool) -> Array:
    input = signal(name, input, to_complex=True)
    dim = one_dim(input, dim)
    n = 2 * (input.shape[dim] - 1) if n is None else n
    _check_length(n)
    input = _resized(input, [dim], [n // 2 + 1])
    return fft_c2r(conj(input) if forward else input, (dim,), _scaling(norm, forward), n)


@composite
@numpy_spelling
def fft_fft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along `dim`, of the input cut or zero-padded to `n` elements.

    norm   "backward" (default): the inverse is divided by n; "forward": this one is; "ortho": both by sqrt(n)

    >>> import undertow as ut
    >>> ut.fft.fft(ut.tensor([1.0, 0.0, 0.0])).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    return _complex_1d("fft", input, n, dim, norm, True)


@composite
@numpy_spelling
def fft_ifft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`.

    >>> import undertow as ut
    >>> ut.fft.ifft(ut.tensor([4.0, 0.0, 0.0, 0.0]))
    tensor([1.-0.j, 1.-0.j, 1.-0.j, 1.-0.j])
    """
    return _complex_1d("ifft", input, n, dim, norm, False)


@composite
@numpy_spelling
def fft_rfft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first n // 2 + 1 elements of the Fourier transform of a real signal; the rest mirrors them.

    >>> import undertow as ut
    >>> ut.fft.rfft(ut.tensor([1.0, 2.0, 3.0]))
    tensor([ 6.0000+0.0000j, -1.5000+0.8660j])
    """
    return _real_1d("rfft", input, n, dim, norm, True, True)


@composite
@numpy_spelling
def fft_irfft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: a real signal of `n` elements, by default an even number of them.

    >>> import undertow as ut
    >>> ut.fft.irfft(ut.fft.rfft(ut.tensor([1.0, 2.0, 4.0])), n=3).tolist()
    [1.0, 2.0, 4.0]
    """
    return _hermitian_1d("irfft", input, n, dim, norm, False)


@composite
@numpy_spelling
def fft_hfft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The (real) Fourier transform of a signal with Hermitian symmetry, of which the input is the first half.

    >>> import undertow as ut
    >>> ut.fft.hfft(ut.tensor([1.0, 2.0, 3.0]))
    tensor([ 8., -2.,  0., -2.])
    """
    return _hermitian_1d("hfft", input, n, dim, norm, True)


@composite
@numpy_spelling
def fft_ihfft(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: half of a signal with Hermitian symmetry.

    >>> import undertow as ut
    >>> ut.fft.ihfft(ut.tensor([1.0, 2.0]))
    tensor([ 1.5000-0.j, -0.5000-0.j])
    """
    return _real_1d("ihfft", input, n, dim, norm, False, True)


# ---- several dimensions


def _complex_nd(name: str, input: Array, s: Any, dim: Any, norm: str | None, forward: bool) -> Array:
    input = signal(name, input, to_complex=True)
    sizes, dims = _shape_and_dims(input, s, dim)
    return fft_c2c(_resized(input, dims, sizes), dims, _scaling(norm, forward), not forward)


def _real_shape(name: str, input: Array, s: Any, dim: Any) -> tuple[list[int], tuple[int, ...]]:
    sizes, dims = _shape_and_dims(input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    return sizes, dims


def _half_shape(name: str, input: Array, s: Any, dim: Any) -> tuple[list[int], tuple[int, ...], int]:
    """The sizes of half a spectrum, its dimensions, and the size of the whole along the last of them."""
    sizes, dims = _real_shape(name, input, s, dim)
    given = as_tuple(s)
    if given is None or given[-1] == -1:
        sizes[-1] = 2 * (input.shape[dims[-1]] - 1)
        _check_length(sizes[-1])
    return [*sizes[:-1], sizes[-1] // 2 + 1], dims, sizes[-1]


def _real_nd(input: Array, s: Any, dim: Any, norm: str | None) -> Array:
    input = signal("rfftn", input)
    _refuse_complex("rfftn", input, "real-valued")
    sizes, dims = _real_shape("rfftn", input, s, dim)
    return fft_r2c(_resized(input, dims, sizes), dims, _scaling(norm, True), True)


def _inverse_real_nd(input: Array, s: Any, dim: Any, norm: str | None) -> Array:
    input = signal("irfftn", input, to_complex=True)
    sizes, dims, last = _half_shape("irfftn", input, s, dim)
    return fft_c2r(_resized(input, dims, sizes), dims, _scaling(norm, False), last)


def _hermitian_nd(input: Array, s: Any, dim: Any, norm: str | None) -> Array:
    input = signal("hfftn", input, to_complex=True)
    sizes, dims, last = _half_shape("hfftn", input, s, dim)
    input, normalization = _resized(input, dims, sizes), _scaling(norm, True)
    if dims[:-1]:
        input = fft_c2c(input, dims[:-1], normalization, False)
    return fft_c2r(conj(input), dims[-1:], normalization, last)


def _inverse_hermitian_nd(input: Array, s: Any, dim: Any, norm: str | None) -> Array:
    input = signal("ihfftn", input)
    if input.dtype.kind == "c":
        raise RuntimeError(f"Only supports floating-point dtypes, but found: {type_name(input)}")
    sizes, dims = _real_shape("ihfftn", input, s, dim)
    normalization = _scaling(norm, False)
    out = fft_r2c(_resized(input, dims, sizes), dims[-1:], normalization, True)
    return fft_c2c(conj_physical(out), dims[:-1], normalization, True) if dims[:-1] else conj(out)


@composite
@numpy_spelling
def fft_fftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform along several dimensions (all, by default), of the input cut or padded to the sizes `s`.

    >>> import undertow as ut
    >>> ut.fft.fftn(ut.ones(2, 2)).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _complex_nd("fftn", input, s, dim, norm, True)


@composite
@numpy_spelling
def fft_ifftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`.

    >>> import undertow as ut
    >>> ut.fft.ifftn(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000+0.j, -0.5000+0.j],
            [-1.0000+0.j,  0.0000+0.j]])
    """
    return _complex_nd("ifftn", input, s, dim, norm, False)


@composite
@numpy_spelling
def fft_rfftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """`fftn` of a real signal: of the last dimension, only the half that decides the other.

    >>> import undertow as ut
    >>> ut.fft.rfftn(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]])
    """
    return _real_nd(input, s, dim, norm)


@composite
@numpy_spelling
def fft_irfftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`.

    >>> import undertow as ut
    >>> ut.fft.irfftn(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000, -0.5000],
            [-1.0000,  0.0000]])
    """
    return _inverse_real_nd(input, s, dim, norm)


@composite
@numpy_spelling
def fft_hfftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The (real) `fftn` of a signal with Hermitian symmetry, of which the input is half.

    >>> import undertow as ut
    >>> ut.fft.hfftn(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    return _hermitian_nd(input, s, dim, norm)


@composite
@numpy_spelling
def fft_ihfftn(input: Array, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`.

    >>> import undertow as ut
    >>> ut.fft.ihfftn(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000-0.j, -0.5000-0.j],
            [-1.0000+0.j,  0.0000+0.j]])
    """
    return _inverse_hermitian_nd(input, s, dim, norm)


@composite
@numpy_spelling
def fft_fft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`fftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.fft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]])
    """
    return fft_fftn(input, s, dim, norm)


@composite
@numpy_spelling
def fft_ifft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`ifftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.ifft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000+0.j, -0.5000+0.j],
            [-1.0000+0.j,  0.0000+0.j]])
    """
    return fft_ifftn(input, s, dim, norm)


@composite
@numpy_spelling
def fft_rfft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.rfft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]])
    """
    return fft_rfftn(input, s, dim, norm)


@composite
@numpy_spelling
def fft_irfft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.irfft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000, -0.5000],
            [-1.0000,  0.0000]])
    """
    return fft_irfftn(input, s, dim, norm)


@composite
@numpy_spelling
def fft_hfft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.hfft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    return fft_hfftn(input, s, dim, norm)


@composite
@numpy_spelling
def fft_ihfft2(input: Array, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Tensor:
    """`ihfftn` along the last two dimensions.

    >>> import undertow as ut
    >>> ut.fft.ihfft2(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 2.5000-0.j, -0.5000-0.j],
            [-1.0000+0.j,  0.0000+0.j]])
    """
    return fft_ihfftn(input, s, dim, norm)
