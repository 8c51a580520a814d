"""`assert_close`, for tests of programs: tensors, arrays and numbers, alone or in lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.backend.interface import DType
from undertow.tensor import Tensor
from undertow.tensor.layouts import strided
from undertow.torch_names import module_aliases

if TYPE_CHECKING:
    from undertow.backend.interface import Array, Device

#: how far values may be apart, relatively and absolutely, by the name of their dtype; others not at all
TOLERANCES = {
    "bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise an AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    allow_subclasses  whether two tensors may be of different classes
    check_device, check_dtype, check_layout, check_stride  whether these must be the same
    msg               what the error says, or a function of what it would say

    >>> import undertow as ut
    >>> ut.testing.assert_close(ut.ones(2), ut.ones(2) + 1e-7)
    >>> ut.testing.assert_close({"loss": 1.0}, {"loss": 1.1})
    Traceback (most recent call last):
    AssertionError: Scalars are not close!
    <BLANKLINE>
    Expected 1.1 but got 1.0: absolute difference 0.1 (up to 1e-07 allowed), at ['loss']
    """
    get_tolerances(dtypes.float32, rtol=rtol, atol=atol)
    if not allow_subclasses and type(actual) is not type(expected):
        raise TypeError(f"assert_close(): {type(actual)} and {type(expected)}, with allow_subclasses=False")
    checks = {"device": check_device, "dtype": check_dtype, "layout": check_layout, "stride": check_stride}
    compared = [name for name, wanted in checks.items() if wanted]
    _compare(actual, expected, "", (rtol, atol, equal_nan, compared, msg))


def _compare(actual: Any, expected: Any, place: str, rules: Any) -> None:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        _check(actual.keys() == expected.keys(), f"The keys differ: {[*actual]} and {[*expected]}", place, rules)
        for key in expected:
            _compare(actual[key], expected[key], f"{place}[{key!r}]", rules)
    elif isinstance(expected, Sequence) and isinstance(actual, Sequence):
        _check(len(actual) == len(expected), f"The lengths differ: {len(actual)} and {len(expected)}", place, rules)
        for n, pair in enumerate(zip(actual, expected, strict=True)):
            _compare(*pair, f"{place}[{n}]", rules)
    else:
        _compare_values(actual, expected, place, rules)


def _check(fine: bool, problem: str, place: str, rules: Any) -> None:
    if not fine:
        text, msg = f"{problem}, at {place}" if place else problem, rules[-1]
        raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg)


def _compare_values(actual: Array, expected: Array, place: str, rules: Any) -> None:
    rtol, atol, equal_nan, compared, _ = rules
    a, b = (ops.as_tensor(value, dtype=_number_dtype(value)) for value in (actual, expected))
    _check(a.shape == b.shape, f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.", place, rules)
    for name in compared:
        mine, other = (t.stride() if name == "stride" else getattr(t, name) for t in (a, b))
        _check(mine == other, f"The values for attribute '{name}' do not match: {mine} != {other}.", place, rules)
    a, b = (t if t.layout is strided else t.to_dense() for t in (a, b))
    rtol, atol = get_tolerances(a, b, rtol=rtol, atol=atol)
    common = dtypes.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else dtypes.float64
    x, y = (t.detach().cpu().to(common)._array for t in (a, b))
    close = cpu.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if not close.all():
        _check(False, _difference(x, y, close, atol), place, rules)


def default_tolerances(*inputs: Any, dtype_precisions: Any = None) -> tuple[float, float]:
    """How far values of these tensors, or dtypes, may be apart: the largest `rtol` and `atol` of them.

    *inputs           tensors or dtypes
    dtype_precisions  dtype -> (rtol, atol), which go before the usual ones

    >>> import undertow as ut
    >>> ut.testing.default_tolerances(ut.ones(1))
    (1.3e-06, 1e-05)
    """
    found = [getattr(value, "dtype", value) for value in inputs]
    names = [dtypes.as_dtype(dtype, "default_tolerances").name for dtype in found]
    own = {dtypes.as_dtype(key, "default_tolerances").name: pair for key, pair in (dtype_precisions or {}).items()}
    pairs = [own.get(name) or TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max([rtol for rtol, _ in pairs]), max([atol for _, atol in pairs])


def get_tolerances(
    *inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """What was given, or `default_tolerances`.

    *inputs     tensors or dtypes
    rtol, atol  both or none
    id          accepted, without effect

    >>> import undertow as ut
    >>> ut.testing.get_tolerances(ut.ones(1), rtol=None, atol=None)
    (1.3e-06, 1e-05)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    return default_tolerances(*inputs) if rtol is None or atol is None else (rtol, atol)


def _number_dtype(value: Array) -> Any:
    return dtypes.float64 if isinstance(value, float) and not isinstance(value, Tensor) else None


def _difference(x: Any, y: Any, close: Any, atol: float) -> str:
    with cpu.errstate(invalid="ignore"):
        apart = cpu.abs(x - y)
    if x.ndim == 0:
        return (
            f"Scalars are not close!\n\nExpected {y} but got {x}: absolute difference {apart:.6g} "
            f"(up to {atol:g} allowed)"
        )
    wrong = int((~close).sum())
    place = tuple(int(n) for n in cpu.unravel_index(int(cpu.argmax(cpu.where(close, 0, apart))), x.shape))
    return (
        f"Tensor-likes are not close!\n\nMismatched elements: {wrong} / {x.size} ({100 * wrong / x.size:.1f}%)\n"
        f"Greatest absolute difference: {apart[place]:.6g} at index {place} (up to {atol:g} allowed)"
    )


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str | None = None,
) -> None:
    """`assert_close`, by its former name and with its former defaults: dtypes may differ, and nan equals nan.

    actual, expected  tensors, or what makes one
    rtol, atol        the difference may be atol + rtol * |expected|; both or none
    msg               what the error says

    >>> import undertow as ut
    >>> ut.testing.assert_close(ut.ones(2), ut.ones(2) + 1e-7)  # its newer name
    """
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(ops.as_tensor(actual), ops.as_tensor(expected))
    expected = ops.as_tensor(expected, dtype=ops.as_tensor(actual).dtype)
    assert_close(ops.as_tensor(actual), expected, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=msg)


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: Device | str | int | None = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of random numbers for tests: from -9 to 9 unless told otherwise (0 to 9 of unsigned integers).

    *shape         the sizes, one by one or as one list
    low, high      bounds: the lowest, and what all are below
    noncontiguous  every second element of a larger tensor
    exclude_zero   ones in the place of zeros

    >>> import undertow as ut
    >>> ut.testing.make_tensor(2, 3, dtype=ut.float32, device="cpu", low=0, high=1).shape
    undertow.Size([2, 3])
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    wanted = dtypes.as_dtype(dtype, "make_tensor")
    if wanted.kind == "b":
        made = ops.randint(0, 2, sizes, device=device).to(wanted)
    elif wanted.kind in "iu":
        lowest = 0 if wanted.kind == "u" else -9
        bounds = lowest if low is None else int(low), 10 if high is None else int(high)
        made = ops.randint(*bounds, sizes, device=device).to(wanted)
    else:
        start, end = -9.0 if low is None else low, 9.0 if high is None else high
        real = dtypes.real_of(wanted)
        made = ops.rand(sizes, device=device) * (end - start) + start
        if wanted.kind == "c":
            made = ops.complex(made, ops.rand(sizes, device=device) * (end - start) + start)
        made = made.to(real if wanted.kind != "c" else wanted)
    if exclude_zero:
        made = ops.where(made == 0, ops.ones_like(made), made)
    if noncontiguous and made.numel() > 1:
        made = ops.repeat_interleave(made, 2, -1)[..., ::2]
    return made.requires_grad_(requires_grad)


module_aliases.register(__name__)
