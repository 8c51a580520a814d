"""Dtypes and PyTorch's promotion rules.

Inside undertow a dtype is NumPy's; what users see is in public_dtypes.py. What differs from NumPy is promotion: PyTorch
ranks operands in three classes (tensors with dimensions, 0-d tensors, Python numbers) and a lower class changes the
result only when its kind (bool < integer < real < complex) is higher.

bfloat16 comes from the package ml_dtypes, which is imported when it is first asked for. NumPy can store it, copy it and
cast it; its kind is "V", as of everything NumPy does not know, and no other dtype of that kind becomes a tensor's.
Operations compute bfloat16 and float16 in float32 (see ops/arguments/half_precision.py).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend.interface import DType
from undertow.backend.public_dtypes import dtype as dtype
from undertow.backend.public_dtypes import plain as plain
from undertow.backend.public_dtypes import public as public

#: what a dtype of either kind is an instance of
AnyDtype = np.dtype

bool_ = np.dtype(np.bool_)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

ALL = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float16, float32, float64, complex64, complex128,
)  # fmt: skip

#: kind -> rank of the category
CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}

#: the kinds of real floating-point dtypes, and of all that can have a gradient; in operations on arrays "f" and "fc"
#: will do, because those never see bfloat16
FLOATING, DIFFERENTIABLE = "fV", "fcV"

#: what operations compute in float32, by its dtype and NumPy's scalar type: float16, and bfloat16 from its first use on
NARROW: dict[Any, np.dtype[Any]] = {float16: float16, np.float16: float16}

#: bfloat16 (its dtype, and NumPy's scalar type), from its first use on
_BFLOAT16: list[Any] = []

#: the names PyTorch's messages use for an element type
SCALAR_NAMES = {
    bool_: "Bool", uint8: "Byte", int8: "Char", int16: "Short", int32: "Int", int64: "Long", float16: "Half",
    float32: "Float", float64: "Double", complex64: "ComplexFloat", complex128: "ComplexDouble", uint16: "UInt16",
    uint32: "UInt32", uint64: "UInt64",
}  # fmt: skip

#: the names PyTorch's messages use for a tensor type
TENSOR_TYPE_NAMES = {d: name + "Tensor" for d, name in SCALAR_NAMES.items()}

_COMPLEX_OF: dict[np.dtype[Any], np.dtype[Any]] = {float16: complex64, float32: complex64, float64: complex128}
_REAL_OF: dict[np.dtype[Any], np.dtype[Any]] = {complex64: float32, complex128: float64}

_default = [float32]


def default_dtype() -> np.dtype[Any]:
    """NumPy's dtype of float tensors made from Python numbers."""
    return _default[0]


def get_default_dtype() -> dtype:
    """The dtype of float tensors made from Python numbers; float32 unless changed.

    >>> import undertow as ut
    >>> ut.tensor(1.5).dtype == ut.get_default_dtype() == ut.float32
    True
    """
    return public(_default[0])


def set_default_dtype(d: DType) -> None:
    """Set the dtype of float tensors made from Python numbers (a real floating dtype).

    d  a real floating-point dtype

    >>> import undertow as ut
    >>> ut.set_default_dtype(ut.float64)
    >>> ut.ones(1)
    tensor([1.])
    >>> ut.set_default_dtype(ut.float32)
    """
    d = numpy_dtype(d)
    if not is_floating(d):
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default[0] = d


_BY_KEY: dict[Any, np.dtype[Any]] = {key: d for d in ALL for key in (d, d.type)}
_BY_KEY |= {bool: bool_, int: int64, float: float64, complex: complex128}
_BY_NAME = {d.name: d for d in ALL}


# ---- bfloat16


def bfloat16() -> np.dtype[Any]:
    """The dtype of ml_dtypes; ImportError where that is not installed."""
    if not _BFLOAT16:
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                "undertow.bfloat16 needs the package ml_dtypes, which is not installed: "
                "pip install 'undertow[bf16]'. Or use undertow.float16, or float32."
            ) from None
        _introduce(np.dtype(ml_dtypes.bfloat16))
    return _BFLOAT16[0]  # type: ignore[no-any-return]


#: dtypes that NumPy does not have; all but bfloat16 are for keeping numbers, not for computing
FROM_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def from_ml_dtypes(name: str) -> np.dtype[Any]:
    """One of these; ImportError where ml_dtypes is not installed."""
    if name == "bfloat16":
        return bfloat16()
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"undertow.{name} needs the package ml_dtypes, which is not installed: pip install 'undertow[bf16]'."
        ) from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


@cache
def has_bfloat16() -> bool:
    """Whether ml_dtypes is installed; it is not imported for that."""
    from importlib.util import find_spec  # a millisecond of every import, and few ask

    return find_spec("ml_dtypes") is not None


def _introduce(d: np.dtype[Any]) -> None:
    SCALAR_NAMES[d] = "BFloat16"
    TENSOR_TYPE_NAMES[d] = "BFloat16Tensor"
    _BY_KEY[d] = _BY_KEY[d.type] = d
    _BFLOAT16[:] = d, d.type
    NARROW.update({d: d, d.type: d})


def is_bfloat16(d: np.dtype[Any]) -> bool:
    """Whether it is ml_dtypes' bfloat16, of which undertow may not have heard yet."""
    return d.kind == "V" and d.type.__name__ == "bfloat16" and bfloat16() == d


def numpy_dtype(d: DType) -> np.dtype[Any]:
    """np.dtype(d), which may be the first use of bfloat16."""
    d = d.dtype if type(d) is dtype else np.dtype(d)
    return bfloat16() if d.kind == "V" and is_bfloat16(d) else d


def is_storable(d: np.dtype[Any]) -> bool:
    """Whether a tensor can have it: a dtype of NumPy's numbers, or bfloat16."""
    return d.kind in "biufc" or is_bfloat16(d)


def is_floating(d: np.dtype[Any]) -> bool:
    """Whether it is a real floating-point dtype."""
    return d.kind in FLOATING


def kind_of(d: np.dtype[Any]) -> str:
    """NumPy's letter for the kind of a dtype; bfloat16 is a float."""
    return "f" if d.kind == "V" else d.kind


def is_narrow(d: np.dtype[Any]) -> bool:
    """Whether it is float16 or bfloat16."""
    return d.itemsize == 2 and d.kind in FLOATING


def wide(d: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that operations compute in for tensors of dtype `d`: float32 for half precision, otherwise itself."""
    return float32 if is_narrow(d) else d


#: what NumPy's finfo says of other dtypes
_BFLOAT16_LIMITS = SimpleNamespace(
    bits=16, nmant=7, precision=2, eps=2.0**-7, max=(2 - 2.0**-7) * 2.0**127, min=-(2 - 2.0**-7) * 2.0**127,
    tiny=2.0**-126, smallest_normal=2.0**-126,
)  # fmt: skip


def float_limits(d: DType) -> Any:
    """NumPy's finfo, also of bfloat16 and its like."""
    if any([d is own for own in _BFLOAT16]):
        return _BFLOAT16_LIMITS
    if np.dtype(d).kind == "V":
        import ml_dtypes

        return ml_dtypes.finfo(d)  # type: ignore[no-untyped-call]
    return np.finfo(d)


def of_limits(d: DType) -> np.dtype[Any]:
    """NumPy's of a dtype whose limits are asked for: also one that numbers can only be kept in."""
    plainly = plain(d)
    is_kept = isinstance(plainly, np.dtype) and plainly.kind == "V" and plainly.type.__name__ in FROM_ML_DTYPES[1:]
    return plainly if is_kept else as_dtype(d, "finfo")


def as_dtype(d: DType, function: str = "dtype") -> np.dtype[Any]:
    """One of `ALL` (or bfloat16) from a dtype, its name, a NumPy scalar type, or Python's bool, int, float, complex."""
    try:
        return _BY_KEY[d.dtype if type(d) is dtype else d]
    except (KeyError, TypeError):
        if isinstance(d, str) and d.rpartition(".")[2] in _BY_NAME:
            return _BY_NAME[d.rpartition(".")[2]]
        d = plain(d)
        if isinstance(d, (type, np.dtype)) and "bfloat16" in (getattr(d, "__name__", None), getattr(d, "name", None)):
            return bfloat16()  # ml_dtypes' own, before its first use here
        kind = f"{d!r}" if isinstance(d, (type, np.dtype)) else type(d).__name__
        raise TypeError(
            f"{function}(): argument 'dtype' must be undertow.dtype, not {kind}. Use undertow.float32, ..."
        ) from None


def complex_of(d: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype whose parts have the precision of `d`."""
    return d if d.kind == "c" else _COMPLEX_OF.get(d, complex64)


def real_of(d: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real part of `d`."""
    return _REAL_OF.get(d, d)


def is_differentiable(d: np.dtype[Any]) -> bool:
    return d.kind in DIFFERENTIABLE


def common_type(a: DType, b: DType) -> dtype:
    """The smallest dtype that both fit in, by PyTorch's table.

    a, b  dtypes

    >>> import undertow as ut
    >>> ut.promote_types(ut.int64, ut.float16)
    undertow.float16
    """
    return public(promote_types(a, b))


def promote_types(a: DType, b: DType) -> np.dtype[Any]:
    """NumPy's dtype of the smallest that both fit in."""
    return _promoted(numpy_dtype(a), numpy_dtype(b))


@cache
def _promoted(high: np.dtype[Any], low: np.dtype[Any]) -> np.dtype[Any]:
    if high == low:
        return high
    if CATEGORY[high.kind] < CATEGORY[low.kind]:
        high, low = low, high
    if CATEGORY[high.kind] == CATEGORY[low.kind]:
        return _promote_within(high, low)
    if high.kind == "c" and low.kind in FLOATING:
        return complex128 if low == float64 or high == complex128 else complex64
    return high


def can_cast(from_: DType, to: DType) -> bool:
    """Whether PyTorch's promotion would cast `from_` to `to`: kinds go up only, bool < integer < real < complex.

    >>> import undertow as ut
    >>> ut.can_cast(ut.float64, ut.float16), ut.can_cast(ut.float16, ut.int64)
    (True, False)
    """
    return CATEGORY[numpy_dtype(from_).kind] <= CATEGORY[numpy_dtype(to).kind]


def _promote_within(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    if a.kind in FLOATING:  # bfloat16 has the range of float32, float16 more digits
        return float32 if a.itemsize == b.itemsize else a if a.itemsize > b.itemsize else b
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    if unsigned.itemsize >= 2:
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a} and {b}"
        )
    return signed if signed.itemsize > 1 else int16


#: dtype of a Python number's category, before the default is applied
NUMBER_CATEGORY = {bool: 0, int: 1, float: 2, complex: 3}


def number_dtype(category: int) -> np.dtype[Any]:
    """The dtype a Python number of that category takes when nothing else decides."""
    if category == 2:
        return _default[0]
    if category == 3:
        return complex_of(_default[0])
    return int64 if category == 1 else bool_


def combine(dims: list[np.dtype[Any]], zero_dims: list[np.dtype[Any]], numbers: list[int]) -> np.dtype[Any]:
    """The result dtype of operands sorted into PyTorch's three classes; `numbers` holds category ranks."""
    result: np.dtype[Any] | None = None
    for group in (dims, zero_dims):
        if group:
            candidate = group[0]
            for d in group[1:]:
                candidate = promote_types(candidate, d)
            result = candidate if result is None else _combine_categories(result, candidate)
    if numbers:
        top = max(numbers)
        result = number_dtype(top) if result is None else _with_number(result, top)
    assert result is not None
    return result


def _combine_categories(higher: np.dtype[Any], lower: np.dtype[Any]) -> np.dtype[Any]:
    if CATEGORY[lower.kind] <= CATEGORY[higher.kind]:
        return higher
    return complex_of(higher) if higher.kind in FLOATING else lower


def _with_number(result: np.dtype[Any], category: int) -> np.dtype[Any]:
    if category <= CATEGORY[result.kind]:
        return result
    if category == 3 and result.kind in FLOATING:
        return complex_of(result)
    return number_dtype(category)
