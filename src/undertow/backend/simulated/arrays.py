"""SimArray: memory of a simulated device.

The elements are a NumPy array that nobody outside can reach: a function of NumPy, a ufunc, an operator or a method
applied to a SimArray is a kernel of its device, sent to the current stream (`launch`), and run by the device's thread.
Where shape and dtype of its results are known beforehand (plans.py), the launching thread goes on with arrays that have
no values yet; otherwise it waits. Nothing here looks at elements in another thread than the device's.

Arrays of two devices do not mix, and NumPy does not get at the elements; `to_host` copies them, as `Tensor.cpu()` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from undertow.backend.interface import Array, DType, HostValues, KnownShape, Namespace
from undertow.backend.simulated import streams
from undertow.backend.simulated.clocks import LOCK, Buffer, order
from undertow.backend.simulated.faults import meet_failures
from undertow.backend.simulated.operations import Operation
from undertow.backend.simulated.plans import Plan, into, is_basic, plan
from undertow.scopes import held

#: functions and methods that change their first argument
CHANGES_FIRST = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "fill", "sort", "partition",
                 "resize", "at"}  # fmt: skip
#: those of them that do not look at what was there
WRITES_FIRST = {"setitem", "copyto", "fill", "put", "place", "putmask", "put_along_axis", "fill_diagonal"}
#: the functions of that name leave it alone
RETURNS_COPY = {np.sort, np.partition, np.resize}
#: functions that may return views of their arguments, and then look at no element
MAY_VIEW = {"T", "mT", "real", "imag", "getitem", "reshape", "ravel", "view", "transpose", "permute_dims", "swapaxes",
            "matrix_transpose", "moveaxis", "rollaxis", "squeeze", "expand_dims", "atleast_1d", "atleast_2d",
            "atleast_3d", "broadcast_to", "broadcast_arrays", "split", "array_split", "hsplit", "vsplit", "dsplit",
            "unstack", "diagonal", "flip", "flipud", "fliplr", "rot90", "as_strided", "sliding_window_view", "asarray",
            "asanyarray", "ascontiguousarray", "asfortranarray", "require"}  # fmt: skip
#: functions that look at no element
ASK_SHAPE = {"shape", "ndim", "size", "result_type", "can_cast", "common_type", "min_scalar_type", "may_share_memory",
             "shares_memory", "iscomplexobj", "isrealobj"}  # fmt: skip


class SimArray(NDArrayOperatorsMixin, KnownShape, HostValues):
    """An array on a simulated device; each device has a subclass of its own, which knows its namespace."""

    __slots__ = ("__weakref__", "_buffer", "_data")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: Array, buffer: Buffer) -> None:
        self._data = data
        self._buffer = buffer

    @property
    def base(self) -> Array | None:
        base = self._data.base
        while base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # NumPy's as_strided puts a holder in between
        return None if base is None else type(self)(base, self._buffer)

    # ---- kernels

    def __array_ufunc__(self, ufunc: Callable[..., Any], method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        written = [a for a in out if isinstance(a, SimArray)] if method != "at" else [inputs[0]]
        call = ufunc if method == "__call__" else getattr(ufunc, method)
        return launch(self.namespace, ufunc.__name__, call, inputs, kwargs, written)

    def __array_function__(self, function: Callable[..., Any], types: tuple[Any, ...], args: Any, kwargs: Any) -> Any:
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
                return launch(self.namespace, name, getattr, (self, name), {})
            raise AttributeError(f"an array on {self.namespace.device} has no attribute {name!r}")
        return partial(call_method, self, name, method)

    def astype(self, dtype: DType, *args: Any, copy: bool = True, **kwargs: Any) -> Array:
        if not copy and self.dtype == dtype:
            return self
        return call_method(self, "astype", np.ndarray.astype, dtype, *args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return launch(self.namespace, "getitem", np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Array) -> None:
        launch(self.namespace, "setitem", np.ndarray.__setitem__, (self, index, value), {}, [self])

    # ---- to the host, which waits for it

    def to_host(self) -> Array:
        """A NumPy array with the same elements, once the current stream has come to this point."""
        stream, copy = self.namespace.current_stream(), np.empty(self.shape, self.dtype)
        operation = send(
            self.namespace, "to_host", partial(np.copyto, copy, self._data), [self._buffer], [], waits=True
        )
        stream.synchronize()
        operation.outcome()
        return copy

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __reduce__(self) -> Any:
        return restore, (str(self.namespace.device), self.to_host())

    def __repr__(self) -> str:
        return f"<array of {self.dtype} {list(self.shape)} on {self.namespace.device}>"


def restore(device: str, data: Array) -> Array:
    return streams.namespace_for(device).asarray(data)


def call_method(array: SimArray, name: str, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Array:
    out = kwargs.get("out")
    written = [out] if isinstance(out, SimArray) else []
    return launch(array.namespace, name, method, (array, *args), kwargs, [array] if name in CHANGES_FIRST else written)


def launch(space: Namespace, name: str, function: Callable[..., Any], args: Any, kwargs: Any, written: Any = ()) -> Any:
    """Have the device run a function of NumPy, on the current stream; results are arrays of that device.

    written  the arrays that it changes; results are new arrays if there are none
    """
    given: list[SimArray] = []
    out: list[SimArray] = []
    args = uncovered(args, given)
    kwargs = {key: uncovered(value, out if key == "out" else given) for key, value in kwargs.items()}
    found = given + out
    for array in found:
        if array.namespace is not space:
            raise_mixed(name, space, array.namespace)
    failure = meet_failures(space, name)
    if name in ASK_SHAPE:
        return function(*args, **kwargs)
    planned: Plan | None = None
    if name in MAY_VIEW and (name != "getitem" or is_basic(args[1])):
        result = function(*args, **kwargs)
        if shows_arguments(result, found):
            return covered(space, result, found, [])
        planned = plan_copy_like(result, function, args, kwargs)
    elif len(out) == count_outputs(kwargs):
        planned = plan(function, args, kwargs)
    reads = list({id(a._buffer): a._buffer for a in given[name in WRITES_FIRST :]}.values())
    if planned is None:
        call = partial(function, *args, **kwargs)
        return launch_and_wait(space, name, call, reads, found, [a._buffer for a in written], failure)
    return launch_planned(space, name, planned, reads, written, failure)


def plan_copy_like(result: Array, function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    """The plan of a function that might have given a view, but has copied: what it read may not have been finished.

    So of its result nothing is taken but shape, dtype and layout.
    """
    if isinstance(result, np.ndarray) and result.flags.writeable:
        return into(result, function, args, kwargs)
    return plan(function, args, kwargs)


def launch_planned(space: Namespace, name: str, planned: Plan, reads: list[Any], written: Any, failure: Any) -> Any:
    """Return the results of a kernel before it has run."""
    made = [space.ndarray(target, Buffer(space, target.nbytes)) for target in planned.targets]
    buffers = [array._buffer for array in made or written]
    operation = send(space, name, planned.call, reads, buffers, failure, makes=bool(made))
    if operation.awaited:
        operation.outcome()
    results = made or written
    return (None, results[0], tuple(results))[min(planned.returns, 2)] if results else None


def launch_and_wait(
    space: Any, name: str, call: Callable[..., Any], reads: list[Any], found: list[Any], writes: list[Any], failure: Any
) -> Any:
    """Wait for a kernel, to see what it returns."""
    operation = send(space, name, call, reads, writes, failure, makes=not writes, waits=True)
    if failure is not None:
        space.late_failure = None  # it is told now
    result = operation.outcome()
    fresh: list[Buffer] = []
    shown = covered(space, result, found, fresh)
    for buffer in fresh:
        buffer.written = operation
    if reads and not writes and not isinstance(result, (np.ndarray, np.generic, tuple, list)):
        operation.stream.synchronize()  # the program has looked at the elements
    return shown


def send(
    space: Namespace,
    name: str,
    call: Callable[..., Any],
    reads: list[Buffer],
    writes: list[Buffer],
    failure: BaseException | None = None,
    makes: bool = False,
    waits: bool = False,
) -> Operation:
    """Put a kernel on the current stream. If its `awaited` is true, the caller is to take its outcome."""
    operation = Operation(space.current_stream(), name, call)
    operation.errors = errors = np.geterr()
    asked = not {"raise", "call", "log"}.isdisjoint(errors.values())  # the program will know at once
    if asked:
        operation.call = partial(call_with_handler, np.geterrcall(), call)
    operation.makes, operation.awaited = makes, waits or asked or space.options.launch_blocking
    if failure is not None:
        operation.fail(failure)
    with held(LOCK):
        try:
            order(operation, reads, writes, space.options.check)
        except BaseException as error:
            operation.give_up(error)
            raise
    return operation


def call_with_handler(handler: Any, call: Any) -> Any:
    with np.errstate(call=handler):
        return call()


def count_outputs(kwargs: Any) -> int:
    """How many arrays a call is told to write to; these must be the device's."""
    out = kwargs.get("out")
    return len([a for a in (out if isinstance(out, tuple) else (out,)) if a is not None])


def raise_mixed(name: str, space: Any, other: Array) -> None:
    raise RuntimeError(
        f"{name}(): Expected all tensors to be on the same device, but found at least two devices, {space.device} and "
        f"{other.device}! Move one of them with .to(device)."
    )


def uncovered(value: Any, found: list[SimArray]) -> Any:
    """`value` with every SimArray in it replaced by its NumPy array, and every array of the host by a copy.

    The SimArrays are added to `found`.
    """
    if isinstance(value, SimArray):
        found.append(value)
        return value._data
    if isinstance(value, np.ndarray):
        return value.copy(order="K")  # the program may change it as soon as the launch has returned
    if type(value) in (tuple, list):
        return type(value)([uncovered(v, found) for v in value])
    if type(value) is dict:
        return {key: uncovered(v, found) for key, v in value.items()}
    return value


def has_arrays(value: Array) -> bool:
    """Whether a list, or lists in it, hold SimArrays."""
    if type(value) in (tuple, list):
        return any(has_arrays(v) for v in value)
    return isinstance(value, SimArray)


def covered(space: Namespace, result: Any, found: list[SimArray], fresh: list[Buffer]) -> Any:
    """NumPy's result as arrays of the device; the buffers of those that are no views are added to `fresh`."""
    if isinstance(result, np.ndarray):
        return cover_array(space, result, found, fresh)
    if isinstance(result, np.generic):
        return cover_array(space, np.asarray(result), found, fresh)
    if isinstance(result, (tuple, list)):
        parts = [covered(space, r, found, fresh) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def shows_arguments(result: Array, found: list[SimArray]) -> bool:
    """Whether all the arrays in a result lie in the memory of arguments."""
    if isinstance(result, (tuple, list)):
        return all(shows_arguments(r, found) for r in result)
    return isinstance(result, np.ndarray) and any(
        result is a._data or (result.base is not None and np.may_share_memory(result, a._data)) for a in found
    )


def cover_array(space: Namespace, array: Array, found: list[SimArray], fresh: list[Buffer]) -> SimArray:
    for source in found:
        if source._data is array:
            return source
        if array.base is not None and np.may_share_memory(array, source._data):
            return space.ndarray(array, source._buffer)  # type: ignore[no-any-return]
    buffer = Buffer(space, array.nbytes)
    fresh.append(buffer)
    return space.ndarray(array, buffer)  # type: ignore[no-any-return]
