"""What `assertEqual` means: same structure and dtype, values close within the tolerance of the dtype."""

from __future__ import annotations

import cmath
import enum
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

import undertow

#: dtype -> (rtol, atol); integers and booleans must be equal
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
}
#: Python numbers are compared as single precision
NUMBER_TOLERANCES = {int: (0.0, 0.0), float: TOLERANCES["float32"], complex: TOLERANCES["complex64"]}
NUMBERS = (int, float, complex, np.number, enum.Enum)
ARRAYS = (undertow.Tensor, np.ndarray)


@dataclass(frozen=True)
class Rules:
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = True
    exact_dtype: bool = True
    exact_device: bool = False
    exact_layout: bool = False
    exact_stride: bool = False

    def __post_init__(self) -> None:
        if (self.rtol is None) != (self.atol is None):
            raise ValueError("rtol and atol must be given together or not at all")

    def tolerances(self, *defaults: tuple[float, float]) -> tuple[float, float]:
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        return max(rtol for rtol, _ in defaults), max(atol for _, atol in defaults)


def check_equal(x: Any, y: Any, rules: Rules) -> None:
    """AssertionError unless x and y are equal under the rules; a tensor may be compared with a plain list."""
    if isinstance(x, undertow.Tensor) and _is_sequence(y):
        y = undertow.tensor(y, dtype=x.dtype)
    elif _is_sequence(x) and isinstance(y, undertow.Tensor):
        x = undertow.tensor(x, dtype=y.dtype)
    _compare(x, y, rules, "")


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _compare(x: Any, y: Any, rules: Rules, path: str) -> None:
    if _is_sequence(x) and _is_sequence(y):
        _compare_sequences(x, y, rules, path)
    elif isinstance(x, Mapping) and isinstance(y, Mapping):
        _compare_mappings(x, y, rules, path)
    elif _pair_of(x, y, (bool, np.bool_), (bool, np.bool_, *NUMBERS, *ARRAYS)):
        _require(bool(_single(x)) == bool(_single(y)), f"Booleans mismatch: {x} is not {y}", path)
    elif _pair_of(x, y, NUMBERS, (*NUMBERS, *ARRAYS)):
        _compare_numbers(x, y, rules, path)
    elif isinstance(x, ARRAYS) and isinstance(y, ARRAYS):
        _compare_tensors(x, y, rules, path)
    elif isinstance(x, ARRAYS) or isinstance(y, ARRAYS):
        raise AssertionError(_at(f"a tensor cannot equal {type(x).__name__} / {type(y).__name__}", path))
    elif isinstance(x, Set) and isinstance(y, Set):
        _require(x == y, f"sets differ: {x} and {y}", path)
    else:
        _require(bool(x == y), f"{x!r} != {y!r}", path)


def _pair_of(x: Any, y: Any, one: Any, other: Any) -> bool:
    return (isinstance(x, one) and isinstance(y, other)) or (isinstance(y, one) and isinstance(x, other))


def _compare_sequences(x: Any, y: Any, rules: Rules, path: str) -> None:
    _require(len(x) == len(y), f"The length of the sequences mismatch: {len(x)} != {len(y)}", path)
    for index, (one, other) in enumerate(zip(x, y, strict=True)):
        _compare(one, other, rules, f"{path}[{index}]")


def _compare_mappings(x: Any, y: Any, rules: Rules, path: str) -> None:
    _require(set(x) == set(y), f"The keys of the mappings do not match: {list(x)} and {list(y)}", path)
    for key in x:
        _compare(x[key], y[key], rules, f"{path}[{key!r}]")


def _single(value: Any) -> Any:
    """The one number that a number, an enum member or a tensor of one element stands for."""
    if isinstance(value, ARRAYS):
        array = to_numpy(value)
        if array.size > 1:
            raise ValueError(f"only a tensor of one element can be compared with a number, got {array.size} elements")
        return array.item()
    if isinstance(value, enum.Enum):
        return int(value.value)
    return value.item() if isinstance(value, np.generic) else value


def _compare_numbers(x: Any, y: Any, rules: Rules, path: str) -> None:
    x, y = (int(n) if isinstance(n, bool) else n for n in (_single(x), _single(y)))
    rtol, atol = rules.tolerances(NUMBER_TOLERANCES[type(x)], NUMBER_TOLERANCES[type(y)])
    both_nan = rules.equal_nan and cmath.isnan(x) and cmath.isnan(y)
    gap = 0 if x == y or both_nan else abs(x - y)
    close = cmath.isfinite(gap) and gap <= atol + rtol * abs(y) if gap else True
    _require(close, f"Scalars are not close: {x} and {y} (rtol {rtol}, atol {atol})", path)


def to_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    value = value.detach()
    if getattr(value, "is_sparse", False):
        value = value.to_dense()
    value = value.cpu()
    return value.numpy() if not hasattr(value, "resolve_conj") else value.resolve_conj().numpy()


def _compare_tensors(x: Any, y: Any, rules: Rules, path: str) -> None:
    _compare_attributes(x, y, rules, path)
    a, b = to_numpy(x), to_numpy(y)
    rtol, atol = rules.tolerances(*(TOLERANCES.get(array.dtype.name, (0.0, 0.0)) for array in (a, b)))
    close = _close(a, b, rtol, atol, rules.equal_nan)
    if not np.all(close):
        off = np.argwhere(~np.asarray(close))
        first = tuple(int(i) for i in off[0])
        _require(
            False,
            f"Tensor-likes are not close: {len(off)} of {a.size} elements differ, first at {first}: "
            f"{a[first]} and {b[first]} (rtol {rtol}, atol {atol})",
            path,
        )


def _compare_attributes(x: Any, y: Any, rules: Rules, path: str) -> None:
    _require(tuple(x.shape) == tuple(y.shape), f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}", path)
    if rules.exact_dtype:
        _require(x.dtype == y.dtype, f"dtypes differ: {x.dtype} and {y.dtype}", path)
    if rules.exact_device:
        _require(x.device == y.device, f"devices differ: {x.device} and {y.device}", path)
    if rules.exact_layout:
        _require(x.layout == y.layout, f"layouts differ: {x.layout} and {y.layout}", path)
    if rules.exact_stride:
        _require(x.stride() == y.stride(), f"strides differ: {x.stride()} and {y.stride()}", path)


def _close(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    if rtol == atol == 0:
        nan = (a != a) & (b != b) if equal_nan else False
        return (a == b) | nan
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        return np.isclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol, equal_nan=equal_nan)


def _at(message: str, path: str) -> str:
    return f"{message} (at {path})" if path else message


def _require(condition: bool, message: str, path: str) -> None:
    if not condition:
        raise AssertionError(_at(message, path))
