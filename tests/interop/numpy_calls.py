"""Calls of NumPy's functions, one expression for each way of calling that matters.

The capitals are arrays, or tensors that require grad: A (3, 4), P (3, 4) positive, V (4,), S (3, 3), D (3, 3) symmetric
and positive definite, T (2, 3, 4), N (2, 2) with NaN, Z (3, 4) complex, X (4,) increasing, s () a number.
"""

from __future__ import annotations

import numpy as np

_rng = np.random.default_rng(0)
_square = _rng.standard_normal((3, 3))
ARRAYS = {
    "A": _rng.standard_normal((3, 4)),
    "P": np.abs(_rng.standard_normal((3, 4))) + 0.1,
    "V": _rng.standard_normal(4),
    "S": _square,
    "D": _square @ _square.T + 3 * np.eye(3),
    "T": _rng.standard_normal((2, 3, 4)),
    "N": np.array([[1.0, np.nan], [np.nan, 4.0]]),
    "Z": _rng.standard_normal((3, 4)) + 1j * _rng.standard_normal((3, 4)),
    "X": np.array([0.1, 0.6, 1.3, 2.4]),
    "s": np.array(0.7),
}

UFUNCS = """
np.add(A, A)  np.subtract(A, 1)  np.subtract(1, A)  np.multiply(A, V)  np.divide(A, V)  np.divide(2.0, A)
np.power(P, 2)  np.power(2.0, A)  np.power(P, A)  np.negative(A)  np.positive(A)  np.absolute(A)  np.fabs(A)  np.sign(A)
np.exp(A)  np.exp2(A)  np.expm1(A)  np.log(P)  np.log2(P)  np.log10(P)  np.log1p(P)  np.sqrt(P)  np.square(A)
np.reciprocal(P)  np.sin(A)  np.cos(A)  np.tan(A)  np.arcsin(np.tanh(A))  np.arccos(np.tanh(A))  np.arctan(A)
np.arctan2(A, P)  np.hypot(A, P)  np.sinh(A)  np.cosh(A)  np.tanh(A)  np.arcsinh(A)  np.arccosh(P + 1)
np.arctanh(np.tanh(A))  np.degrees(A)  np.rad2deg(A)  np.radians(A)  np.deg2rad(A)  np.maximum(A, 0)  np.minimum(A, V)
np.fmax(A, V)  np.fmin(A, V)  np.logaddexp(A, V)  np.logaddexp2(A, V)  np.floor(A)  np.ceil(A)  np.trunc(A)  np.rint(A)
np.remainder(A, P)  np.fmod(A, P)  np.copysign(A, V)  np.float_power(P, 2)
np.conjugate(A + 1j)  np.sign(A + 1j)  np.matmul(A, V)  np.matmul(A, [1, 2, 3, 4])  np.add([1, 2, 3, 4], A)
np.add.reduce(A)  np.add.reduce(A, axis=1, keepdims=True)  np.multiply.reduce(P, axis=0)  np.maximum.reduce(A, axis=1)
np.minimum.reduce(A)  np.add.accumulate(A, axis=1)  np.multiply.accumulate(A)  np.add.reduce(T, axis=(0, 2))
np.arange(4.0) + A  np.arange(4.0) - A  np.arange(4.0) * A  np.arange(4.0) / P  np.arange(4.0) ** P  np.ones((2, 3)) @ A
np.float64(2) * A  np.float64(2) - A  np.float64(2) / P  np.float64(2) ** A  A + np.ones(4)  A @ np.ones(4)
np.isnan(N)  np.isfinite(N)  np.isinf(N)  np.signbit(A)  np.greater(A, 0)  np.less_equal(A, V)  np.equal(A, A)
np.not_equal(A, A)  np.logical_and(A > 0, A < 1)  np.logical_not(A > 0)  np.invert(A > 0)  np.bitwise_and(A > 0, A < 1)
np.ones(4) < A  np.ones(4) == A
np.logical_and.reduce(A > 0)  np.logical_or.reduce(A > 0, axis=1)
"""

CALLS = """
np.sum(A)  np.sum(A, 0)  np.sum(T, axis=(0, 2), keepdims=True)  np.sum(A > 0)  np.mean(A, axis=1)  np.mean(A)
np.prod(P)  np.prod(P, axis=0)  np.prod(T, axis=(0, 2))
np.prod(A, keepdims=True)  np.max(A)  np.amax(A, 1)  np.amin(A, axis=0)
np.min(A, axis=0, keepdims=True)  np.ptp(A)  np.ptp(A, axis=0)
np.all(A > 0)  np.any(A > 0, axis=0)  np.argmax(A, axis=1)
np.argmin(A)  np.nansum(N)  np.nansum(N, axis=0)  np.nanmean(N, axis=0)  np.count_nonzero(A, axis=0)  np.var(A)
np.var(A, axis=0, ddof=1)  np.std(A, axis=1, keepdims=True)  np.std(A)
np.median(A)  np.median(A, axis=1)  np.nanmedian(N)
np.quantile(A, 0.3)  np.quantile(A, [0.3, 0.5], axis=0)  np.percentile(A, 30)  np.percentile(A, [30, 60], axis=1)
np.average(A)  np.average(A, axis=0, weights=P)
np.average(A, axis=1, weights=V)  np.average(A, axis=1, weights=np.arange(4.0))
np.cumsum(A)  np.cumsum(A, axis=1)  np.cumprod(A, axis=0)
np.cumprod(A)  np.diff(A)  np.diff(A, 2, 0)  np.diff(A, axis=0)
np.trapezoid(A)  np.trapezoid(A, dx=2.0, axis=0)  np.sort(A)
np.sort(A, axis=None)  np.sort(A, axis=0)  np.argsort(A, axis=0)
np.clip(A, -0.5, 0.5)  np.clip(A, None, 0.5)  np.clip(A, a_min=0, a_max=None)
np.clip(A, min=0)  np.round(A, 1)  np.around(A)
np.where(A > 0, A, 0)  np.where(A > 0, A, A * 2)  np.where(A > 0, 1.0, A)  np.nan_to_num(N)  np.nan_to_num(N, True, 2.0)
np.real(A)  np.imag(A + 1j * A)  np.angle(A + 1j)  np.angle(A + 1j, True)  np.sinc(A)  np.isclose(A, A)  np.isreal(A)
np.isposinf(N)  np.isneginf(N)  np.copy(A)  np.ones_like(A) * A  np.zeros_like(A) * A  np.full_like(A, 3.0) * A
np.reshape(A, (4, 3))  np.reshape(A, -1)  np.ravel(A)  np.transpose(T)  np.transpose(T, (1, 0, 2))  np.swapaxes(T, 0, 1)
np.moveaxis(T, 0, -1)  np.squeeze(A[None])
np.squeeze(A[None], axis=0)  np.expand_dims(A, 1)  np.broadcast_to(V, (3, 4))
np.flip(A)  np.flip(A, 0)  np.fliplr(A)  np.flipud(A)  np.rot90(A)  np.rot90(A, 2)  np.roll(A, 2)  np.roll(A, 1, axis=1)
np.roll(A, (1, 2), axis=(0, 1))  np.tile(V, 3)  np.tile(V, (2, 2))  np.repeat(A, 2)  np.repeat(A, 2, axis=1)
np.repeat(A, [1, 0, 2], axis=0)  np.concatenate([A, A])
np.concatenate([A, P], axis=1)  np.concatenate([A, V], axis=None)
np.concatenate([np.ones((1, 4)), A])  np.stack([V, V])  np.stack([V, V], axis=-1)  np.vstack([A, V])  np.hstack([V, V])
np.dstack([A, A])  np.column_stack([V, V])  np.split(A, 2, axis=1)  np.split(V, [1, 3])  np.array_split(V, 3)
np.atleast_1d(V)  np.atleast_2d(V)  np.atleast_3d(V)  np.diag(V)  np.diag(S, 1)  np.diag(S, k=-1)  np.diagflat(V)
np.diagonal(A)  np.diagonal(T, 0, 1, 2)  np.trace(A)  np.trace(A, 1)  np.tril(A)  np.triu(A, 1)  np.triu(A, k=-1)
np.take(A, [2, 0, 1])  np.take(A, [2, 0, 1], axis=1)  np.take(A, [[0, 1], [2, 0]], axis=0)  np.take(A, 1, axis=-1)
np.take(A, [-1, 0, -3])  np.take(A, [[0, -1]], axis=1)  np.take(V, -1)  np.take(V, [5, -6], mode="wrap")
np.take(V, [5, -6], mode="clip")  np.round(Z, 1)  np.cumulative_sum(V[:0], include_initial=True)
np.quantile(A, 0.3, axis=(0, 1))  np.quantile(T, [0.2, 0.7], axis=(0, 2), keepdims=True)  np.median(T, axis=(1, 2))
np.take_along_axis(A, np.argsort(A, axis=1), axis=1)  np.pad(A, 1)  np.pad(A, ((1, 2), (0, 1)), constant_values=2.0)
np.meshgrid(V, V)  np.meshgrid(V, V, indexing="ij")  np.dot(A, V)  np.dot(V, V)  np.dot(2.0, V)  np.dot(T, V)
np.dot(A, np.swapaxes(T, 1, 2))  np.vdot(A, A)  np.inner(A, V)  np.outer(V, A)  np.kron(S, S)  np.cross(S, D)
np.tensordot(A, A, axes=([1], [1]))  np.tensordot(A, A)  np.einsum("ij,j->i", A, V)  np.einsum("ij->ji", A)
np.einsum(A, [0, 1])  np.einsum(A, [0, 1], A, [2, 1], [2, 0])  np.einsum(A, [..., 1], V, [1], [...])
np.cross(S, S[0])  np.cross(S, S, axis=0)  np.cross(S, S, 0, 1, -1)  np.vstack([A, A], dtype=float)  np.imag(A)
np.linalg.eigvalsh(S)  np.linalg.eigvalsh(S, "U")  np.swapaxes(A, axis1=0, axis2=1)
np.linalg.norm(A)  np.linalg.norm(A, axis=1)  np.linalg.norm(V, 3)  np.linalg.norm(V, np.inf)  np.linalg.norm(T)
np.linalg.multi_dot([S, D, S])  np.linalg.cross(S, D)
"""


MORE_UFUNCS = """
np.cbrt(A)  np.modf(A)  np.vecdot(A, P)  np.vecdot(Z, A)  np.vecdot(A, P, axis=0)  np.matvec(T, V)
np.vecmat(V[:3], A)  np.absolute(Z)  np.exp(Z)  np.multiply(Z, A)  np.conjugate(Z)  np.frexp(P)[0]  np.ldexp(A, 2)
np.add(A, V, dtype=np.float64)  np.sin(A, dtype=np.float64)  np.add(A, V, casting="unsafe", order="K")
np.add(A, V, where=A > 0, out=A * 1.0)  np.log(A, where=A > 0, out=np.zeros_like(A) * P)
np.multiply(A, V, out=A * 2.0)  np.divide(A, P, where=P > 0.5, out=P * P)  np.add(V, V, out=A * 1.0)
np.add.reduce(A, axis=None)  np.add.reduce(A, axis=(0, 1), keepdims=True)  np.add.reduce(A, initial=2.0)
np.add.reduce(A, axis=1, where=A > 0)  np.multiply.reduce(A, axis=None)  np.maximum.reduce(A, initial=0.3)
np.minimum.reduce(A, axis=1, initial=0.0, where=A > 0)  np.add.reduce(A, dtype=np.float64)
np.subtract.reduce(A, axis=1)  np.divide.reduce(P)  np.logaddexp.reduce(A, axis=None)  np.hypot.reduce(A, axis=(0, 1))
np.subtract.reduce(A, axis=1, keepdims=True)  np.power.reduce(P, axis=0)  np.fmax.reduce(A, axis=1)
np.maximum.accumulate(A)  np.minimum.accumulate(A, axis=1)  np.subtract.accumulate(A)
np.logaddexp.accumulate(A, axis=1)
np.add.reduceat(V, [0, 2, 1])  np.multiply.reduceat(A, [0, 2], axis=1)  np.add.reduceat(A, np.array([0, 1]))
np.add.outer(V, X)  np.multiply.outer(A, V)  np.subtract.outer(V, np.arange(3.0))
np.power.outer(np.arange(1.0, 3.0), V)
np.maximum.outer(V, s)  np.arctan2.outer(V, X)
np.logical_xor(A > 0, A < 1)  np.bitwise_or(A > 0, A < 1)  np.bitwise_xor(A > 0, A < 1)  np.greater_equal(A, V)
np.logical_or(A > 0, A < -1)  np.less(A, V)  np.nextafter(A, V)  np.gcd(np.argsort(V), 4)  np.lcm(np.argsort(V), 4)
np.left_shift(np.argsort(V), 1)  np.right_shift(np.argsort(V), 1)
"""

MORE_CALLS = """
np.sum(A, axis=1, where=A > 0)  np.sum(A, initial=3.0)  np.sum(A, dtype=np.float64)
np.prod(A, where=A > 0)  np.prod(A, axis=1, initial=2.0)  np.max(A, initial=0.4)
np.min(A, axis=1, where=A > 0, initial=9.0)
np.mean(A, where=A > 0)  np.var(A, where=A > 0)  np.std(A, axis=1, where=A > -9)  np.std(A, axis=0, ddof=1)
np.var(A, axis=0, correction=1)  np.var(A, axis=1, mean=np.mean(A, axis=1, keepdims=True))  np.all(A, where=A > 0)
np.any(A, axis=0, keepdims=True)  np.average(A, axis=0, weights=P, returned=True)  np.average(A, weights=P)
np.nanmax(N)  np.nanmax(N, axis=1)  np.nanmin(N, axis=0, keepdims=True)  np.nanprod(N)  np.nanprod(N, axis=1)
np.nancumsum(N)  np.nancumsum(N, axis=1)  np.nancumprod(N, axis=0)  np.nanvar(N)  np.nanvar(A, axis=1)
np.nanstd(A, axis=0, ddof=1)  np.nanquantile(A, 0.3, axis=1)  np.nanquantile(N, 0.3)  np.nanpercentile(N, 30)
np.nanargmax(A, axis=1)  np.nanargmin(A)  np.nanmean(N, axis=1, keepdims=True)  np.nansum(N, axis=1, initial=2.0)
np.cumulative_sum(A, axis=1)  np.cumulative_sum(V, include_initial=True)  np.cumulative_prod(V)
np.cumulative_prod(A, axis=0, include_initial=True)  np.cov(A)  np.cov(A, rowvar=False)  np.cov(A, bias=True)
np.cov(A, P)  np.cov(V, X)  np.cov(A, aweights=np.array([1.0, 2.0, 1.0, 0.5]))  np.cov(A, fweights=[1, 2, 1, 3], ddof=0)
np.corrcoef(A)  np.corrcoef(V, X)  np.corrcoef(A, rowvar=False)
np.histogram(V, bins=3)  np.histogram(V, bins=3, range=(-2.0, 2.0))  np.histogram(V, bins=np.linspace(-2, 2, 4))
np.bincount([0, 2, 1, 2], weights=V)  np.bincount(np.array([0, 1, 1, 5]), weights=V, minlength=9)
np.append(A, V)  np.append(A, P, axis=1)  np.append(V, 3.0)  np.insert(A, 1, V, axis=0)  np.insert(V, [0, 2], 5.0)
np.insert(A, 1, 9.0, axis=1)  np.delete(A, 1, axis=0)  np.delete(V, [0, 2])  np.delete(A, slice(0, 2), axis=1)
np.compress([True, False, True], A, axis=0)  np.compress([0, 1, 1], V)  np.extract(A > 0, A)
np.choose([0, 1, 2, 0], A)  np.choose(np.array([[0, 1, 0, 1]]), [V, X])  np.choose([4, 1, 0, 1], [V, X], mode="wrap")
np.block([[S, D], [D, S]])  np.block([V, X])  np.block([[A], [np.ones((1, 4))]])  np.broadcast_arrays(A, V)
np.broadcast_arrays(V, np.ones((2, 1)))  np.partition(A, 1)  np.partition(V, [1, 2])  np.partition(A, 1, axis=None)
np.partition(A, 1, axis=0)  np.sort_complex(Z)  np.sort_complex(V)  np.resize(A, (2, 5))  np.resize(V, 7)
np.rollaxis(T, 2)  np.rollaxis(T, 2, 1)  np.unstack(A)  np.unstack(A, axis=1)  np.trim_zeros(np.pad(V, 2))
np.trim_zeros(np.pad(V, 2), "b")  np.unique(A)  np.unique(np.tile(V, 2), return_counts=True)  np.unique(A, axis=0)
np.unique(A, return_index=True, return_inverse=True)  np.sort(np.unique_values(A))  np.unique_counts(V)
np.unique_inverse(V)  np.unique_all(V)  np.union1d(V, X)  np.union1d(V, V)  np.intersect1d(np.append(V, X), V)
np.intersect1d(V, V, return_indices=True)  np.setdiff1d(np.append(V, X), V)  np.setxor1d(np.append(V, X), V)
np.setdiff1d(V, X, assume_unique=True)  np.hsplit(A, 2)  np.hsplit(V, [1])  np.vsplit(A, 3)  np.dsplit(T, 2)
np.matrix_transpose(T)  np.linalg.matrix_transpose(T)  np.astype(A, np.float64)  np.astype(Z, np.complex128, copy=False)
np.meshgrid(V, X)  np.meshgrid(V, X, T[0, 0], indexing="ij")  np.pad(A, 1, mode="edge")  np.pad(A, 1, mode="reflect")
np.pad(V, 2, mode="symmetric")  np.pad(A, ((1, 0), (2, 1)), "wrap")  np.pad(V, (1, 2))  np.pad(A, {0: 1, 1: (0, 2)})
np.select([A > 1, A > 0], [A * 2, A * 3])  np.select([A > 0], [A], default=9.0)  np.select([A > 0], [1.0], default=A)
np.piecewise(A, [A < 0, A >= 0], [lambda x: -x, lambda x: x * x])  np.piecewise(V, [V > 0], [np.exp, 3.0])
np.piecewise(V, V > 0, [np.exp, np.sin])  np.real_if_close(A)  np.real_if_close(A + 0j)  np.real_if_close(Z)
np.iscomplex(Z)  np.fix(A)  np.i0(A)  np.vander(V)  np.vander(V, 3, increasing=True)  np.angle(Z)  np.real(Z)
np.imag(Z)
np.apply_along_axis(np.sum, 1, A)  np.apply_along_axis(lambda r: r * 2, 0, A)  np.apply_over_axes(np.sum, T, [0, 2])
np.apply_along_axis(np.cumsum, 1, T)  np.apply_along_axis(lambda r: np.outer(r, r), -1, A)
np.linspace(s, 3, 5)  np.linspace(V, X, 3)  np.linspace(0, s, 5, endpoint=False)  np.linspace(V, 1.0, 3, axis=1)
np.linspace(s, 2, 3, retstep=True)  np.logspace(s, 2.0, 4)  np.logspace(0, 1, 3, base=s)  np.geomspace(s, 4.0, 4)
np.geomspace(-1.0, -s, 3)  np.gradient(V)  np.gradient(A)  np.gradient(A, axis=0)  np.gradient(A, 2.0)
np.gradient(A, 0.5, 2.0)  np.gradient(V, X)  np.gradient(A, edge_order=2)  np.gradient(A, np.arange(3.0) ** 2, X)
np.ediff1d(V)  np.ediff1d(A, to_begin=s, to_end=[1.0, 2.0])  np.diff(A, prepend=1.0)  np.diff(V, append=X)
np.interp(V, X, P[0])  np.interp(1.7, X, V)  np.interp([0.2, 5.0, -3.0], X, V)
np.interp(V, X, P[0], left=-9.0, right=9.0)
np.interp(V, X, P[0], period=3.0)  np.interp(s, X, V)  np.unwrap(V * 5)  np.unwrap(A * 4, axis=0)
np.unwrap(V, period=1.0)
np.convolve(V, X[:3])  np.convolve(X[:3], V)  np.convolve(V, X[:3], "same")  np.convolve(V, X[:3], "valid")
np.convolve(V, [1.0, 2.0], "same")  np.convolve(Z[0], V[:2])  np.correlate(V, X[:3])  np.correlate(X[:2], V, "full")
np.correlate(V, X[:2], "same")  np.correlate(X[:2], V, "same")  np.correlate(Z[0], Z[1, :3], "full")
np.correlate(Z[1, :3], Z[0], "full")  np.correlate(V, X[:3], "full")  np.trapezoid(V, X)  np.trapezoid(A, X, axis=1)
np.polyval(V, s)  np.polyval(V, A)  np.polyval([1.0, 2.0], V)  np.polyadd(V, X[:2])  np.polysub(X[:2], V)
np.polymul(V, X[:2])  np.polydiv(V, X[:2])  np.polydiv(V[:2], X)  np.polyder(V)  np.polyder(V, 2)  np.polyint(V)
np.polyint(V, 2, k=[1.0, 2.0])  np.polyint(V, k=s)  np.poly(V)  np.roots(X)  np.roots([1.0, -3.0, s])
np.polyfit(X, V, 2)  np.polyfit(X, V, 1, w=P[0])  np.polyfit(X, np.stack([V, X], 1), 1)
np.lib.stride_tricks.sliding_window_view(V, 2)  np.fft.fftfreq(4, s)  np.fft.rfftfreq(4, s)
np.fft.fft(A)  np.fft.fft(A, 6)  np.fft.fft(A, axis=0, norm="ortho")  np.fft.ifft(Z)  np.fft.rfft(A)  np.fft.irfft(Z)
np.fft.irfft(Z, 5)  np.fft.hfft(Z)  np.fft.ihfft(A)  np.fft.fft2(A)  np.fft.ifft2(Z, norm="forward")  np.fft.rfft2(A)
np.fft.irfft2(Z)  np.fft.fftn(T)  np.fft.fftn(T, axes=(0, 2))  np.fft.ifftn(T)  np.fft.rfftn(T)  np.fft.irfftn(Z)
np.fft.fftshift(A)  np.fft.fftshift(A, axes=1)  np.fft.ifftshift(A)
np.linalg.inv(D)  np.linalg.pinv(A)  np.linalg.det(D)  np.linalg.slogdet(D)[1]  np.linalg.solve(D, S)
np.linalg.solve(D, V[:3])  np.linalg.cholesky((D + D.T) / 2)  np.linalg.eigh((S + S.T) / 2)[0]
np.linalg.eigvalsh((S + S.T) / 2)  np.linalg.svd(A, compute_uv=False)  np.linalg.svd(A, full_matrices=False)[1]
np.linalg.qr(D)  np.linalg.qr(D, mode="r")  np.linalg.matrix_power(S, 3)  np.linalg.matrix_power(D, -2)
np.linalg.norm(A, "fro")  np.linalg.norm(A, 2)  np.linalg.norm(A, "nuc")  np.linalg.norm(A, 1, axis=(0, 1))
np.linalg.cond(D)  np.linalg.diagonal(T)  np.linalg.diagonal(T, offset=1)  np.linalg.eig(D)[0]  np.linalg.eigvals(D)
np.linalg.eigvals(S)  np.linalg.lstsq(A.T, V, rcond=None)[0]  np.linalg.lstsq(A.T, np.ones((4, 2)))[:2]
np.linalg.lstsq(A.T, V)[3]  np.linalg.matmul(A, V)  np.linalg.matrix_norm(T)
np.linalg.matrix_norm(T, ord=1, keepdims=True)
np.linalg.outer(V, X)  np.linalg.svdvals(A)  np.linalg.tensordot(A, A)
np.linalg.tensorinv(np.reshape(D, (3, 3, 1)), ind=1)
np.linalg.tensorsolve(np.reshape(D, (3, 3, 1)), V[:3])  np.linalg.trace(T)  np.linalg.vecdot(A, P)
np.linalg.vector_norm(A)  np.linalg.vector_norm(A, axis=1, ord=3)  np.linalg.multi_dot([S, D, np.ones(3)])
np.count_nonzero(A, axis=0, keepdims=True)  np.sum(A, axis=())  np.max(A, axis=())  np.mean(A, axis=(), keepdims=True)
np.var(A, axis=())  np.prod(A, axis=(), where=A > 0)  np.all(A, axis=())  np.nanmax(A, axis=())
np.add.reduce(A, axis=())
"""

#: steps: zero wherever there is a derivative, which backward refuses to give, as PyTorch does
STEPS = """
np.heaviside(A, 0.5)  np.floor_divide(A, P)  np.divmod(A, P)
"""

#: integers, truths and facts, which have no derivative: computed also of tensors that require grad
NO_DERIVATIVE = """
np.shape(A)  np.ndim(A)  np.size(A)  np.array_equal(A, A)  np.array_equiv(A, P)  np.allclose(A, A)  np.nonzero(A)
np.argwhere(A > 0)  np.flatnonzero(A)  np.searchsorted(X, V)  np.digitize(V, X)  np.isin(V, X)  np.lexsort((V, X))
np.argpartition(V, 2)  np.result_type(A, 3)  np.can_cast(A.dtype, float)  np.iscomplexobj(A)  np.isrealobj(A)
np.diag_indices_from(S)  np.tril_indices_from(S)  np.triu_indices_from(S, 1)  np.einsum_path("ij,j->i", A, V)
np.common_type(A)  np.min_scalar_type(A)  np.linalg.matrix_rank(A)  np.unravel_index(np.argmax(A), (3, 4))
np.shares_memory(A, P)  np.may_share_memory(A, P)  np.isscalar(s)  np.iterable(A)  np.shape(np.empty_like(A))
np.bincount(np.argsort(V))  np.ravel_multi_index((np.argsort(V), 0), (4, 4))  np.packbits(V > 0)  np.iterable(V)
np.unpackbits(np.packbits(V > 0))  np.ix_(np.argsort(V))  np.bitwise_count(np.argsort(V))
"""

#: what would lose a gradient, and is refused
REFUSED = """
np.spacing(A)  np.histogram(V, bins="auto")  np.histogram(V, density=True)  np.histogram(V, weights=X)
np.histogram2d(V, X)  np.histogramdd(A)  np.histogram_bin_edges(V)  np.quantile(A, s)  np.pad(V, 1, mode="mean")
np.pad(V, 1, mode="linear_ramp")  np.pad(V, 1, mode=lambda *a: None)  np.ix_(V)  np.polyfit(X, V, 1, full=True)
np.add(A, V, dtype=np.int64, casting="unsafe")  np.add(A, V, signature="dd->d")  np.matmul(S, D, axes=[(0, 1)] * 3)
np.logaddexp.reduce(A, initial=0.0)  np.linalg.qr(D, mode="raw")  np.meshgrid(V, X, sparse=True)
np.save("f.npy", A)  np.savetxt("f.txt", A)  np.savez("f.npz", A)  np.savez_compressed("f.npz", A)
np.asarray(A)  np.array(A)  np.array([s, s])  np.asanyarray(A)  np.ascontiguousarray(A)  np.asfortranarray(A)
np.asarray_chkfinite(A)  np.asmatrix(A)  np.require(A)  np.full(3, s)  np.arange(s)  np.kaiser(4, s)  np.hamming(s)
np.hanning(s)  np.bartlett(s)  np.blackman(s)  np.frompyfunc(abs, 1, 1)(V)  np.vectorize(abs)(V)  np.matrix(A)
np.ma.array(A)  np.nditer(A)  np.c_[V, V]  np.polynomial.Polynomial(V)  np.random.default_rng(0).normal(V)
np.zeros(4).__iadd__(V)  np.add(V, 1, out=np.zeros(4))  np.sum(V, out=np.zeros(()))  np.copyto(np.zeros(4), V)
np.add.at(np.zeros(4), [0], s)  np.put(np.zeros(4), [0], s)  np.from_dlpack(V)  np.zeros(4).dot(V)
np.zeros(4).clip(V, V)  np.linalg.lstsq(np.ones((4, 2)), V)  np.geomspace(s, -1.0)  np.trim_zeros(A)
np.interp(V, X[:1], V[:1])
"""

#: public names that take no array whose gradient could matter: settings, files, dates, shapes, new arrays
WITHOUT_TENSORS = set(
    """
    base_repr binary_repr broadcast_shapes busday_count busday_offset datetime_as_string datetime_data diag_indices
    empty eye format_float_positional format_float_scientific frombuffer fromfile fromfunction fromiter fromregex
    fromstring genfromtxt get_include get_printoptions getbufsize geterr geterrcall identity indices info is_busday
    isdtype isfortran isnat issubdtype load loadtxt mask_indices mintypecode nested_iters ones printoptions
    promote_types row_stack set_printoptions setbufsize seterr seterrcall show_config show_runtime test tri
    tril_indices triu_indices typename zeros linalg.test fft.test array2string array_repr array_str bmat
    """.split()
)


def expressions(text: str) -> list[str]:
    return list(dict.fromkeys(part for line in text.splitlines() if line for part in line.split("  ")))
