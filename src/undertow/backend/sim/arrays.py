"""SimArray: memory of a simulated device.

The elements are a NumPy array that nobody outside can reach: a function of NumPy, a ufunc, an operator or a method
applied to a SimArray is a kernel of its device, sent to the current stream (`launch`). Arrays of two devices do not
mix, and NumPy does not get at the elements; `to_host` copies them, as `Tensor.cpu()` does.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from undertow.backend.interface import DeviceArray
from undertow.backend.sim import streams
from undertow.backend.sim.clocks import LOCK, Buffer, order
from undertow.backend.sim.faults import meet_failures

#: functions and methods that change their first argument
CHANGES_FIRST = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "fill", "sort", "partition",
                 "resize", "at"}  # fmt: skip
#: those of them that do not look at what was there
WRITES_FIRST = {"setitem", "copyto", "fill", "put", "place", "putmask", "put_along_axis", "fill_diagonal"}
#: the functions of that name leave it alone
RETURNS_COPY = {np.sort, np.partition, np.resize}


class SimArray(NDArrayOperatorsMixin, DeviceArray):
    """An array on a simulated device; each device has a subclass of its own, which knows its namespace."""

    __slots__ = ("__weakref__", "_buffer", "_data")
    __hash__ = None  # type: ignore[assignment]

    namespace: Any = None

    def __init__(self, data: Any, buffer: Buffer) -> None:
        self._data = data
        self._buffer = buffer

    # ---- what is known without looking at the elements

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    strides = property(lambda self: self._data.strides)
    itemsize = property(lambda self: self._data.itemsize)
    nbytes = property(lambda self: self._data.nbytes)
    flags = property(lambda self: self._data.flags)
    ctypes = property(lambda self: self._data.ctypes)
    device = property(lambda self: self.namespace.device)

    @property
    def base(self) -> Any:
        base = self._data.base
        while base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # NumPy's as_strided puts a holder in between
        return None if base is None else type(self)(base, self._buffer)

    def setflags(self, **flags: bool) -> None:
        self._data.setflags(**flags)

    def __len__(self) -> int:
        return len(self._data)

    # ---- kernels

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        written = [a for a in out if isinstance(a, SimArray)] if method != "at" else [inputs[0]]
        call = ufunc if method == "__call__" else getattr(ufunc, method)
        return launch(self.namespace, ufunc.__name__, call, inputs, kwargs, written)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        out = kwargs.get("out")
        written = [a for a in (out if isinstance(out, tuple) else (out,)) if isinstance(a, SimArray)]
        if name in CHANGES_FIRST and function not in RETURNS_COPY:
            written = [args[0]]
        return launch(self.namespace, name, function, args, kwargs, written)

    def __getattr__(self, name: str) -> Any:
        method = getattr(np.ndarray, name, None)
        if name.startswith("__") or not callable(method):
            if name in ("T", "mT", "real", "imag"):
                return launch(self.namespace, name, lambda a: getattr(a, name), (self,), {})
            raise AttributeError(f"an array on {self.namespace.device} has no attribute {name!r}")
        return functools.partial(call_method, self, name, method)

    def __getitem__(self, index: Any) -> Any:
        return launch(self.namespace, "getitem", lambda a, i: a[i], (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        launch(self.namespace, "setitem", np.ndarray.__setitem__, (self, index, value), {}, [self])

    # ---- to the host, which waits for it

    def to_host(self) -> Any:
        """A NumPy array with the same elements, once the current stream has come to this point."""
        stream = self.namespace.current_stream()
        run(self.namespace, "to_host", [self._buffer], [])
        stream.synchronize()
        return self._data.copy()

    def item(self, *index: Any) -> Any:
        return self.to_host().item(*index)

    def tolist(self) -> Any:
        return self.to_host().tolist()

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return self.to_host().__index__()  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __contains__(self, value: Any) -> bool:
        return value in self.to_host()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            f"can't convert {self.namespace.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def __reduce__(self) -> Any:
        return restore, (str(self.namespace.device), self.to_host())

    def __repr__(self) -> str:
        return f"<array of {self.dtype} {list(self.shape)} on {self.namespace.device}>"


def restore(device: str, data: Any) -> Any:
    return streams.namespace_for(device).asarray(data)


def call_method(array: SimArray, name: str, method: Any, /, *args: Any, **kwargs: Any) -> Any:
    out = kwargs.get("out")
    written = [out] if isinstance(out, SimArray) else []
    return launch(array.namespace, name, method, (array, *args), kwargs, [array] if name in CHANGES_FIRST else written)


def launch(space: Any, name: str, function: Any, args: Any, kwargs: Any, written: Any = ()) -> Any:
    """Run a function of NumPy as a kernel of a device, on the current stream; results are arrays of that device.

    A result that shows the memory of an argument is a view: nothing was run.
    """
    given: list[SimArray] = []
    out: list[SimArray] = []
    args = uncovered(args, given)
    kwargs = {key: uncovered(value, out if key == "out" else given) for key, value in kwargs.items()}
    found, read = given + out, given[name in WRITES_FIRST :]
    for array in found:
        if array.namespace is not space:
            raise_mixed(name, space, array.namespace)
    meet_failures(space, name)
    reads = list({id(a._buffer): a._buffer for a in read}.values())
    if written:
        run(space, name, reads, [a._buffer for a in written])
        return covered(space, function(*args, **kwargs), found, [])
    fresh: list[Buffer] = []
    result = covered(space, function(*args, **kwargs), found, fresh)
    if fresh:
        run(space, name, reads, fresh)
    elif isinstance(result, bool) and reads:  # the program has looked at the elements
        run(space, name, reads, [])
        space.current_stream().synchronize()
    return result


def run(space: Any, name: str, reads: list[Buffer], writes: list[Buffer]) -> None:
    """Put a kernel on the current stream, and let the time pass that it takes if time is real."""
    stream, options = space.current_stream(), space.options
    with LOCK:
        start = stream.time
        order(name, stream, reads, writes, options.check)
        duration = stream.time - start
    if options.real_time:
        time.sleep(duration)


def raise_mixed(name: str, space: Any, other: Any) -> None:
    raise RuntimeError(
        f"{name}(): Expected all tensors to be on the same device, but found at least two devices, {space.device} and "
        f"{other.device}! Move one of them with .to(device)."
    )


def uncovered(value: Any, found: list[SimArray]) -> Any:
    """`value` with every SimArray in it replaced by its NumPy array; the SimArrays are added to `found`."""
    if isinstance(value, SimArray):
        found.append(value)
        return value._data
    if type(value) in (tuple, list):
        return type(value)([uncovered(v, found) for v in value])
    if type(value) is dict:
        return {key: uncovered(v, found) for key, v in value.items()}
    return value


def covered(space: Any, result: Any, found: list[SimArray], fresh: list[Buffer]) -> Any:
    """NumPy's result as arrays of the device; the buffers of those that are no views are added to `fresh`."""
    if isinstance(result, np.ndarray):
        return cover_array(space, result, found, fresh)
    if isinstance(result, np.generic):
        return cover_array(space, np.asarray(result), found, fresh)
    if isinstance(result, (tuple, list)):
        parts = [covered(space, r, found, fresh) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def cover_array(space: Any, array: Any, found: list[SimArray], fresh: list[Buffer]) -> SimArray:
    for source in found:
        if source._data is array:
            return source
        if array.base is not None and np.may_share_memory(array, source._data):
            return space.ndarray(array, source._buffer)  # type: ignore[no-any-return]
    buffer = Buffer(space, array.nbytes)
    fresh.append(buffer)
    return space.ndarray(array, buffer)  # type: ignore[no-any-return]
