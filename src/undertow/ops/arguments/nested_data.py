"""Foreign data as arrays: nested Python sequences, by PyTorch's rules of dtype and shape, and arrays of others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.backend.silence import quietly
from undertow.errors import warn_once
from undertow.tensor import Tensor, current_edge

NUMBERS = {bool: 0, int: 1, float: 2, complex: 3}
MAX_DEPTH = 64  # NumPy's limit on dimensions

# ---- arrays of others


def adopt(array: Array) -> Array:
    """The array itself, as a plain ndarray with one of undertow's dtypes; nothing is copied."""
    if type(array) is not cpu.ndarray:
        if isinstance(array, cpu.module.ma.MaskedArray):
            raise TypeError("can't convert a masked array: its mask would be lost. Use array.filled(value).")
        array = cpu.asarray(array)
    dtype = array.dtype
    if not dtypes.is_storable(dtype) or dtype.itemsize > 16 or dtype.char == "g":
        raise TypeError(
            f"can't convert np.ndarray of type numpy.{dtype.type.__name__}. The only supported types are: float64, "
            "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and "
            "bool."
        )
    if not dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders "
            "is currently not supported: use array.astype(array.dtype.newbyteorder('='))."
        )
    known = dtypes.as_dtype(dtype)
    return array if known is dtype else array.view(known)  # long and long long are one dtype to us


def _is_foreign_array(data: Any) -> bool:
    """Whether it is an array or NumPy scalar, or can become one by itself (a pandas column, another library's)."""
    return isinstance(data, (cpu.ndarray, cpu.generic)) or hasattr(data, "__array__")


# ---- Python data


def read(data: Any, dtype: DType | None = None) -> Array:
    """A new array of the data, which is anything but a Tensor."""
    if type(data) is not list and type(data) not in NUMBERS and _is_foreign_array(data):
        return quietly(cpu.array, adopt(cpu.asarray(data)), dtype)
    types: set[Any] = set()
    _measure(data, 0, types, typed=dtype is not None)
    if dtype is None:
        dtype = _infer_dtype(types)
    return build(data if types <= NUMBERS.keys() else plain(data), dtype, types)


def _measure(data: Any, depth: int, types: set[Any], typed: bool) -> tuple[int, ...]:
    """The shape of nested data; `types` collects the Python types and the dtypes of its numbers."""
    if type(data) in NUMBERS:
        types.add(type(data))
        return ()
    if not _is_sequence(data):
        return _measure_leaf(data, depth, types, typed)
    if depth == MAX_DEPTH:
        raise ValueError(f"too many dimensions '{type(data).__name__}'")
    found = set(map(type, data))
    if found <= NUMBERS.keys():  # the innermost rows, at the speed of C
        types |= found
        return (len(data),)
    shapes = [_measure(element, depth + 1, types, typed) for element in data]
    for element, shape in zip(data, shapes, strict=True):
        if shape != shapes[0]:
            _raise_ragged(shapes[0], shape, depth + 1, element)
    return (len(data), *shapes[0])


def _is_sequence(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return True
    if isinstance(data, (str, bytes, Tensor)) or _is_foreign_array(data):
        return False
    return isinstance(data, (Sequence, bytearray, memoryview)) or (
        hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "keys")
    )


def _measure_leaf(data: Any, depth: int, types: set[Any], typed: bool) -> tuple[int, ...]:
    if isinstance(data, Tensor):
        _check_single(data)
        types.add(data._array.dtype)
        return ()
    if _is_foreign_array(data):
        array = adopt(cpu.asarray(data))
        types.add(array.dtype)
        return tuple(array.shape)
    number = next((t for t in NUMBERS if isinstance(data, t)), None)
    if number is not None:  # a subclass, such as an IntEnum
        types.add(number)
        return ()
    name = type(data).__name__
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{name}'")
    if typed:
        raise TypeError(f"must be real number, not {name}")
    raise RuntimeError(f"Could not infer dtype of {name}")


def _check_single(tensor: Tensor) -> None:
    if tensor._array.size != 1:
        raise ValueError(
            "only one element tensors can be converted to Python scalars. Use undertow.stack to join larger ones."
        )
    if current_edge(tensor) is not None:
        warn_once(
            "scalar-of-tensor-that-requires-grad",
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
            "Consider using tensor.detach() first.",
            stacklevel=6,
        )


def _raise_ragged(expected: tuple[int, ...], got: tuple[int, ...], depth: int, element: Any) -> None:
    for dim, (n, m) in enumerate(zip(expected, got, strict=False), depth):
        if n != m:
            raise ValueError(f"expected sequence of length {n} at dim {dim} (got {m})")
    if len(got) < len(expected):
        raise TypeError(f"not a sequence: {element!r} stands where others are of length {expected[len(got)]}")
    raise TypeError(f"must be real number, not {type(element).__name__}")


def _infer_dtype(types: set[Any]) -> DType:
    """PyTorch's dtype for numbers of these types (and dtypes) together."""
    found = [dtypes.number_dtype(NUMBERS[t]) if t in NUMBERS else t for t in types]
    return reduce(dtypes.promote_types, found) if found else dtypes.default_dtype()


def dtype_of_number(number: Any) -> DType:
    """The dtype of a tensor made from one Python number."""
    return dtypes.number_dtype(next(NUMBERS[t] for t in NUMBERS if isinstance(number, t)))


def plain(data: Any) -> Any:
    """The data with every tensor in it replaced by its number, and every sequence by a list."""
    if isinstance(data, Tensor):
        return data._array.item()
    return [plain(element) for element in data] if _is_sequence(data) else data


def build(data: Any, dtype: DType, types: set[Any]) -> Array:
    """The array of measured data, or an error if a number does not fit the dtype."""
    if dtype.kind in "iu":
        return build_integers(data, dtype, types)
    if dtypes.is_floating(dtype) and any(t is complex or getattr(t, "kind", "") == "c" for t in types):
        raise TypeError("must be real number, not complex")
    return quietly(cpu.array, data, dtype)


def build_integers(data: Any, dtype: DType, types: set[Any]) -> Array:
    if any(t is complex or getattr(t, "kind", "") == "c" for t in types):
        raise TypeError("'complex' object cannot be interpreted as an integer")
    try:
        if dtype is dtypes.uint64:
            return cpu.array(data, dtype=dtype)
        wide = cpu.array(data, dtype=dtypes.int64)
    except (OverflowError, ValueError) as error:
        if types <= {bool, int}:
            raise ValueError(f"Overflow when unpacking long long: a number is too large for {dtype}") from error
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow") from error
    return narrow(wide, dtype)


def narrow(wide: Array, dtype: DType) -> Array:
    """int64 numbers as a narrower integer dtype; negative ones wrap around in an unsigned dtype, as PyTorch's do."""
    if dtype is dtypes.int64:
        return wide
    limits = cpu.iinfo(dtype)
    lowest = limits.min if dtype.kind == "i" else -int(limits.max)
    if wide.size and (wide.min() < lowest or wide.max() > limits.max):
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
    return wide.astype(dtype)
