"""Sums of gradients without rounding errors, for leaves that several passes add to in any order.

`.grad` is the exact sum after rounding: the same bits for every order, for every overlap of the passes, and whoever has
looked at `.grad` in between. It costs the memory of two or three gradients per leaf. engine/deterministic_sums.py, of
which this is a part, switches it on.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from undertow.backend import cpu
from undertow.backend.interface import Array, DType, Namespace
from undertow.graph.gradient_arrays import fits_in_place
from undertow.tensor import Tensor, counter_of, extra_of

_enabled = [False]


def enabled() -> bool:
    return _enabled[0]


def enable(mode: bool) -> None:
    """Whether leaves sum exactly, from now on."""
    _enabled[0] = mode
    _sums.clear()


class ExactSum:
    """A sum of arrays without rounding errors.

    parts     arrays whose sum it is, the smallest first; element by element their bits do not overlap, so there are few
    specials  the sum of the infinities and nans among what was added; None if there were none

    Each part is the error of the addition above it (Knuth's two-sum); so errors are kept, not made. See Shewchuk,
    "Adaptive precision floating-point arithmetic", 1997, whose growing expansion this is, and Python's `math.fsum`.
    """

    __slots__ = ("parts", "specials", "xp")

    def __init__(self, xp: Namespace, first: Array) -> None:
        self.xp = xp
        self.parts: list[Any] = []
        self.specials: Any = None
        self.add(first)

    def add(self, array: Array) -> None:
        xp = self.xp
        rest = self._finite(array.astype(xp.result_type(array.dtype, xp.float64)))
        errors = []
        for part in self.parts:
            rest, error = two_sum(rest, part)
            errors.append(error)
        top = self._finite(rest)
        if top is not rest:  # the sum is too large for its dtype
            errors = [xp.where(xp.isfinite(error), error, 0.0) for error in errors]
        self.parts = [*errors, top]
        self._compress()

    def _compress(self) -> None:
        """Fill up the larger parts from the smaller ones, so that these become zero; one that is zero goes."""
        parts = self.parts
        for k in range(len(parts) - 2, -1, -1):
            parts[k + 1], parts[k] = two_sum(parts[k + 1], parts[k])
        if len(parts) > 1 and not self.xp.any(parts[0]):
            del parts[0]

    def _finite(self, array: Array) -> Array:
        """The array with zeros in the place of infinities and nans, which go to the specials."""
        xp = self.xp
        finite = xp.isfinite(array)
        if xp.all(finite):
            return array
        specials = xp.where(finite, 0.0, array)
        self.specials = specials if self.specials is None else self.specials + specials
        return xp.where(finite, array, 0.0)

    def rounded(self) -> Array:
        """The number nearest to the sum, for every element."""
        xp = self.xp
        *smaller, total = self.parts
        error = below = xp.zeros_like(total)
        for part in reversed(smaller):
            exact = error == 0
            below = xp.where(exact | (below != 0), below, part)
            next_total, next_error = two_sum(total, part)
            total, error = xp.where(exact, next_total, total), xp.where(exact, next_error, error)
        # half way between two numbers, the addition above chose without knowing what lies below
        twice = total + 2 * error
        total = xp.where((twice - total == 2 * error) & (xp.sign(error) * xp.sign(below) > 0), twice, total)
        total = total + 0.0  # -0.0 would depend on the order
        if self.specials is None:
            return total
        return xp.where(self.specials == 0, total, xp.where(xp.isnan(self.specials), xp.nan, self.specials))


class ExactComplexSum:
    """The same for complex arrays: two sums."""

    __slots__ = ("imag", "real", "xp")

    def __init__(self, xp: Namespace, first: Array) -> None:
        self.xp = xp
        self.real, self.imag = ExactSum(xp, first.real), ExactSum(xp, first.imag)

    def add(self, array: Array) -> None:
        self.real.add(array.real)
        self.imag.add(array.imag)

    def rounded(self) -> Array:
        real = self.real.rounded()
        total = self.xp.zeros(real.shape, self.xp.result_type(real.dtype, self.xp.complex128))
        total.real[...], total.imag[...] = real, self.imag.rounded()
        return total


def two_sum(a: Array, b: Array) -> tuple[Any, Any]:
    """a + b, rounded, and the rounding error."""
    total = a + b
    share = total - a
    return total, (a - (total - share)) + (b - share)


#: id of a gradient -> a reference that removes the entry when the gradient dies, and the sum behind the gradient
_sums: dict[int, tuple[Any, Any]] = {}


def add_exactly(leaf: Tensor, old: Tensor, grad: Array) -> bool:
    """Add an array to the gradient `old` of a leaf, without a rounding error; whether this was possible."""
    xp = old._xp
    if not all(isinstance(array, xp.ndarray) and array.dtype.kind in "fc" for array in (old._array, grad)):
        return False
    dtype = xp.result_type(old._array.dtype, grad.dtype)
    with cpu.errstate(all="ignore"):
        total = _sum_behind(old, dtype)
        total.add(grad)
        value = total.rounded()
    if old._array.flags.writeable and fits_in_place(grad, old._array):
        old._array[...] = value
        counter_of(old).value += 1  # a graph may have saved this gradient
    else:
        old = extra_of(leaf).grad = Tensor(xp.asarray(value).astype(dtype), xp)
    key = id(old)
    _sums[key] = ref(old, lambda _: _sums.pop(key, None)), total
    return True


def _sum_behind(grad: Tensor, dtype: DType) -> Any:
    """The exact sum behind a gradient; a new one if somebody has assigned or changed the gradient since."""
    xp, array = grad._xp, grad._array
    kind = ExactComplexSum if dtype.kind == "c" else ExactSum
    known = _sums.get(id(grad), (None, None))[1]
    if type(known) is kind and xp.array_equal(known.rounded().astype(array.dtype), array, equal_nan=True):
        return known
    return kind(xp, array)
