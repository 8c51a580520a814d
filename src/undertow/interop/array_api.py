"""The Python array API standard (2024.12) on tensors: what `tensor.__array_namespace__()` returns.

Most functions are NumPy's, which follow the standard and become recorded operations when they are given tensors (see
numpy/protocol.py). Here are the functions that make tensors, and those for which the standard and PyTorch's rules
differ: dtypes of two arrays are promoted alike whatever their number of dimensions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend import Device, dtypes
from undertow.backend.interface import Array, DType
from undertow.interop.dlpack import from_dlpack as from_dlpack
from undertow.interop.numpy.functions import FUNCTIONS, NONDIFFERENTIABLE, ops, unwrapped
from undertow.modes import current
from undertow.tensor import Tensor

__array_api_version__ = "2024.12"

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

bool = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
float32, float64, complex64, complex128 = (np.dtype(name) for name in ("f4", "f8", "c8", "c16"))

DTYPES = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
}


# ---- NumPy's functions


def numpy_function(name: str, module: Any = np) -> Any:
    """NumPy's function of this name, which hands tensors over to undertow."""
    function = getattr(module, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log
log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan tanh trunc
""".split()

BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide
greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply
nextafter not_equal pow remainder subtract
""".split()

OTHERS = """
all any argmax argmin broadcast_shapes count_nonzero diff expand_dims flip matrix_transpose max
mean min moveaxis nonzero permute_dims repeat reshape roll searchsorted squeeze stack std take take_along_axis
tile tril triu unique_all unique_counts unique_inverse unique_values unstack var
""".split()

globals().update({name: numpy_function(name) for name in [*UNARY, *OTHERS]})


def __getattr__(name: str) -> Any:
    """Functions of NumPy that the standard has not, and tensors have: xarray looks for `einsum`, `pad`, ... here."""
    function = getattr(np, name, None)
    if isinstance(function, np.ufunc) or (callable(function) and {function} & (FUNCTIONS.keys() | NONDIFFERENTIABLE)):
        return numpy_function(name)
    raise AttributeError(f"undertow's namespace of the array API standard has no attribute {name!r}")


def promoted(*values: Any) -> list[Any]:
    """The tensors among the values, in their common dtype."""
    found = {v.dtype for v in values if isinstance(v, Tensor)}
    if len(found) < 2:
        return list(values)
    common = np.result_type(*found)
    return [ops.to_dtype(v, common) if isinstance(v, Tensor) else v for v in values]


def binary(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    @functools.wraps(function)
    def call(x1: Array, x2: Array, /) -> Any:
        return function(*promoted(x1, x2))

    return call


globals().update({name: binary(name) for name in BINARY})


# ---- where the standard knows better than NumPy what infinities give


def floor_divide(x1: Array, x2: Array, /) -> Array:
    x1, x2 = promoted(x1, x2)
    rounded = np.floor_divide(x1, x2)
    if rounded.dtype.kind != "f":
        return rounded
    a, b = (np.asarray(unwrapped(x)) for x in (x1, x2))
    exact = (np.isinf(a) & np.isfinite(b) & (b != 0)) | (np.isfinite(a) & np.isinf(b))
    return np.where(exact, np.divide(x1, x2), rounded) if exact.any() else rounded


def expm1(x: Array, /) -> Array:
    result = np.expm1(x)
    if x.dtype.kind != "c" or x.requires_grad or current().intercept is not None:
        return result  # which has a derivative; what is put in its place below has none
    z = np.asarray(unwrapped(x))
    limits, known = np.empty_like(z), np.zeros(z.shape, np.bool_)
    unbounded, level = ~np.isfinite(z.imag), z.imag == 0
    for cases, real, imag in (
        (level & (z.real == inf), inf, z.imag),
        (level & np.isnan(z.real), nan, z.imag),
        (level & (z.real == 0), 0.0, z.imag),
        (unbounded & (z.real == inf), inf, np.full(z.shape, nan)),
        (unbounded & (z.real == -inf), -1.0, np.zeros(z.shape)),
    ):
        limits.real[cases], limits.imag[cases] = real, imag[cases]
        known |= cases
    return np.where(known, ops.asarray(limits), result) if known.any() else result


def product(name: str, module: Any = np) -> Any:
    """A function whose first two arguments are multiplied in their common dtype."""
    function = getattr(module, name)

    @functools.wraps(function)
    def call(x1: Array, x2: Array, /, **kwargs: Any) -> Any:
        return function(*promoted(x1, x2), **kwargs)

    return call


matmul, tensordot, vecdot = product("matmul"), product("tensordot"), product("vecdot")


def broadcast_arrays(*arrays: Any) -> list[Any]:
    return list(ops.broadcast_tensors(*arrays))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    return list(np.meshgrid(*arrays, indexing=indexing))  # type: ignore[call-overload]


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    if min is None and max is None:
        return ops.clone(x)
    dtype = x.dtype
    limits = [v if v is None else ops.to_dtype(v, dtype) if isinstance(v, Tensor) else v for v in (min, max)]
    return ops.to_dtype(np.clip(x, *limits), dtype)


def where(condition: Array, x1: Array, x2: Array, /) -> Array:
    return np.where(condition, *promoted(x1, x2))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    return np.concatenate(promoted(*arrays), axis)


def sort(x: Array, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Array:
    return ops.sort(x, axis, descending, stable=stable)[0]


def argsort(x: Array, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Array:
    return ops.argsort(x, axis, descending, stable=stable)


# ---- sums: small integers are summed up in the default integer dtype


def wide(x: Array, dtype: DType) -> DType | None:
    if dtype is not None or x.dtype.kind not in "biu":
        return dtype
    return uint64 if x.dtype.kind == "u" else int64


def sum(x: Array, /, *, axis: Any = None, dtype: DType | None = None, keepdims: Any = False) -> Array:
    return np.sum(x, axis=axis, dtype=wide(x, dtype), keepdims=keepdims)


def prod(x: Array, /, *, axis: Any = None, dtype: DType | None = None, keepdims: Any = False) -> Array:
    return np.prod(x, axis=axis, dtype=wide(x, dtype), keepdims=keepdims)


def cumulative_sum(x: Array, /, *, axis: Any = None, dtype: DType = None, include_initial: Any = False) -> Array:
    return np.cumulative_sum(x, axis=axis, dtype=wide(x, dtype), include_initial=include_initial)


def cumulative_prod(x: Array, /, *, axis: Any = None, dtype: DType = None, include_initial: Any = False) -> Array:
    return np.cumulative_prod(x, axis=axis, dtype=wide(x, dtype), include_initial=include_initial)


# ---- new tensors


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Device | str | int | None = None, copy: Any = None
) -> Array:
    if isinstance(obj, Tensor):
        result = obj if dtype is None else ops.to_dtype(obj, dtype)
        if copy is False and result is not obj:
            raise ValueError("asarray: another dtype needs a copy")
        return ops.clone(result) if copy and result is obj else result
    if isinstance(obj, np.ndarray) and not copy and dtype in (None, obj.dtype):
        return ops.from_numpy(obj)
    if copy is False:
        raise ValueError("asarray: Python data cannot become a tensor without a copy")
    return ops.tensor(obj, dtype=dtype, device=device)


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
) -> Array:
    if stop is None:
        start, stop = 0, start
    values = np.arange(start, stop, step)
    made = ops.asarray(values.astype(dtype or (int64 if values.dtype.kind in "iu" else default_dtype())))
    return made if device is None else made.to(device)


def default_dtype() -> DType:
    return dtypes.default_dtype()


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    endpoint: Any = True,
) -> Array:
    kind = complex128 if isinstance(start, complex) or isinstance(stop, complex) else float64
    if dtype is None:
        dtype = default_dtype() if kind == float64 else (complex64 if default_dtype() == float32 else complex128)
    return ops.asarray(np.linspace(start, stop, num, endpoint=endpoint, dtype=kind).astype(dtype))


def empty(shape: Any, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Any:
    return ops.empty(shape, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    return ops.zeros(shape, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    return ops.ones(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    shape = (shape,) if isinstance(shape, int) else shape
    return ops.full(shape, fill_value, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    return ops.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    return ops.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: Device | str | int | None = None) -> Array:
    return ops.ones_like(x, dtype=dtype, device=device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: DType | None = None, device: Device | str | int | None = None
) -> Array:
    return ops.full_like(x, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: Any = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
) -> Array:
    return ops.asarray(np.eye(n_rows, n_cols, k, default_dtype() if dtype is None else dtype))


# ---- dtypes


def astype(x: Array, dtype: DType, /, *, copy: Any = True, device: Device | str | int | None = None) -> Array:
    result = ops.to_dtype(x, dtype)
    return ops.clone(result) if copy and result is x else result


def broadcast_to(x: Array, /, shape: Any) -> Array:
    return ops.broadcast_to(x, tuple(shape))


def can_cast(from_: DType, to: DType, /) -> Any:
    return np.can_cast(from_.dtype if isinstance(from_, Tensor) else from_, to)


def result_type(*arrays_and_dtypes: Any) -> DType:
    return np.result_type(*[v.dtype if isinstance(v, Tensor) else v for v in arrays_and_dtypes])


def isdtype(dtype: DType, kind: Any) -> Any:
    return np.isdtype(dtype, kind)


def finfo(type: DType, /) -> Any:
    """The limits of a floating-point dtype, as Python's floats."""
    dtype = type.dtype if isinstance(type, Tensor) else np.dtype(type)
    found: Any = np.finfo(dtype)
    names = ("eps", "max", "min", "smallest_normal")
    return SimpleNamespace(bits=found.bits, dtype=found.dtype, **{n: float(getattr(found, n)) for n in names})


def iinfo(type: DType, /) -> Any:
    found: Any = np.iinfo(type.dtype if isinstance(type, Tensor) else np.dtype(type))
    return SimpleNamespace(bits=found.bits, dtype=found.dtype, max=found.max, min=found.min)


# ---- linear algebra, Fourier transforms

LINALG = """
cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose
outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftshift ifftshift".split()

linalg = SimpleNamespace(**{name: numpy_function(name, np.linalg) for name in LINALG})
linalg.__dict__.update({n: product(n, np.linalg) for n in ("cross", "matmul", "outer", "solve", "tensordot", "vecdot")})
fft = SimpleNamespace(**{name: numpy_function(name, np.fft) for name in FFT})


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | str | int | None = None
) -> Array:
    return ops.asarray(np.fft.fftfreq(n, d).astype(default_dtype() if dtype is None else dtype))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | str | int | None = None) -> Any:
    return ops.asarray(np.fft.rfftfreq(n, d).astype(default_dtype() if dtype is None else dtype))


fft.fftfreq, fft.rfftfreq = fftfreq, rfftfreq


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    return np.linalg.trace(x, offset=offset, dtype=wide(x, dtype))


linalg.trace = trace


# what xarray's rolling windows look for
lib = SimpleNamespace(
    stride_tricks=SimpleNamespace(sliding_window_view=numpy_function("sliding_window_view", np.lib.stride_tricks))
)


# ---- inspection


class __array_namespace_info__:
    """What the namespace offers."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        return Device("cpu")

    def default_dtypes(self, *, device: Device | str | int | None = None) -> dict[str, Any]:
        real = default_dtype()
        pair = complex64 if real == float32 else complex128
        return {"real floating": real, "complex floating": pair, "integral": int64, "indexing": int64}

    def devices(self) -> list[Any]:
        return [Device("cpu")]

    def dtypes(self, *, device: Device | str | int | None = None, kind: Any = None) -> dict[str, Any]:
        every = [d for group in DTYPES.values() for d in group]
        return {d.name: d for d in every if kind is None or np.isdtype(d, kind)}
