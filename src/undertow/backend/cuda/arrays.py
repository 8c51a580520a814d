"""CudaArray: an array on a GPU, with the attributes and methods that NumPy's arrays have.

The C type (csrc/cuda/array.c) has shape, strides, views and operators. Here is what is asked for less often: functions
of NumPy that are called with such an array come to `__array_function__` and `__array_ufunc__`, and go to a kernel
(functions.py), to a view (views.py), or to the host (tail.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import (
    by_cupy,
    device,
    exchange,
    factorizations,
    fourier,
    functions,
    making,
    pinned,
    scans,
    tail,
    views,
)
from undertow.backend.cuda.reductions import OPERATIONS, result_dtype, supported
from undertow.backend.cuda.reductions import reduce as reduce_to
from undertow.backend.interface import Array, Device, DType, HostValues
from undertow.backend.sparse.protocol import AnySparse


class Flags:
    """What NumPy says of an array's memory."""

    def __init__(self, array: Array) -> None:
        self.array = array

    c_contiguous = contiguous = property(lambda self: self.array.is_contiguous)
    f_contiguous = property(lambda self: self.array.is_contiguous_by_columns)
    forc = property(lambda self: self.c_contiguous or self.f_contiguous)
    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)
    owndata = property(lambda self: self.array.base is None)
    aligned = property(lambda self: True)

    @property
    def writeable(self) -> bool:
        return bool(self.array.is_writeable)

    @writeable.setter
    def writeable(self, value: bool) -> None:
        self.array.is_writeable = value

    def __getitem__(self, name: str) -> bool:
        short = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "O": "owndata", "A": "aligned"}
        return bool(getattr(self, short.get(name, name.lower())))


class Methods(HostValues):
    """What is the same for arrays of every GPU."""

    __slots__ = ()
    namespace: Any = None

    device = property(lambda self: self.namespace.device)
    ctypes = property(lambda self: SimpleNamespace(data=self.address))
    mT = property(lambda self: self.swapaxes(-1, -2))
    real = property(lambda self: views.part(self, "real") if self.dtype.kind == "c" else self)
    imag = property(lambda self: views.part(self, "imag") if self.dtype.kind == "c" else making.zeros_like(self))
    flat = property(lambda self: self.reshape(-1))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How other libraries for GPUs find the memory."""
        stream = self.namespace.here().stream() or 1
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, not self.is_writeable),
                "version": 3, "strides": self.strides, "stream": stream}  # fmt: skip

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return exchange.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CUDA, self.namespace.index

    # ---- functions of NumPy

    def __array_ufunc__(self, ufunc: Array, method: str, *inputs: Any, **options: Any) -> Array | None:
        if any([isinstance(x, AnySparse) for x in inputs]):
            return NotImplemented
        if method == "__call__":
            return call_ufunc(self.namespace, ufunc, inputs, options)
        if method == "reduce" and ufunc.__name__ in functions.REDUCTIONS:
            return reduced(ufunc, *inputs, **options)
        if method in ("accumulate", "reduceat"):
            found = getattr(scans, method)(ufunc, *inputs, **options)
            if found is not NotImplemented:
                return found
        written = [inputs[0]] if method == "at" else arrays_in(options.get("out"))
        if method == "at":
            done = functions.at(ufunc, *inputs)
            if done:
                return None
        return tail.on_host(f"{ufunc.__name__}.{method}", getattr(ufunc, method), inputs, options, written)

    def __array_function__(self, function: Array, types: Any, args: Any, kwargs: Any) -> Any:
        if any([issubclass(t, AnySparse) for t in types]):
            return NotImplemented
        return call_function(self.namespace, function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("__") else getattr(np.ndarray, name, None)
        if not callable(method):
            raise AttributeError(f"an array on {self.namespace.device} has no attribute {name!r}")
        return partial(call_method, self, name, method)

    # ---- methods with kernels

    def astype(
        self, dtype: DType, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Array:
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return self.namespace.cast_to(dtype)(self)

    def copy_in_order(self, order: str | None) -> Any:
        return making.copied(self, order or "C")

    def fill(self, value: Any) -> None:
        if making.is_number_of(value, self.dtype):
            self.namespace.fill_kernel(self, value, self)  # a number travels with the kernel: nobody waits
        else:
            self[...] = value

    def reshape_in_order(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        if order == "F":
            sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
            return self.T.reshape_to(tuple(sizes)[::-1]).T
        return self.reshape_to(*shape)

    def ravel(self, order: str = "C") -> Any:
        return self.reshape_to(-1) if order != "F" else self.T.reshape_to(-1)

    def flatten(self, order: str = "C") -> Any:
        return self.copy("C").reshape_to(-1) if order != "F" else self.T.copy("C").reshape_to(-1)

    def view(self, dtype: DType = None) -> Array:
        return views.of(self, np.ndarray.view, (self,) if dtype is None else (self, np.dtype(dtype)))

    def conj(self) -> Any:
        return self.namespace.conj(self)

    conjugate = conj

    def setflags(self, write: bool | None = None, **others: Any) -> None:
        if write is not None:
            self.flags.writeable = write

    def to_host_later(self) -> Array:
        """A copy in pinned memory, which is there when the current stream is done."""
        return pinned.fetch_later(self)

    # ---- to the host, which waits for it

    def __iter__(self) -> Any:
        array: Any = self
        return iter([array[i] for i in range(len(array))])

    def __reduce__(self) -> Any:
        return restore, (self.to_host(), self.namespace.index)

    def __copy__(self) -> Any:
        return self.copy("K")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy("K")

    def __repr__(self) -> str:
        return f"<array of {self.dtype} {list(self.shape)} on {self.namespace.device}>"


def restore(data: Array, index: int = 0) -> Array:
    from undertow.backend.cuda import namespace  # a pickle may be the first that asks for a GPU

    return namespace(Device("cuda", index)).asarray(data)


@functools.cache
def array_class(index: int) -> Any:
    """The class of the arrays of a device: the C type with these methods."""
    extension, name = device.extension(), "CudaArray" if index == 0 else f"CudaArray{index}"
    return type(name, (extension.Array, Methods), {"__slots__": (), "__hash__": None, "__module__": __name__})


# ---- where functions of NumPy go


def arrays_in(value: Any) -> list[Any]:
    """The arrays of the device in a value."""
    if tail.is_device_array(value):
        return [value]
    if type(value) in (tuple, list):
        return [array for v in value for array in arrays_in(v)]
    return []


def call_ufunc(space: Any, ufunc: Array, inputs: Any, options: dict[str, Any]) -> Array:
    own = functions.UFUNCS.get(ufunc.__name__)
    if own is not None and not options:
        return own(*inputs)
    kernel = space.kernels.get(ufunc.__name__)
    out: Any = options.get("out")
    if kernel is None or (options and (set(options) != {"out"} or len(out) != 1 or out[0] is None)):
        return tail.on_host(ufunc.__name__, ufunc, inputs, options, arrays_in(out))
    return kernel(*inputs) if out is None else kernel(*inputs, out[0])


def call_function(space: Any, function: Array, args: Any, kwargs: Any) -> Any:
    name = function.__name__
    if name in functions.ASK_SHAPE:
        return functions.ASK_SHAPE[name](*args, **kwargs)
    own = functions.FUNCTIONS.get(name)
    if own is not None and function.__module__ in functions.MODULES:
        found = own(*args, **kwargs)
        if found is not NotImplemented:
            return found
    if name in views.FUNCTIONS:
        return views.of(arrays_in(args)[0], function, args, kwargs)
    if function.__module__ == "numpy.fft" and name in fourier.FUNCTIONS:
        found = fourier.FUNCTIONS[name](*args, **kwargs)
        if found is not NotImplemented:
            return found
    if function.__module__ == "numpy.linalg" and name in factorizations.FUNCTIONS:
        found = factorizations.FUNCTIONS[name](*args, **kwargs)
        if found is not NotImplemented:
            return found
    found = by_cupy.call(space, function, args, kwargs)
    if found is not NotImplemented:
        return found
    written = arrays_in(kwargs.get("out"))
    if name in functions.CHANGES_FIRST:
        written = [args[0]]
    return tail.on_host(name, function, args, kwargs, written)


def call_method(array: Array, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Array:
    """A method of NumPy's arrays that has no method here: the function of that name, or the host's."""
    own = functions.METHODS.get(name)
    if own is not None:
        found = own(array, *args, **kwargs)
        if found is not NotImplemented:
            return found
    if name in views.METHODS:
        return views.of(array, method, (array, *args), kwargs)
    written = [array] if name in functions.METHODS_THAT_CHANGE else arrays_in(kwargs.get("out"))
    return tail.on_host(name, method, (array, *args), kwargs, written)


#: the number of sums in C, and dtypes whose sums have them, too
SUM, REAL = OPERATIONS["add"][0], (dtypes.float32, dtypes.float64)


def reduce_by(ufunc: Array, array: Array, *args: Any, **options: Any) -> Array:
    """`ufunc.reduce` of an array of the device."""
    if ufunc.__name__ in functions.REDUCTIONS:
        return reduced(ufunc, array, *args, **options)
    return ufunc.reduce(array, *args, **options)


def reduced(ufunc: Array, array: Array, axis: Any = 0, dtype: DType = None, out: Any = None, keepdims: bool = False,
            **options: Any) -> Array:  # fmt: skip
    """`ufunc.reduce`."""
    name = ufunc.__name__
    is_plain = name == "add" and axis is None and dtype is None and out is None and not options
    if is_plain and array.dtype in REAL and array.ndim:  # the sum of everything, which losses are
        return device.extension().reduce(SUM, array, 0, array.ndim, bool(keepdims), array.dtype, 1.0)
    to = result_dtype(name, array, dtype)
    if out is not None or not supported(name, array, to, options):
        given = {"axis": axis, "dtype": dtype, "keepdims": keepdims, **options, **({} if out is None else {"out": out})}
        return tail.on_host(f"{name}.reduce", ufunc.reduce, (array,), given, arrays_in(out))
    return reduce_to(name, array, axis, to, bool(keepdims))
