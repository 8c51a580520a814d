"""NumPy's functions of sampled curves, signals and polynomials: more entries for numpy/functions.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend.interface import Array, DType
from undertow.interop.numpy.functions import counterpart, flat, ops, tensors, unwrapped
from undertow.interop.numpy.linalg import promoted
from undertow.interop.numpy.positions import moved, pick
from undertow.tensor import Tensor

# ---- numbers between two ends


def spaced(start: Array, stop: Array, num: int, endpoint: bool, axis: int) -> tuple[Any, Any]:
    """Numbers at equal distances from `start` to `stop`, and the distance."""
    start, stop = tensors((start, stop))
    gaps = max(num - 1 if endpoint else num, 1)
    shape = np.broadcast_shapes(start._array.shape, stop._array.shape)
    dtype = np.result_type(start._array.dtype, stop._array.dtype, float if start._array.dtype.kind in "biu" else "f4")
    parts = Tensor((np.arange(num) / gaps).astype(dtype).reshape(-1, *[1] * len(shape)), start._xp)
    start, stop = [ops.to_dtype(t, dtype) for t in (start, stop)]
    step = ops.true_divide(ops.sub(stop, start), gaps)
    return ops.moveaxis(ops.lerp(*ops.broadcast_tensors(start, stop, parts)), 0, axis), step


@counterpart(np.linspace)
def linspace(
    start: Array, stop: Array, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: DType = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    values, step = spaced(start, stop, num, endpoint, axis)
    values = values if dtype is None else ops.to_dtype(values, np.dtype(dtype))
    return (values, step) if retstep else values


@counterpart(np.logspace)
def logspace(
    start: Array,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Array = 10.0,
    dtype: DType | None = None,
    axis: int = 0,
) -> Array:
    base, start, stop = tensors((base, start, stop))
    values = ops.pow(base, spaced(start, stop, num, endpoint, axis)[0])
    return values if dtype is None else ops.to_dtype(values, np.dtype(dtype))


@counterpart(np.geomspace)
def geomspace(
    start: Array, stop: Array, num: int = 50, endpoint: bool = True, dtype: DType | None = None, axis: int = 0
) -> Array:
    start, stop = tensors((start, stop))
    if (np.sign(unwrapped(start)) * np.sign(unwrapped(stop)) != 1).any():
        raise ops.Missing("geomspace between numbers of different sign")
    exponents = spaced(ops.log(ops.abs(start)), ops.log(ops.abs(stop)), num, endpoint, axis)[0]
    values = ops.mul(ops.sgn(start), ops.exp(exponents))
    return values if dtype is None else ops.to_dtype(values, np.dtype(dtype))


# ---- sampled curves


@counterpart(np.gradient)
def gradient(f: Array, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    spacing: Any = varargs if len(varargs) > 1 else varargs[0] if varargs else 1
    if isinstance(spacing, Tensor) and spacing._array.ndim:
        spacing = [spacing]
    dims = None if axis is None else tuple(np.atleast_1d(axis).tolist())
    found = ops.gradient(f, spacing=spacing, dim=dims, edge_order=edge_order)
    return found[0] if len(found) == 1 else tuple(found)


@counterpart(np.diff)
def diff(a: Array, n: int = 1, axis: int = -1, prepend: Any = None, append: Array | None = None) -> Array:
    axis %= a._array.ndim
    parts = [edge_of(prepend, a, axis), a, edge_of(append, a, axis)]
    return ops.diff(ops.cat([p for p in parts if p is not None], axis), n, axis)


def edge_of(value: Array | None, a: Array, axis: int) -> Array | None:
    """What is put before or after the values: a number stands for a row of it."""
    if value is None:
        return None
    (value, _) = tensors((value, a))
    if value._array.ndim:
        return value
    return ops.broadcast_to(value, [1 if k == axis else n for k, n in enumerate(a._array.shape)])


@counterpart(np.ediff1d)
def ediff1d(ary: Array, to_end: Any = None, to_begin: Array | None = None) -> Array:
    differences = ops.diff(flat(ary, 0)[0])
    parts = [p for p in (to_begin, differences, to_end) if p is not None]
    return ops.cat([flat(p, 0)[0] for p in tensors(parts)])


@counterpart(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    x, xp, fp = tensors((x, xp, fp))
    if period is not None:
        x, xp, fp, left, right = *periodic(x, xp, fp, period), None, None
    last = xp._array.size - 1
    if not last:
        raise ops.Missing("interp with a single point")
    places = np.clip(np.searchsorted(unwrapped(xp), unwrapped(x), "right") - 1, 0, last - 1)
    x0, x1, f0, f1 = pick(xp, places), pick(xp, places + 1), pick(fp, places), pick(fp, places + 1)
    between = ops.add(f0, ops.mul(ops.true_divide(ops.sub(f1, f0), ops.sub(x1, x0)), ops.sub(x, x0)))
    found = ops.where(ops.lt(x, xp[0]), fp[0] if left is None else left, between)
    return ops.where(ops.ge(x, xp[last]), right_of(x, xp[last], fp[last], right), found)


def right_of(x: Array, end: Array, value: Array, right: Any) -> Array:
    return value if right is None else ops.where(ops.gt(x, end), right, value)


def periodic(x: Array, xp: Array, fp: Array, period: float) -> tuple[Any, Any, Any]:
    """The curve sorted within one period, and one more point on each side."""
    period = abs(period)
    x, xp = ops.remainder(x, period), ops.remainder(xp, period)
    order = np.argsort(unwrapped(xp))
    xp, fp = pick(xp, order), pick(fp, order)
    return x, ops.cat([xp[-1:] - period, xp, xp[:1] + period]), ops.cat([fp[-1:], fp, fp[:1]])


@counterpart(np.unwrap)
def unwrap(p: Array, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Array:
    bare = unwrapped(p)
    turns = np.unwrap(bare, discont, axis, period=period) - bare  # whole periods: their derivative is zero
    return ops.add(p, Tensor(turns, p._xp))


# ---- signals


@counterpart(np.convolve)
def convolve(a: Array, v: Any, mode: str = "full") -> Array:
    a, v = tensors((a, v))
    if a._array.size < v._array.size:
        a, v = v, a
    n, m = a._array.size, v._array.size
    if not m:
        raise ValueError("v cannot be empty")
    dtype = np.result_type(a._array.dtype, v._array.dtype)
    padded = ops.constant_pad_nd(ops.to_dtype(a, dtype), (m - 1, m - 1))
    full = ops.matmul(ops.unfold(padded, 0, m, 1), ops.flip(ops.to_dtype(v, dtype), (0,)))
    first, length = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    return ops.narrow(full, 0, first, length)


@counterpart(np.correlate)
def correlate(a: Array, v: Array, mode: str = "valid") -> Array:
    a, v = tensors((a, v))
    if mode == "same" and a._array.size < v._array.size:
        return ops.conj(ops.flip(correlate(v, a, mode), (0,)))
    return convolve(a, ops.flip(ops.conj(v), (0,)), mode)


# ---- padding


@counterpart(np.pad)
def pad(array: Array, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    if mode in ("edge", "reflect", "symmetric", "wrap") and options.get("reflect_type", "even") == "even":
        return moved(np.pad, [array], unwrapped(pad_width), mode)
    values = options.get("constant_values", 0)
    if mode != "constant" or not isinstance(values, (int, float, complex)):
        raise ops.Missing("pad")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, pad_width.get(k - array._array.ndim, 0)) for k in range(array._array.ndim)]
        pad_width = [(w, w) if isinstance(w, int) else w for w in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width), (array._array.ndim, 2))
    return ops.constant_pad_nd(array, [int(n) for pair in widths[::-1] for n in pair], values)


# ---- polynomials: coefficients, the highest power first


@counterpart(np.polyval)
def polyval(p: Any, x: Array) -> Array:
    p, x = tensors((p, x))
    value = ops.zeros_like(x, dtype=np.result_type(p._array.dtype, x._array.dtype))
    for coefficient in ops.unbind(p, 0):
        value = ops.add(ops.mul(value, x), coefficient)
    return value


def aligned(a1: Array, a2: Array) -> list[Any]:
    """Both with as many coefficients as the longer one."""
    pair = [ops.atleast_1d(t) for t in tensors((a1, a2))]
    longest = max(t._array.size for t in pair)
    return [ops.constant_pad_nd(t, (longest - t._array.size, 0)) for t in pair]


@counterpart(np.polyadd)
def polyadd(a1: Array, a2: Array) -> Array:
    return ops.add(*aligned(a1, a2))


@counterpart(np.polysub)
def polysub(a1: Array, a2: Array) -> Array:
    return ops.sub(*aligned(a1, a2))


@counterpart(np.polymul)
def polymul(a1: Array, a2: Array) -> Array:
    return convolve(*[ops.atleast_1d(t) for t in tensors((a1, a2))])


@counterpart(np.polydiv)
def polydiv(u: Array, v: Array) -> tuple[Array, Array]:
    u, v = [ops.atleast_1d(t) for t in tensors((u, v))]
    steps = u._array.size - v._array.size + 1
    rest, quotient = list(ops.unbind(u, 0)), []
    divisor = ops.unbind(v, 0)
    for k in range(steps):
        quotient.append(ops.true_divide(rest[k], divisor[0]))
        for i, d in enumerate(divisor):
            rest[k + i] = ops.sub(rest[k + i], ops.mul(quotient[k], d))
    rest = [r for k, r in enumerate(rest) if k >= steps]
    while len(rest) > 1 and np.allclose(unwrapped(rest[0]), 0, rtol=1e-14):
        rest.pop(0)
    nothing = [ops.zeros_like(divisor[0], dtype=np.result_type(u._array.dtype, v._array.dtype, "f4"))]
    return ops.stack(quotient or nothing), ops.stack(rest or nothing)


@counterpart(np.polyder)
def polyder(p: Array, m: int = 1) -> Array:
    for _ in range(m):
        degree = p._array.size - 1
        p = ops.mul(p[:-1], Tensor(np.arange(degree, 0, -1), p._xp))
    return p


@counterpart(np.polyint)
def polyint(p: Array, m: int = 1, k: Any = None) -> Array:
    (p,) = tensors((p,))
    constants = tensors([p, *np.broadcast_to(0.0 if k is None else unwrapped(k), (m,))])[1:]
    if isinstance(k, Tensor):
        constants = ops.unbind(ops.broadcast_to(k, (m,)), 0)
    for constant in constants:
        powers = Tensor(np.arange(p._array.size, 0, -1), p._xp)
        p = ops.cat([ops.true_divide(p, powers), ops.reshape(constant, (1,))])
    return p


@counterpart(np.poly)
def poly(seq_of_zeros: Array) -> Array:
    zeros = seq_of_zeros if seq_of_zeros._array.ndim < 2 else ops.linalg_eigvals(seq_of_zeros)
    coefficients = ops.ones_like(ops.narrow(ops.atleast_1d(zeros), 0, 0, 1))
    for zero in ops.unbind(ops.atleast_1d(zeros), 0):
        factor = ops.cat([ops.ones_like(coefficients[:1]), ops.reshape(ops.neg(zero), (1,))])
        coefficients = convolve(coefficients, factor)
    return real_if_real(coefficients) if seq_of_zeros._array.ndim > 1 else coefficients


def real_if_real(values: Array) -> Array:
    """Complex values, as the real ones that they are."""
    return ops.real(values) if np.all(unwrapped(values).imag == 0) else values


@counterpart(np.roots)
def roots(p: Any) -> Array:
    (p,) = tensors((p,))
    nonzero = np.nonzero(unwrapped(p))[0]
    if not nonzero.size:
        return Tensor(np.array([]), p._xp)
    zeros = p._array.size - int(nonzero[-1]) - 1
    p = p[int(nonzero[0]) : int(nonzero[-1]) + 1]
    n = p._array.size - 1
    if not n:
        return ops.zeros_like(p, dtype=p._array.dtype)[:0] if not zeros else ops.zeros(zeros, dtype=p._array.dtype)
    below = Tensor(np.eye(n, k=-1, dtype=p._array.dtype)[1:], p._xp)
    companion = ops.cat([ops.unsqueeze(ops.true_divide(ops.neg(p[1:]), p[0]), 0), below])
    found = real_if_real(ops.linalg_eigvals(companion))
    return ops.cat([found, ops.zeros(zeros, dtype=found._array.dtype)]) if zeros else found


@counterpart(np.polyfit)
def polyfit(
    x: Array, y: Array, deg: int, rcond: Any = None, full: bool = False, w: Array | None = None, cov: Any = False
) -> Array:
    if full or cov:
        raise ops.Missing("polyfit with full or cov")
    x, y = tensors((x, y))
    powers = ops.vander(x, deg + 1)
    if w is not None:
        (w, _) = tensors((w, x))
        powers, y = ops.mul(powers, ops.unsqueeze(w, 1)), ops.mul(y, w if y._array.ndim == 1 else ops.unsqueeze(w, 1))
    scale = ops.sqrt(ops.sum(ops.square(powers), 0))
    right = ops.unsqueeze(y, 1) if y._array.ndim == 1 else y
    solved = ops.linalg_lstsq(*promoted(ops.true_divide(powers, scale), right))[0]
    found = ops.true_divide(solved, ops.unsqueeze(scale, 1))
    return ops.squeeze(found, 1) if y._array.ndim == 1 else found
